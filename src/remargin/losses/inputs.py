"""What every loss checks of its inputs, and how it prepares them."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from remargin.losses.numerics import unit

Similarity = Literal["cosine", "dot"]


def prepare(similarity: Similarity, queries: Tensor, positives: Tensor, negatives: Tensor) -> tuple[Tensor, ...]:
    """The three inputs checked, in one dtype of at least float32, of unit length if the similarity is cosine.

    Of k negatives for each query, (B, k, d), it makes (B * k, d): those of the first query come first. k may be 0.
    """
    inputs = {"queries": queries, "positives": positives, "negatives": negatives}
    for name, t in inputs.items():
        check_tensor(name, t)
    shapes = ", ".join(f"{name} {tuple(t.shape)}" for name, t in inputs.items())
    devices = ", ".join(f"{name} on {t.device}" for name, t in inputs.items())
    of_one_negative = negatives.shape[::2] if negatives.ndim == 3 else negatives.shape
    alike = queries.shape == positives.shape == of_one_negative
    if not alike or queries.ndim != 2 or not queries.numel():
        problem = "all three must be (B, d) alike, with B and d at least 1; negatives may be (B, k, d)"
        raise ValueError(f"{shapes}: {problem}")
    if len({t.device for t in inputs.values()}) > 1:
        raise ValueError(f"{devices}: all three must be on one device")
    for name, t in inputs.items():
        if not t.is_floating_point():
            raise ValueError(f"{name} is {t.dtype}: embeddings must be of a floating-point dtype")
    double = any(t.dtype == torch.float64 for t in inputs.values())
    rows = (queries, positives, negatives.flatten(0, -2))
    tensors = (t.to(torch.float64 if double else torch.float32) for t in rows)
    return tuple(unit(t) if similarity == "cosine" else t for t in tensors)


def prepare_triplets(
    similarity: Similarity, queries: Tensor, positives: Tensor, negatives: Tensor
) -> tuple[Tensor, ...]:
    """As `prepare`; k negatives make k triplets, which share query and positive, so k is at least 1."""
    q, p, n = prepare(similarity, queries, positives, negatives)
    if not len(n):
        raise ValueError(f"negatives {tuple(negatives.shape)}: a margin needs a negative for each query")
    if negatives.ndim == 3:
        q, p = (t.repeat_interleave(negatives.shape[1], 0) for t in (q, p))
    return q, p, n


def check_mask(mask: Tensor, rows: int, columns: int, device: torch.device) -> Tensor:
    """A mask of pairs (i, j), sorted, each pair once. Raise a ValueError for one that does not fit the batch."""
    check_tensor("mask", mask)
    check("mask", mask, (len(mask) if mask.ndim else 0, 2), device)
    if mask.is_floating_point() or mask.dtype == torch.bool:
        raise ValueError(f"mask is {mask.dtype}: it must hold integer pairs (i, j)")
    mask = mask.long()
    if len(mask) and (mask.min() < 0 or (mask.amax(0) >= mask.new_tensor([rows, columns])).any()):
        raise ValueError(f"mask has pairs outside the batch: i must be in 0..{rows - 1}, j in 0..{columns - 1}")
    pairs: Tensor = torch.unique(mask, dim=0)
    return pairs


def check_tensor(name: str, value: object) -> None:
    """Raise a ValueError unless a value is a tensor."""
    if not isinstance(value, Tensor):
        raise ValueError(f"{name} is {type(value).__name__}: it must be a tensor")


def check(name: str, tensor: Tensor, shape: tuple[int, ...], device: torch.device) -> None:
    """Raise a ValueError unless a tensor has a shape and is on a device."""
    check_tensor(name, tensor)
    if tuple(tensor.shape) != shape:
        raise ValueError(f"{name} {tuple(tensor.shape)}: its shape must be {shape}")
    if tensor.device != device:
        raise ValueError(f"{name} on {tensor.device}: must be on {device}, as the others")


def check_one_of(name: str, value: str, allowed: tuple[str, ...], also: str = "") -> None:
    """Raise a ValueError unless a value is one of those allowed."""
    if value not in allowed:
        raise ValueError(f"{name}={value!r}: must be one of {', '.join(map(repr, allowed))} {also}".rstrip())
