"""BiEncoder: pooling, loading, saving, encoding; with transformers and sentence-transformers as judges."""

from __future__ import annotations

import copy
import io
import json
import logging
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
import transformers
from sentence_transformers import SentenceTransformer

from remargin import BiEncoder, InputError

TEXTS = ["how do margins adapt to the query?", "x", "the document returns the value of the query " * 3, "a, b: c!"]
FAMILIES = ["bert", "distilbert", "roberta", "mpnet"]
POOLINGS = ["cls", "cls+linear", "cls+pooler", "mean", "mean+linear"]


def plain_vectors(folder: Path, model: BiEncoder, pooling: str, length: int) -> torch.Tensor:
    """One text at a time, unpadded, by the definition of each pooling."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    backbone = transformers.AutoModel.from_pretrained(folder).eval()
    rows = []
    for text in TEXTS:
        inputs = tokenizer(text, truncation=True, max_length=length, return_tensors="pt")
        with torch.no_grad():
            hidden = backbone(**inputs).last_hidden_state[0]
            row = hidden.mean(0) if pooling.startswith("mean") else hidden[0]
            if model.projection is not None:
                row = model.projection.weight @ row + model.projection.bias
            rows.append(row.tanh() if pooling.endswith("pooler") else row)
    return torch.stack(rows)


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("family", FAMILIES)
def test_vectors_follow_the_definition_and_order(family: str, pooling: Any, similarity: Any, tiny_model: Any) -> None:
    folder = tiny_model(family)
    model = BiEncoder.from_pretrained(folder, pooling=pooling, similarity=similarity)
    expected = plain_vectors(folder, model, pooling, length=64)
    if similarity == "cosine":
        expected = torch.nn.functional.normalize(expected, dim=1)
    vectors = model.encode_documents(TEXTS, batch_size=2)
    assert vectors.dtype == np.float32
    assert len({v.tobytes() for v in vectors}) == len(TEXTS)
    np.testing.assert_allclose(vectors, expected.numpy(), atol=1e-5)


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("family", FAMILIES)
def test_round_trip_through_sentence_transformers(
    family: str, pooling: Any, similarity: Any, tiny_model: Any, tmp_path: Path
) -> None:
    prefixes = {"query_prefix": "query ", "document_prefix": "document "}
    model = BiEncoder.from_pretrained(tiny_model(family), pooling=pooling, similarity=similarity, seed=3, **prefixes)
    model.save(tmp_path / "saved")
    rival = SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    assert rival.similarity_fn_name == similarity
    np.testing.assert_allclose(rival.encode_document(TEXTS), model.encode_documents(TEXTS), atol=1e-5)
    short = [text[:25] for text in TEXTS]
    np.testing.assert_allclose(rival.encode_query(short), model.encode_queries(short), atol=1e-5)
    again = BiEncoder.from_pretrained(tmp_path / "saved")
    assert (again.pooling, again.similarity) == (pooling, similarity)
    assert (again.query_length, again.document_length) == (model.query_length, model.document_length) == (64, 64)
    assert again.tokenizer.fingerprint == model.tokenizer.fingerprint
    np.testing.assert_array_equal(again.encode_queries(TEXTS), model.encode_queries(TEXTS))
    np.testing.assert_array_equal(again.encode_documents(TEXTS), model.encode_documents(TEXTS))


def test_what_sentence_transformers_saves_is_read(tiny_model: Any, tmp_path: Path) -> None:
    from sentence_transformers.base.modules import Dense, Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling

    transformer = Transformer(str(tiny_model("bert")), max_seq_length=64)
    modules = [transformer, Pooling(32, "mean"), Dense(32, 16, activation_function=torch.nn.Tanh())]
    rival = SentenceTransformer(modules=modules, device="cpu", similarity_fn_name="dot")
    rival.prompts = {"query": "query ", "document": ""}
    rival.save(str(tmp_path / "theirs"))
    model = BiEncoder.from_pretrained(tmp_path / "theirs")
    assert (model.pooling, model.similarity, model.dimension) == ("mean+pooler", "dot", 16)
    assert model.query_prefix == "query "
    np.testing.assert_allclose(model.encode_documents(TEXTS), rival.encode(TEXTS), atol=1e-5)


def test_the_real_minilm(minilm: Path, tmp_path: Path) -> None:
    model = BiEncoder.from_pretrained(minilm)
    assert (model.pooling, model.similarity, model.dimension) == ("mean", "cosine", 384)
    texts = ["A man is eating food.", "Someone eats.", "The sky is blue.", "margins " * 300]
    vectors = model.encode_documents(texts)
    assert vectors[0] @ vectors[1] > 0.6 > 0.2 > vectors[0] @ vectors[2]
    rival = SentenceTransformer(str(minilm), device="cpu")
    assert model.query_length == model.document_length == rival.max_seq_length == 256
    np.testing.assert_allclose(vectors, rival.encode(texts), atol=1e-5)
    model.save(tmp_path / "saved")
    saved = SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    np.testing.assert_allclose(vectors, saved.encode(texts), atol=1e-5)
    np.testing.assert_array_equal(BiEncoder.from_pretrained(tmp_path / "saved").encode_documents(texts), vectors)


@pytest.mark.parametrize(
    ("family", "pooling"), [("bert", "cls"), ("distilbert", "cls"), ("roberta", "cls+linear"), ("mpnet", "cls+linear")]
)
def test_auto_pooling_is_the_papers(family: str, pooling: str, tiny_model: Any) -> None:
    assert BiEncoder.from_pretrained(tiny_model(family)).pooling == pooling


def without(folder: Path, tmp_path: Path, prefix: str) -> Path:
    """A copy of a model folder without the weights that start with a prefix."""
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    weights = safetensors.torch.load_file(copy / "model.safetensors")
    kept = {name: weight for name, weight in weights.items() if not name.startswith(prefix)}
    assert len(kept) < len(weights)
    safetensors.torch.save_file(kept, copy / "model.safetensors", metadata={"format": "pt"})
    return copy


def test_a_missing_encoder_weight_is_an_error(tiny_model: Any, tmp_path: Path) -> None:
    folder = without(tiny_model("bert"), tmp_path, "encoder.layer.1.attention.self.query.")
    with pytest.raises(InputError, match=r"2 weights of the encoder are missing .* encoder\.layer\.1\.attention"):
        BiEncoder.from_pretrained(folder)


def test_a_weight_of_another_shape_is_an_error(tiny_model: Any, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(tiny_model("bert"), copy)
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**config, "intermediate_size": 48}))
    with pytest.raises(InputError, match=r"copy: .*(shape|size)"):
        BiEncoder.from_pretrained(copy)


def test_heads_are_ignored_and_counted(tiny_model: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="remargin"):
        BiEncoder.from_pretrained(tiny_model("bert", head=True))
    assert "weights of heads that are not needed were ignored" in caplog.text


def test_a_projection_comes_from_the_pooler_if_there_is_one(
    tiny_model: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tiny_model("roberta")
    pooler = safetensors.torch.load_file(folder / "model.safetensors")["pooler.dense.weight"]
    model = BiEncoder.from_pretrained(folder)
    assert model.projection is not None
    assert torch.equal(model.projection.weight, pooler)
    assert "a new one" not in caplog.text
    bare = without(folder, tmp_path, "pooler.")
    new, same, other = (BiEncoder.from_pretrained(bare, seed=seed).projection for seed in (1, 1, 2))
    assert "has no weights for the projection of cls+linear: a new one is initialised with seed 1" in caplog.text
    assert new is not None
    assert same is not None
    assert other is not None
    assert torch.equal(new.weight, same.weight)
    assert not torch.equal(new.weight, other.weight)


def test_every_trainable_weight_gets_a_gradient(tiny_model: Any) -> None:
    for family in FAMILIES:
        for pooling in POOLINGS:
            model = BiEncoder.from_pretrained(tiny_model(family), pooling=pooling)  # type: ignore[arg-type]
            ids = torch.tensor([[2, 7, 9, 3], [2, 8, 8, 3]])
            model(ids, torch.ones_like(ids)).square().sum().backward()
            assert not [name for name, p in model.named_parameters() if p.requires_grad and p.grad is None]


def test_pickled_weights_are_never_read(tiny_model: Any, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(tiny_model("bert"), copy)
    torch.save(safetensors.torch.load_file(copy / "model.safetensors"), copy / "pytorch_model.bin")
    (copy / "model.safetensors").unlink()
    with pytest.raises(InputError, match=r"only pickled weights \(pytorch_model\.bin\), which are never read"):
        BiEncoder.from_pretrained(copy)
    (copy / "pytorch_model.bin").unlink()
    with pytest.raises(InputError, match="no weights"):
        BiEncoder.from_pretrained(copy)


def test_no_remote_code_runs(tiny_model: Any, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(tiny_model("bert"), copy)
    config = json.loads((copy / "config.json").read_text())
    config |= {"model_type": "unheard-of", "auto_map": {"AutoConfig": "evil.Config", "AutoModel": "evil.Model"}}
    (copy / "config.json").write_text(json.dumps(config))
    (copy / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    with pytest.raises(InputError, match="asks for code of its own"):
        BiEncoder.from_pretrained(copy)
    assert not (tmp_path / "ran").exists()


def test_a_name_that_is_nowhere_is_one_clear_line() -> None:
    with pytest.raises(InputError, match="no model 'nobody/nothing': no folder here has that name") as error:
        BiEncoder.from_pretrained("nobody/nothing")
    assert "\n" not in str(error.value)


def test_a_hub_name_is_read_from_the_local_cache(
    tiny_model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub

    asked = []

    def snapshot_download(name: str, allow_patterns: list[str]) -> str:
        asked.append((name, allow_patterns))
        return str(tiny_model("bert"))

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    assert BiEncoder.from_pretrained("someone/model").dimension == 32
    [(name, patterns)] = asked
    assert name == "someone/model"
    assert not [p for p in patterns if "bin" in p or "pt" in p or ".py" in p]


def test_texts_that_are_cut_are_counted(tiny_model: Any, caplog: pytest.LogCaptureFixture) -> None:
    model = BiEncoder.from_pretrained(tiny_model("bert"), query_length=8)
    model.encode_queries(TEXTS)
    assert "2 of 4 queries were truncated to 8 tokens" in caplog.text
    caplog.clear()
    model.encode_documents(TEXTS)
    assert "cut" not in caplog.text


def test_lengths_beyond_the_positions_are_refused(tiny_model: Any) -> None:
    for family in FAMILIES:
        assert BiEncoder.from_pretrained(tiny_model(family), document_length=64).document_length == 64
        with pytest.raises(InputError, match="document_length 65: the model has 64 positions; use 64 or less"):
            BiEncoder.from_pretrained(tiny_model(family), document_length=65)


def test_encoding_nothing_and_a_bare_string(tiny_model: Any) -> None:
    model = BiEncoder.from_pretrained(tiny_model("bert"))
    assert model.encode_queries([]).shape == (0, 32)
    with pytest.raises(TypeError, match="a list of texts"):
        model.encode_queries("a query")
    with pytest.raises(TypeError, match=r"queries\[1\] is NoneType, not a string"):
        model.encode_queries(["a", None])  # type: ignore[list-item]
    with pytest.raises(TypeError, match=r"not a mapping: its values\(\)"):
        model.encode_documents({"d1": "a text"})


def test_texts_may_be_anything_that_gives_strings(tiny_model: Any) -> None:
    model = BiEncoder.from_pretrained(tiny_model("bert"))
    vectors = model.encode_documents(TEXTS)
    for texts in (dict(enumerate(TEXTS)).values(), iter(TEXTS), np.array(TEXTS)):
        np.testing.assert_array_equal(model.encode_documents(texts), vectors)


@pytest.mark.parametrize("size", [0, -1])
def test_a_batch_size_below_one_is_refused(tiny_model: Any, size: int) -> None:
    model = BiEncoder.from_pretrained(tiny_model("bert"))
    with pytest.raises(InputError, match=f"a batch size of {size}; use 1 or more"):
        model.encode_documents(TEXTS, batch_size=size)


def test_encoding_leaves_the_training_mode_as_it_was(tiny_model: Any) -> None:
    model = BiEncoder.from_pretrained(tiny_model("bert")).train()
    one, other = model.encode_documents(TEXTS), model.encode_documents(TEXTS)
    np.testing.assert_array_equal(one, other)  # no dropout
    assert model.training


def test_progress_is_shown_when_asked_for(tiny_model: Any, capsys: pytest.CaptureFixture[str]) -> None:
    model = BiEncoder.from_pretrained(tiny_model("bert"))
    vectors = model.encode_documents(TEXTS, batch_size=1, progress=True)
    assert "encoding documents" in capsys.readouterr().err
    np.testing.assert_allclose(vectors, model.encode_documents(TEXTS), atol=1e-6)


def test_saving_never_overwrites_unasked(tiny_model: Any, tmp_path: Path) -> None:
    model = BiEncoder.from_pretrained(tiny_model("bert"))
    model.save(tmp_path / "saved")
    with pytest.raises(InputError, match="already exists"):
        model.save(tmp_path / "saved")
    model.save(tmp_path / "saved", overwrite=True)


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("modules.json", lambda c: [*c, {"type": "x.CNN", "path": ""}], "a module that is not supported: x.CNN"),
        ("modules.json", lambda c: [c[0], c[1], c[3], c[2]], "Transformer, Pooling, Normalize, Dense"),
        ("modules.json", lambda c: [1], "a module that is not supported: 1"),
        ("modules.json", lambda c: {}, "not a JSON list"),
        ("remargin_model.json", lambda c: [], "not a JSON dict"),
        ("2_Dense/config.json", lambda c: {**c, "bias": False}, "not one linear layer"),
        ("modules.json", lambda c: c[:1], "modules Transformer: Transformer, Pooling, and then"),
        ("1_Pooling/config.json", lambda c: {"pooling_mode": "max"}, "pooling 'max' is not supported"),
        ("1_Pooling/config.json", lambda c: {"pooling_mode_max_tokens": True}, "max_tokens' is not supported"),
        ("2_Dense/config.json", lambda c: {**c, "activation_function": "x.Gelu"}, "Dense module with x.Gelu"),
        ("config_sentence_transformers.json", lambda c: {"similarity_fn_name": "euclidean"}, "euclidean"),
    ],
)
def test_folders_that_ask_for_more_than_we_do_are_refused(
    file: str, change: Any, message: str, tiny_model: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "saved"
    BiEncoder.from_pretrained(tiny_model("roberta")).save(folder)
    content = json.loads((folder / file).read_text())
    (folder / file).write_text(json.dumps(change(content)))
    with pytest.raises(InputError, match=message):
        BiEncoder.from_pretrained(folder)
    (folder / file).write_text("{")
    with pytest.raises(InputError, match="not valid JSON"):
        BiEncoder.from_pretrained(folder)


def test_damaged_weights_are_one_clear_line(tiny_model: Any, tmp_path: Path) -> None:
    BiEncoder.from_pretrained(tiny_model("roberta")).save(tmp_path / "saved")
    for name in ("2_Dense/model.safetensors", "model.safetensors"):
        (tmp_path / "saved" / name).write_bytes(b"damaged")
        with pytest.raises(InputError, match=r"cannot be (read|loaded)") as error:
            BiEncoder.from_pretrained(tmp_path / "saved")
        assert "\n" not in str(error.value)


def test_unit_vectors_with_dot_are_cosine(tiny_model: Any, tmp_path: Path) -> None:
    BiEncoder.from_pretrained(tiny_model("bert")).save(tmp_path / "saved")
    card = tmp_path / "saved" / "config_sentence_transformers.json"
    card.write_text(json.dumps({**json.loads(card.read_text()), "similarity_fn_name": "dot"}))
    rival = SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    model = BiEncoder.from_pretrained(tmp_path / "saved")
    np.testing.assert_allclose(model.encode_documents(TEXTS), rival.encode(TEXTS), atol=1e-5)


def test_an_encoder_decoder_is_refused(tmp_path: Path, tiny_model: Any) -> None:
    config = transformers.T5Config(vocab_size=99, d_model=16, d_kv=4, d_ff=32, num_layers=1, num_heads=4)
    transformers.T5Model(config).save_pretrained(tmp_path / "t5")
    for file in tiny_model("bert").glob("tokenizer*"):
        shutil.copy(file, tmp_path / "t5")
    with pytest.raises(InputError, match="has a decoder too"):
        BiEncoder.from_pretrained(tmp_path / "t5")


def test_wrong_options_are_named(tiny_model: Any) -> None:
    with pytest.raises(InputError, match="unknown pooling 'max'; use auto, cls"):
        BiEncoder.from_pretrained(tiny_model("bert"), pooling="max")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="unknown similarity 'l2'; use cosine or dot"):
        BiEncoder.from_pretrained(tiny_model("bert"), similarity="l2")  # type: ignore[arg-type]


@pytest.mark.parametrize("fused", [False, True])
def test_what_an_optimiser_changes_is_what_encodes(tiny_model: Any, fused: bool) -> None:
    model = BiEncoder.from_pretrained(tiny_model())
    optimiser = torch.optim.Adam(model.parameters(), lr=0.1, fused=fused)
    before = model.encode_documents(["a text"])
    ids = torch.tensor([[2, 7, 8, 3]])
    model(ids, torch.ones_like(ids)).sum().backward()
    optimiser.step()
    after = model.encode_documents(["a text"])
    assert np.abs(after - before).max() > 1e-3


def test_what_one_layer_learned_is_what_encodes(tiny_model: Any) -> None:
    """A fused step leaves no trace in the versions, and may change weights that are not looked at."""
    model = BiEncoder.from_pretrained(tiny_model(), pooling="cls+linear")
    before = model.encode_documents(["a text"])
    model.train()
    optimiser = torch.optim.Adam(model.backbone.encoder.layer[0].parameters(), lr=0.1, fused=True)  # type: ignore[union-attr]
    ids = torch.tensor([[2, 7, 8, 3]])
    model(ids, torch.ones_like(ids)).sum().backward()
    optimiser.step()
    model.zero_grad()
    model.eval()
    assert np.abs(model.encode_documents(["a text"]) - before).max() > 1e-3


def test_what_is_changed_past_autograd_is_what_encodes(tiny_model: Any) -> None:
    model = BiEncoder.from_pretrained(tiny_model())
    before = model.encode_documents(["a text"])
    for weight in model.parameters():
        weight.data.mul_(1.5)  # as code that averages weights does; leaves no trace in their versions
    after = model.encode_documents(["a text"])
    assert np.abs(after - before).max() > 1e-3
    model.pooling = "mean"
    assert np.abs(model.encode_documents(["a text"]) - after).max() > 1e-3


def test_a_model_that_has_encoded_can_be_copied_pickled_and_saved(tiny_model: Any) -> None:
    model = BiEncoder.from_pretrained(tiny_model("bert"), device="cpu")
    vectors = model.encode_documents(TEXTS)
    torch.save(model, saved := io.BytesIO())
    saved.seek(0)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), torch.load(saved, weights_only=False)):
        np.testing.assert_array_equal(other.encode_documents(TEXTS), vectors)
