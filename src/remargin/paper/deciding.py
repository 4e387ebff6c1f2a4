"""What can be told from results: a claim holds, does not hold, or cannot be told.

A difference decides by a paired bootstrap over queries, and over seeds where both rows have several: its 95% interval
lies wholly on one side of what is claimed. Sameness is decided by TOST, two one-sided tests with the same bootstrap:
the 90% interval lies within a bound, which the claim states. What neither decides cannot be told. Answers on several
backbones or systems become one by Kleene's logic: an open one leaves the whole open, unless the others decide it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil, inf
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from remargin.errors import InputError
from remargin.evaluation.significance import ROUNDING, Interval

PerQuery = Mapping[str, float]
PerSeed = Sequence[PerQuery]  # of every training run of a row, in the order of the seeds
Array = NDArray[np.float64]

HOLDS, FAILS, OPEN = VERDICTS = ("holds", "does not hold", "cannot be told")
FROM_MEANS = "from means alone"  # why nothing is told where the scores of single queries are not known
FEWEST_QUERIES = 30  # TREC-DL has 43 and 54
SAMPLES = 4_000
CONFIDENCE = 0.95
ONE_SIDED = 0.9  # either end of this interval is a one-sided 95% bound


def verdict(told: bool | None) -> str:
    """The word for an answer.

    >>> verdict(True), verdict(None)
    ('holds', 'cannot be told')
    """
    return OPEN if told is None else HOLDS if told else FAILS


@dataclass(frozen=True)
class Answer:
    """Whether something is so, None if that cannot be told, and the evidence in words."""

    told: bool | None
    evidence: str

    @property
    def verdict(self) -> str:
        """In a word."""
        return verdict(self.told)

    def denied(self) -> Answer:
        """The opposite, by the same evidence."""
        return replace(self, told=None if self.told is None else not self.told)

    def after(self, words: str) -> Answer:
        """The same, with some words before the evidence."""
        return replace(self, evidence=f"{words}; {self.evidence}")

    def but(self, reason: str) -> Answer:
        """The same evidence, which decides nothing for a reason.

        >>> Answer(True, "+0.010").but("one seed")
        Answer(told=None, evidence='one seed; +0.010')
        """
        return Answer(None, f"{reason}; {self.evidence}")


def at_least(needed: float, answers: Mapping[str, Answer]) -> Answer:
    """Whether so many of some answers are yes.

    >>> one, two, three = Answer(True, "a"), Answer(None, "b"), Answer(False, "c")
    >>> at_least(1, {"x": one, "y": two}).told, at_least(2, {"x": one, "y": two}).told
    (True, None)
    >>> at_least(2, {"x": one, "z": three})
    Answer(told=False, evidence='x: a; z: c')
    """
    yes, possible = (sum(answer.told in told for answer in answers.values()) for told in ((True,), (True, None)))
    told = True if yes >= needed else None if possible >= needed else False
    return Answer(told, "; ".join(f"{name}: {answer.evidence}" for name, answer in answers.items()))


def every(answers: Mapping[str, Answer]) -> Answer:
    """Whether all are yes."""
    return at_least(len(answers), answers)


def some(answers: Mapping[str, Answer]) -> Answer:
    """Whether any is."""
    return at_least(1, answers)


def share_of(share: float, answers: Mapping[str, Answer]) -> Answer:
    """Whether such a share of them is.

    >>> [share_of(2 / 3, dict(enumerate([Answer(True, "")] * yes + [Answer(False, "")]))).told for yes in (1, 2)]
    [False, True]
    """
    return at_least(ceil(share * len(answers) - ROUNDING), answers)


def most(answers: Mapping[str, Answer]) -> Answer:
    """Whether more than half are."""
    return at_least(len(answers) // 2 + 1, answers)


@dataclass(frozen=True)
class Gap:
    """A mean difference, and what it decides.

    Attributes:
        interval: the difference with its 95% interval.
        inner: the same with its 90% interval, whose ends are one-sided 95% bounds.
        lacking: what it rests on too little of, so that it decides nothing; empty if it does.
    """

    interval: Interval
    inner: Interval
    lacking: str = ""

    def above(self, bound: float = 0.0) -> Answer:
        """Whether the difference is above a bound.

        >>> queries = [f"q{i}" for i in range(30)]
        >>> gap_of(([dict.fromkeys(queries, 0.75)], [dict.fromkeys(queries, 0.5)])).above(0.1)
        Answer(told=True, evidence='+0.250 (+0.250 to +0.250), above 0.1 by bootstrap')
        """
        low, high = self.interval.low - bound, self.interval.high - bound
        if low > ROUNDING:
            return self._answer(True, self.interval, f"above {bound:g} by bootstrap")
        if high < -ROUNDING:
            return self._answer(False, self.interval, f"below {bound:g} by bootstrap")
        return self._answer(None, self.interval, f"neither above nor below {bound:g}")

    def below(self, bound: float = 0.0) -> Answer:
        """Whether it is below a bound."""
        return self.above(bound).denied()

    def within(self, bound: float) -> Answer:
        """Whether the difference is smaller than a bound, either way.

        >>> queries = [f"q{i}" for i in range(30)]
        >>> gap_of(([dict.fromkeys(queries, 0.5)], [dict.fromkeys(queries, 0.5)])).within(0.05)
        Answer(told=True, evidence='+0.000 (+0.000 to +0.000), within 0.05 by TOST')
        """
        if -bound < self.inner.low - ROUNDING and self.inner.high + ROUNDING < bound:
            return self._answer(True, self.inner, f"within {bound:g} by TOST")
        if max(self.interval.low, -self.interval.high) > bound - ROUNDING:
            return self._answer(False, self.interval, f"beyond {bound:g} by bootstrap")
        return self._answer(None, self.interval, f"neither within {bound:g} by TOST nor beyond it")

    def _answer(self, told: bool | None, interval: Interval, words: str) -> Answer:
        answer = Answer(told, f"{interval_text(interval)}, {words}")
        return answer.but(self.lacking) if self.lacking else answer


@dataclass(frozen=True)
class Untold(Gap):
    """A difference of means alone, which decides nothing.

    >>> Untold.of(0.25).above()
    Answer(told=None, evidence='+0.250, from means alone')
    """

    @classmethod
    def of(cls, difference: float) -> Untold:
        """A difference without its interval."""
        interval = Interval(difference, -inf, inf)
        return cls(interval, interval)

    def _answer(self, told: bool | None, interval: Interval, words: str) -> Answer:
        return Answer(None, f"{interval.mean:+.3f}, {FROM_MEANS}")


def gap_of(*groups: tuple[PerSeed, PerSeed], fewest: int = FEWEST_QUERIES, seeds: int = 1, tried: int = 1) -> Gap:
    """The first of two rows minus the second, over one collection or several that count the same.

    With fewer than `fewest` queries in one of them, or fewer runs of either row than `seeds`, it decides nothing. Where
    the first row is the best of several that were `tried`, intervals are wider (Bonferroni).
    """
    drawn = [seed_differences(after, before) for after, before in groups]
    mean, means = fmean(float(values.mean()) for values in drawn), _resampled_means(drawn)
    outer, inner = (Interval(mean, *_ends(means, 1 - (1 - level) / tried)) for level in (CONFIDENCE, ONE_SIDED))
    have = min(values.shape[1] for values in drawn), min(len(row) for group in groups for row in group)
    return Gap(outer, inner, too_few({"queries": (have[0], fewest), "seeds": (have[1], seeds)}))


def too_few(counts: Mapping[str, tuple[int, int]]) -> str:
    """What there is too little of, from what there is and what is needed.

    >>> too_few({"queries": (12, 30), "seeds": (3, 3)})
    '12 of 30 queries'
    """
    return ", ".join(f"{have:,} of {needed:,} {what}" for what, (have, needed) in counts.items() if have < needed)


def seed_differences(after: PerSeed, before: PerSeed) -> Array:
    """After - before, a row for each seed and a column for each query.

    Runs with the same seed are a pair: they saw the same triplets in the same order. Where one row has more seeds than
    the other, queries have their means over seeds.

    >>> seed_differences([{"q": 0.5}, {"q": 1.0}], [{"q": 0.25}, {"q": 0.5}]).tolist()
    [[0.25], [0.5]]
    """
    if len(after) != len(before):
        after, before = [over_seeds(after)], [over_seeds(before)]
    pairs = [differences(one, other) for one, other in zip(after, before, strict=True)]
    return np.array([[pair[query] for query in pairs[0]] for pair in pairs])


def over_seeds(every_seed: PerSeed) -> dict[str, float]:
    """Each query's mean over seeds.

    >>> over_seeds([{"q": 0.5}, {"q": 1.0}])
    {'q': 0.75}
    """
    return {query: fmean(scores[query] for scores in every_seed) for query in every_seed[0]}


def differences(after: PerQuery, before: PerQuery) -> dict[str, float]:
    """After - before for every query.

    >>> differences({"q": 0.75}, {"q": 0.5})
    {'q': 0.25}
    """
    if after.keys() != before.keys():
        raise InputError("two runs were measured on different queries", do="measure them on the same collection")
    return {query: after[query] - before[query] for query in after}


def _resampled_means(groups: Sequence[Array]) -> Array:
    """The mean over groups, with queries (columns) and seeds (rows) drawn with replacement in each of them."""
    means = []
    for number, values in enumerate(groups):
        of_seeds, seeds = resampled(values.T, number), len(values)
        drawn = np.random.default_rng((seeds, number)).integers(0, seeds, of_seeds.shape)
        means.append(np.take_along_axis(of_seeds, drawn, 1).mean(1))
    mean: Array = np.mean(means, axis=0)
    return mean


def resampled(values: Array, number: int = 0) -> Array:
    """The mean of each column in each bootstrap sample of the rows, which are queries.

    The same queries have the same samples, so that several numbers of them can be told together; `number` tells
    collections apart.

    >>> resampled(np.ones((5, 2))).shape == (SAMPLES, 2), bool(np.allclose(resampled(np.ones((5, 2))), 1))
    (True, True)
    """
    means: Array = np.einsum("sq,qv->sv", _resamples(len(values), number), values)
    return means


@lru_cache(maxsize=8)
def _resamples(queries: int, number: int) -> Array:
    """Bootstrap samples of so many queries: a row for each, with the share that each query has of it."""
    drawn = np.random.default_rng((queries, number)).integers(0, queries, (SAMPLES, queries))
    drawn += np.arange(0, SAMPLES * queries, queries)[:, None]
    shares: Array = np.bincount(drawn.ravel(), minlength=drawn.size).reshape(drawn.shape) / queries
    return shares


def _ends(drawn: Array, confidence: float) -> tuple[float, float]:
    low, high = np.quantile(drawn, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)


def in_resamples(so: NDArray[np.bool_], queries: int) -> Answer:
    """Whether something is so, from whether it is in each resample: in 97.5% of them or more, or in 2.5% or fewer.

    >>> in_resamples(np.array([True] * 99 + [False]), queries=50)
    Answer(told=True, evidence='so in 99% of bootstrap samples')
    """
    share, tail = float(so.mean()), (1 - CONFIDENCE) / 2
    told = True if share >= 1 - tail else False if share <= tail else None
    answer = Answer(told, f"so in {share:.0%} of bootstrap samples")
    lacking = too_few({"queries": (queries, FEWEST_QUERIES)})
    return answer.but(lacking) if lacking else answer


def is_less(one: Array, other: Array, queries: int) -> Answer:
    """Whether one number is less than another, from both in each resample: less, or more, in 97.5% of them.

    Where they are level, as two curves that are highest at the same validation, nothing is told.

    >>> is_less(np.array([1, 1]), np.array([1, 1]), queries=50).told is None
    True
    """
    less, more = (in_resamples(so, queries) for so in (one < other, one > other))
    return replace(less, told=True if less.told else False if more.told else None)


def interval_text(interval: Interval) -> str:
    """A difference and its interval, for people.

    >>> interval_text(Interval(0.01, -0.002, 0.022))
    '+0.010 (-0.002 to +0.022)'
    """
    return f"{interval.mean:+.3f} ({interval.low:+.3f} to {interval.high:+.3f})"
