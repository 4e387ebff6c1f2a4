"""The released code's variants against a double loop with its transposed broadcast."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from remargin import MarginLoss
from remargin.paper.released import ReleasedMarginLoss


@pytest.mark.parametrize(
    ("target", "in_batch"), [(0.3, False), (0.3, True), ("adaptive", False), ("adaptive", True), ("distributed", False)]
)
def test_released_losses_are_the_double_loop(target: Any, in_batch: bool) -> None:
    size = 5
    q, p, n = batch = torch.randn(3, size, 8, generator=torch.manual_seed(0)).unbind()

    def phi(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a @ b / (a.norm() * b.norm())

    values = []
    for i in range(size):
        for j in range(size) if in_batch or target == "distributed" else [i]:
            negative = phi(q[i], n[j]) if in_batch else phi(q[j], n[j])
            margin = phi(q[j], p[j]) - negative
            values.append((margin - ((1 + phi(p[i], n[j])) / 2 if isinstance(target, str) else target)) ** 2)
    expected = torch.stack(values).mean()
    released = ReleasedMarginLoss(target, in_batch)(*batch)
    assert released.item() == pytest.approx(expected.item(), rel=1e-5)
    differs = in_batch or target == "distributed"
    assert (abs(MarginLoss(target, in_batch)(*batch) - released) > 1e-3) == differs


def test_targets_that_the_released_code_lacks_are_refused() -> None:
    with pytest.raises(ValueError, match="teacher"):
        ReleasedMarginLoss("teacher")


def test_dot_products_stay_dot_products() -> None:
    q, p, n = torch.randn(3, 5, 8, generator=torch.manual_seed(0)).unbind()
    margins = (q * p).sum(1) - (q * n).sum(1)
    expected = (margins - (1 + p @ n.T) / 2).square().mean()
    assert ReleasedMarginLoss("distributed", similarity="dot")(q, p, n).item() == pytest.approx(expected.item())
