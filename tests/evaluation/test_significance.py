"""Paired tests and corrections against SciPy and statsmodels, and where those give up: no spread at all."""

from __future__ import annotations

import gc
import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.power import TTestPower
from statsmodels.stats.weightstats import ttost_paired

from remargin import InputError
from remargin.evaluation import significance
from remargin.evaluation.significance import (
    bonferroni,
    bootstrap,
    difference_interval,
    fisher_randomisation,
    holm,
    mean_interval,
    minimal_detectable_difference,
    non_inferiority,
    paired_t,
    tost,
)

VALUES = st.integers(0, 64).map(lambda i: i / 64)  # exact in binary, so that both sides see the same ties
PAIRS = st.lists(st.tuples(VALUES, VALUES), min_size=2, max_size=40)
P_VALUES = st.lists(st.floats(0, 1), min_size=1, max_size=12)


def split(pairs: list[tuple[float, float]]) -> tuple[np.ndarray, np.ndarray]:
    a, b = np.array(pairs).T
    assume(np.ptp(a - b) > 0)  # without spread the libraries divide by zero; see below
    return a, b


@given(PAIRS, st.sampled_from([0.01, 0.05, 0.3]))
def test_tost_is_that_of_statsmodels(pairs: list[tuple[float, float]], bound: float) -> None:
    a, b = split(pairs)
    p, (_, worse, _), _ = ttost_paired(a, b, -bound, bound)
    assert tost(a, b, bound) == pytest.approx(p, rel=1e-9, abs=1e-300)
    assert tost(a, b, bound) == tost(b, a, bound)
    assert non_inferiority(a, b, bound) == pytest.approx(worse, rel=1e-9, abs=1e-300)


@given(PAIRS)
def test_the_t_test_and_its_interval_are_those_of_scipy(pairs: list[tuple[float, float]]) -> None:
    a, b = split(pairs)
    theirs = stats.ttest_rel(a, b)
    assert paired_t(a, b) == pytest.approx(theirs.pvalue, rel=1e-9)
    low, high = theirs.confidence_interval(0.9)
    assert difference_interval(a, b, 0.9) == pytest.approx(((a - b).mean(), low, high), abs=1e-12)


@given(st.lists(st.tuples(VALUES, VALUES), min_size=2, max_size=9))
@settings(max_examples=50)
def test_fisher_is_scipys_permutation_test_where_it_is_exact(pairs: list[tuple[float, float]]) -> None:
    a, b = np.array(pairs).T
    theirs = stats.permutation_test(
        (a, b),
        lambda x, y, axis: (x - y).mean(axis),
        permutation_type="samples",
        n_resamples=2 ** len(a),
        vectorized=True,
    )
    assert fisher_randomisation(a, b, samples=2 ** len(a)) == pytest.approx(theirs.pvalue, abs=1e-12)


@pytest.mark.parametrize("shift", [0.0, 0.02, 0.04])
def test_fisher_is_scipys_permutation_test_where_it_is_random(shift: float) -> None:
    rng = np.random.default_rng(7)
    b = rng.random(60)
    a = b + rng.normal(shift, 0.1, 60)
    theirs = stats.permutation_test(
        (a, b),
        lambda x, y, axis: (x - y).mean(axis),
        permutation_type="samples",
        n_resamples=10_000,
        vectorized=True,
        rng=np.random.default_rng(1),
    )
    found = fisher_randomisation(a, b, samples=10_000)
    error = math.sqrt(found * (1 - found) / 10_000)
    assert abs(found - theirs.pvalue) < 6 * error + 2e-4
    assert found == fisher_randomisation(a, b, samples=10_000)
    assert found != fisher_randomisation(a, b, samples=10_000, seed=1)


def test_fisher_never_says_zero_and_counts_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = np.ones(50), np.zeros(50)
    assert fisher_randomisation(a, b, samples=999) == 1 / 1000
    some = np.array([0.5, 0.25, -0.25, 0.75, 0.5, 0.125, -0.5, 0.25])
    exact = fisher_randomisation(some, np.zeros(8))
    monkeypatch.setattr(significance, "BLOCK", 24)  # three rows of eight
    assert fisher_randomisation(some, np.zeros(8)) == exact
    assert exact == pytest.approx(fisher_randomisation(some, np.zeros(8), samples=255), abs=0.1)


def test_fisher_counts_sums_that_are_equal_but_for_rounding() -> None:
    tenths = st.lists(st.integers(-6, 6), min_size=2, max_size=8)

    @given(tenths)
    def check(whole: list[int]) -> None:
        zeros = np.zeros(len(whole))
        assert fisher_randomisation(np.array(whole) / 10, zeros) == fisher_randomisation(whole, zeros)

    check()
    assert fisher_randomisation([0.3, 0.3, 0.5, -0.4], np.zeros(4)) == 0.5


