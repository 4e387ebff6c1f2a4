"""A cross-encoder's loss against the paper's equations, written out over pairs."""

from __future__ import annotations

import math

import pytest
import torch

from remargin.losses.pair_scores import PairMarginLoss


def phi(logit: float) -> float:
    """The similarity of a pair: its probability, from -1 to 1."""
    return 2 / (1 + math.exp(-logit)) - 1


def random_scores(rows: int, columns: int, seed: int) -> torch.Tensor:
    return 3 * torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("negatives", [1, 3])
def test_adaptive_is_equation_2(negatives: int) -> None:
    scores, documents = random_scores(5, 1 + negatives, 0), random_scores(5, negatives, 1)
    errors = [
        (phi(scores[i, 0]) - phi(scores[i, 1 + j]) - (1 + phi(documents[i, j])) / 2) ** 2
        for i in range(5)
        for j in range(negatives)
    ]
    value = PairMarginLoss("adaptive")(scores, documents)
    assert value.item() == pytest.approx(sum(errors) / len(errors), rel=1e-5)


@pytest.mark.parametrize("negatives", [1, 3])
def test_distributed_is_equation_3(negatives: int) -> None:
    scores, documents = random_scores(5, 1 + negatives, 0), random_scores(5, 4, 1)
    errors = [
        (phi(scores[i, 0]) - phi(scores[i, 1 + j]) - (1 + phi(documents[i, l])) / 2) ** 2
        for i in range(5)
        for j in range(negatives)
        for l in range(4)  # noqa: E741
    ]
    value = PairMarginLoss("distributed")(scores, documents)
    assert value.item() == pytest.approx(sum(errors) / len(errors), rel=1e-5)


def test_the_targets_get_no_gradient() -> None:
    scores, documents = (random_scores(4, columns, columns).requires_grad_() for columns in (2, 3))
    PairMarginLoss()(scores, documents).backward()
    assert scores.grad is not None
    assert scores.grad.abs().min() > 0
    assert documents.grad is None


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="target='mean': must be one of 'adaptive', 'distributed'"):
        PairMarginLoss("mean")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="one positive and at least one negative"):
        PairMarginLoss()(torch.zeros(4, 1), torch.zeros(4, 1))
    with pytest.raises(ValueError, match=r"document_scores \(4, 2\): its shape must be \(4, 1\)"):
        PairMarginLoss("adaptive")(torch.zeros(4, 2), torch.zeros(4, 2))
    with pytest.raises(ValueError, match=r"document_scores \(3, 2\): its shape must be \(4, 2\)"):
        PairMarginLoss()(torch.zeros(4, 2), torch.zeros(3, 2))
