"""CrossEncoder: scores by the definition, documents cut but never queries, strict loading; judged by its rivals."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import sentence_transformers
import torch
import transformers

from remargin import InputError
from remargin.model import cross_encoder
from remargin.model.cross_encoder import CrossEncoder

FAMILIES = ["bert", "distilbert", "roberta", "mpnet"]
LONG = "the document returns the value of the query " * 12
PAIRS = [
    ("how do margins adapt?", "to the query"),
    ("x", LONG),
    ("how do margins adapt to the query?", LONG),
    ("list", "a"),
    ("how do margins adapt?", "a, b: c!"),
    ("the file of the model", "test the text of the model and train"),
]


@pytest.fixture(scope="session")
def sharp(tiny_model: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """The folder of a cross-encoder whose scores differ by more than rounding; with BERT's token types if asked for."""
    made: dict[tuple[str, bool], Path] = {}

    def get(family: str = "bert", types: bool = False) -> Path:
        if (family, types) not in made:
            folder = tmp_path_factory.mktemp(family) / "cross-encoder"
            model = CrossEncoder.from_pretrained(tiny_model(family))
            generator = torch.Generator().manual_seed(1)
            with torch.no_grad():
                for weight in model.model.parameters():
                    if weight.ndim > 1:
                        weight.normal_(0, 0.3, generator=generator)
            model.save(folder)
            if types:
                config = json.loads((folder / "tokenizer_config.json").read_text())
                config["model_input_names"] = ["input_ids", "token_type_ids", "attention_mask"]
                (folder / "tokenizer_config.json").write_text(json.dumps(config))
            made[family, types] = folder
        return made[family, types]

    return get


