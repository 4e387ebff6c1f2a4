"""The systems find what their indexes find, together as one at a time."""

from __future__ import annotations

import numpy as np
import pytest

from remargin.errors import InputError
from remargin.retrieval.hybrid import HybridIndex
from remargin.serving.engine import NAMES, Engine, Hit
from remargin.serving.service import EncodeJob, Job, SearchJob, work

from .conftest import Make

QUERIES = ["how do margins 9", "the list of values", "zzz", "returns returns returns", "a\0b \u202e", "list"]


@pytest.fixture(scope="module")
def engine(make_service: Make) -> Engine:
    return make_service().engine


def same_ranking(hits: list[Hit], others: list[Hit], within: float = 1e-5) -> bool:
    """The same but for rounding, after which documents with equal scores may be in another order."""
    scores = dict(others)
    assert [hit.score for hit in hits] == pytest.approx([hit.score for hit in others], abs=within)
    assert all(hit.score == pytest.approx(scores.get(hit.id, hits[-1].score), abs=within) for hit in hits)
    return True


def test_every_system_ranks_as_its_index_does(engine: Engine) -> None:
    assert engine.after is not None
    assert engine.before is not None
    assert engine.bm25 is not None
    assert engine.hybrid is not None
    indexes = {
        "bm25": engine.bm25,
        "before": engine.before,
        "after": engine.after,
        "hybrid": HybridIndex(engine.after, engine.bm25, engine.hybrid),
    }
    assert engine.systems == list(NAMES) == list(indexes)
    queries = {str(n): query for n, query in enumerate(QUERIES)}
    for name in NAMES:
        found = engine.search([(query, name) for query in QUERIES], k=7)
        expected = indexes[name].search(queries, 7).rankings
        for number, hits in enumerate(found):
            assert same_ranking(hits, [Hit(*hit) for hit in expected[str(number)].items()])
        assert any(found), name


def test_queries_that_are_searched_together_find_the_same_as_alone(engine: Engine) -> None:
    asked = [(name, place) for name in NAMES for place in range(len(QUERIES))]
    jobs: list[Job] = [SearchJob(engine, QUERIES[place], name, 3 + place) for name, place in asked]
    jobs += [EncodeJob(engine, (*QUERIES[:place], "x"), "documents", "after") for place in range(4)]
    jobs += [EncodeJob(engine, tuple(QUERIES), "queries", "before")]
    together = work(jobs)
    for job, done in zip(jobs, together, strict=True):
        (alone,) = work([job])
        if isinstance(job, SearchJob):
            assert isinstance(done, list)
            assert isinstance(alone, list)
            assert len(done) <= job.k
            # To a random model all texts are nearly the same: scaled to 0..1, rounding shows.
            assert same_ranking(done, alone, 0.02 if job.system == "hybrid" else 1e-5)
        else:
            np.testing.assert_allclose(done[0], alone[0], atol=1e-6)
            assert done[1:] == alone[1:]


def test_texts_are_encoded_as_the_encoder_does(engine: Engine) -> None:
    assert engine.after is not None
    model = engine.after.model
    texts = ["the list", "value " * 500]
    (queries,) = engine.encode([texts], "queries")
    (documents,) = engine.encode([texts], "documents")
    np.testing.assert_allclose(queries.vectors, model.encode_queries(texts), atol=1e-6)
    np.testing.assert_allclose(documents.vectors, model.encode_documents(texts), atol=1e-6)
    assert (queries.truncated, documents.truncated) == (1, 1)
    assert queries.tokens <= documents.tokens < 200


def test_what_is_not_loaded_is_refused(engine: Engine) -> None:
    alone = Engine(None, None, engine.bm25, None, engine.texts, engine.known)
    assert (alone.systems, alone.default, len(alone)) == (["bm25"], "bm25", 41)
    with pytest.raises(InputError, match="no system 'after' is loaded; use bm25"):
        alone.search([("x", "after")], 3)
    with pytest.raises(InputError, match="no encoder 'after' is loaded"):
        alone.encode([["x"]])


def test_judged_queries_are_known_whatever_their_case(engine: Engine) -> None:
    assert engine.known.relevant("How do  VALUE 0") == {"d0"}
    assert engine.known.relevant("how do value") is None
    assert sorted(engine.known.examples) == ["how do adapt 10", "how do document 11", "how do margins 9"]
