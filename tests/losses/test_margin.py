"""MarginLoss against a double loop over the paper's equations, against sentence-transformers, and by moments."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from remargin.losses import margin as losses
from remargin.losses.margin import MarginLoss

from .double_loop import (
    MASK,
    VARIANTS,
    B,
    has_moments,
    oracle,
    pair_values,
    random_batch,
    random_teacher,
    use_moments,
)


@pytest.mark.parametrize("masked", [False, True], ids=["whole", "masked"])
@pytest.mark.parametrize(
    ("variant", "moments"),
    [(variant, moments) for variant in VARIANTS for moments in (False, True) if not moments or has_moments(variant)],
    ids=str,
)
def test_value_and_gradient_of_every_variant_are_the_double_loops(
    variant: tuple[Any, ...], masked: bool, moments: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    loss = MarginLoss(*variant)
    use_moments(monkeypatch, moments)
    batch, teacher = random_batch(), random_teacher(loss)
    mask = torch.tensor([*MASK, MASK[0]]) if masked else None  # a pair named twice is left out once
    value = loss(*batch, teacher_margin=teacher, mask=mask)
    expected = oracle(loss, batch, teacher, set(MASK) if masked else None)
    assert value.item() == pytest.approx(expected.item(), abs=1e-10)
    for ours, theirs in zip(torch.autograd.grad(value, batch), torch.autograd.grad(expected, batch), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-10)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("variant", [v for v in VARIANTS if not v[4]], ids=str)
def test_statistics_are_the_double_loops(
    variant: tuple[Any, ...], masked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(losses, "_BLOCK_ELEMENTS", 2 * B)  # three blocks of rows
    loss = MarginLoss(*variant)
    batch, teacher = random_batch(), random_teacher(loss)
    mask = set(MASK) if masked else set()
    found = loss.statistics(*batch, teacher_margin=teacher, mask=torch.tensor(MASK) if masked else None)
    rows = list(pair_values(loss, [t.detach() for t in batch], teacher, mask))
    for name, values in (("margin", [m for _, m, _ in rows]), ("target", [t for _, _, t in rows])):
        stacked = torch.stack(values)
        assert getattr(found, f"{name}_mean").item() == pytest.approx(stacked.mean().item(), abs=1e-12)
        assert getattr(found, f"{name}_min").item() == pytest.approx(stacked.min().item(), abs=1e-12)
        assert getattr(found, f"{name}_max").item() == pytest.approx(stacked.max().item(), abs=1e-12)
    error = losses.ERRORS[loss.error]
    by_row = {i: torch.stack([m - t for k, m, t in rows if k == i]) for i, _, _ in rows}
    explicit = torch.cat([error(x.mean()).expand(len(x)) for x in by_row.values()]).mean()
    total = torch.cat([error(x) for x in by_row.values()]).mean()
    assert found.loss.item() == pytest.approx(total.item(), abs=1e-12)
    assert found.explicit_mean.item() == pytest.approx(explicit.item(), abs=1e-12)
    assert found.spread.item() == pytest.approx((total - explicit).item(), abs=1e-12)


def test_distributed_loss_is_explicit_mean_loss_plus_variance_of_targets() -> None:
    batch = random_batch()
    found = MarginLoss("distributed").statistics(*batch)
    mean_loss = MarginLoss("mean")(*batch)
    p, n = (torch.nn.functional.normalize(x.detach(), dim=1) for x in batch[1:])
    variance = ((1 + p @ n.T) / 2).var(dim=1, unbiased=False).mean()
    assert variance > 1e-3
    assert found.explicit_mean.item() == pytest.approx(mean_loss.item(), abs=1e-12)
    assert found.spread.item() == pytest.approx(variance.item(), abs=1e-12)


@pytest.mark.parametrize("target", [0.4, "teacher"])
def test_own_negatives_agree_with_sentence_transformers_margin_mse(target: Any) -> None:
    from sentence_transformers.sentence_transformer.losses import MarginMSELoss
    from sentence_transformers.util import pairwise_cos_sim, pairwise_dot_score

    for similarity, theirs in (("cosine", pairwise_cos_sim), ("dot", pairwise_dot_score)):
        batch = random_batch()
        loss = MarginLoss(target, similarity=similarity)  # type: ignore[arg-type]
        margins = random_teacher(loss)
        labels = torch.full((B,), 0.4, dtype=torch.float64) if margins is None else margins
        rival = MarginMSELoss(None, similarity_fct=theirs).compute_loss_from_embeddings(batch, labels)
        ours = loss(*batch, teacher_margin=margins)
        assert ours.item() == pytest.approx(rival.item(), abs=1e-10)
        for a, b in zip(torch.autograd.grad(ours, batch), torch.autograd.grad(rival, batch), strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-10)


@given(
    size=st.integers(1, 9),
    dimension=st.integers(1, 5),
    target=st.sampled_from([0.7, "adaptive", "distributed"]),
    seed=st.integers(0, 1000),
    data=st.data(),
)
@settings(max_examples=40)
def test_moments_and_direct_paths_agree_on_any_shape_and_mask(
    size: int, dimension: int, target: Any, seed: int, data: st.DataObject
) -> None:
    pairs = st.tuples(st.integers(0, size - 1), st.integers(0, size - 1))
    mask = data.draw(st.lists(pairs, max_size=size))
    loss = MarginLoss(target, in_batch=target != "distributed")
    found = []
    for moments in (False, True):
        batch = random_batch(size, dimension, seed=seed)
        with pytest.MonkeyPatch.context() as patch:
            use_moments(patch, moments)
            value = loss(*batch, mask=torch.tensor(mask, dtype=torch.long).reshape(-1, 2))
        found.append([value.detach(), *torch.autograd.grad(value, batch)])
    for direct, through_moments in zip(*found, strict=True):
        torch.testing.assert_close(direct, through_moments, rtol=1e-9, atol=1e-10)


def test_moments_are_taken_where_the_batch_outgrows_the_dimension() -> None:
    loss = MarginLoss("distributed")
    assert not losses._moments_pay(loss._batch(*random_batch(8, 8), None, None))
    assert losses._moments_pay(loss._batch(*random_batch(9, 8), None, None))
    crowded = torch.tensor(list(itertools.product(range(9), range(2))))  # more masked pairs than rows
    assert not losses._moments_pay(loss._batch(*random_batch(9, 8), None, crowded))


@pytest.mark.parametrize("options", [{}, {"stop_gradient": True}], ids=["flowing", "stopped"])
@pytest.mark.parametrize("target", [0.3, "adaptive", "distributed"])
def test_moments_path_is_accurate_in_float32(target: Any, options: dict[str, Any]) -> None:
    loss = MarginLoss(target, in_batch=target != "distributed", **options)
    wide, narrow = random_batch(600, 64), random_batch(600, 64, torch.float32)
    with torch.no_grad():  # far from the origin: vectors that are nearly alike, where cancellation would bite
        for tensor in (*wide, *narrow):
            tensor += 5
    value, expected = loss(*narrow), loss(*wide)
    assert value.dtype == torch.float32
    assert value.item() == pytest.approx(expected.item(), rel=1e-5)
    for ours, exact in zip(torch.autograd.grad(value, narrow), torch.autograd.grad(expected, wide), strict=True):
        assert (ours - exact).norm() / exact.norm() < 1e-4


class LargestTensor(TorchDispatchMode):
    """Records how many elements the largest tensor made inside has."""

    largest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else [result]:
            if isinstance(tensor, Tensor):
                self.largest = max(self.largest, tensor.numel())
        return result


@pytest.mark.parametrize("target", [0.3, "adaptive", "distributed"])
def test_moments_path_and_statistics_never_hold_a_b_by_b_matrix(target: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(losses, "_BLOCK_ELEMENTS", 100)
    size = 500
    loss = MarginLoss(target, in_batch=target != "distributed")
    batch = random_batch(size, 8)
    with LargestTensor() as mode:
        loss(*batch).backward()
        loss.statistics(*batch)
    assert size * 8 <= mode.largest < size * size / 10
    use_moments(monkeypatch, False)
    with LargestTensor() as mode:
        loss(*batch)
    assert mode.largest == size * size  # the check can fail
