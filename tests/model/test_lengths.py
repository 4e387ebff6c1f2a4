"""Lengths and prompts come from the model's folder."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from remargin import BiEncoder, InputError
from remargin.model.encoder import PAPER_LENGTHS
from remargin.model.folder import read_text_settings


def theirs(tiny_model: Any, out: Path, family: str = "bert", positions: int = 64, **card: Any) -> Path:
    """A folder as sentence-transformers writes it: with its length and prompts, and without a file of ours."""
    BiEncoder.from_pretrained(tiny_model(family, positions=positions), "mean").save(out)
    (out / "remargin_model.json").unlink()
    length = card.pop("max_seq_length", None)
    (out / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": length, "do_lower_case": False}))
    (out / "config_sentence_transformers.json").write_text(json.dumps(card))
    return out


@pytest.mark.parametrize(
    ("positions", "says", "expected"),
    [(64, 40, 40), (64, 100, 64), (1024, None, 512), (1024, 800, 800), (64, None, 64)],
)
def test_the_folders_maximum_is_both_lengths(
    positions: int, says: int | None, expected: int, tiny_model: Any, tmp_path: Path
) -> None:
    folder = theirs(tiny_model, tmp_path / "theirs", positions=positions, max_seq_length=says)
    model = BiEncoder.from_pretrained(folder)
    assert model.query_length == model.document_length == expected
    assert read_text_settings(folder)[:2] == (expected, expected)
    laboratory = BiEncoder.from_pretrained(folder, lengths=PAPER_LENGTHS)
    assert (laboratory.query_length, laboratory.document_length) == (30, min(200, positions))
    assert BiEncoder.from_pretrained(folder, document_length=9).text_settings.document_length == 9


def test_the_length_of_a_folder_that_sentence_transformers_saved(tiny_model: Any, tmp_path: Path) -> None:
    theirs(tiny_model, tmp_path / "theirs", max_seq_length=40)
    rival = SentenceTransformer(str(tmp_path / "theirs"), device="cpu")
    rival.save_pretrained(str(tmp_path / "saved"))
    assert "max_seq_length" not in (tmp_path / "saved/sentence_bert_config.json").read_text()
    model = BiEncoder.from_pretrained(tmp_path / "saved")
    assert model.query_length == model.document_length == 40
    assert read_text_settings(tmp_path / "saved")[:2] == (40, 40)
    long = ["margins adapt to values " * 30]
    np.testing.assert_allclose(rival.encode(long), model.encode_documents(long), atol=1e-5)


@pytest.mark.parametrize("says", [10**30, 1e30, None])
def test_a_tokenizer_without_a_maximum_says_nothing(says: Any, tiny_model: Any, tmp_path: Path) -> None:
    folder = theirs(tiny_model, tmp_path / "theirs", positions=1024)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**config, "model_max_length": says}))
    assert BiEncoder.from_pretrained(folder).document_length == 512


@pytest.mark.parametrize("family", ["bert", "distilbert", "roberta", "mpnet"])
def test_without_weights_the_lengths_are_the_same(family: str, tiny_model: Any) -> None:
    model = BiEncoder.from_pretrained(tiny_model(family))
    lengths = (model.query_length, model.document_length, model.query_prefix, model.document_prefix)
    assert read_text_settings(tiny_model(family)) == lengths == (64, 64, "", "")


@pytest.mark.parametrize(
    ("card", "prefixes"),
    [
        ({}, ("", "")),
        ({"prompts": {"query": "query: ", "passage": "passage: "}}, ("query: ", "passage: ")),
        ({"prompts": {"query": "query: ", "document": "text: "}}, ("query: ", "text: ")),
        ({"prompts": {"query": "q ", "document": ""}, "default_prompt_name": "query"}, ("q ", "")),
        ({"prompts": {"both": "text: "}, "default_prompt_name": "both"}, ("text: ", "text: ")),
    ],
)
def test_prompts_are_those_of_sentence_transformers(
    card: dict[str, Any], prefixes: tuple[str, str], tiny_model: Any, tmp_path: Path
) -> None:
    folder = theirs(tiny_model, tmp_path / "theirs", **card)
    model = BiEncoder.from_pretrained(folder)
    assert (model.query_prefix, model.document_prefix) == prefixes
    rival, texts = SentenceTransformer(str(folder), device="cpu"), ["how is a value made", "the text of a test"]
    given = {"prompt": prefixes[0]}, {"prompt": prefixes[1]}  # its own choice depends on its version
    np.testing.assert_allclose(rival.encode(texts, **given[0]), model.encode_queries(texts), atol=1e-5)
    np.testing.assert_allclose(rival.encode(texts, **given[1]), model.encode_documents(texts), atol=1e-5)
    model.save(tmp_path / "saved")
    saved = SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    np.testing.assert_allclose(saved.encode_query(texts), model.encode_queries(texts), atol=1e-5)
    np.testing.assert_allclose(saved.encode_document(texts), model.encode_documents(texts), atol=1e-5)


def test_a_maximum_that_is_no_number_is_one_line(tiny_model: Any, tmp_path: Path) -> None:
    folder = theirs(tiny_model, tmp_path / "theirs", max_seq_length="long")
    with pytest.raises(InputError, match=r"sentence_bert_config.json: max_seq_length"):
        BiEncoder.from_pretrained(folder)
    shutil.rmtree(folder)


def test_passages_of_every_tokenizer_are_not_truncated(tiny_model: Any) -> None:
    text = " ".join(f"values, margins and text{i}" for i in range(40))
    for family in ("bert", "roberta", "mpnet"):
        model = BiEncoder.from_pretrained(tiny_model(family), document_length=24, document_prefix="text ")
        tokens, owners, truncated = model.tokenizer.in_passages([text, "short"], "text ", 24, *model.passages)
        assert owners.tolist() == sorted(owners.tolist())
        assert (owners == 1).sum() == 1
        assert tokens.lengths.max() <= 24
        assert truncated <= 2, family


def test_a_saved_length_is_that_of_sentence_transformers_too(minilm: Path, tmp_path: Path) -> None:
    texts = ["margins " * 300]
    whole, short = (BiEncoder.from_pretrained(minilm, document_length=length) for length in (None, 128))
    assert np.abs(short.encode_documents(texts) - whole.encode_documents(texts)).max() > 1e-3
    for model in (whole, short):
        model.save(tmp_path / "saved", overwrite=True)
        rival = SentenceTransformer(str(tmp_path / "saved"), device="cpu")
        np.testing.assert_allclose(rival.encode(texts), model.encode_documents(texts), atol=1e-5)
