"""The losses as a double loop over the paper's equations, and batches to try them on."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from remargin.losses import margin as losses
from remargin.losses.margin import MarginLoss

B, D = 6, 4


MASK = [(0, 1), (2, 2), (3, 5), (0, 4)]


TARGETS: list[float | str] = [0.3, "adaptive", "distributed", "mean", "teacher"]


VARIANTS = [
    (target, in_batch, error, similarity, stop)
    for target, in_batch, error, similarity, stop in itertools.product(
        TARGETS, (False, True), ("l2", "l1", "softplus"), ("cosine", "dot"), (False, True)
    )
    if not (in_batch and target in ("distributed", "mean"))
]


def has_moments(variant: tuple[Any, ...]) -> bool:
    target, in_batch, error, *_ = variant
    return error == "l2" and (target == "distributed" or (in_batch and target != "teacher"))


def phi(similarity: str, a: Tensor, b: Tensor) -> Tensor:
    return a @ b / (a.norm() * b.norm()) if similarity == "cosine" else a @ b


def pair_values(
    loss: MarginLoss, batch: list[Tensor], teacher: Tensor | None, mask: set[tuple[int, int]]
) -> Iterator[tuple[int, Tensor, Tensor]]:
    """(i, margin, target) of every pair that counts, straight from the paper's equations."""
    q, p, n = batch
    size, similarity = len(q), loss.similarity
    for i in range(size):
        own = phi(similarity, q[i], p[i]) - phi(similarity, q[i], n[i])
        scaled = [(1 + phi(similarity, p[i], n[j])) / 2 for j in range(size)]
        if loss.target == "mean":
            kept = [scaled[j] for j in range(size) if (i, j) not in mask]
            if kept:
                yield i, own, torch.stack(kept).mean()
            continue
        for j in range(size) if loss.in_batch or loss.target == "distributed" else [i]:
            if (i, j) in mask:
                continue
            margin = phi(similarity, q[i], p[i]) - phi(similarity, q[i], n[j]) if loss.in_batch else own
            if loss.target == "teacher":
                assert teacher is not None
                yield i, margin, teacher[i, j] if loss.in_batch else teacher[i]
            elif isinstance(loss.target, str):
                yield i, margin, scaled[j]
            else:
                yield i, margin, torch.tensor(loss.target, dtype=torch.float64)


def oracle(
    loss: MarginLoss, batch: list[Tensor], teacher: Tensor | None = None, mask: set[tuple[int, int]] | None = None
) -> Tensor:
    errors = {"l2": lambda x: x * x, "l1": abs, "softplus": lambda x: torch.log(1 + torch.exp(-x))}
    values = []
    for _, margin, target in pair_values(loss, batch, teacher, mask or set()):
        values.append(errors[loss.error](margin - (target.detach() if loss.stop_gradient else target)))
    return torch.stack(values).mean()


def random_batch(size: int = B, dimension: int = D, dtype: torch.dtype = torch.float64, seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.randn(size, dimension, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()
        for _ in range(3)
    ]


def random_teacher(loss: MarginLoss, size: int = B) -> Tensor | None:
    if loss.target != "teacher":
        return None
    shape = (size, size) if loss.in_batch else (size,)
    return torch.randn(shape, generator=torch.Generator().manual_seed(9), dtype=torch.float64)


def use_moments(monkeypatch: pytest.MonkeyPatch, wanted: bool) -> None:
    monkeypatch.setattr(losses, "_moments_pay", lambda batch: wanted)
