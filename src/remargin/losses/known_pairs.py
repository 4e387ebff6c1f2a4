"""Which documents of a batch are, by its own triplets, relevant to which queries."""

from __future__ import annotations

import torch
from torch import Tensor


def not_own(pairs: Tensor) -> Tensor:
    """The pairs but those (i, i)."""
    return pairs[pairs[:, 0] != pairs[:, 1]]


def moved(tensor: Tensor, device: torch.device) -> Tensor:
    """On the device, without waiting for it where that can be avoided."""
    if tensor.device == device or device.type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


def known_pairs(query_ids: Tensor, positive_ids: Tensor, document_ids: Tensor) -> Tensor:
    """The pairs (i, j) whose document j is, by the batch's own triplets, relevant to query i: a mask for either loss.

    Triplet k says that document positive_ids[k] is relevant to query query_ids[k].

    >>> import torch
    >>> queries, positives = torch.tensor([7, 7, 8]), torch.tensor([1, 2, 3])
    >>> known_pairs(queries, positives, document_ids=torch.tensor([2, 5, 3])).tolist()
    [[0, 0], [1, 0], [2, 2]]
    """
    _, query = torch.unique(query_ids, return_inverse=True)
    _, inverse = torch.unique(torch.cat([positive_ids, document_ids]), return_inverse=True)
    positive, document = inverse.split([len(positive_ids), len(document_ids)])
    facts = torch.unique(torch.stack([query, positive], 1), dim=0)
    fact, i = _join(facts[:, 0], query)
    known, j = _join(facts[fact, 1], document)
    pairs: Tensor = torch.unique(torch.stack([i[known], j], 1), dim=0)
    return pairs


def _join(left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """All index pairs (l, r) with left[l] == right[r], for small non-negative integers."""
    order = torch.argsort(right, stable=True)
    counts = torch.bincount(right, minlength=int(left.max()) + 1 if len(left) else 0)
    starts = counts.cumsum(0) - counts
    matches = counts[left]
    l = torch.repeat_interleave(matches)  # noqa: E741
    within = torch.arange(len(l), device=l.device) - (matches.cumsum(0) - matches)[l]
    return l, order[starts[left[l]] + within]
