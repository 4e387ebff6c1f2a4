"""Comparisons of runs: groups, corrections, references, and what is wrong with the input."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.weightstats import ttost_paired

from remargin import InputError, Run
from remargin.evaluation.comparison import (
    CompareSettings,
    Comparison,
    compare_runs,
    compare_scores,
    read_query_scores,
)
from remargin.evaluation.measures import evaluate
from remargin.evaluation.significance import minimal_detectable_difference

Scores = dict[str, dict[str, dict[str, float]]]


@pytest.fixture
def scores() -> Scores:
    """Four runs by two measures on thirty queries: one best, one close to it, one a little and one far behind."""
    rng = np.random.default_rng(0)
    base = rng.random(30)
    means = {"far": -0.3, "best_one": 0.0, "close": -0.005, "behind": -0.04}
    runs = {run: base + rng.normal(mean, 0.05, 30) for run, mean in means.items()}
    return {
        run: {
            "nDCG@10": {f"q{i}": float(value) for i, value in enumerate(values)},
            "R@100": {f"q{i}": float(value) / 2 for i, value in enumerate(values)},
        }
        for run, values in runs.items()
    }


def values(scores: Scores, run: str, measure: str = "nDCG@10") -> np.ndarray:
    return np.array(list(scores[run][measure].values()))


def test_each_measure_is_a_group_of_its_own(scores: Scores) -> None:
    found = compare_scores(scores)
    assert found.runs == ["far", "best_one", "close", "behind"]
    assert found.measures == ["nDCG@10", "R@100"]
    for measure in found.measures:
        others = ["far", "close", "behind"]
        b = values(scores, "best_one", measure)
        plain = [ttost_paired(values(scores, run, measure), b, -0.05, 0.05)[0] for run in others]
        for how in ("bonferroni", "holm"):
            theirs = multipletests(plain, method=how)[1]
            ours = [found.row(measure, run).difference.tost.corrected(how) for run in others]  # type: ignore[union-attr]
            assert ours == pytest.approx(theirs, rel=1e-9)
        assert found.row(measure, "best_one").difference is None
        assert [row.is_best for row in found.rows if row.measure == measure] == [False, True, False, False]


def test_the_verdicts_follow_the_corrected_p_values(scores: Scores) -> None:
    verdicts: dict[str, dict[str, tuple[bool, bool, bool]]] = {}
    for correction in ("bonferroni", "holm", "none"):
        found = compare_scores(scores, correction=correction)
        verdicts[correction] = {}
        for row in found.rows:
            d = row.difference
            if d is None:
                assert not row.equivalent
                continue
            assert d.equivalent == row.equivalent == (d.tost.corrected(correction) < 0.05)
            assert d.non_inferior == (d.non_inferiority.corrected(correction) < 0.05)
            assert d.different == (d.t.corrected(correction) < 0.05)
            assert d.wins + d.ties + d.losses == row.queries == 30
            assert d.mean.low <= d.mean.mean <= d.mean.high
            if row.measure == "nDCG@10":
                verdicts[correction][row.run] = (d.equivalent, d.non_inferior, d.different)
    assert verdicts["bonferroni"]["close"] == (True, True, False)
    assert verdicts["bonferroni"]["far"] == (False, False, True)


BOUND, COUNT, SPREAD = 0.05, 20, 0.05
ERROR = SPREAD / math.sqrt(COUNT)
SHIFTS = {  # the mean difference that has a p value
    "different": lambda p: stats.t.isf(p / 2, COUNT - 1) * ERROR,
    "equivalent": lambda p: BOUND - stats.t.isf(p, COUNT - 1) * ERROR,
    "non_inferior": lambda p: stats.t.isf(p, COUNT - 1) * ERROR - BOUND,
}


@pytest.mark.parametrize("verdict", SHIFTS)
@pytest.mark.parametrize(
    ("p_values", "correction", "hold"),
    [
        ((0.004, 0.03), "bonferroni", [True, False]),
        ((0.004, 0.03), "holm", [True, True]),
        ((0.03, 0.04), "holm", [False, False]),
        ((0.03, 0.04), "none", [True, True]),
        ((0.03, 0.06), "none", [True, False]),
    ],
)
def test_verdicts_that_hang_on_the_correction(
    verdict: str, p_values: tuple[float, ...], correction: str, hold: list[bool]
) -> None:
    noise = np.random.default_rng(4).normal(size=COUNT)
    noise = (noise - noise.mean()) / noise.std(ddof=1) * SPREAD
    runs = {f"run at {p}": noise + SHIFTS[verdict](p) for p in p_values} | {"reference": np.zeros(COUNT)}
    scores = {run: {"RR": {f"q{i}": float(v) for i, v in enumerate(of_run)}} for run, of_run in runs.items()}
    rows = compare_scores(scores, "reference", BOUND, correction=correction).rows
    assert [getattr(row.difference, verdict) for row in rows if row.difference] == hold


def test_the_detectable_difference_is_that_of_the_corrected_test(scores: Scores) -> None:
    differences = values(scores, "close") - values(scores, "best_one")
    for correction, alpha in {"bonferroni": 0.05 / 3, "holm": 0.05 / 3, "none": 0.05}.items():
        d = compare_scores(scores, correction=correction).row("nDCG@10", "close").difference
        assert d is not None
        assert d.detectable == pytest.approx(minimal_detectable_difference(differences, alpha))


def test_a_run_as_the_reference_turns_signs_and_groups(scores: Scores) -> None:
    found = compare_scores(scores, reference="close")
    assert {row.reference for row in found.rows} == {"close"}
    assert found.row("nDCG@10", "close").difference is None
    best = found.row("nDCG@10", "best_one")
    assert best.is_best
    assert best.difference is not None
    expected = (values(scores, "best_one") - values(scores, "close")).mean()
    assert best.difference.mean.mean == pytest.approx(expected)
    assert best.difference.wins == int((values(scores, "best_one") > values(scores, "close")).sum())


def test_one_comparison_needs_no_correction(scores: Scores) -> None:
    pair = {run: scores[run] for run in ("close", "best_one")}
    d = compare_scores(pair).row("nDCG@10", "close").difference
    assert d is not None
    assert d.tost.plain == d.tost.bonferroni == d.tost.holm


def test_the_order_of_queries_does_not_matter(scores: Scores) -> None:
    turned = {
        run: {m: dict(reversed(v.items())) if run == "close" else v for m, v in of_run.items()}
        for run, of_run in scores.items()
    }
    assert compare_scores(turned).row("nDCG@10", "close").difference == (
        compare_scores(scores).row("nDCG@10", "close").difference
    )


def test_equal_means_are_all_best_and_the_first_is_the_reference() -> None:
    same = {"RR": {"q1": 0.5, "q2": 0.25}}
    found = compare_scores({"a": same, "b": same, "c": {"RR": {"q1": 0.25, "q2": 0.5}}})
    assert [row.is_best for row in found.rows] == [True, True, True]
    assert {row.reference for row in found.rows} == {"a"}
    assert found.row("RR", "b").equivalent


def test_runs_are_measured_as_evaluate_does_and_missing_queries_are_counted() -> None:
    qrels = {f"q{i}": {f"d{i}": 1} for i in range(6)}
    whole = Run.of({q: dict.fromkeys(documents, 1.0) for q, documents in qrels.items()})
    part = Run.of({q: dict(ranking) for q, ranking in list(whole.rankings.items())[:4]})
    found = compare_runs({"part": part, "whole": whole}, qrels, ["RR", "R@5"], samples=100)
    assert found.settings == CompareSettings(samples=100)
    for measure, mean in evaluate(part, qrels, ["RR", "R@5"]).means.items():
        row = found.row(measure, "part")
        assert (row.mean.mean, row.missing, row.queries, row.reference) == (mean, 2, 6, "whole")
        assert row.difference is not None
        assert (row.difference.wins, row.difference.ties, row.difference.losses) == (0, 4, 2)
    assert found.row("RR", "whole").missing == 0


def one(value: float) -> dict[str, dict[str, float]]:
    return {"RR": {"q1": value, "q2": 0.5}}


@pytest.mark.parametrize(
    ("scores", "settings", "words"),
    [
        ({}, {}, "too few runs to compare: 0"),
        ({"a": one(1)}, {}, "too few runs to compare: 1; give two or more"),
        ({"a": one(1), "best": one(1)}, {}, "a run is called 'best'"),
        ({"a": one(1), "b": one(1)}, {"reference": "c"}, "no run 'c' to compare with; choose best or one of a, b"),
        ({"a": one(1), "b": one(1)}, {"bound": 0.0}, "a bound of 0.0 is not a positive number"),
        ({"a": one(1), "b": one(1)}, {"bound": math.nan}, "a bound of nan"),
        ({"a": one(1), "b": one(1)}, {"alpha": 0.0}, "an alpha of 0.0"),
        ({"a": one(1), "b": one(1)}, {"alpha": 5}, "an alpha of 5"),
        ({"a": one(1), "b": one(1)}, {"correction": "tukey"}, "unknown correction 'tukey'"),
        ({"a": one(1), "b": one(1)}, {"samples": 0}, "0 samples"),
        ({"a": one(1), "b": one(math.nan)}, {}, "id 'q1': RR of b is nan"),
        ({"a": one(1), "b": {"RR": {"q1": 1.0}}}, {}, "a and b were measured on different queries, such as 'q2'"),
        ({"a": one(1), "b": {"P@1": {"q1": 1.0}}}, {}, "not all runs were measured by"),
        ({"a": one(1), "b": {**one(1), "P@1": {"q1": 1.0}}}, {}, "not all runs were measured by P@1: see b"),
        ({"a": {}, "b": {}}, {}, "no measure to compare by"),
        ({"a": {"RR": {"q1": 1.0}}, "b": {"RR": {"q1": 1.0}}}, {}, "too few queries for a test: 1"),
    ],
)
def test_wrong_input_is_one_clear_line(scores: Scores, settings: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as error:
        compare_scores(scores, **settings)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_wrong_settings_are_found_before_anything_is_measured() -> None:
    class Untouchable(dict):  # type: ignore[type-arg]
        def __bool__(self) -> bool:
            raise AssertionError("measured")

    run = Run.of({"q": {"a": 1.0}})
    with pytest.raises(InputError, match="no run 'c'"):
        compare_runs({"a": run, "b": run}, Untouchable(), reference="c")
    with pytest.raises(InputError, match="unknown correction"):
        compare_runs({"a": run, "b": run}, Untouchable(), correction="?")


def test_scores_come_back_from_the_table_that_evaluate_writes(tmp_path: Path) -> None:
    qrels = {f"q{i}": {"a": 1} for i in range(5)}
    found = evaluate(Run.of({q: {"b": 2.0, "a": 1.0} for q in list(qrels)[1:]}), qrels, ["RR", "nDCG@10"])
    found.save(tmp_path / "scores.csv.gz")
    again = read_query_scores(tmp_path / "scores.csv.gz")
    assert list(again) == ["RR", "nDCG@10"]
    for measure, of_measure in found.per_query.items():
        assert again[measure] == pytest.approx(of_measure, abs=1e-6)
    comparison = compare_scores({"x": again, "y": found.per_query})
    assert isinstance(comparison, Comparison)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("query,RR\nq1,0.5\nq1,0.5\n", "scores.csv:3: id 'q1': appears a second time"),
        ("query,RR\nq1,half\n", "scores.csv:2: id 'q1': 'half' is not a number"),
        ("query,RR\nq1,nan\n", "'nan' is not a number"),
        ("id,RR\nq1,0.5\n", "scores.csv:2: no column 'query'"),
        ("query,RR\nq1,0.5,7\n", "scores.csv:2: 3 fields"),
        ("query,RR\n", "no values"),
    ],
)
def test_a_bad_table_of_scores_is_named(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "scores.csv").write_text(text)
    with pytest.raises(InputError, match=words):
        read_query_scores(tmp_path / "scores.csv")
