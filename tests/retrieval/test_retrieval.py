"""BM25, exact search and re-ranking, on small and on real collections."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from remargin import BiEncoder, Collection, InputError
from remargin.evaluation.measures import evaluate
from remargin.evaluation.runs import Run
from remargin.files.checksums import Sums
from remargin.files.headers import read_header, write_header
from remargin.model.cross_encoder import CrossEncoder
from remargin.retrieval.bm25 import BM25, FORMAT, HEADER
from remargin.retrieval.building import build_index
from remargin.retrieval.dense import DenseIndex
from remargin.retrieval.reranking import rerank
from remargin.retrieval.searching import search
from remargin.retrieval.vectors import Vectors

SHARED = Path(__file__).parents[3] / "shared" / "data"


@pytest.mark.parametrize(
    ("name", "ndcg", "recall"),
    [
        ("scifact", 0.676, 0.913),
        ("cranfield", 0.485, 0.738),
        ("cisi", 0.363, 0.377),
        ("cacm", 0.487, 0.646),
        pytest.param("medquad", 0.533, 0.903, marks=pytest.mark.slow),
        pytest.param("squadmix", 0.617, 0.848, marks=pytest.mark.slow),
        pytest.param("acl-title2abs", 0.816, 0.972, marks=pytest.mark.slow),
        pytest.param("debian-desc", 0.697, 0.934, marks=pytest.mark.slow),
    ],
)
def test_bm25_lands_where_it_should(name: str, ndcg: float, recall: float) -> None:
    if not (SHARED / name).is_dir():
        pytest.skip("the collection is not here")
    collection = Collection.load(SHARED / name, skip_bad=True)  # some documents are empty
    found = evaluate(search(collection, "bm25"), collection.qrels, ["nDCG@10", "R@100"]).means
    assert found["nDCG@10"] == pytest.approx(ndcg, abs=0.005)
    assert found["R@100"] == pytest.approx(recall, abs=0.005)


def test_bm25_returns_only_documents_that_share_a_word() -> None:
    index = BM25({"d1": "cats purring", "d2": "dogs barking", "d3": "the and of"})
    run = index.search({"q1": "a purring cat", "q2": "nothing in common", "q3": "the of"}, k=10)
    assert {query: list(found) for query, found in run.rankings.items()} == {"q1": ["d1"], "q2": [], "q3": []}
    assert BM25({"d": "Häuser brennen"}, language="german").search({"q": "Haus brennt"}).top("q", 1) == ["d"]
    with pytest.raises(InputError, match="unknown language 'klingon'"):
        BM25({"d": "x"}, language="klingon")


def test_a_saved_bm25_finds_the_same(tmp_path: Path) -> None:
    index = BM25({"d1": "Katzen schnurren", "d2": "Hunde bellen", "d3": "Katze"}, k1=1.2, b=0.75, language="german")
    index.save(tmp_path / "index", data="pets")
    again = BM25.load(tmp_path / "index")
    queries = {"q1": "eine schnurrende Katze", "q2": "der Hund", "q3": "nichts davon"}
    assert again.search(queries).rankings == index.search(queries).rankings
    assert len(again.search(queries).rankings["q1"]) == 2
    assert isinstance(again._index.scores["data"], np.memmap)
    with pytest.raises(InputError, match="already exists"):
        index.save(tmp_path / "index")
    for file in (tmp_path / "index").glob("*/*"):
        whole = file.read_bytes()
        file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        with pytest.raises(InputError, match=f"{file.name}: damaged"):
            BM25.load(tmp_path / "index")
        file.write_bytes(whole)
    file.unlink()
    with pytest.raises(InputError, match=f"{file.name}: missing"):
        BM25.load(tmp_path / "index")
    for k1, b in ((-1, 0.4), (0.9, 1.5)):
        with pytest.raises(InputError, match="use k1 of at least 0"):
            BM25({"d": "x"}, k1=k1, b=b)


def test_a_query_does_not_find_itself() -> None:
    documents = {"a": "cats purr", "b": "cats purr loudly", "c": "dogs bark", "d": "cats sleep"}
    queries = {"a": "cats purr", "c": "cats sleep"}  # query c is no document: its id is one's by accident
    collection = Collection("c", "test", documents, queries, {"a": {"b": 1}, "c": {"d": 1}})
    run = search(collection, "bm25", k=2)
    assert list(run.rankings["a"]) == ["b", "d"]
    assert set(run.rankings["c"]) <= {"a", "b", "d"}


DOCUMENTS = {f"d{i}": f"document number {i} about {'margins' if i % 2 else 'values'}" for i in range(20)}
QUERIES = {"q1": "margins", "q2": "values of documents"}
COLLECTION = Collection("pieces", "test", DOCUMENTS, QUERIES, {})


def test_reranking_everything_is_exact_search(tiny_encoder: Any) -> None:
    model = BiEncoder.from_pretrained(tiny_encoder("bert"))
    whole = DenseIndex(model, Vectors.of(model, DOCUMENTS)).search(QUERIES, k=20)
    first = Run.of({query: dict.fromkeys(DOCUMENTS, 1.0) for query in QUERIES})
    again = rerank(COLLECTION, model, first)
    for query in QUERIES:
        assert set(again.rankings[query]) == set(whole.rankings[query])
        for document, score in again.rankings[query].items():
            assert score == pytest.approx(whole.rankings[query][document], abs=1e-5)
    shallow = rerank(COLLECTION, model, first, depth=3)
    assert set(shallow.rankings["q1"]) == set(first.top("q1", 3))


def test_reranking_encodes_each_text_once(tiny_encoder: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model = BiEncoder.from_pretrained(tiny_encoder("bert"))
    encoded: list[str] = []
    of_queries, of_documents = model.encode_queries, model.encode_passages

    def queries(texts: list[str]) -> Any:
        encoded.extend(texts)
        return of_queries(texts)

    def documents(texts: list[str], *lengths: int) -> Any:
        encoded.extend(texts)
        return of_documents(texts, *lengths)

    monkeypatch.setattr(model, "encode_queries", queries)
    monkeypatch.setattr(model, "encode_passages", documents)
    rerank(COLLECTION, model, Run.of({q: dict.fromkeys(DOCUMENTS, 1.0) for q in QUERIES}))
    assert sorted(encoded) == sorted([*DOCUMENTS.values(), *QUERIES.values()])


def test_a_cross_encoder_reranks_by_its_scores(tiny_encoder: Any) -> None:
    model = CrossEncoder.from_pretrained(tiny_encoder("bert"))
    with torch.no_grad():
        model.model.classifier.weight.normal_(generator=torch.Generator().manual_seed(0))
    first = Run.of({"q2": dict.fromkeys(DOCUMENTS, 1.0), "q1": {"d3": 2.0, "d4": 1.0}})
    again = rerank(COLLECTION, model, first)
    assert {query: set(found) for query, found in again.rankings.items()} == {"q1": {"d3", "d4"}, "q2": set(DOCUMENTS)}
    for query, found in again.rankings.items():
        assert list(found.values()) == sorted(found.values(), reverse=True)
        for document, score in found.items():
            alone = model.score([(QUERIES[query], DOCUMENTS[document])])[0]
            assert score == pytest.approx(alone, abs=1e-5)
    assert len(set(again.rankings["q2"].values())) > 10
    assert set(rerank(COLLECTION, model, first, depth=3).rankings["q2"]) == set(first.top("q2", 3))
    with pytest.raises(InputError, match="id 'q2': query leaves no room for a document in 64 tokens"):
        rerank(replace(COLLECTION, queries={"q2": "margins " * 61}), model, first)


def test_a_run_of_another_collection_is_refused(tiny_encoder: Any) -> None:
    model = BiEncoder.from_pretrained(tiny_encoder("bert"))
    with pytest.raises(InputError, match="none of the collection's queries"):
        rerank(COLLECTION, model, Run.of({"other": {"d1": 1.0}}))
    with pytest.raises(InputError, match="id 'x': the run has a document that is not in the collection"):
        rerank(COLLECTION, model, Run.of({"q1": {"x": 1.0}}))


def test_the_index_of_another_collection_is_refused(
    tiny_encoder: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "index"
    BM25(DOCUMENTS).save(folder)
    assert len(search(Collection("same", "test", DOCUMENTS, QUERIES, {}), folder)) == len(QUERIES)
    model = BiEncoder.from_pretrained(tiny_encoder("bert"))
    build_index(Vectors.of(model, DOCUMENTS), tmp_path / "dense")
    assert not [record for record in caplog.records if record.levelname == "WARNING"]
    more = Collection("more", "test", {"d1": DOCUMENTS["d1"], "x": "new", "y": "newer"}, QUERIES, {})
    assert search(more, folder).rankings == BM25(DOCUMENTS).search(QUERIES).rankings  # an index may lag behind
    found = len({id for ranking in search(more, tmp_path / "dense", model).rankings.values() for id in ranking})
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert all("lacks 2 of 3 documents of more" in warning for warning in warnings)
    assert warnings[1].endswith(f"and found {found - 1} that are not among them: see `remargin update`")
    other = Collection("other", "test", {f"o{id}": text for id, text in DOCUMENTS.items()}, QUERIES, {})
    with pytest.raises(InputError, match=r"index: id 'd\d+': is not a document of other, nor is any other that"):
        search(other, folder)
    no_words = Collection("other", "test", other.documents, {"q": "the"}, {})
    assert search(no_words, folder).rankings == {"q": {}}


def test_an_index_and_its_model_go_together(tiny_encoder: Any) -> None:
    collection = Collection("c", "test", DOCUMENTS, QUERIES, {"q1": {"d1": 1}})
    with pytest.raises(InputError, match="index 'exact' needs a model"):
        search(collection, "exact")
    with pytest.raises(InputError, match="index 'bm25' takes no model"):
        search(collection, "bm25", BiEncoder.from_pretrained(tiny_encoder("bert")))
    with pytest.raises(InputError, match="unknown index 'hnsw'"):
        search(collection, "hnsw")


def test_bm25_does_not_start_jax(tmp_path: Path) -> None:
    (tmp_path / "jax").mkdir()
    (tmp_path / "jax" / "__init__.py").write_text("print('JAX has started')")
    code = (
        "import sys, remargin.retrieval.bm25 as b\n"
        "print(len(b.BM25({'d': 'margin', 'e': 'loss'}).search({'q': 'loss'})), 'jax' in sys.modules)\n"
        "import jax"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["1 False", "JAX has started"]


def test_a_vocabulary_of_other_numbers_is_refused(tmp_path: Path) -> None:
    """With checksums that match: a word whose number has no column would fail in the middle of a search."""
    BM25({"a": "dogs bark", "b": "cats purr"}).save(tmp_path / "index")
    file = tmp_path / "index" / "bm25s" / "vocab.index.json"
    words = json.loads(file.read_text())
    word = max((word for word in words if word), key=words.__getitem__)
    words[word], words[""] = words[""], words[word]
    file.write_text(json.dumps(words))
    header = read_header(tmp_path / "index" / HEADER, dict, FORMAT, "")
    header["sums"]["bm25s/vocab.index.json"] = Sums.of(file)
    write_header(tmp_path / "index" / HEADER, header)
    with pytest.raises(InputError, match="its parts do not belong together"):
        BM25.load(tmp_path / "index")
