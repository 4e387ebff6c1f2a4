"""Confidence intervals of means and of differences, and paired tests over queries.

The tests take the values of two runs, a and b, for the same queries in the same order, and look at a - b. They need at
least two queries. If every query differs by the same amount, the variance is 0: the p values are then 0 or 1, and one
half exactly on a bound.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from remargin.errors import InputError

ROUNDING = 1e-12  # differences of two measures below this come from rounding
BLOCK = 1 << 20  # numbers drawn at a time

Array = NDArray[np.float64]


class Interval(NamedTuple):
    """A mean and the ends of its confidence interval.

    >>> Interval(0.5, 0.25, 0.75).low
    0.25
    """

    mean: float
    low: float
    high: float


def bootstrap(values: Sequence[float], confidence: float = 0.95, samples: int = 10_000, seed: int = 0) -> Interval:
    """The mean of values and its percentile bootstrap interval, from resampled queries.

    >>> interval = bootstrap([0.0, 1.0] * 50)
    >>> interval.mean, 0.35 < interval.low < interval.high < 0.65
    (0.5, True)
    """
    data = np.asarray(values, float)
    rng = np.random.default_rng(seed)
    means = [data[rng.integers(0, len(data), (rows, len(data)))].mean(1) for rows in _rows(samples, len(data))]
    tail = (1 - confidence) / 2
    low, high = np.quantile(np.concatenate(means), [tail, 1 - tail])
    return Interval(float(data.mean()), float(low), float(high))


def paired_bootstrap(after: Mapping[str, float], before: Mapping[str, float], confidence: float = 0.95) -> Interval:
    """The mean difference after - before over the same queries, with its interval.

    >>> paired_bootstrap({"q1": 0.5, "q2": 0.75}, {"q1": 0.25, "q2": 0.5})
    Interval(mean=0.25, low=0.25, high=0.25)
    """
    if after.keys() != before.keys():
        raise ValueError("the two runs were measured on different queries")
    return bootstrap([after[query] - before[query] for query in after], confidence)


def mean_interval(values: ArrayLike, confidence: float = 0.95) -> Interval:
    """The mean of values and its confidence interval by Student's t.

    >>> low, high = mean_interval([0.0, 1.0] * 50)[1:]
    >>> round(low, 3), round(high, 3)
    (0.4, 0.6)
    """
    from scipy.special import stdtrit

    if not 0 < confidence < 1:
        raise InputError(f"a confidence of {confidence} is not between 0 and 1", do="0.95 is usual")
    mean, error, freedom = _estimate(_checked(values))
    reach = float(stdtrit(freedom, (1 + confidence) / 2)) * error
    return Interval(mean, mean - reach, mean + reach)


def widest_interval(mean: float, count: int) -> float:
    """Half the width of a 95% confidence interval of a mean of `count` values between 0 and 1, at its widest.

    No values with this mean vary more than zeros and ones do, so the interval of any measure is at most that of a rate.

    >>> round(widest_interval(0.9, 500), 3), widest_interval(1.0, 500)
    (0.026, 0.0)
    """
    return NormalDist().inv_cdf(0.975) * math.sqrt(mean * (1 - mean) / count)


def difference_interval(a: ArrayLike, b: ArrayLike, confidence: float = 0.95) -> Interval:
    """The mean of the paired differences a - b and its confidence interval by Student's t.

    >>> difference_interval([0.5, 0.75], [0.25, 0.5])
    Interval(mean=0.25, low=0.25, high=0.25)
    """
    return mean_interval(paired_differences(a, b), confidence)


def paired_t(a: ArrayLike, b: ArrayLike) -> float:
    """The p value of the two-sided paired t-test: small if the means differ.

    >>> round(paired_t([0.5, 0.7, 0.9, 0.6], [0.4, 0.5, 0.8, 0.6]), 4)
    0.0917
    >>> paired_t([0.5, 0.7], [0.5, 0.7])
    1.0
    """
    mean, error, freedom = _estimate(paired_differences(a, b))
    return 2 * _below(-abs(_t(mean, error)), freedom)


def non_inferiority(a: ArrayLike, b: ArrayLike, bound: float = 0.05) -> float:
    """The p value of the one-sided paired t-test of non-inferiority: small if a loses less than `bound` to b.

    >>> round(non_inferiority([0.5, 0.7, 0.9, 0.6], [0.51, 0.69, 0.9, 0.61], bound=0.05), 4)
    0.0011
    """
    _check_bound(bound)
    mean, error, freedom = _estimate(paired_differences(a, b))
    return _below(-_t(mean + bound, error), freedom)


def tost(a: ArrayLike, b: ArrayLike, bound: float = 0.05) -> float:
    """The p value of the paired two one-sided t-tests: small if a and b differ by less than `bound` either way.

    >>> round(tost([0.5, 0.7, 0.9, 0.6], [0.51, 0.69, 0.9, 0.61], bound=0.05), 4)
    0.0011
    >>> tost([0.5, 0.7], [0.5, 0.7])
    0.0
    """
    return max(non_inferiority(a, b, bound), non_inferiority(b, a, bound))


def fisher_randomisation(a: ArrayLike, b: ArrayLike, samples: int = 10_000, seed: int = 0) -> float:
    """The p value of Fisher's two-sided randomisation test: how often chance makes the means differ as much.

    Under the null hypothesis a and b could be exchanged in any query, which flips the sign of its difference. All ways
    to flip them are counted where these are not more than `samples`, which is exact. Otherwise that many are drawn, and
    the observed one counts as one more, so that p is never 0.

    >>> fisher_randomisation([0.5, 0.7, 0.9], [0.4, 0.5, 0.8])
    0.25
    """
    if samples < 1:
        raise InputError(f"{samples} samples are too few for a randomisation test", do="draw 10,000 or more")
    flippable = paired_differences(a, b)
    flippable = flippable[np.abs(flippable) > ROUNDING]  # a zero has no sign, so that there is less to enumerate
    total = flippable.sum()
    observed = abs(total) - ROUNDING * np.abs(flippable).sum()  # sums that are equal but for rounding count
    extreme, count = 0, 0
    for flips in _flips(len(flippable), samples, seed):
        extreme += int((np.abs(total - 2 * (flips @ flippable)) >= observed).sum())
        count += len(flips)
    exact = 2 ** len(flippable) <= samples
    return extreme / count if exact else (extreme + 1) / (count + 1)


def bonferroni(p_values: Sequence[float]) -> list[float]:
    """The p values of a group of tests, times their number: a small one then holds for the whole group.

    >>> bonferroni([0.01, 0.5])
    [0.02, 1.0]
    """
    return [min(1.0, p * len(p_values)) for p in _probabilities(p_values)]


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down correction: holds for the whole group like Bonferroni's, and is never larger.

    >>> holm([0.04, 0.01, 0.5])
    [0.08, 0.03, 0.5]
    """
    p = _probabilities(p_values)
    corrected, largest = [0.0] * len(p), 0.0
    for done, i in enumerate(sorted(range(len(p)), key=p.__getitem__)):
        largest = max(largest, min(1.0, p[i] * (len(p) - done)))
        corrected[i] = largest
    return corrected


