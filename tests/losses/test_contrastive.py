"""ContrastiveLoss against a double loop and against sentence-transformers."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from remargin.losses.contrastive import ContrastiveLoss

from .double_loop import (
    B,
    phi,
    random_batch,
)


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


def test_learned_temperature_gets_a_gradient_and_starts_where_it_was_set() -> None:
    loss = ContrastiveLoss(temperature=0.1, learned=True)
    assert torch.as_tensor(loss.temperature).item() == pytest.approx(0.1)
    value = loss(*random_batch())
    value.backward()
    assert value.item() == pytest.approx(ContrastiveLoss(temperature=0.1)(*random_batch()).item(), rel=1e-6)
    assert loss.log_temperature is not None
    assert loss.log_temperature.grad is not None
    assert loss.log_temperature.grad.abs() > 0


def test_contrastive_loss_of_zero_vectors_is_finite() -> None:
    batch = [torch.zeros(3, 4, requires_grad=True) for _ in range(3)]
    value = ContrastiveLoss()(*batch)
    assert value.item() == pytest.approx(math.log(6), rel=1e-6)
    assert all(g.isfinite().all() for g in torch.autograd.grad(value, batch))
