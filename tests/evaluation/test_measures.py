"""Measures against pytrec_eval, with ties, gaps and graded judgments."""

from __future__ import annotations

import pytest
import pytrec_eval
from hypothesis import given, settings
from hypothesis import strategies as st

from remargin import InputError
from remargin.evaluation.measures import evaluate
from remargin.evaluation.runs import Run
from remargin.evaluation.significance import bootstrap, paired_bootstrap

NAMES = {"nDCG@10": "ndcg_cut_10", "R@5": "recall_5", "RR": "recip_rank", "AP": "map", "Success@5": "success_5"}
DOCUMENTS = st.sampled_from([f"d{i}" for i in range(15)])
QUERIES = st.sampled_from([f"q{i}" for i in range(5)])


@given(
    qrels=st.dictionaries(QUERIES, st.dictionaries(DOCUMENTS, st.integers(0, 3), min_size=1), min_size=1),
    scores=st.dictionaries(QUERIES, st.dictionaries(DOCUMENTS, st.sampled_from([0.0, 0.5, 1.0, 2.5])), min_size=1),
)
@settings(max_examples=60, deadline=None)
def test_measures_are_those_of_pytrec_eval(
    qrels: dict[str, dict[str, int]], scores: dict[str, dict[str, float]]
) -> None:
    theirs = pytrec_eval.RelevanceEvaluator(qrels, set(NAMES.values())).evaluate(scores)
    found = evaluate(Run.of(scores), qrels, list(NAMES))
    assert set(found.missing) == {query for query in qrels if not scores.get(query)}
    for ours, name in NAMES.items():
        assert set(found.per_query[ours]) == set(qrels)
        for query, value in found.per_query[ours].items():
            assert value == pytest.approx(theirs.get(query, {}).get(name, 0.0), abs=1e-6)


def test_binarisation_at_a_grade() -> None:
    run, qrels = Run.of({"q": {"a": 2.0, "b": 1.0}}), {"q": {"a": 1, "b": 2, "c": 3}}
    assert evaluate(run, qrels, ["R(rel=2)@10", "RR(rel=2)"]).means == {"R(rel=2)@10": 0.5, "RR(rel=2)": 0.5}


def test_wrong_measures_and_no_judgments_are_one_clear_line() -> None:
    run = Run.of({"q": {"a": 1.0}})
    for name in ("nDGC@10", "nDCG@", "", "nDCG@ten"):
        with pytest.raises(InputError, match="unknown measure"):
            evaluate(run, {"q": {"a": 1}}, [name])
    with pytest.raises(InputError, match="no judgments"):
        evaluate(run, {}, ["RR"])


def test_bootstrap_intervals_cover_the_mean_about_as_often_as_they_say() -> None:
    import numpy as np

    rng = np.random.default_rng(0)
    hits = 0
    for trial in range(100):
        interval = bootstrap(rng.normal(0.3, 1.0, 80).tolist(), samples=500, seed=trial)
        hits += interval.low <= 0.3 <= interval.high
    assert 85 <= hits <= 100
    with pytest.raises(ValueError, match="different queries"):
        paired_bootstrap({"a": 1.0}, {"b": 1.0})
