"""Measures against pytrec_eval, with ties, gaps and graded judgments."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytrec_eval
from hypothesis import given, settings
from hypothesis import strategies as st

from remargin import InputError
from remargin.evaluation.comparison import read_query_scores
from remargin.evaluation.measures import evaluate, judged_cutoff
from remargin.evaluation.runs import Run
from remargin.evaluation.significance import bootstrap, paired_bootstrap

NAMES = {
    "nDCG@10": "ndcg_cut_10",
    "nDCG": "ndcg",
    "R@5": "recall_5",
    "RR": "recip_rank",
    "AP": "map",
    "P@3": "P_3",
    "Success@5": "success_5",
}
DOCUMENTS = st.sampled_from([f"d{i}" for i in range(15)])
QUERIES = st.sampled_from([f"q{i}" for i in range(5)])
# Few scores make ties; few queries and documents make gaps on both sides; -1 and -2 are TREC's marks for junk.
QRELS = st.dictionaries(QUERIES, st.dictionaries(DOCUMENTS, st.integers(-2, 3), min_size=1), min_size=1)
RUNS = st.dictionaries(QUERIES, st.dictionaries(DOCUMENTS, st.sampled_from([-1.0, 0.0, 0.5, 1.0, 2.5])), min_size=1)
Qrels, Scores = dict[str, dict[str, int]], dict[str, dict[str, float]]


@pytest.mark.parametrize("rel", [1, 2])
@given(qrels=QRELS, scores=RUNS)
@settings(max_examples=60)
def test_measures_are_those_of_pytrec_eval(rel: int, qrels: Qrels, scores: Scores) -> None:
    relevant = {query: {d: g for d, g in grades.items() if g >= 0} for query, grades in qrels.items()}  # it crashes
    theirs = pytrec_eval.RelevanceEvaluator(relevant, set(NAMES.values()), relevance_level=rel).evaluate(scores)
    names = {graded(name, rel): theirs for name, theirs in NAMES.items()}
    found = evaluate(Run.of(scores), qrels, list(names))
    assert set(found.missing) == {query for query in qrels if not scores.get(query)}
    for ours, name in names.items():
        assert set(found.per_query[ours]) == set(qrels)
        for query, value in found.per_query[ours].items():
            assert value == pytest.approx(theirs.get(query, {}).get(name, 0.0), abs=1e-6)


def graded(name: str, rel: int) -> str:
    measure, at, cutoff = name.partition("@")
    return name if measure == "nDCG" or rel == 1 else f"{measure}(rel={rel}){at}{cutoff}"


@given(qrels=QRELS, scores=RUNS)
@settings(max_examples=60)
def test_measures_are_those_of_their_formulas(qrels: Qrels, scores: Scores) -> None:
    names = ["RR@3", "nDCG@3", "Judged@4", "R@3", "RR", "Success@3"]  # RR@3 and Judged@4 are not trec_eval's
    found = evaluate(Run.of(scores), qrels, names)
    for query, grades in qrels.items():
        ranking = sorted(scores.get(query, {}), key=lambda d: (scores[query][d], d), reverse=True)
        gains = [max(grades.get(d, 0), 0) for d in ranking]
        ideal = sorted((max(grade, 0) for grade in grades.values()), reverse=True)
        relevant = sum(gain > 0 for gain in ideal)
        ranks = [rank for rank, gain in enumerate(gains, 1) if gain]
        expected = {
            "RR@3": 1 / ranks[0] if ranks and ranks[0] <= 3 else 0.0,
            "nDCG@3": dcg(gains[:3]) / dcg(ideal[:3]) if relevant else 0.0,
            "Judged@4": sum(d in grades for d in ranking[:4]) / len(ranking[:4]) if ranking else 0.0,
            "R@3": sum(rank <= 3 for rank in ranks) / relevant if relevant else 0.0,
            "RR": 1 / ranks[0] if ranks else 0.0,
            "Success@3": float(any(rank <= 3 for rank in ranks)),
        }
        for name, value in expected.items():
            assert found.per_query[name][query] == pytest.approx(value, abs=1e-6), (name, query)


def dcg(gains: list[int]) -> float:
    return sum(gain / math.log2(rank + 1) for rank, gain in enumerate(gains, 1))


@given(qrels=QRELS, scores=RUNS)
@settings(max_examples=60)
def test_the_share_of_judged_documents_is_that_of_the_queries_that_the_run_has(qrels: Qrels, scores: Scores) -> None:
    run = Run.of(scores)
    found = evaluate(run, qrels, ["R@3", "RR", "nDCG@100"])
    for name, cutoff in {"R@3": 3, "RR": 10, "nDCG@100": 100}.items():
        tops = {query: run.top(query, cutoff) for query in qrels}
        shares = [sum(d in qrels[query] for d in top) / len(top) for query, top in tops.items() if top]
        if shares:
            assert found.judged[name] == pytest.approx(sum(shares) / len(shares))
        else:
            assert math.isnan(found.judged[name])


def test_the_cutoff_for_judged_documents_is_the_measures_own() -> None:
    names = {"nDCG@10": 10, "R@100": 100, "R(rel=2)@1000": 1000, "RR": 10, "AP": 10, "IPrec@0.1": 10}
    assert {name: judged_cutoff(name) for name in names} == names


def test_saved_scores_are_read_back_whatever_the_query_ids(tmp_path: Path) -> None:
    ids = ["q1", "a,b", 'say "so"', "two words", "ü", "'", "#1"]
    found = evaluate(Run.of({"a,b": {"a": 1.0}, "ü": {"b": 2.0, "a": 1.0}}), {i: {"a": 1} for i in ids}, ["RR", "R@1"])
    for name in ("scores.csv", "scores.csv.gz"):
        found.save(tmp_path / name)
        assert read_query_scores(tmp_path / name) == found.per_query
    lines = (tmp_path / "scores.csv").read_bytes().splitlines(keepends=True)
    assert lines[:3] == [b"query,RR,R@1\n", b"q1,0.000000,0.000000\n", b'"a,b",1.000000,1.000000\n']


def test_binarisation_at_a_grade() -> None:
    run, qrels = Run.of({"q": {"a": 2.0, "b": 1.0}}), {"q": {"a": 1, "b": 2, "c": 3}}
    assert evaluate(run, qrels, ["R(rel=2)@10", "RR(rel=2)"]).means == {"R(rel=2)@10": 0.5, "RR(rel=2)": 0.5}


def test_what_a_notebook_has_at_hand_is_taken() -> None:
    ids = np.array(["a", "b", "c"])
    run = Run.of({"q": dict(zip(ids, np.array([0.5, 0.75, 0.25], "f4"), strict=True))})
    qrels: Any = {"q": {"a": np.int64(1), "b": 1.0, "c": np.float32(-1)}}
    assert evaluate(run, qrels, "R@1").means == {"R@1": 0.5}
    assert evaluate(run, qrels, ["RR", "MRR", "RR@10"]).means == {"RR": 1.0, "MRR": 1.0, "RR@10": 1.0}


@pytest.mark.parametrize(
    ("scores", "qrels", "message"),
    [
        ({1: {"a": 1.0}}, {"1": {"a": 1}}, "query id 1 is not a string; give strings"),
        ({"1": {"a": 1.0}}, {1: {"a": 1}}, "query id 1 is not a string"),
        ({"q": {7: 1.0}}, {"q": {"7": 1}}, "document id 7 is not a string"),
        ({"q": {"7": 1.0}}, {"q": {7: 1}}, "document id 7 is not a string"),
        ({"q": {"x\0a": 1.0}}, {"q": {"x\0b": 1}}, r"document id 'x\\x00a' has a NUL byte in it"),
        ({"q": {"x": 1.0}}, {"q": {"x\0b": 1}}, r"document id 'x\\x00b' has a NUL byte in it"),
        ({"q": {"a": 1.0}}, {"q": {"a": 0.5}}, "id 'q': grade 0.5 of document 'a' is not a whole number; give one"),
        ({"q": {"a": 1.0}}, {"q": {"a": math.nan}}, "grade nan of document 'a'"),
        ({"q": {"a": 1.0}}, {"q": {"a": "1"}}, "grade '1' of document 'a'"),
        ({"q": {"a": 1.0}}, {"q": {"a": 2**32 + 1}}, "grade 4294967297 .* from -1,000,000 to 1,000,000"),
    ],
)
def test_what_pytrec_eval_would_crash_on_or_misread_is_one_clear_line(scores: Any, qrels: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        evaluate(Run.of(scores), qrels, ["RR"])


def test_wrong_measures_and_no_judgments_are_one_clear_line() -> None:
    run = Run.of({"q": {"a": 1.0}})
    unknown = ["nDGC@10", "nDCG@", "", "nDCG@ten", "P@1.5", "R(rel=x)@5", "nDCG(gain=1)@10", "R", "nDCG@True"]
    for name in [*unknown, "nDCG@0", "RR@0", "R(rel=0)@5", "P@99999999999999999999", "RR(rel=99999999999)"]:
        with pytest.raises(InputError, match="unknown measure") as error:
            evaluate(run, {"q": {"a": 1}}, [name])
        assert "\n" not in str(error.value)
        assert "<object" not in str(error.value)
    with pytest.raises(InputError, match=r"cannot compute 'NumRel\(rel=2\)' here"):
        evaluate(run, {"q": {"a": 1}}, ["NumRel(rel=2)"])
    with pytest.raises(InputError, match="could not compute ERR@20; choose another; this one needs Perl, and numbers"):
        evaluate(run, {"q": {"a": 1}}, ["RR", "ERR@20"])
    with pytest.raises(InputError, match=r"could not compute Accuracy@1; .* the last document is relevant"):
        evaluate(run, {"q": {"a": 1}}, ["Accuracy@1"])
    with pytest.raises(InputError, match="no judgments"):
        evaluate(run, {}, ["RR"])


def test_bootstrap_intervals_cover_the_mean_about_as_often_as_they_say() -> None:
    rng = np.random.default_rng(0)
    hits = 0
    for trial in range(100):
        interval = bootstrap(rng.normal(0.3, 1.0, 80).tolist(), samples=500, seed=trial)
        hits += interval.low <= 0.3 <= interval.high
    assert 85 <= hits <= 100
    with pytest.raises(ValueError, match="different queries"):
        paired_bootstrap({"a": 1.0}, {"b": 1.0})
