"""mteb measures what `remargin evaluate` measures, on a collection of ours and without the hub."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mteb
import pytest

from remargin import BiEncoder, Collection, evaluate, search
from remargin.integrations.mteb import MtebEncoder, mteb_task

DATA = "docstrings:json,email"
MEASURES = {"nDCG@10": "ndcg_at_10", "R@100": "recall_at_100", "nDCG@3": "ndcg_at_3", "AP@1000": "map_at_1000"}


def mteb_scores(model: Any, collection: Collection) -> dict[str, float]:
    results = mteb.evaluate(model, mteb_task(collection), cache=None, show_progress_bar=False)
    (scores,) = results[0].scores[collection.split]
    return {ours: scores[theirs] for ours, theirs in MEASURES.items()}


def assert_same(model: BiEncoder, wrapped: Any, collection: Collection) -> None:
    means = evaluate(search(collection, model=model, passage_length="off"), collection, list(MEASURES)).means
    assert 0.01 < means["nDCG@10"] < 0.99
    assert mteb_scores(wrapped, collection) == pytest.approx(means, abs=6e-6)  # mteb rounds to five digits


def test_an_encoder_has_its_own_prefixes_and_lengths(still_model: Path) -> None:
    model = BiEncoder.from_pretrained(
        still_model, device="cpu", query_length=12, document_length=40, query_prefix="query: ", document_prefix="text: "
    )
    collection = Collection.load(DATA, "train")
    assert_same(model, MtebEncoder(model), collection)
    meta = MtebEncoder(model, "me/mine").mteb_model_meta
    assert (meta.name, meta.embed_dim) == ("me/mine", 32)
    other = BiEncoder.from_pretrained(still_model, device="cpu", query_length=13, document_length=40)
    assert MtebEncoder(other).mteb_model_meta.revision != meta.revision  # so that no cached result is taken for it


@pytest.mark.filterwarnings("ignore:The fill_missing parameter", "ignore:The `get_sentence_embedding")  # mteb's own
def test_a_saved_folder_is_measured_through_sentence_transformers(tiny_encoder: Any, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    model = BiEncoder.from_pretrained(
        tiny_encoder(positions=256), pooling="mean", query_length=200, document_length=200
    )
    model.save(tmp_path / "model")
    assert_same(model, SentenceTransformer(str(tmp_path / "model"), device="cpu"), Collection.load(DATA, "train"))


def test_a_query_does_not_find_itself_but_one_with_a_documents_id_may(still_model: Path) -> None:
    """Query a is document a and query c just has the id of document c."""
    texts = {"a": "the list of text", "b": "a list of value", "c": "train the model", "d": "test a file"}
    queries = {"a": "the list of text", "c": "the model", "query-c": "of value", "e": "a file"}
    qrels = {"a": {"b": 2, "d": 1}, "c": {"c": 1}, "query-c": {"b": 1}, "e": {"a": 1}}
    collection = Collection("made up", "test", texts, queries, qrels)
    assert collection.self_matches == {"a"}
    model = BiEncoder.from_pretrained(still_model, device="cpu")
    task = mteb_task(collection, name="made-up")
    task.load_data()
    ids = task.dataset["default"]["test"]["queries"]["id"]
    assert list(ids) == ["a", "query-c", "query-query-c", "query-e"]
    assert_same(model, MtebEncoder(model), collection)


def test_nano_beir_has_the_name_that_the_page_gives() -> None:
    """The tasks themselves are on the hub."""
    assert len(mteb.get_benchmark("NanoBEIR").tasks) == 13
