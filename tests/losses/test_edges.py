"""The losses at the edges: low and mixed precision, zero vectors, batches of one, wrong arguments and inputs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from remargin.losses.contrastive import ContrastiveLoss
from remargin.losses.margin import MarginLoss
from remargin.losses.teacher import DualTeacherLoss

from .double_loop import (
    VARIANTS,
    B,
    oracle,
    random_batch,
    use_moments,
)


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
