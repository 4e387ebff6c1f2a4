"""SoftmaxMarginLoss against plain loops over its formula, and at its edges."""

from __future__ import annotations

import logging
import statistics
from typing import Any

import pytest
import torch
from torch import Tensor

from remargin.losses.contrastive import ContrastiveLoss
from remargin.losses.softmax_margin import FALLBACK_TEMPERATURE, FEW, LEAST_SPREAD, MOMENTUM, SoftmaxMarginLoss

from .double_loop import B, phi, random_batch

MASK = [(0, 1), (2, 2), (3, B + 3), (0, B), (5, 4), (5, 4)]  # (2, 2) is a query's own positive
# All documents of query 1, all but two of query 4.
THIN = [(1, j) for j in range(2 * B)] + [(4, j) for j in range(2 * B - 2)]


def targets_of(batch: list[Tensor], left_out: set[tuple[int, int]]) -> list[list[tuple[int, Tensor]]]:
    """For every query, the documents that count, and their targets."""
    _, p, n = batch
    documents = [*p, *n.reshape(-1, n.shape[-1])]
    return [
        [
            (j, (1 + phi("cosine", p[i], d)) / 2)
            for j, d in enumerate(documents)
            if j != i and (i, j) not in left_out
        ]
        for i in range(len(p))
    ]  # fmt: skip


def spread_of(targets: list[float]) -> float | None:
    """The temperature that targets give; None if they give none."""
    if len(targets) < FEW or statistics.stdev(targets) < LEAST_SPREAD:
        return None
    return statistics.stdev(targets)


def loops(
    batch: list[Tensor],
    c: float = 0.5,
    spread: Any = "row",
    stop: bool = True,
    left_out: set[tuple[int, int]] | None = None,
) -> Tensor:
    """The loss from its formula. `spread` may also be a number: the temperature of all."""
    q, p, n = batch
    documents = [*p, *n.reshape(-1, n.shape[-1])]
    rows = targets_of(batch, left_out or set())
    losses = []
    for i, row in enumerate(rows):
        if not row:
            losses.append(q.new_zeros(()))
            continue
        values = [t.item() for _, t in row]
        of_all = [t.item() for others in rows for _, t in others]
        own = spread_of(values if spread == "row" else of_all) if isinstance(spread, str) else spread
        terms = []
        for j, t in row:
            margin = phi("cosine", q[i], p[i]) - phi("cosine", q[i], documents[j])
            lead = c * ((t.detach() if stop else t) - statistics.mean(values)) if own is not None else 0.0
            terms.append(((lead - margin) / (own or FALLBACK_TEMPERATURE)).exp())
        losses.append(torch.log(1 + torch.stack(terms).sum()))
    return torch.stack(losses).mean()


def assert_same(value: Tensor, expected: Tensor, batch: list[Tensor]) -> None:
    assert value.item() == pytest.approx(expected.item(), abs=1e-10)
    for a, b in zip(torch.autograd.grad(value, batch), torch.autograd.grad(expected, batch), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-9)


@pytest.mark.parametrize("left_out", [[], MASK, THIN], ids=["whole", "masked", "thin"])
@pytest.mark.parametrize("stop", [True, False], ids=["stopped", "flowing"])
@pytest.mark.parametrize("spread", ["row", "batch"])
@pytest.mark.parametrize("c", [0.5, -1.0])
def test_value_and_gradient_are_the_loops(c: float, spread: Any, stop: bool, left_out: list[tuple[int, int]]) -> None:
    batch = random_batch()
    mask = torch.tensor(left_out) if left_out else None
    expected = loops(batch, c, spread, stop, set(left_out) - {(i, i) for i in range(B)})
    assert_same(SoftmaxMarginLoss(c, spread, stop)(*batch, mask=mask), expected, batch)


def test_each_argument_changes_the_loss() -> None:
    """So that none of the comparisons above is of one thing with itself."""
    batch = random_batch()
    losses = [SoftmaxMarginLoss(), SoftmaxMarginLoss(0.0), SoftmaxMarginLoss(spread="batch")]
    assert len({loss(*batch).item() for loss in losses}) == 3
    stopped, flowing = (SoftmaxMarginLoss(stop_gradient=stop)(*batch) for stop in (True, False))
    assert stopped.item() == flowing.item()
    of_positives = [torch.autograd.grad(value, batch)[1] for value in (stopped, flowing)]
    assert (of_positives[0] - of_positives[1]).abs().max() > 1e-3


