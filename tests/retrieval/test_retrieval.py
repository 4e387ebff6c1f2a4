"""BM25, exact search and re-ranking, on small and on real collections."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remargin import BiEncoder, Collection, InputError
from remargin.evaluation.measures import evaluate
from remargin.evaluation.runs import Run
from remargin.retrieval import exact
from remargin.retrieval.bm25 import BM25
from remargin.retrieval.exact import DocumentIndex, top_k
from remargin.retrieval.rerank import rerank
from remargin.retrieval.search import search

SHARED = Path(__file__).parents[3] / "shared" / "data"


@pytest.mark.parametrize(("name", "ndcg", "recall"), [("scifact", 0.676, 0.913), ("cranfield", 0.485, 0.738)])
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
    with pytest.raises(InputError, match="no stop words for 'klingon'"):
        BM25({"d": "x"}, language="klingon")


@given(
    st.integers(1, 40), st.integers(1, 30), st.integers(1, 50), st.integers(1, 9), st.integers(1, 9), st.integers(0, 99)
)
def test_blocked_top_k_is_the_whole_matrix_sorted(
    documents: int, queries: int, k: int, document_block: int, query_block: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    q, d = rng.normal(size=(queries, 6)).astype("f4"), rng.normal(size=(documents, 6)).astype("f4")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact, "DOCUMENTS_AT_ONCE", document_block)
        patch.setattr(exact, "QUERIES_AT_ONCE", query_block)
        scores, rows = top_k(q, d, k)
    expected = -np.sort(-(q @ d.T), axis=1)[:, :k]
    np.testing.assert_allclose(scores, expected, atol=1e-5)
    np.testing.assert_allclose(np.take_along_axis(q @ d.T, rows, 1), scores, atol=1e-5)


DOCUMENTS = {f"d{i}": f"document number {i} about {'margins' if i % 2 else 'values'}" for i in range(20)}
QUERIES = {"q1": "margins", "q2": "values of documents"}


def test_reranking_everything_is_exact_search(tiny_model: Any) -> None:
    model = BiEncoder.from_pretrained(tiny_model("bert"))
    whole = DocumentIndex(model, DOCUMENTS).search(QUERIES, k=20)
    first = Run.of({query: dict.fromkeys(DOCUMENTS, 1.0) for query in QUERIES})
    again = rerank(model, first, DOCUMENTS, QUERIES)
    for query in QUERIES:
        assert set(again.rankings[query]) == set(whole.rankings[query])
        for document, score in again.rankings[query].items():
            assert score == pytest.approx(whole.rankings[query][document], abs=1e-5)
    shallow = rerank(model, first, DOCUMENTS, QUERIES, depth=3)
    assert set(shallow.rankings["q1"]) == set(first.top("q1", 3))


def test_reranking_encodes_each_text_once(tiny_model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model = BiEncoder.from_pretrained(tiny_model("bert"))
    encoded: list[str] = []
    original = model._encode

    def spy(kind: str, texts: list[str], *rest: Any) -> Any:
        encoded.extend(texts)
        return original(kind, texts, *rest)

    monkeypatch.setattr(model, "_encode", spy)
    rerank(model, Run.of({q: dict.fromkeys(DOCUMENTS, 1.0) for q in QUERIES}), DOCUMENTS, QUERIES)
    assert sorted(encoded) == sorted([*DOCUMENTS.values(), *QUERIES.values()])


def test_a_run_of_another_collection_is_refused(tiny_model: Any) -> None:
    model = BiEncoder.from_pretrained(tiny_model("bert"))
    with pytest.raises(InputError, match="none of the collection's queries"):
        rerank(model, Run.of({"other": {"d1": 1.0}}), DOCUMENTS, QUERIES)
    with pytest.raises(InputError, match="id 'x': the run has a document that is not in the collection"):
        rerank(model, Run.of({"q1": {"x": 1.0}}), DOCUMENTS, QUERIES)


def test_an_index_and_its_model_go_together(tiny_model: Any) -> None:
    collection = Collection("c", "test", DOCUMENTS, QUERIES, {"q1": {"d1": 1}})
    with pytest.raises(InputError, match="index 'exact' needs a model"):
        search(collection, "exact")
    with pytest.raises(InputError, match="index 'bm25' takes no model"):
        search(collection, "bm25", BiEncoder.from_pretrained(tiny_model("bert")))
    with pytest.raises(InputError, match="unknown index 'hnsw'"):
        search(collection, "hnsw")  # type: ignore[arg-type]
