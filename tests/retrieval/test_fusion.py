"""Fusion against formulas written out in loops."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remargin import InputError, Run
from remargin.retrieval.fusion import reciprocal_rank, tune_weight, weighted

RANKINGS = st.dictionaries(st.sampled_from("abcdef"), st.floats(-5, 5), min_size=1)
RUNS = st.dictionaries(st.sampled_from(["q1", "q2"]), RANKINGS, min_size=2)


@given(st.lists(RUNS, min_size=2, max_size=4), st.floats(0.5, 100))
def test_reciprocal_rank_is_its_formula(scores: list[dict[str, dict[str, float]]], k: float) -> None:
    runs = [Run.of(one) for one in scores]
    fused = reciprocal_rank(runs, k)
    for query in ("q1", "q2"):
        expected = {
            document: sum(
                1 / (k + 1 + run.top(query, 9).index(document)) for run in runs if document in run.top(query, 9)
            )
            for document in "abcdef"
        }
        expected = {document: score for document, score in expected.items() if score}
        assert fused.rankings[query] == pytest.approx(expected)


@given(RUNS, RUNS, st.floats(0, 1))
def test_the_weighted_sum_is_its_formula(
    one: dict[str, dict[str, float]], other: dict[str, dict[str, float]], weight: float
) -> None:
    def scaled(ranking: dict[str, float], document: str) -> float:
        low, high = min(ranking.values()), max(ranking.values())
        if document not in ranking:
            return 0.0
        return (ranking[document] - low) / (high - low) if high > low else 1.0

    fused = weighted(Run.of(one), Run.of(other), weight)
    for query in ("q1", "q2"):
        for document, score in fused.rankings[query].items():
            expected = (1 - weight) * scaled(one[query], document) + weight * scaled(other[query], document)
            assert score == pytest.approx(expected)
        assert fused.rankings[query].keys() == one[query].keys() | other[query].keys()


def test_scores_as_far_apart_as_floats_go_are_scaled_like_any_others() -> None:
    far = Run.of({"q": {"a": 1e308, "b": 0.0, "c": -1e308}})
    assert weighted(far, far, 0.5).rankings == {"q": {"a": 1.0, "b": 0.5, "c": 0.0}}
    near = Run.of({"q": {"a": 5e-324, "b": 0.0}})
    assert weighted(near, near, 0.5).rankings == {"q": {"a": 1.0, "b": 0.0}}


def test_the_weight_is_chosen_where_the_mean_is_best() -> None:
    good = Run.of({"q1": {"a": 3.0, "b": 2.0, "c": 1.0}, "q2": {"a": 1.0, "b": 3.0, "c": 0.0}})
    bad = Run.of({"q1": {"c": 3.0, "b": 2.0, "a": 1.0}, "q2": {"c": 3.0, "a": 2.0, "b": 1.0}})
    qrels = {"q1": {"a": 1}, "q2": {"b": 1}}
    weight, means = tune_weight(bad, good, qrels, "RR")
    assert means[weight] == 1.0 == means[1.0]
    assert means[0.0] < 0.5
    assert weight > 0.5
    assert tune_weight(good, bad, qrels, "RR")[0] < 0.5


def test_runs_that_do_not_belong_together_are_refused() -> None:
    one, other = Run.of({"q1": {"a": 1.0}}), Run.of({"q9": {"a": 1.0}})
    with pytest.raises(InputError, match="run 2 has none of the first run's queries"):
        reciprocal_rank([one, other])
    with pytest.raises(InputError, match="fusion needs two runs"):
        reciprocal_rank([one])
    with pytest.raises(InputError, match=r"a weight of 1\.5"):
        weighted(one, one, 1.5)
    with pytest.raises(InputError, match="k = 0"):
        reciprocal_rank([one, one], k=0)


def test_what_cannot_be_tuned_or_computed_is_refused() -> None:
    a, b = Run.of({"q": {"x": 2.0}}), Run.of({"q": {"x": 1.0}})
    with pytest.raises(InputError, match="none of the queries of the runs to tune with is judged"):
        tune_weight(a, b, {"other": {"x": 1}})
    with pytest.raises(InputError, match="k = nan"):
        reciprocal_rank([a, b], k=float("nan"))