@pytest.mark.parametrize("spread", ["row", "batch"])
def test_several_negatives_are_all_candidates(spread: Any) -> None:
    q, p, _ = random_batch()
    n = torch.randn(B, 3, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64).requires_grad_()
    left_out = {(0, 1), (0, B + 2), (2, B + 3 * 3 + 1)}
    value = SoftmaxMarginLoss(spread=spread)(q, p, n, mask=torch.tensor(sorted(left_out)))
    assert_same(value, loops([q, p, n], spread=spread, left_out=left_out), [q, p, n])
    one = random_batch()
    assert torch.equal(
        SoftmaxMarginLoss(spread=spread)(*one), SoftmaxMarginLoss(spread=spread)(*one[:2], one[2][:, None])
    )


def test_known_positives_are_left_out_when_ids_are_given() -> None:
    batch = random_batch(size=5)
    ids = (torch.tensor([7, 7, 8, 9, 10]), torch.tensor([1, 2, 1, 3, 4]), torch.tensor([5, 1, 6, 6, 2]))
    documents = torch.cat(ids[1:]).tolist()
    relevant = {(7, 1), (7, 2), (8, 1), (9, 3), (10, 4)}
    left_out = {(i, j) for i in range(5) for j in range(10) if (ids[0][i].item(), documents[j]) in relevant and i != j}
    assert len(left_out) == 10
    assert_same(SoftmaxMarginLoss()(*batch, ids=ids), loops(batch, left_out=left_out), batch)
    assert SoftmaxMarginLoss(mask_known=False)(*batch, ids=ids).item() == SoftmaxMarginLoss()(*batch).item()


def test_the_running_spread_is_the_mean_of_the_batches_and_part_of_the_state() -> None:
    loss, means = SoftmaxMarginLoss(spread="running").double(), list[float]()
    for seed in range(3):
        batch = random_batch(seed=seed)
        of_batch = spread_of([t.item() for row in targets_of(batch, set()) for _, t in row])
        assert of_batch is not None
        means.append(of_batch if not means else (1 - MOMENTUM) * means[-1] + MOMENTUM * of_batch)
        assert_same(loss(*batch), loops(batch, spread=means[-1]), batch)
        for _ in range(2):  # they leave it as it is
            assert loss.statistics(*batch).temperature.item() == pytest.approx(means[-1], abs=1e-10)
        assert loss.running_spread.item() == pytest.approx(means[-1], abs=1e-10)
    resumed = SoftmaxMarginLoss(spread="running").double()
    resumed.load_state_dict(loss.state_dict())
    assert torch.equal(resumed(*batch), loss(*batch))
    assert not torch.equal(SoftmaxMarginLoss(spread="running")(*batch), resumed(*batch))
    now, other = resumed.running_spread.item(), random_batch(seed=9)
    assert_same(resumed.eval()(*other), loops(other, spread=now), other)
    assert resumed.running_spread.item() == now
    measured = SoftmaxMarginLoss(spread="running").statistics(*batch).temperature  # before the first batch
    assert measured.item() == pytest.approx(of_batch, abs=1e-10)
    assert not SoftmaxMarginLoss().state_dict()


def test_a_batch_without_spread_takes_the_running_one_and_does_not_change_it() -> None:
    loss = SoftmaxMarginLoss(spread="running").double()
    loss(*random_batch())
    before = loss.running_spread.item()
    one = random_batch(size=1, seed=3)
    assert_same(loss(*one), loops(one, spread=before), one)
    assert loss.running_spread.item() == before


def test_a_shift_and_scale_of_all_similarities_change_nothing() -> None:
    """Vectors with a component in common have similarities nearer to 1 and to each other, in the same order."""
    batch = [t.detach() / t.detach().norm(dim=1, keepdim=True) for t in random_batch()]
    shifted = [torch.cat([t, torch.full((B, 1), 3.0)], 1) for t in batch]
    assert SoftmaxMarginLoss()(*shifted).item() == pytest.approx(SoftmaxMarginLoss()(*batch).item(), abs=1e-10)
    assert abs(ContrastiveLoss()(*shifted).item() - ContrastiveLoss()(*batch).item()) > 0.1


@pytest.mark.parametrize("spread", ["row", "batch", "running"])
def test_a_batch_of_one_is_the_fallback(spread: Any) -> None:
    batch = random_batch(size=1)
    margin = phi("cosine", batch[0][0], batch[1][0]) - phi("cosine", batch[0][0], batch[2][0])
    expected = torch.log(1 + torch.exp(-margin / FALLBACK_TEMPERATURE))
    assert_same(SoftmaxMarginLoss(spread=spread)(*batch), expected, batch)
    alone = SoftmaxMarginLoss(spread=spread)(*batch, mask=torch.tensor([[0, 1]]))
    assert alone.item() == 0
    assert not any(gradient.any() for gradient in torch.autograd.grad(alone, batch))


