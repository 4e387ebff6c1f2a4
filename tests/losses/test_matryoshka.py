"""A loss over truncated vectors: the formula, plainly, and sentence-transformers' loss of that name."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from remargin import ContrastiveLoss, MarginLoss, MatryoshkaLoss, SoftmaxMarginLoss
from remargin.losses.matryoshka import innermost
from remargin.losses.teacher import DualTeacherLoss

from .double_loop import D, oracle, random_batch, random_teacher

DIMS = (4, 3, 1)
IDS = (torch.tensor([0, 1, 2, 0, 3, 4]), torch.tensor([0, 1, 2, 3, 4, 5]), torch.tensor([6, 7, 8, 1, 9, 0]))


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
@pytest.mark.parametrize("target", [0.3, "adaptive", "distributed", "mean", "teacher"])
def test_it_is_the_mean_of_the_formula_over_truncated_vectors(target: Any, similarity: Any) -> None:
    """The oracle computes each dimension's loss with plain loops; where it compares cosines, it divides by lengths."""
    loss, batch = MarginLoss(target, similarity=similarity), random_batch()
    teacher = random_teacher(loss)
    given = {} if teacher is None else {"teacher_margin": teacher}
    found = MatryoshkaLoss(loss, DIMS)(*batch, **given)
    wanted = torch.stack([oracle(loss, [t[:, :dim] for t in batch], teacher) for dim in DIMS]).mean()
    torch.testing.assert_close(found, wanted)
    assert not torch.isclose(found, oracle(loss, batch, teacher))  # truncation makes a difference
    torch.testing.assert_close(torch.autograd.grad(found, batch), torch.autograd.grad(wanted, batch))


@pytest.mark.parametrize("k", [None, 0, 3])
@pytest.mark.parametrize("loss", [ContrastiveLoss(), SoftmaxMarginLoss()], ids=["contrastive", "softmax"])
def test_truncated_vectors_are_unit_vectors_again(loss: nn.Module, k: int | None) -> None:
    """Also with several negatives or none, whose ids tell what is relevant."""
    q, p, n = random_batch()
    negatives = n if k is None else torch.randn(6, k, D, dtype=torch.float64)
    ids = (*IDS[:2], IDS[2] if k is None else torch.arange(6 * k).reshape(6, k))
    wanted = [loss(*(F.normalize(t[..., :dim], dim=-1) for t in (q, p, negatives)), ids=ids) for dim in DIMS]
    torch.testing.assert_close(MatryoshkaLoss(loss, DIMS)(q, p, negatives, ids=ids), torch.stack(wanted).mean())


def test_it_is_sentence_transformers_loss_but_a_mean() -> None:
    """Theirs adds up; their loss wants a model, which here only hands vectors on."""
    from sentence_transformers.sentence_transformer import losses

    batch = [tensor.detach().float() for tensor in random_batch()]

    class Hands(nn.Module):
        def get_embedding_dimension(self) -> int:
            return D

        def forward(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
            return {"sentence_embedding": batch[int(features["place"])]}

    features = [{"place": torch.tensor(place)} for place in range(3)]
    model: Any = Hands()
    theirs = losses.MatryoshkaLoss(model, losses.MultipleNegativesRankingLoss(model, scale=20.0), [*DIMS])
    ours = MatryoshkaLoss(ContrastiveLoss(0.05, mask_known=False), DIMS)(*batch)
    torch.testing.assert_close(ours * len(DIMS), theirs(features, torch.zeros(6)))


def test_what_a_loss_keeps_is_kept_for_every_dimension() -> None:
    """A running spread of 4 numbers must not be the temperature of 1."""
    loss = MatryoshkaLoss(SoftmaxMarginLoss(spread="running"), DIMS)
    batch = random_batch(size=12)
    loss(*batch)
    spreads = [float(buffer) for name, buffer in loss.named_buffers() if name.endswith("running_spread")]
    assert len(set(spreads)) == len(DIMS)
    learned = MatryoshkaLoss(ContrastiveLoss(learned=True), DIMS)
    learned(*batch).backward()
    gradients = [float(parameter.grad) for parameter in learned.parameters() if parameter.grad is not None]
    assert len(set(gradients)) == len(DIMS)
    assert learned.rate_factor == ContrastiveLoss().rate_factor > 1


def test_it_passes_for_the_loss_inside() -> None:
    inside = DualTeacherLoss(similarity="dot")
    loss = MatryoshkaLoss(inside, [1, 4])
    assert (loss.takes, loss.similarity, loss.dims) == (inside.takes, "dot", (4, 1))
    assert innermost(loss) is inside
    assert innermost(inside) is inside
    assert repr(MatryoshkaLoss(MarginLoss(0.3), [2])).endswith("stop_gradient=False), dims=[2])")


def test_dimensions_that_make_no_sense_are_refused() -> None:
    for dims in ([], [0], [2, 2], [True], [1.5]):
        with pytest.raises(ValueError, match="different whole numbers, 1 or more"):
            MatryoshkaLoss(MarginLoss(), dims)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"queries \(6, 4\): dimension 5 of the loss is larger"):
        MatryoshkaLoss(MarginLoss(), [5, 2])(*random_batch())
    with pytest.raises(ValueError, match="queries is str: it must be a tensor"):
        MatryoshkaLoss(MarginLoss(), [2])("a", "b", "c")  # type: ignore[arg-type]
