"""Which documents of a batch are, by its own triplets, relevant to which queries."""

from __future__ import annotations

import torch
from torch import Tensor

from remargin.losses.inputs import check, check_mask, check_tensor

Ids = tuple[Tensor, Tensor, Tensor]


def pairs_left_out(mask: Tensor | None, ids: Ids | None, negatives: Tensor, device: torch.device) -> Tensor | None:
    """The pairs (i, j) that a softmax over candidates leaves out, (M, 2), for the same two arguments of the losses.

    Candidate j is positive j, or one of the negatives, in their order. A query's own positive is never left out.

    Args:
        mask: (M, 2) integers, pairs to leave out.
        ids: the integer ids of queries and positives, (B,), and of negatives: the pairs that they show to be relevant
            are left out. Best on the CPU: the pairs are then found while a GPU still computes the vectors.
        negatives: (B, d) or (B, k, d).
        device: where to return the pairs.

    Example:
        >>> import torch
        >>> ids = torch.tensor([7, 7]), torch.tensor([1, 2]), torch.tensor([5, 1])
        >>> pairs_left_out(None, ids, torch.zeros(2, 3), torch.device("cpu")).tolist()
        [[0, 1], [0, 3], [1, 0], [1, 3]]
    """
    of_negatives = negatives.shape[:-1]
    size, left_out = of_negatives[0], []
    if mask is not None:
        left_out.append(not_own(check_mask(mask, size, size + of_negatives.numel(), device)))
    if ids is not None:
        query_ids, positive_ids, negative_ids = ids
        check_tensor("query ids", query_ids)
        shapes = {"query ids": (size,), "positive ids": (size,), "negative ids": tuple(of_negatives)}
        for (name, shape), given in zip(shapes.items(), ids, strict=True):
            check(name, given, shape, query_ids.device)
        known = known_pairs(query_ids, positive_ids, torch.cat([positive_ids, negative_ids.flatten()]))
        left_out.append(moved(not_own(known), device))
    return torch.cat(left_out) if left_out else None


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
