"""What decides a verdict: intervals against slow loops, and how often noise alone would decide."""

from __future__ import annotations

import itertools
import random
from statistics import fmean

import numpy as np
import pytest

from remargin import InputError
from remargin.evaluation.significance import paired_bootstrap, tost
from remargin.paper.deciding import Answer, Untold, at_least, every, gap_of, is_less, most, share_of, some

YES, NO, UNKNOWN = Answer(True, "yes"), Answer(False, "no"), Answer(None, "?")


def made_up(mean: float, seed: int, queries: int = 60, spread: float = 0.2) -> dict[str, float]:
    values = np.random.default_rng(seed).normal(mean, spread, queries)
    return {f"q{i}": float(value) for i, value in enumerate(values)}


@pytest.mark.parametrize("answers", list(itertools.product((YES, NO, UNKNOWN), repeat=3)))
def test_an_open_answer_is_left_open_only_where_it_matters(answers: tuple[Answer, ...]) -> None:
    """Against all ways in which the open ones could turn out."""
    worlds = list(itertools.product(*([True, False] if a.told is None else [a.told] for a in answers)))
    named = {str(i): answer for i, answer in enumerate(answers)}
    for combine, rule in ((every, all), (some, any), (most, lambda world: sum(world) >= 2)):
        outcomes = {rule(world) for world in worlds}
        assert combine(named).told == (outcomes.pop() if len(outcomes) == 1 else None)
    assert share_of(2 / 3, named).told == most(named).told == at_least(2, named).told


def test_the_interval_is_that_of_a_slow_bootstrap() -> None:
    one, other = made_up(0.5, 1), made_up(0.45, 2)
    interval = gap_of(([one], [other])).interval
    rng, differences = random.Random(0), [one[q] - other[q] for q in one]
    means = sorted(fmean(rng.choices(differences, k=len(differences))) for _ in range(4000))
    assert interval.mean == pytest.approx(fmean(differences))
    assert interval.low == pytest.approx(means[100], abs=0.006)
    assert interval.high == pytest.approx(means[-101], abs=0.006)
    rival = paired_bootstrap(one, other)
    assert tuple(interval) == pytest.approx(tuple(rival), abs=0.006)


def test_seeds_are_drawn_as_well_and_a_slow_loop_agrees() -> None:
    ones = [made_up(0.5 + shift, seed) for seed, shift in ((1, -0.1), (2, 0.0), (3, 0.1))]
    others = [made_up(0.45, seed) for seed in (4, 5, 6)]
    gap = gap_of((ones, others))
    rng, means = random.Random(0), []
    for _ in range(4000):
        queries, seeds = rng.choices(list(ones[0]), k=60), rng.choices(range(3), k=3)
        means.append(fmean(ones[s][q] - others[s][q] for s in seeds for q in queries))
    means.sort()
    assert gap.interval.low == pytest.approx(means[100], abs=0.008)
    assert gap.interval.high == pytest.approx(means[-101], abs=0.008)
    averaged = [{q: fmean(run[q] for run in runs) for q in runs[0]} for runs in (ones, others)]
    alone = gap_of(([averaged[0]], [averaged[1]])).interval
    assert gap.interval.mean == pytest.approx(alone.mean)
    assert gap.interval.high - gap.interval.low > 1.3 * (alone.high - alone.low)
    assert (
        gap_of((ones[:2], others)).interval
        == gap_of(([{q: fmean(run[q] for run in ones[:2]) for q in ones[0]}], [averaged[1]])).interval
    )


def test_collections_count_the_same_whatever_their_size() -> None:
    small, large = made_up(0.5, 1, queries=30), made_up(0.5, 2, queries=300)
    gap = gap_of(([small], [dict.fromkeys(small, 0.4)]), ([large], [dict.fromkeys(large, 0.0)]))
    expected = (fmean(small.values()) - 0.4 + fmean(large.values())) / 2
    assert gap.interval.mean == pytest.approx(expected)
    assert gap.above().told


def test_noise_alone_decides_in_a_twentieth_of_all_comparisons() -> None:
    told = [gap_of(([made_up(0.5, 2 * i)], [made_up(0.5, 2 * i + 1)])).above().told for i in range(400)]
    assert 0.02 <= sum(answer is not None for answer in told) / len(told) <= 0.09
    best_of_ten = [
        gap_of(([max((made_up(0.5, 100 * i + j) for j in range(10)), key=lambda s: fmean(s.values()))],
                [made_up(0.5, 100 * i + 50)]), tried=10).above().told
        for i in range(200)
    ]  # fmt: skip
    assert sum(answer is True for answer in best_of_ten) / len(best_of_ten) <= 0.08


@pytest.mark.parametrize("shift", [0.0, 0.02, 0.04, 0.05, 0.06, 0.2])
def test_sameness_is_what_two_one_sided_t_tests_say(shift: float) -> None:
    one = made_up(0.5, 1, queries=200, spread=0.05)
    other = {q: value - shift for q, value in zip(one, made_up(0.5, 2, queries=200, spread=0.05).values(), strict=True)}
    p = tost(list(one.values()), list(other.values()), 0.05)
    assert not 0.03 < p < 0.08  # the two are not alike to the last digit
    assert (gap_of(([one], [other])).within(0.05).told is True) == (p < 0.05)


def test_what_is_wholly_beyond_a_bound_is_not_the_same() -> None:
    one = made_up(0.5, 1)
    assert gap_of(([one], [{q: v - 0.2 for q, v in one.items()}])).within(0.05).told is False
    assert gap_of(([one], [{q: v + 0.2 for q, v in one.items()}])).within(0.05).told is False
    wide = gap_of(([one], [made_up(0.5, 2)])).within(0.05)
    assert wide.told is None
    assert "neither within 0.05 by TOST nor beyond it" in wide.evidence


def test_means_alone_and_too_few_queries_decide_nothing() -> None:
    gap = Untold.of(0.5)
    assert {gap.above().told, gap.below().told, gap.within(1.0).told} == {None}
    few = gap_of(([made_up(0.5, 1, 29)], [made_up(0.0, 2, 29)]))
    assert {few.above().told, few.below().told, few.within(0.01).told} == {None}
    assert few.above().evidence.startswith("29 of 30 queries; +0.")


def test_rows_of_other_queries_are_not_compared() -> None:
    with pytest.raises(InputError, match="two runs were measured on different queries"):
        gap_of(([{"q": 0.5}], [{"r": 0.5}]))


def test_less_is_told_from_all_samples_or_none() -> None:
    low, high = np.zeros(1000), np.ones(1000)
    mixed = np.where(np.arange(1000) < 900, 0.0, 1.0)
    assert [is_less(a, b, 50).told for a, b in ((low, high), (high, low), (low, low), (mixed, low + 0.5))] == [
        True, False, None, None
    ]  # fmt: skip
    assert is_less(low, high, 29).told is None
