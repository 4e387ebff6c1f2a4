"""How sure a mean is, and a difference of means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np


class Interval(NamedTuple):
    """A mean and the ends of its confidence interval."""

    mean: float
    low: float
    high: float


def bootstrap(values: Sequence[float], confidence: float = 0.95, samples: int = 10_000, seed: int = 0) -> Interval:
    """The mean of values and its percentile bootstrap interval, from resampled queries.

    >>> found = bootstrap([0.0, 1.0] * 50)
    >>> found.mean, 0.35 < found.low < found.high < 0.65
    (0.5, True)
    """
    data = np.asarray(values, float)
    rng = np.random.default_rng(seed)
    means = np.array([data[rng.integers(0, len(data), len(data))].mean() for _ in range(samples)])
    tail = (1 - confidence) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return Interval(float(data.mean()), float(low), float(high))


def paired_bootstrap(after: Mapping[str, float], before: Mapping[str, float], confidence: float = 0.95) -> Interval:
    """The mean difference after - before over the same queries, with its interval.

    >>> paired_bootstrap({"q1": 0.5, "q2": 0.75}, {"q1": 0.25, "q2": 0.5})
    Interval(mean=0.25, low=0.25, high=0.25)
    """
    if after.keys() != before.keys():
        raise ValueError("the two runs were measured on different queries")
    return bootstrap([after[query] - before[query] for query in after], confidence)
