"""The loss of two teachers against a double loop."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from remargin.losses.margin import MarginLoss
from remargin.losses.teacher import DualTeacherLoss

from .double_loop import (
    B,
    D,
    phi,
)


def dual_loop(similarity: Any, batch: list[Tensor], own: Tensor, in_batch: Tensor) -> Tensor:
    """TAS-B's loss: each triplet, and other queries' positives and negatives, half of the in-batch part each."""
    q, p, n = batch
    size = len(q)
    positive = [phi(similarity, q[i], p[i]) for i in range(size)]
    triplets = [(positive[i] - phi(similarity, q[i], n[i]) - own[i]) ** 2 for i in range(size)]
    halves = [q.new_zeros(())]
    for documents, margins in ((p, in_batch[:, :size]), (n, in_batch[:, size:])):
        errors = [
            (positive[i] - phi(similarity, q[i], documents[j]) - margins[i, j]) ** 2
            for i in range(size)
            for j in range(size)
            if i != j
        ]
        halves += [torch.stack(errors).mean() / 2] if errors else []
    return torch.stack(triplets).mean() + 0.75 * torch.stack(halves).sum()


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
@pytest.mark.parametrize("size", [1, 2, B])
def test_dual_supervision_is_the_double_loop(size: int, similarity: Any) -> None:
    torch.manual_seed(0)
    batch = [torch.randn(size, D, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    own, in_batch = torch.randn(size, dtype=torch.float64), torch.randn(size, 2 * size, dtype=torch.float64)
    wanted = dual_loop(similarity, batch, own, in_batch)
    found = DualTeacherLoss(similarity=similarity)(*batch, own, in_batch)
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(torch.autograd.grad(found, batch), torch.autograd.grad(wanted, batch))


def test_dual_supervision_of_one_triplet_is_the_first_teachers() -> None:
    batch, own = [torch.randn(1, D) for _ in range(3)], torch.randn(1)
    assert torch.equal(DualTeacherLoss()(*batch, own, torch.randn(1, 2)), MarginLoss("teacher")(*batch, own))
    with pytest.raises(ValueError, match=r"in_batch_margin \(1, 1\): its shape must be \(1, 2\)"):
        DualTeacherLoss()(*batch, own, torch.randn(1, 1))
