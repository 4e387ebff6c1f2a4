"""Decoders with last-token pooling, from a folder to a training step; transformers and sentence-transformers judge.

Their folders are those of Qwen3-Embedding and E5-Mistral; sentence-transformers pads on the left, as these say. The
weights are random: they show that the layout is computed as it should be, and nothing about quality.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from remargin import BiEncoder, InputError, MarginLoss, fit, search
from remargin.integrations.onnx import write_onnx
from remargin.model.blend import blended
from remargin.model.compute import Compute
from remargin.model.packing import pack
from remargin.model.tokenizer import Tokens
from remargin.training.engine import Engine
from remargin.training.settings import FitSettings

from .decoders import LAYOUTS, TASK, weights_of

TEXTS = ["a list", "the value of the text and how a model returns", "margins adapt " * 90, "a test, of files: why?"]


@pytest.fixture(scope="module", params=LAYOUTS)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("decoder") / "model"
    LAYOUTS[request.param](out)
    return out


def changed(folder: Path, out: Path, file: str, **values: Any) -> Path:
    shutil.copytree(folder, out, dirs_exist_ok=True)
    content = json.loads((out / file).read_text()) if (out / file).exists() else {}
    (out / file).write_text(json.dumps(content | values))
    return out


def rival_of(folder: Path) -> SentenceTransformer:
    rival = SentenceTransformer(str(folder), device="cpu")
    assert rival.tokenizer.padding_side == "left"
    return rival


def test_vectors_are_those_of_sentence_transformers(folder: Path, tmp_path: Path) -> None:
    model, rival = BiEncoder.from_pretrained(folder, device="cpu"), rival_of(folder)
    assert (model.pooling, model.similarity) == ("last", "cosine")
    assert model.document_length == rival.max_seq_length
    assert Compute(model).packed
    vectors = model.encode_documents(TEXTS)
    np.testing.assert_allclose(vectors, rival.encode_document(TEXTS), atol=1e-5)  # one batch, padded on the left
    np.testing.assert_allclose(vectors, rival.encode_document(TEXTS, batch_size=1), atol=1e-5)
    np.testing.assert_allclose(model.encode_queries(TEXTS), rival.encode_query(TEXTS), atol=1e-5)
    padded = Compute(model, engine="padded").eval()
    with torch.no_grad():
        found = model._similar(padded(pack(model.tokenizer(TEXTS, model.document_length)[0])))
    np.testing.assert_allclose(found, vectors, atol=1e-5)
    model.save(tmp_path / "saved")
    again = BiEncoder.from_pretrained(tmp_path / "saved", device="cpu")
    assert again.fingerprint() == model.fingerprint()
    np.testing.assert_allclose(rival_of(tmp_path / "saved").encode_document(TEXTS), vectors, atol=1e-5)
    np.testing.assert_allclose(rival_of(tmp_path / "saved").encode_query(TEXTS), model.encode_queries(TEXTS), atol=1e-5)


def test_a_truncated_text_keeps_the_token_at_its_end(folder: Path) -> None:
    model, rival = BiEncoder.from_pretrained(folder, device="cpu"), rival_of(folder)
    tokens, truncated = model.tokenizer(TEXTS, 12)
    rival.max_seq_length = 12
    theirs = rival.preprocess(TEXTS)
    assert truncated >= 2
    assert tokens.lengths.tolist() == theirs["attention_mask"].sum(1).tolist()
    ends = tokens.ids[np.cumsum(tokens.lengths) - 1].tolist()
    assert ends == [rival.tokenizer.pad_token_id] * 4 == theirs["input_ids"][:, -1].tolist()


def test_a_vector_is_of_the_whole_text_as_far_as_attention_goes(folder: Path) -> None:
    """That the tests above could fail: the first word changes the vector, unless it is out of every window's reach."""
    model = BiEncoder.from_pretrained(folder, device="cpu")
    near, far = "of the text", "of the text " * 6
    reach = [model.encode_documents([f"list {text}", f"model {text}"]) for text in (near, far)]
    assert np.abs(reach[0][0] - reach[0][1]).max() > 1e-3
    sees_all = getattr(model.backbone.config, "sliding_window", None) is None
    assert (np.abs(reach[1][0] - reach[1][1]).max() > 1e-4) == sees_all
    tokens = model.tokenizer(["margins adapt"], 64)[0]
    other = Tokens(np.append(tokens.ids[:-1], tokens.ids[0]), tokens.lengths)
    hidden, of_other = (Compute(model).eval().body(pack(each)) for each in (tokens, other))
    torch.testing.assert_close(hidden[:-1], of_other[:-1])  # what follows is not seen
    assert (hidden[-1] - of_other[-1]).abs().max() > 1e-3


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_are_those_of_transformers(folder: Path, dtype: torch.dtype) -> None:
    model = BiEncoder.from_pretrained(folder, device="cpu").train()
    tokens, _ = model.tokenizer(TEXTS, 90)
    compute = Compute(model, dtype)
    vectors = compute(pack(tokens))
    of = torch.randn(vectors.shape, generator=torch.Generator().manual_seed(0))
    found = compute.gradients(vectors, of)
    mask = torch.arange(90) < torch.from_numpy(tokens.lengths)[:, None]
    ids = torch.zeros(mask.shape, dtype=torch.long)
    ids[mask] = torch.from_numpy(tokens.ids.astype(np.int64))
    hidden = model.backbone(ids, attention_mask=mask.long()).last_hidden_state
    hidden[torch.arange(len(TEXTS)), mask.sum(1) - 1].backward(of)
    close = 1e-3 if dtype == torch.float32 else 0.08
    for gradient, master in zip(found, compute.masters, strict=True):
        assert master.grad is not None
        assert master.grad.norm() > 0
        assert (gradient - master.grad).norm() <= close * master.grad.norm()


