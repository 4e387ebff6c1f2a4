"""ModernBERT up to 8,192 tokens, from a folder to a training step; transformers and sentence-transformers judge.

The weights are random: they show that the layout is computed as it should be, and nothing about quality.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from remargin import BiEncoder, MarginLoss
from remargin.model.compute import Compute
from remargin.model.packing import pack
from remargin.training.engine import Engine
from remargin.training.settings import FitSettings

WORDS = "the value of the text and how a model returns lists"
TEXTS = [f"query {n} {WORDS} " * (n // 12) + "to a file" for n in (9000, 700, 12, 300)]


@pytest.fixture(scope="module")
def folder(tiny_model: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As sentence-transformers saves a ModernBERT."""
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling

    raw = tiny_model("modernbert", positions=8192)
    config = json.loads((raw / "config.json").read_text())
    assert (config["local_attention"], config["layer_types"]) == (128, ["full_attention", "sliding_attention"])
    modules = [Transformer(str(raw), max_seq_length=8192), Pooling(32, "mean")]
    for name, weight in modules[0].named_parameters():
        weight.data *= 8 if "Wqkv" in name else 1  # attention that hardly tells tokens apart would hide mistakes
    out = tmp_path_factory.mktemp("modernbert") / "model"
    SentenceTransformer(modules=modules, device="cpu").save(str(out))
    return out


def test_vectors_of_8192_tokens(folder: Path, tmp_path: Path) -> None:
    model, rival = BiEncoder.from_pretrained(folder, device="cpu"), SentenceTransformer(str(folder), device="cpu")
    assert model.document_length == rival.max_seq_length == 8192
    tokens, truncated = model.tokenizer(TEXTS, 8192)
    assert (int(tokens.lengths.max()), truncated) == (8192, 1)
    assert Compute(model).packed
    vectors = model.encode_documents(TEXTS)
    np.testing.assert_allclose(vectors, rival.encode(TEXTS, batch_size=1, normalize_embeddings=True), atol=1e-5)
    model.save(tmp_path / "saved")
    again = SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    np.testing.assert_allclose(again.encode(TEXTS[1:]), vectors[1:], atol=1e-5)


def test_far_tokens_count_and_near_ones_only_where_attention_is_local(folder: Path) -> None:
    """That the test above could fail: what is far away changes a vector, and without local attention it is another."""
    model = BiEncoder.from_pretrained(folder, device="cpu")
    text = TEXTS[0].split()[:2000]
    one, other = model.encode_documents([" ".join(text), " ".join([*text[:-1], "margins"])])
    assert np.abs(one - other).max() > 1e-4
    everywhere: Any = copy.deepcopy(model)
    everywhere.backbone.layers[1].attn.sliding_window = None
    assert np.abs(everywhere.encode_documents([" ".join(text)])[0] - one).max() > 5e-4


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_are_those_of_transformers(folder: Path, dtype: torch.dtype) -> None:
    model = BiEncoder.from_pretrained(folder, device="cpu").train()
    tokens, _ = model.tokenizer(TEXTS, 1500)
    compute = Compute(model, dtype)
    vectors = compute(pack(tokens))
    of = torch.randn(vectors.shape, generator=torch.Generator().manual_seed(0))
    found = compute.gradients(vectors, of)
    mask = torch.arange(1500) < torch.from_numpy(tokens.lengths)[:, None]
    ids = torch.zeros(mask.shape, dtype=torch.long)
    ids[mask] = torch.from_numpy(tokens.ids.astype(np.int64))
    model(ids, mask.long()).backward(of)
    close = 1e-3 if dtype == torch.float32 else 0.05
    for gradient, master in zip(found, compute.masters, strict=True):
        assert master.grad is not None
        assert (gradient - master.grad).norm() <= close * master.grad.norm()
        assert master.grad.norm() > 0


def test_a_training_step_is_that_of_sentence_transformers(folder: Path) -> None:
    texts = ["how do lists return", "a file of the model", *TEXTS[1:], TEXTS[1][:900]]
    model, rival = BiEncoder.from_pretrained(folder, device="cpu"), SentenceTransformer(str(folder), device="cpu")
    loss = MarginLoss(target="distributed")
    settings = FitSettings(engine="packed", token_budget=3000)
    tokens, _ = model.tokenizer(texts, 8192)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2, eps=1e-4)
    with Engine(model, settings, torch.device("cpu"), torch.float32, tokens.lengths) as engine:
        batch = engine.split(tokens)
        assert len(batch.parts) > 1
        with engine.embed(batch) as vectors:
            loss(*vectors.split(2)).backward()
    optimiser.step()
    theirs = torch.optim.AdamW(rival.parameters(), lr=1e-2, eps=1e-4)
    features = rival.train().preprocess(texts)
    loss(*rival(features)["sentence_embedding"].split(2)).backward()
    before = copy.deepcopy(rival.state_dict())
    theirs.step()
    wanted = dict(rival[0].auto_model.named_parameters())  # type: ignore[union-attr]
    for name, weight in model.backbone.named_parameters():
        torch.testing.assert_close(weight, wanted[name], atol=2e-5, rtol=1e-4)
    assert any((before[name] - weight).abs().max() > 5e-3 for name, weight in rival.state_dict().items())
