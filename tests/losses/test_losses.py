"""The losses against a double loop over the paper's equations, against sentence-transformers, and at the edges."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from remargin.losses import margin as losses
from remargin.losses.contrastive import ContrastiveLoss
from remargin.losses.margin import MarginLoss
from remargin.losses.teacher import DualTeacherLoss

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


def test_contrastive_loss_agrees_with_sentence_transformers_multiple_negatives_ranking() -> None:
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

    batch = random_batch()
    labels = torch.empty(0)
    rival = MultipleNegativesRankingLoss(None, scale=20.0).compute_loss_from_embeddings(batch, labels)
    ours = ContrastiveLoss()(*batch)
    assert ours.item() == pytest.approx(rival.item(), abs=1e-10)
    for a, b in zip(torch.autograd.grad(ours, batch), torch.autograd.grad(rival, batch), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-10)


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
@pytest.mark.parametrize("masked", [False, True])
def test_contrastive_loss_is_the_double_loop(similarity: Any, masked: bool) -> None:
    q, p, n = batch = random_batch()
    mask = [(0, 3), (1, B + 2), (4, 4), (0, 3)] if masked else []  # (4, 4) is a positive, and stays
    rows = []
    for i in range(B):
        candidates = [
            phi(similarity, q[i], d) / 0.05
            for j, d in enumerate([*p, *n])
            if (i, j) not in mask or i == j
        ]  # fmt: skip
        rows.append(torch.logsumexp(torch.stack(candidates), 0) - phi(similarity, q[i], p[i]) / 0.05)
    expected = torch.stack(rows).mean()
    value = ContrastiveLoss(similarity=similarity)(*batch, mask=torch.tensor(mask) if masked else None)
    assert value.item() == pytest.approx(expected.item(), abs=1e-10)
    for a, b in zip(torch.autograd.grad(value, batch), torch.autograd.grad(expected, batch), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-10)


def test_contrastive_loss_leaves_known_positives_out_when_ids_are_given() -> None:
    batch = random_batch(size=3)
    ids = (torch.tensor([7, 7, 8]), torch.tensor([1, 2, 1]), torch.tensor([5, 1, 6]))
    # Query 7 has positives 1 and 2, query 8 has positive 1. Columns: 1 2 1 | 5 1 6.
    expected = [(0, 1), (0, 2), (0, 4), (1, 0), (1, 2), (1, 4), (2, 0), (2, 4)]
    masked = ContrastiveLoss()(*batch, mask=torch.tensor(expected))
    assert ContrastiveLoss()(*batch, ids=ids).item() == pytest.approx(masked.item(), abs=1e-12)
    assert (
        ContrastiveLoss(mask_known=False)(*batch, ids=ids).item() == ContrastiveLoss()(*batch).item() != masked.item()
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


def test_learned_temperature_gets_a_gradient_and_starts_where_it_was_set() -> None:
    loss = ContrastiveLoss(temperature=0.1, learned=True)
    assert torch.as_tensor(loss.temperature).item() == pytest.approx(0.1)
    value = loss(*random_batch())
    value.backward()
    assert value.item() == pytest.approx(ContrastiveLoss(temperature=0.1)(*random_batch()).item(), rel=1e-6)
    assert loss.log_temperature is not None
    assert loss.log_temperature.grad is not None
    assert loss.log_temperature.grad.abs() > 0


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


@pytest.mark.parametrize("target", [0.3, "adaptive", "distributed", "mean"])
@pytest.mark.parametrize("moments", [False, True])
def test_low_precision_settings_change_nothing_and_come_back(
    target: Any, moments: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_moments(monkeypatch, moments)
    loss = MarginLoss(target, in_batch=target in (0.3, "adaptive"))
    batch = random_batch(64, 32, torch.float32)
    expected = loss(*batch)
    gradients = torch.autograd.grad(expected, batch)
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert (batch[0] @ batch[1].T).dtype == torch.bfloat16  # the setting has an effect outside
            value = loss(*batch)
            ours = torch.autograd.grad(value, batch)
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)
    assert torch.equal(value, expected)
    for a, b in zip(ours, gradients, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(dtype: torch.dtype) -> None:
    batch = random_batch(32, 16, dtype)
    for loss in (MarginLoss("distributed"), MarginLoss("adaptive", in_batch=True), ContrastiveLoss()):
        value = loss(*batch)
        assert value.dtype == torch.float32
        assert torch.equal(value, loss(*[t.float() for t in batch]))
        assert all(g.dtype == dtype and g.isfinite().all() for g in torch.autograd.grad(value, batch))


def test_mixed_precisions_meet_at_the_widest() -> None:
    q, p, n = random_batch()
    assert MarginLoss()(q.half(), p.float(), n).dtype == torch.float64
    assert MarginLoss()(q.half(), p.float(), n.bfloat16()).dtype == torch.float32


@pytest.mark.parametrize("moments", [False, True])
@pytest.mark.parametrize("variant", [v for v in VARIANTS if v[0] != "teacher"], ids=str)
def test_zero_vectors_and_duplicates_have_finite_gradients(
    variant: tuple[Any, ...], moments: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_moments(monkeypatch, moments)
    batch = random_batch(dtype=torch.float32)
    with torch.no_grad():
        batch[0][0] = batch[1][1] = batch[2][2] = 0
        for tensor in batch:
            tensor[3] = tensor[4]
    value = MarginLoss(*variant)(*batch)
    gradients = torch.autograd.grad(value, batch)
    assert value.isfinite()
    assert all(g.isfinite().all() for g in gradients)
    if MarginLoss(*variant).similarity == "cosine":
        assert all(not gradients[k][k].any() for k in range(3))


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_cosine_does_not_depend_on_scale(scale: float) -> None:
    batch = random_batch(dtype=torch.float32)
    expected = MarginLoss()(*batch)
    scaled = [(t.detach() * scale).requires_grad_() for t in batch]
    value = MarginLoss()(*scaled)
    assert value.item() == pytest.approx(expected.item(), rel=1e-5)
    for ours, plain in zip(torch.autograd.grad(value, scaled), torch.autograd.grad(expected, batch), strict=True):
        torch.testing.assert_close(ours * scale, plain, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("variant", [v for v in VARIANTS if v[0] != "teacher"], ids=str)
def test_a_batch_of_one(variant: tuple[Any, ...]) -> None:
    loss, batch = MarginLoss(*variant), random_batch(1, 3)
    assert loss(*batch).item() == pytest.approx(oracle(loss, batch).item(), abs=1e-12)
    assert loss(*batch, mask=torch.tensor([[0, 0]])).item() == 0  # nothing is left


def test_a_mask_of_small_integers_can_name_any_pair() -> None:
    batch = random_batch(200, 4)
    pairs = torch.tensor([[199, 3]])
    assert MarginLoss()(*batch, mask=pairs.to(torch.uint8)) == MarginLoss()(*batch, mask=pairs)


def test_contrastive_loss_of_zero_vectors_is_finite() -> None:
    batch = [torch.zeros(3, 4, requires_grad=True) for _ in range(3)]
    value = ContrastiveLoss()(*batch)
    assert value.item() == pytest.approx(math.log(6), rel=1e-6)
    assert all(g.isfinite().all() for g in torch.autograd.grad(value, batch))


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ({"target": "adaptve"}, ["adaptve", "distributed"]),
        ({"target": math.nan}, ["nan", "finite"]),
        ({"target": True}, ["True"]),
        ({"target": "distributed", "in_batch": True}, ["in_batch"]),
        ({"target": "mean", "in_batch": True}, ["in_batch"]),
        ({"error": "l3"}, ["l3", "softplus"]),
        ({"similarity": "cos"}, ["cos", "dot"]),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, Any], names: list[str]) -> None:
    with pytest.raises(ValueError, match=".*".join(names)):
        MarginLoss(**arguments)


def test_wrong_inputs_are_named() -> None:
    q, p, n = random_batch()
    loss, teacher = MarginLoss(), MarginLoss("teacher", in_batch=True)
    cases = [
        (lambda: loss(q, p, n[:3]), r"queries \(6, 4\).*negatives \(3, 4\)"),
        (lambda: loss(q[0], p[0], n[0]), r"queries \(4,\)"),
        (lambda: loss(q[:0], p[:0], n[:0]), r"queries \(0, 4\)"),
        (lambda: loss(q, p, n.to("meta")), "negatives on meta"),
        (lambda: loss(q, p.long(), n), "positives is torch.int64"),
        (lambda: loss(q.detach().numpy(), p, n), "queries is ndarray"),
        (lambda: loss(q, p, n, teacher_margin=torch.ones(B)), "teacher_margin goes with"),
        (lambda: teacher(q, p, n), "teacher_margin is missing"),
        (lambda: teacher(q, p, n, teacher_margin=torch.ones(B)), r"teacher_margin \(6,\).*\(6, 6\)"),
        (lambda: teacher(q, p, n, teacher_margin=torch.ones(B, B, device="meta")), "teacher_margin on meta"),
        (lambda: loss(q, p, n, mask=torch.ones(3)), r"mask \(3,\)"),
        (lambda: loss(q, p, n, mask=torch.ones(3, 2)), "mask is torch.float32"),
        (lambda: loss(q, p, n, mask=torch.tensor([[0, B]])), "outside the batch"),
        (lambda: loss(q, p, n, mask=torch.tensor([[-1, 0]])), "outside the batch"),
        (lambda: ContrastiveLoss()(q, p, n, mask=torch.tensor([[0, 2 * B]])), "outside the batch"),
        (lambda: ContrastiveLoss()(q, p, n, ids=(torch.ones(B),) * 2 + (torch.ones(3),)), r"negative ids \(3,\)"),
        (lambda: loss(q, p, n, mask=[[0, 1]]), "mask is list: it must be a tensor"),
        (lambda: loss(q, p, n, mask=np.ones((1, 2), int)), "mask is ndarray: it must be a tensor"),
        (lambda: teacher(q, p, n, teacher_margin=np.ones((B, B))), "teacher_margin is ndarray: it must be a tensor"),
        (lambda: DualTeacherLoss()(q, p, n, torch.ones(B), [[1.0]]), "in_batch_margin is list: it must be a tensor"),
        (lambda: ContrastiveLoss()(q, p, n, ids=([1] * B,) * 3), "query ids is list: it must be a tensor"),
        (lambda: ContrastiveLoss()(q, p, n, ids=(torch.ones(B), np.ones(B), [])), "positive ids is ndarray"),
        (lambda: ContrastiveLoss(temperature=0.0), "temperature"),
    ]
    for call, message in cases:
        with pytest.raises(ValueError, match=message):
            call()