def test_a_training_step_is_that_of_sentence_transformers(folder: Path) -> None:
    texts = [*TEXTS, "a query", "the document returns a value"]
    model, rival = BiEncoder.from_pretrained(folder, device="cpu"), rival_of(folder)
    loss = MarginLoss(target="distributed")
    settings = FitSettings(engine="packed", token_budget=60)
    tokens, _ = model.tokenizer(texts, model.document_length)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2, eps=1e-4)
    with Engine(model, settings, torch.device("cpu"), torch.float32, tokens.lengths) as engine:
        batch = engine.split(tokens)
        assert len(batch.parts) > 1
        with engine.embed(batch) as vectors:
            loss(*vectors.split(2)).backward()
    optimiser.step()
    before, theirs = weights_of(rival), torch.optim.AdamW(rival.parameters(), lr=1e-2, eps=1e-4)
    features: Any = rival.train().preprocess(texts)
    assert features["attention_mask"][0, 0] == 0
    loss(*rival(features)["sentence_embedding"].split(2)).backward()
    theirs.step()
    wanted: Any = dict(rival[0].auto_model.named_parameters())  # type: ignore[union-attr]
    for name, weight in model.backbone.named_parameters():
        torch.testing.assert_close(weight, wanted[name], atol=5e-5, rtol=1e-3)
    assert all((before[name] - weight).abs().max() > 1e-3 for name, weight in weights_of(rival).items())


def test_prompts_keep_their_newline(folder: Path, tmp_path: Path) -> None:
    """The folder's prompt if one is named query, else as given; without the prompt, the last token is the same one."""
    rival = rival_of(folder)
    prompts: Any = rival.prompts
    of_folder = prompts.get("query", "")
    assert BiEncoder.from_pretrained(folder).query_prefix == of_folder
    assert "\n" in (of_folder or prompts["web_search_query"])
    task = f"{TASK} "
    model = BiEncoder.from_pretrained(folder, query_prefix=task, device="cpu")
    np.testing.assert_allclose(model.encode_queries(TEXTS), rival.encode(TEXTS, prompt=task), atol=1e-5)
    assert np.abs(model.encode_queries(TEXTS) - model.encode_documents(TEXTS)).max() > 1e-3
    model.save(tmp_path / "saved")
    np.testing.assert_allclose(rival_of(tmp_path / "saved").encode_query(TEXTS), model.encode_queries(TEXTS), atol=1e-5)
    without = changed(folder, tmp_path / "without", "1_Pooling/config.json", include_prompt=False)
    other = BiEncoder.from_pretrained(without, query_prefix=task, device="cpu")
    assert (other.encode_queries(TEXTS) == model.encode_queries(TEXTS)).all()
    np.testing.assert_allclose(other.encode_queries(TEXTS), rival_of(without).encode(TEXTS, prompt=task), atol=1e-5)


def test_what_sentence_transformers_reads_through_a_chat_template_is_refused(folder: Path, tmp_path: Path) -> None:
    how = {"text": {"method": "forward"}, "message": {"method": "forward", "format": "flat"}}
    other = changed(folder, tmp_path, "sentence_bert_config.json", modality_config=how)
    with pytest.raises(InputError, match=r"sentence_bert_config.json: .*template of a chat"):
        BiEncoder.from_pretrained(other)


def test_other_poolings_of_a_decoder_are_refused(folder: Path, tmp_path: Path) -> None:
    for pooling in ("mean", "cls+linear"):
        with pytest.raises(InputError, match=r"is a decoder .*or give --pooling last"):
            BiEncoder.from_pretrained(folder, pooling=pooling)  # type: ignore[arg-type]
    raw = shutil.copytree(folder, tmp_path / "raw")
    (raw / "modules.json").unlink()
    with pytest.raises(InputError, match="is a decoder"):
        BiEncoder.from_pretrained(raw)
    with pytest.raises(InputError, match=r"does not say the pooling.*give --pooling last and --similarity"):
        search("docstrings:json", "exact", raw)
    given = BiEncoder.from_pretrained(raw, pooling="last", device="cpu").encode_documents(TEXTS[:2])
    assert (given == BiEncoder.from_pretrained(folder, device="cpu").encode_documents(TEXTS[:2])).all()


@pytest.mark.parametrize("folder", ["E5-Mistral"], indirect=True)
def test_from_fit_to_onnx(folder: Path, tmp_path: Path) -> None:
    rows = [f"how is part {word} made,the part {word} is a value of {word}" for word in "abcdefghijkl"]
    (tmp_path / "faq.csv").write_text("query,document\n" + "\n".join(rows))
    task = f"{TASK} "
    fitted = fit(
        f"pairs:{tmp_path / 'faq.csv'}", folder, tmp_path / "run", steps=3, learning_rate=1e-2, query_prefix=task,
        say=lambda line: None,
    )  # fmt: skip
    last = BiEncoder.from_pretrained(tmp_path / "run" / "last", device="cpu")
    start = BiEncoder.from_pretrained(folder, query_prefix=task, device="cpu")
    assert (last.pooling, last.query_prefix) == ("last", task)
    half, trained = (blended(start, last, weight).encode_queries(TEXTS) for weight in (0.5, 1.0))
    assert np.abs(half - trained).max() > 1e-4
    np.testing.assert_allclose(rival_of(fitted.model).encode_query(TEXTS[:2]), BiEncoder.from_pretrained(
        fitted.model, device="cpu").encode_queries(TEXTS[:2]), atol=1e-5)  # fmt: skip
    last.save(tmp_path / "onnx")
    assert write_onnx(last, tmp_path / "onnx") < 1e-4