def test_corrections_are_those_of_statsmodels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gc, "collect", lambda: 0)  # statsmodels calls it each time, which takes a while

    @given(P_VALUES)
    def check(p_values: list[float]) -> None:
        assert bonferroni(p_values) == pytest.approx(multipletests(p_values, method="bonferroni")[1], abs=1e-15)
        assert holm(p_values) == pytest.approx(multipletests(p_values, method="holm")[1], abs=1e-15)
        assert all(h <= b for h, b in zip(holm(p_values), bonferroni(p_values), strict=True))

    check()


@pytest.mark.parametrize("count", [2, 5, 14, 54, 6980])
@pytest.mark.parametrize(("alpha", "power"), [(0.05, 0.8), (0.01, 0.5), (0.05, 0.95)])
def test_the_detectable_difference_has_the_power_that_statsmodels_computes(
    count: int, alpha: float, power: float
) -> None:
    differences = np.random.default_rng(count).normal(0.1, 0.2, count)
    found = minimal_detectable_difference(differences, alpha, power)
    effect = found / differences.std(ddof=1)
    one_sided = TTestPower().power(effect, count, alpha / 2, alternative="larger")
    assert one_sided == pytest.approx(power, abs=1e-9)
    if count > 2:  # else statsmodels gives nan
        assert TTestPower().power(effect, count, alpha) == pytest.approx(power, abs=1e-5)


def test_the_detectable_difference_is_detected_about_that_often() -> None:
    rng = np.random.default_rng(0)
    noise = rng.normal(0, 0.2, 40)
    noise = (noise - noise.mean()) / noise.std(ddof=1) * 0.2
    true = minimal_detectable_difference(noise)
    shown = [paired_t(rng.normal(true, 0.2, 40), np.zeros(40)) < 0.05 for _ in range(600)]
    assert 0.74 < np.mean(shown) < 0.86


@pytest.mark.parametrize("noise", [0.0, 1e-16])
def test_identical_runs_are_surely_equivalent_and_surely_not_different(noise: float) -> None:
    b = np.array([0.1, 0.5, 0.9, 0.3])
    a = b + noise * np.array([1, -1, 1, 1])
    assert paired_t(a, b) == 1.0
    assert tost(a, b) == non_inferiority(a, b) == 0.0
    assert fisher_randomisation(a, b) == 1.0
    assert minimal_detectable_difference(a - b) == 0.0
    assert difference_interval(b, b) == (0.0, 0.0, 0.0)


def test_a_constant_difference_is_beyond_doubt() -> None:
    b = np.array([0.1, 0.5, 0.9, 0.3])
    a = b - 0.03  # not the same in the last bit for every query
    assert len(set(a - b)) > 1
    assert paired_t(a, b) == 0.0
    assert (tost(a, b, 0.05), tost(a, b, 0.02)) == (0.0, 1.0)
    assert (non_inferiority(a, b, 0.02), non_inferiority(b, a, 0.02)) == (1.0, 0.0)
    assert tost(a, b, 0.03) == 0.5  # exactly on the bound, as with any spread
    assert fisher_randomisation(a, b) == 2 / 16


@pytest.mark.parametrize("test", [paired_t, tost, non_inferiority, fisher_randomisation, difference_interval])
def test_what_cannot_be_tested_is_one_clear_line(test: object) -> None:
    assert callable(test)
    for a, b, words in [
        ([0.5], [0.25], "too few queries for a test: 1"),
        ([], [], "too few queries for a test: 0"),
        ([0.5, 0.5], [0.5, 0.25, 0.5], "2 values cannot be paired with 3"),
        ([0.5, math.nan], [0.5, 0.25], "value 1 is not a finite number"),
        ([0.5, 0.25], [math.inf, 0.25], "value 0 is not a finite number"),
        ([[0.5, 0.5]], [[0.5, 0.5]], "shape"),
    ]:
        with pytest.raises(InputError, match=words):
            test(a, b)


def test_wrong_settings_are_one_clear_line() -> None:
    a, b = [0.1, 0.2], [0.2, 0.2]
    for bound in (0.0, -0.05, math.nan, math.inf):
        with pytest.raises(InputError, match="not a positive number"):
            tost(a, b, bound)
    for p in (math.nan, -0.1, 1.1):
        with pytest.raises(InputError, match="not a p value"):
            holm([0.5, p])
        with pytest.raises(InputError, match="not a p value"):
            bonferroni([0.5, p])
    with pytest.raises(InputError, match="0 samples"):
        fisher_randomisation(a, b, samples=0)
    with pytest.raises(InputError, match="between 0 and 1"):
        mean_interval(a, confidence=95)
    for alpha, power in ((0.0, 0.8), (0.8, 0.8), (0.05, 1.0)):
        with pytest.raises(InputError, match="do not fit"):
            minimal_detectable_difference(a, alpha, power)


def test_the_bootstrap_in_blocks_is_the_bootstrap_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(3).random(37)
    rng = np.random.default_rng(5)
    means = [values[rng.integers(0, 37, 37)].mean() for _ in range(500)]
    expected = (values.mean(), *np.quantile(means, [0.025, 0.975]))
    assert bootstrap(values.tolist(), samples=500, seed=5) == expected
    monkeypatch.setattr(significance, "BLOCK", 100)
    assert bootstrap(values.tolist(), samples=500, seed=5) == expected