def plain_scores(folder: Path, length: int) -> np.ndarray[Any, Any]:
    """One pair at a time, unpadded, by transformers alone."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    scores = []
    for query, document in PAIRS:
        inputs = tokenizer(query, document, truncation="only_second", max_length=length, return_tensors="pt")
        with torch.no_grad():
            scores.append(model(**inputs).logits[0, 0].item())
    return np.array(scores)


@pytest.mark.parametrize("length", [64, 45])
@pytest.mark.parametrize(("family", "types"), [*((family, False) for family in FAMILIES), ("bert", True)])
def test_scores_follow_the_definition(family: str, types: bool, length: int, sharp: Any) -> None:
    folder = sharp(family, types)
    expected = plain_scores(folder, length)
    assert np.ptp(expected) > 0.1
    model = CrossEncoder.from_pretrained(folder, length=length)
    scores = model.score(PAIRS)
    assert scores.dtype == np.float32
    np.testing.assert_allclose(scores, expected, atol=1e-5)
    for size in (1, 4):
        np.testing.assert_allclose(model.score(PAIRS, batch_size=size), expected, atol=1e-5)


def test_token_types_are_used_where_the_model_has_them(sharp: Any) -> None:
    plain, typed = (CrossEncoder.from_pretrained(sharp("bert", types)).score(PAIRS) for types in (False, True))
    assert np.abs(plain - typed).max() > 1e-3


def test_order_does_not_matter(sharp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cross_encoder, "PAIRS_AT_ONCE", 7)
    model = CrossEncoder.from_pretrained(sharp())
    pairs = [(query, f"{document} {i}") for i in range(5) for query, document in PAIRS]
    order = np.random.default_rng(0).permutation(len(pairs))
    shuffled = model.score([pairs[i] for i in order])
    np.testing.assert_allclose(shuffled, model.score(pairs)[order], atol=1e-5)


def test_only_documents_are_cut_and_that_is_counted(sharp: Any, caplog: pytest.LogCaptureFixture) -> None:
    model = CrossEncoder.from_pretrained(sharp(), length=20)
    query = "how do margins adapt to the query"
    tokens = model.tokenizer.pairs([(query, LONG), (query, "a")], 20)
    whole = model.tokenizer.pairs([(query, LONG)], 500)
    assert tokens.tokens.lengths.tolist() == [20, 11]
    assert tokens.truncated == 1
    assert whole.truncated == 0
    assert tokens.tokens.ids[:19].tolist() == whole.tokens.ids[:19].tolist()  # then the separator
    assert tokens.types[:20].tolist() == [0] * 9 + [1] * 11
    model.score([(query, LONG), (query, "a")])
    assert "1 of 2 documents were truncated: a pair has 20 tokens" in caplog.text


def test_a_query_without_room_for_a_document_is_refused(sharp: Any) -> None:
    model = CrossEncoder.from_pretrained(sharp(), length=12)
    assert model.score([("how do the margins adapt to the query", LONG)]).shape == (1,)  # eight words, one of LONG
    assert model.too_long({"fits": "a " * 8, "just not": "a " * 9, "not": LONG}) == ["just not", "not"]
    with pytest.raises(InputError, match=r"query 'a a a .*' leaves no room for a document in 12 tokens; give a longer"):
        model.score([("x", "y"), ("a " * 9, "y")])


@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_saved_scores_the_same_everywhere(family: str, sharp: Any, tmp_path: Path) -> None:
    model = CrossEncoder.from_pretrained(sharp(family), length=50)
    short = [(query, document[:60]) for query, document in PAIRS]  # sentence-transformers would cut the query too
    model.save(tmp_path / "saved")
    again = CrossEncoder.from_pretrained(tmp_path / "saved")
    assert (again.length, again.untrained) == (50, False)
    np.testing.assert_array_equal(again.score(PAIRS), model.score(PAIRS))
    assert again.fingerprint() == model.fingerprint()
    np.testing.assert_allclose(plain_scores(tmp_path / "saved", 50), model.score(PAIRS), atol=1e-5)
    rival = sentence_transformers.CrossEncoder(str(tmp_path / "saved"), device="cpu")
    assert rival.max_seq_length == 50
    np.testing.assert_allclose(rival.predict(short), model.score(short), atol=1e-5)


def test_what_sentence_transformers_saves_is_read(sharp: Any, tmp_path: Path) -> None:
    rival = sentence_transformers.CrossEncoder(str(sharp()), device="cpu")
    rival.save_pretrained(str(tmp_path / "theirs"))
    model = CrossEncoder.from_pretrained(tmp_path / "theirs")
    np.testing.assert_allclose(model.score(PAIRS), CrossEncoder.from_pretrained(sharp()).score(PAIRS), atol=1e-6)


def test_an_encoder_gets_a_new_seeded_head(tiny_model: Any, caplog: pytest.LogCaptureFixture) -> None:
    for family in FAMILIES:
        one, same, other = (CrossEncoder.from_pretrained(tiny_model(family), seed=seed) for seed in (1, 1, 2))
        assert one.untrained
        assert "has no head for scores: a new one is initialised with seed 1" in caplog.text
        heads = [dict(model.model.named_parameters()) for model in (one, same, other)]
        changed = [name for name in heads[0] if not torch.equal(heads[0][name], heads[2][name])]
        assert changed
        assert not [name for name in changed if name.startswith(one.model.base_model_prefix)]  # the encoder is given
        assert all(torch.equal(heads[0][name], heads[1][name]) for name in heads[0])
        assert one.fingerprint() == same.fingerprint() != other.fingerprint()


def test_the_global_random_state_is_left_alone(tiny_model: Any) -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    CrossEncoder.from_pretrained(tiny_model("bert"))
    assert torch.equal(torch.rand(3), expected)


def changed_weights(folder: Path, copy: Path, change: Callable[[dict[str, torch.Tensor]], Any]) -> Path:
    shutil.copytree(folder, copy)
    weights = safetensors.torch.load_file(copy / "model.safetensors")
    change(weights)
    safetensors.torch.save_file(weights, copy / "model.safetensors", metadata={"format": "pt"})
    return copy


def test_a_missing_encoder_weight_is_an_error(sharp: Any, tiny_model: Any, tmp_path: Path) -> None:
    name = "encoder.layer.1.attention.self.query.weight"
    for number, (folder, prefix) in enumerate([(sharp(), "bert."), (tiny_model("bert"), "")]):
        broken = changed_weights(folder, tmp_path / str(number), lambda w, prefix=prefix: w.pop(prefix + name))
        with pytest.raises(InputError, match=rf"1 weights of the encoder are missing .* bert\.{name}"):
            CrossEncoder.from_pretrained(broken)


def test_half_a_head_is_not_a_trained_one(sharp: Any, tmp_path: Path) -> None:
    folder = changed_weights(sharp(), tmp_path / "half", lambda weights: weights.pop("classifier.bias"))
    assert CrossEncoder.from_pretrained(folder).untrained


def test_what_is_no_cross_encoder_is_one_clear_line(tiny_model: Any, sharp: Any, tmp_path: Path) -> None:
    classifier = transformers.AutoModelForSequenceClassification.from_pretrained(tiny_model("bert"), num_labels=3)
    classifier.save_pretrained(tmp_path / "three")
    for file in tiny_model("bert").glob("tokenizer*"):
        shutil.copy(file, tmp_path / "three")
    with pytest.raises(InputError, match="its head does not have one output"):
        CrossEncoder.from_pretrained(tmp_path / "three")
    config = transformers.T5Config(vocab_size=99, d_model=16, d_kv=4, d_ff=32, num_layers=1, num_heads=4)
    transformers.T5Model(config).save_pretrained(tmp_path / "t5")
    with pytest.raises(InputError, match="has a decoder too"):
        CrossEncoder.from_pretrained(tmp_path / "t5")
    with pytest.raises(InputError, match="no such folder"):
        CrossEncoder.from_pretrained("./nowhere")
    with pytest.raises(InputError, match="length 65: the model has 64 positions; use 64 or less"):
        CrossEncoder.from_pretrained(sharp(), length=65)
    with pytest.raises(InputError, match="unknown precision '8'"):
        CrossEncoder.from_pretrained(sharp(), precision="8")  # type: ignore[arg-type]
    shutil.copytree(sharp(), tmp_path / "damaged")
    (tmp_path / "damaged" / "remargin_cross_encoder.json").write_text("{}")
    with pytest.raises(InputError, match=r"remargin_cross_encoder\.json: not a header"):
        CrossEncoder.from_pretrained(tmp_path / "damaged")
    (tmp_path / "damaged" / "model.safetensors").write_bytes(b"damaged")
    with pytest.raises(InputError, match="cannot be loaded as a cross-encoder") as error:
        CrossEncoder.from_pretrained(tmp_path / "damaged")
    assert "\n" not in str(error.value)


def test_scores_that_are_no_numbers_are_an_error(sharp: Any) -> None:
    model = CrossEncoder.from_pretrained(sharp())
    with torch.no_grad():
        next(model.model.parameters()).fill_(float("nan"))
    with pytest.raises(InputError, match="gives scores that are no numbers"):
        model.score(PAIRS)


def test_half_precision_keeps_the_head_in_float32(sharp: Any) -> None:
    exact = CrossEncoder.from_pretrained(sharp()).score(PAIRS)
    model = CrossEncoder.from_pretrained(sharp(), precision="bf16")
    scores = model.score(PAIRS)
    assert 0 < np.abs(scores - exact).max() < 0.1 * np.ptp(exact)
    rounded = torch.from_numpy(scores).bfloat16().float().numpy()
    assert (rounded != scores).any()  # not only the numbers that bfloat16 has
    assert next(model.model.parameters()).dtype == torch.float32
    assert model.fingerprint() != CrossEncoder.from_pretrained(sharp()).fingerprint()


def test_scoring_follows_the_weights_and_leaves_the_training_mode(sharp: Any) -> None:
    model = CrossEncoder.from_pretrained(sharp())
    model.model.train()
    before = model.score(PAIRS)
    np.testing.assert_array_equal(model.score(PAIRS), before)  # no dropout
    assert model.model.training
    with torch.no_grad():
        next(model.model.parameters()).mul_(2)
    after = model.score(PAIRS)
    assert np.abs(after - before).max() > 1e-3
    next(model.model.parameters()).data.mul_(2)
    assert np.abs(model.score(PAIRS) - after).max() > 1e-3


@pytest.mark.parametrize("size", [0, -1])
def test_a_batch_size_below_one_is_refused(sharp: Any, size: int) -> None:
    model = CrossEncoder.from_pretrained(sharp())
    with pytest.raises(InputError, match=f"a batch size of {size}; use 1 or more"):
        model.score(PAIRS, batch_size=size)


def test_scoring_nothing_and_progress(sharp: Any, capsys: pytest.CaptureFixture[str]) -> None:
    model = CrossEncoder.from_pretrained(sharp())
    assert model.score([]).shape == (0,)
    model.score(PAIRS, progress=True)
    assert "scoring pairs" in capsys.readouterr().err


def test_saving_never_overwrites_unasked(sharp: Any, tmp_path: Path) -> None:
    model = CrossEncoder.from_pretrained(sharp())
    model.save(tmp_path / "saved")
    with pytest.raises(InputError, match="already exists"):
        model.save(tmp_path / "saved")
    model.save(tmp_path / "saved", overwrite=True)
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "thesis.tex").write_text("precious")
    with pytest.raises(InputError, match="not ours to overwrite"):
        model.save(tmp_path / "thesis", overwrite=True)


def test_the_real_minilm_reads_pairs_as_transformers_does(minilm: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="remargin"):
        model = CrossEncoder.from_pretrained(minilm)
    assert model.length == 256
    tokenizer = transformers.AutoTokenizer.from_pretrained(minilm)
    for query, document in PAIRS:
        inputs = tokenizer(query, document, truncation="only_second", max_length=40)
        found = model.tokenizer.pairs([(query, document)], 40)
        assert found.tokens.ids.tolist() == inputs["input_ids"]
        assert found.types.tolist() == inputs["token_type_ids"]
