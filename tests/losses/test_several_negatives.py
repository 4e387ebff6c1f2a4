"""Negatives of shape (B, k, d): more candidates for a softmax, B * k triplets for the margin losses."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from remargin.losses.contrastive import ContrastiveLoss
from remargin.losses.margin import MarginLoss
from remargin.losses.softmax_margin import SoftmaxMarginLoss
from remargin.losses.teacher import DualTeacherLoss

from .double_loop import VARIANTS, D, has_moments, oracle, phi, random_teacher, use_moments
from .test_teacher import dual_loop

B, K = 4, 3
MASK = [(0, 1), (2, 2), (3, 5), (0, 4), (11, 11), (7, 7)]


def several() -> tuple[list[Tensor], list[Tensor]]:
    """Queries, positives, and three negatives of each; and the same as triplets, with an own row for each."""
    generator = torch.Generator().manual_seed(0)
    shapes = [(B, D), (B, D), (B, K, D)]
    batch = [torch.randn(*s, generator=generator, dtype=torch.float64).requires_grad_() for s in shapes]
    q, p, n = batch
    rows = [i for i in range(B) for _ in range(K)]
    return batch, [q[rows], p[rows], torch.stack([n[i, k] for i in range(B) for k in range(K)])]


def assert_same(value: Tensor, expected: Tensor, batch: list[Tensor]) -> None:
    assert value.item() == pytest.approx(expected.item(), abs=1e-10)
    for a, b in zip(torch.autograd.grad(value, batch), torch.autograd.grad(expected, batch), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-10)


@pytest.mark.parametrize("masked", [False, True], ids=["whole", "masked"])
@pytest.mark.parametrize(
    ("variant", "moments"), [(v, m) for v in VARIANTS for m in (False, True) if has_moments(v) or not m], ids=str
)
def test_a_margin_loss_takes_them_as_triplets(
    variant: tuple[Any, ...], moments: bool, masked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_moments(monkeypatch, moments)
    loss, (batch, triplets) = MarginLoss(*variant), several()
    teacher = random_teacher(loss, B * K)
    given = teacher if teacher is None or loss.in_batch else teacher.reshape(B, K)
    mask = MASK if masked else []
    value = loss(*batch, given, torch.tensor(mask) if mask else None)
    assert_same(value, oracle(loss, triplets, teacher, set(mask)), batch)
    assert [v.item() for v in loss.statistics(*batch, given)] == pytest.approx(
        [v.item() for v in loss.statistics(*triplets, teacher)], abs=1e-12
    )


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
def test_so_does_dual_supervision(similarity: Any) -> None:
    batch, triplets = several()
    generator = torch.Generator().manual_seed(1)
    own, in_batch = (torch.randn(*s, generator=generator, dtype=torch.float64) for s in ((B, K), (B * K, 2 * B * K)))
    value = DualTeacherLoss(similarity=similarity)(*batch, own, in_batch)
    assert_same(value, dual_loop(similarity, triplets, own.reshape(-1), in_batch), batch)


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
def test_for_the_contrastive_loss_all_are_candidates(similarity: Any) -> None:
    batch, _ = several()
    q, p, n = batch
    left_out = {(0, 2), (1, B + 2), (3, B + 3 * K + 1)}
    documents = [*p, *(n[i, k] for i in range(B) for k in range(K))]
    rows = []
    for i in range(B):
        kept = [phi(similarity, q[i], d) / 0.05 for j, d in enumerate(documents) if (i, j) not in left_out]
        rows.append(torch.logsumexp(torch.stack(kept), 0) - phi(similarity, q[i], p[i]) / 0.05)
    value = ContrastiveLoss(similarity=similarity)(*batch, mask=torch.tensor(sorted(left_out)))
    assert_same(value, torch.stack(rows).mean(), batch)


def test_their_ids_have_the_same_shape() -> None:
    batch, _ = several()
    ids = (
        torch.tensor([7, 7, 8, 9]),
        torch.tensor([1, 2, 3, 4]),
        torch.tensor([[5, 6, 2], [1, 5, 6], [5, 5, 5], [2, 3, 4]]),
    )
    # Query 7 has positives 1 and 2. Columns: 1 2 3 4 | 5 6 2 | 1 5 6 | 5 5 5 | 2 3 4.
    known = [(0, 1), (0, 6), (0, 7), (0, 13), (1, 0), (1, 6), (1, 7), (1, 13), (2, 14), (3, 15)]
    masked = ContrastiveLoss()(*batch, mask=torch.tensor(known))
    assert ContrastiveLoss()(*batch, ids=ids).item() == masked.item() != ContrastiveLoss()(*batch).item()
    with pytest.raises(ValueError, match=r"negative ids \(12,\): its shape must be \(4, 3\)"):
        ContrastiveLoss()(*batch, ids=(*ids[:2], ids[2].flatten()))


@pytest.mark.parametrize(
    "loss", [MarginLoss(), MarginLoss("adaptive"), MarginLoss(0.3, in_batch=True), ContrastiveLoss()], ids=str
)
def test_one_of_each_is_the_same_to_the_last_bit(loss: Any) -> None:
    (q, p, n), _ = several()
    flat, one = n[:, 0].detach().requires_grad_(), n[:, :1].detach().requires_grad_()
    values = loss(q, p, flat), loss(q, p, one)
    assert torch.equal(*values)
    for a, b in zip(
        *(torch.autograd.grad(v, [q, p, x]) for v, x in zip(values, (flat, one), strict=True)), strict=True
    ):
        assert torch.equal(a, b.reshape(a.shape))


def test_wrong_shapes_are_named() -> None:
    (q, p, n), _ = several()
    teacher = MarginLoss("teacher")
    for call, message in [
        (lambda: MarginLoss()(q, p, n[:3]), r"negatives \(3, 3, 4\).*may be \(B, k, d\)"),
        (lambda: MarginLoss()(q, p, n[:, :0]), r"negatives \(4, 0, 4\)"),
        (lambda: MarginLoss()(q, p, n[..., :2]), r"negatives \(4, 3, 2\)"),
        (lambda: MarginLoss()(q, p, n[None]), r"negatives \(1, 4, 3, 4\)"),
        (lambda: ContrastiveLoss()(q, n, n), r"positives \(4, 3, 4\)"),
        (lambda: teacher(q, p, n, torch.ones(B * K)), r"teacher_margin \(12,\): its shape must be \(4, 3\)"),
    ]:
        with pytest.raises(ValueError, match=message):
            call()


@pytest.mark.parametrize("loss", [SoftmaxMarginLoss(), ContrastiveLoss()])
def test_without_negatives_the_other_positives_are_the_candidates(loss: Any) -> None:
    """As if there were negatives, and all of them were left out."""
    q, p, n = (torch.randn(12, 8, dtype=torch.float64, requires_grad=True) for _ in range(3))
    out = torch.tensor([(i, 12 + j) for i in range(12) for j in range(12)])
    pairs, masked = loss(q, p, q.new_empty(12, 0, 8)), loss(q, p, n, mask=out)
    torch.testing.assert_close(pairs, masked)
    torch.testing.assert_close(torch.autograd.grad(pairs, (q, p)), torch.autograd.grad(masked, (q, p)))