@pytest.mark.parametrize("stop", [True, False])
@pytest.mark.parametrize("spread", ["row", "batch", "running"])
@pytest.mark.parametrize("case", ["zero", "duplicates", "all the same", "nearly alike", "just apart"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_loss_and_gradients_are_finite(case: str, spread: Any, stop: bool, dtype: torch.dtype) -> None:
    batch = [t.detach() for t in random_batch(16, 8, torch.float32)]
    if case == "zero":
        batch[0][0] = batch[1][1] = batch[2][2] = 0
    elif case == "duplicates":
        for t in batch:
            t[4:] = t[:4].repeat(3, 1)
    else:
        width = {"all the same": 0.0, "nearly alike": 1e-4, "just apart": 0.03}[case]
        batch = [1 + width * t for t in batch]
    inputs = [t.to(dtype).requires_grad_() for t in batch]
    value = SoftmaxMarginLoss(spread=spread, stop_gradient=stop)(*inputs)
    gradients = torch.autograd.grad(value, inputs)
    assert value.dtype == torch.float32
    assert value.isfinite()
    assert all(g.dtype == dtype and g.isfinite().all() for g in gradients)
    exact = SoftmaxMarginLoss(spread=spread, stop_gradient=stop)(*[t.double() for t in inputs])
    assert value.item() == pytest.approx(exact.item(), rel=1e-2)


def test_an_encoder_whose_vectors_are_nearly_alike_is_as_precise_as_float32_allows() -> None:
    wide = random_batch(32, 16)
    batch = [(1 + 0.05 * t).detach().requires_grad_() for t in wide]
    temperature = SoftmaxMarginLoss().statistics(*batch).temperature.item()
    assert LEAST_SPREAD < temperature < 2e-3
    value = SoftmaxMarginLoss()(*batch)
    single = [t.detach().float().requires_grad_() for t in batch]
    computed = SoftmaxMarginLoss()(*single)
    assert computed.item() == pytest.approx(value.item(), rel=1e-3)
    for a, b in zip(torch.autograd.grad(computed, single), torch.autograd.grad(value, batch), strict=True):
        assert (a - b).norm() < 1e-2 * b.norm()


def test_the_fallback_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    loss, batch = SoftmaxMarginLoss(), random_batch()
    with caplog.at_level(logging.WARNING):
        loss(*batch)
        loss(*batch, mask=torch.tensor([(1, j) for j in range(2 * B)]))  # without documents there is no temperature
        assert not caplog.records
        for _ in range(2):
            loss(*batch, mask=torch.tensor(THIN))
            loss(*random_batch(size=2))
    assert [record.getMessage() for record in caplog.records] == [
        "queries with fewer than 8 documents to be compared with, or with documents that are all alike: 1 so far; "
        "their temperature is 0.05, without margins (said once)"
    ]
    with caplog.at_level(logging.WARNING):
        SoftmaxMarginLoss()(*random_batch(size=2))
    assert len(caplog.records) == 2


@pytest.mark.parametrize("left_out", [[], MASK], ids=["whole", "masked"])
def test_statistics_are_the_loops(left_out: list[tuple[int, int]]) -> None:
    q, p, n = batch = random_batch()
    found = SoftmaxMarginLoss().statistics(*batch, mask=torch.tensor(left_out) if left_out else None)
    rows = targets_of(batch, set(left_out))
    documents = [*p, *n]
    margins = [
        (phi("cosine", q[i], p[i]) - phi("cosine", q[i], documents[j])).item()
        for i, row in enumerate(rows)
        for j, _ in row
    ]
    targets = [t.item() for row in rows for _, t in row]
    spreads = [statistics.stdev([t.item() for _, t in row]) for row in rows]
    summaries = [(statistics.mean(values), min(values), max(values)) for values in (margins, targets)]
    expected = [*summaries[0], *summaries[1], statistics.mean(spreads)]
    assert [value.item() for value in found] == pytest.approx(expected, abs=1e-10)


def test_wrong_arguments_are_named() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"similarity": "dot"}, "similarity='dot': the softmax loss needs 'cosine'; with dot products, the spread"),
        ({"spread": "column"}, "spread='column': must be one of 'row', 'batch', 'running'"),
        ({"margin_weight": float("nan")}, "margin_weight=nan"),
        ({"margin_weight": True}, "margin_weight=True"),
    ]
    for arguments, message in cases:
        with pytest.raises(ValueError, match=message):
            SoftmaxMarginLoss(**arguments)
    q, p, n = random_batch()
    with pytest.raises(ValueError, match="outside the batch"):
        SoftmaxMarginLoss()(q, p, n, mask=torch.tensor([[0, 2 * B]]))
    with pytest.raises(ValueError, match=r"negative ids \(6,\): its shape must be \(6, 2\)"):
        SoftmaxMarginLoss()(q, p, torch.stack([n, n], 1), ids=(torch.arange(B),) * 3)