def minimal_detectable_difference(differences: ArrayLike, alpha: float = 0.05, power: float = 0.8) -> float:
    """The smallest true difference that a two-sided paired t-test on such queries shows with probability `power`.

    From the noncentral t distribution, with the standard deviation that the differences have.

    >>> round(minimal_detectable_difference([0.1, -0.1, 0.2, 0.0, 0.0, 0.1, -0.2, 0.1]), 3)
    0.148
    """
    from scipy.optimize import brentq
    from scipy.special import stdtrit
    from scipy.stats import nct

    if not 0 < alpha < power < 1:
        problem = f"alpha {alpha} and power {power} do not fit: 0 < alpha < power < 1"
        raise InputError(problem, do="0.05 and 0.8 are usual")
    _, error, freedom = _estimate(_checked(differences))
    critical = -float(stdtrit(freedom, alpha / 2))

    def shortfall(shift: float) -> float:
        # The other tail is left out: there the test would show a difference of the wrong sign.
        return power - float(nct.sf(critical, freedom, shift))

    high = critical + 1
    while shortfall(high) > 0:
        high *= 2
    return float(brentq(shortfall, 0, high, xtol=1e-10)) * error


def paired_differences(a: ArrayLike, b: ArrayLike) -> Array:
    """The paired differences a - b, checked: a and b are of the same length, two at least, and all are numbers.

    >>> paired_differences([0.5, 0.75], [0.25, 1.0]).tolist()
    [0.25, -0.25]
    """
    first, second = _checked(a), _checked(b)
    if len(first) != len(second):
        problem = f"{len(first)} values cannot be paired with {len(second)}"
        raise InputError(problem, do="measure both runs on the same queries")
    return first - second


def _checked(values: ArrayLike) -> Array:
    data = np.asarray(values, float)
    if data.ndim != 1:
        raise InputError(f"an array of shape {data.shape} where a row of values should be", do="give one per query")
    if len(data) < 2:
        raise InputError(f"too few queries for a test: {len(data)}", do="measure on two or more")
    if not np.isfinite(data).all():
        raise InputError(f"value {int(np.argmin(np.isfinite(data)))} is not a finite number", do="measure it again")
    return data


def _check_bound(bound: float) -> None:
    if not 0 < bound < math.inf:
        problem = f"a bound of {bound} is not a positive number"
        raise InputError(problem, do="give the largest difference that does not matter, such as 0.05")


def _estimate(data: Array) -> tuple[float, float, int]:
    """The mean, its standard error, and the degrees of freedom."""
    error = 0.0 if np.ptp(data) <= ROUNDING else float(data.std(ddof=1)) / math.sqrt(len(data))
    return float(data.mean()), error, len(data) - 1


def _t(shift: float, error: float) -> float:
    if error > 0:
        return shift / error
    return 0.0 if abs(shift) <= ROUNDING else math.copysign(math.inf, shift)


def _below(t: float, freedom: int) -> float:
    from scipy.special import stdtr

    return float(stdtr(freedom, t))


def _probabilities(p_values: Sequence[float]) -> list[float]:
    wrong = [p for p in p_values if not 0 <= p <= 1]
    if wrong:
        raise InputError(f"{wrong[0]} is not a p value", do="p values lie between 0 and 1")
    return [float(p) for p in p_values]


def _rows(samples: int, width: int) -> Iterator[int]:
    """How many of the samples fit into each block."""
    step = max(1, BLOCK // max(1, width))
    for start in range(0, samples, step):
        yield min(step, samples - start)


def _flips(width: int, samples: int, seed: int) -> Iterator[NDArray[Any]]:
    """Rows of 0 and 1, block by block: all that there are of a width, or, beyond `samples` of them, random ones."""
    if 2**width <= samples:
        start = 0
        for rows in _rows(2**width, width):
            yield np.arange(start, start + rows)[:, None] >> np.arange(width) & 1
            start += rows
    else:
        rng = np.random.default_rng(seed)
        for rows in _rows(samples, width):
            yield rng.integers(0, 2, (rows, width), dtype=np.int8)
