"""Dropout with a generator of its own: PyTorch's shares and scale, and the same numbers again."""

from __future__ import annotations

import pytest
import torch

from remargin.model.dropping import SeedOfPart, drop, seeded


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_its_share_is_dropped_and_the_rest_scaled(share: float, dtype: torch.dtype) -> None:
    x = torch.ones(1001, 301, dtype=dtype, requires_grad=True)  # not a multiple of what a draw covers
    with seeded(1):
        out = drop(x, share, training=True)
    (of_x,) = torch.autograd.grad(out.sum(), x)
    assert torch.equal(of_x, out.detach())  # the gradient goes where the values went
    kept = out != 0
    assert kept.float().mean().item() == pytest.approx(1 - share, abs=0.005)
    assert [kept[:, place::4].float().mean().item() for place in range(4)] == pytest.approx([1 - share] * 4, abs=0.01)
    if share < 1:
        assert out[kept].float().mean().item() == pytest.approx(1 / (1 - share), rel=0.005)


def test_nothing_is_dropped_outside_of_training() -> None:
    x = torch.randn(50)
    with seeded(1):
        assert torch.equal(drop(x, 0.5, training=False), x)


def test_a_part_draws_the_same_again_and_leaves_other_generators_alone() -> None:
    x = torch.ones(64)
    torch.manual_seed(3)
    one, other = SeedOfPart(), SeedOfPart()
    state = torch.get_rng_state()
    with one.first():
        first = drop(x, 0.5, True)
        with other.first():
            assert not torch.equal(drop(x, 0.5, True), first)
        second = drop(x, 0.5, True)  # goes on where it was
    with one.again():
        assert torch.equal(drop(x, 0.5, True), first)
        assert torch.equal(drop(x, 0.5, True), second)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(0)
    ours = drop(x, 0.5, True)  # outside, PyTorch's
    torch.manual_seed(0)
    assert torch.equal(ours, torch.nn.functional.dropout(x, 0.5, True))
