"""`--dims`: training for vectors that can be truncated."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from remargin import BiEncoder, InputError, MatryoshkaLoss, fit
from remargin.losses.matryoshka import innermost
from remargin.model.folder import verify_model
from remargin.training.loop import train
from remargin.training.settings import LossSettings

from .conftest import Start, quick, sampled, settings, silent, weights

DIMS = "32,16,4"


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"target": "distributed"},
        {"target": "0.3", "in_batch": True, "per_triplet": 2},
        {"target": "contrastive", "temperature": "learned", "per_triplet": 2},
        {"target": "teacher"},
        {"target": "softmax", "spread": "running", "token_budget": 60},
    ],
    ids=["softmax", "distributed", "static", "learned", "teacher", "micro-batches"],
)
def test_packed_and_padded_train_every_loss_alike(
    options: dict[str, Any], scored: Path, tiny_model: Any, tmp_path: Path
) -> None:
    """As far as Adam lets them: it makes steps of one length, however small a gradient and its error are."""
    found = {}
    for name, engine, dims in (("packed", "packed", "16,4"), ("padded", "padded", "16,4"), ("whole", "packed", None)):
        chosen = sampled(steps=3, engine=engine, dims=dims, **options)
        model = BiEncoder.from_pretrained(tiny_model("bert"))
        for module in model.modules():  # dropout is drawn in another order
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
        train(model, scored, tmp_path / name, settings=chosen, say=silent)
        found[name] = torch.cat([weight.flatten() for weight in weights(tmp_path / name / "last").values()])
        with open(tmp_path / name / "metrics.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        assert all(row["margin_mean"] for row in rows if row["loss"])
        assert not any(row["spread"] for row in rows) or dims is None
    error, change = ((found["packed"] - found[other]).norm() for other in ("padded", "whole"))
    assert 0 < 20 * error < change


def test_the_model_folder_says_what_it_can_be_truncated_to(start: Start, encoder: Path, tmp_path: Path) -> None:
    folder = start(tmp_path / "run", quick(steps=2, dims="16,4"), blend="0.5").model
    model = BiEncoder.from_pretrained(folder, dims=4)
    assert model.trained_dims == (32, 16, 4)
    verify_model(folder, "")
    model.save(tmp_path / "again")
    assert BiEncoder.from_pretrained(tmp_path / "again").trained_dims == (32, 16, 4)
    assert BiEncoder.from_pretrained(encoder).trained_dims == ()


def test_sentence_transformers_truncates_alike(tiny_model: Any, tmp_path: Path) -> None:
    """Before the vectors are brought to unit length, or after it: the direction is the same."""
    from sentence_transformers import SentenceTransformer

    BiEncoder.from_pretrained(tiny_model("bert"), "mean").save(tmp_path / "model")
    texts = ["how do margins adapt?", "what is a list"]
    ours = BiEncoder.from_pretrained(tmp_path / "model", dims=5, device="cpu")
    theirs = SentenceTransformer(str(tmp_path / "model"), device="cpu", truncate_dim=5)
    assert ours.dimension == 5
    np.testing.assert_allclose(np.linalg.norm(ours.encode_queries(texts), axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(theirs.encode(texts, normalize_embeddings=True), ours.encode_queries(texts), atol=1e-5)
    whole = BiEncoder.from_pretrained(tmp_path / "model", device="cpu").encode_queries(texts)
    assert np.abs(whole[:, :5] - ours.encode_queries(texts)).max() > 1e-2  # they are longer than they were


def test_a_training_run_is_resumed_with_its_dimensions(start: Start, tmp_path: Path) -> None:
    start(tmp_path / "run", quick(steps=2, dims=DIMS))
    with pytest.raises(InputError, match=r"settings: dims was not given there|dims is 32,16,4 there, not 32,8"):
        fit(resume=tmp_path / "run", dims="32,8", say=silent)
    assert fit(resume=tmp_path / "run", dims=[4, 16, 32], say=silent).steps == 2


def test_dimensions_are_read_and_those_that_are_too_large_refused(start: Start, tmp_path: Path) -> None:
    loss = LossSettings(dims="16, 32,16").build("cosine", 32)
    assert isinstance(loss, MatryoshkaLoss)
    assert loss.dims == (32, 16)
    assert not isinstance(innermost(loss), MatryoshkaLoss)
    with pytest.raises(InputError, match="dims has 64, but the model's vectors have 32 numbers; use 32 or less"):
        start(tmp_path / "run", settings(dims="64,16"))
    assert not (tmp_path / "run").exists()
    for wrong in ("0", "16,x", "-4", "1.5"):
        with pytest.raises(InputError, match="write whole numbers above 0 with commas between"):
            LossSettings(dims=wrong)
