"""Differences between two rows over several collections: macro means, with queries bootstrapped within collections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from remargin.evaluation.significance import Interval
from remargin.paper.beyond.rows import CollectionRows, RowName
from remargin.paper.deciding import differences

SAMPLES = 10_000
AT_ONCE = 1 << 20  # numbers drawn at a time


def macro_interval(
    groups: Sequence[Sequence[float]], confidence: float = 0.95, samples: int = SAMPLES, seed: int = 0
) -> Interval:
    """The mean over groups of their means, and its percentile bootstrap interval: values are drawn within each group.

    >>> macro_interval([[0.0, 0.0, 0.0], [1.0, 1.0]])
    Interval(mean=0.5, low=0.5, high=0.5)
    """
    rng = np.random.default_rng(seed)
    drawn = np.mean([_bootstrapped(np.asarray(group, float), samples, rng) for group in groups], axis=0)
    low, high = np.quantile(drawn, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(fmean(fmean(group) for group in groups), float(low), float(high))


def _bootstrapped(values: NDArray[np.float64], samples: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Means of as many values, drawn with replacement, `samples` times."""
    rows = max(1, AT_ONCE // len(values))
    counts = [min(rows, samples - start) for start in range(0, samples, rows)]
    return np.concatenate([values[rng.integers(0, len(values), (count, len(values)))].mean(1) for count in counts])


def home_differences(collections: Sequence[CollectionRows], after: RowName, before: RowName) -> dict[str, list[float]]:
    """The differences between two rows on every test query, by collection."""
    return {
        collection.name: list(differences(collection.rows[after].home, collection.rows[before].home).values())
        for collection in collections
    }


def away_differences(collections: Sequence[CollectionRows], after: RowName, before: RowName) -> dict[str, list[float]]:
    """The differences between two rows on every query of the other collections, by their names.

    Models that were trained on several collections are measured on the same queries: each query has the mean of their
    differences, so that it counts once.
    """
    gathered: dict[str, dict[str, list[float]]] = {}
    for collection in collections:
        ours, theirs = collection.rows[after].away, collection.rows[before].away
        for name in ours:
            for query, difference in differences(ours[name], theirs[name]).items():
                gathered.setdefault(name, {}).setdefault(query, []).append(difference)
    return {name: [fmean(values) for values in queries.values()] for name, queries in gathered.items()}


def macro_home(collections: Sequence[CollectionRows], row: RowName) -> float:
    """The mean of a row over the collections that were trained on."""
    return fmean(collection.rows[row].home_mean for collection in collections)


def macro_away(collections: Sequence[CollectionRows], row: RowName) -> float | None:
    """The mean of a row over the other collections, after that over the collections that were trained on."""
    means: dict[str, list[float]] = {}
    for collection in collections:
        for name, scores in collection.rows[row].away.items():
            means.setdefault(name, []).append(fmean(scores.values()))
    return fmean(fmean(values) for values in means.values()) if means else None


def shared_rows(collections: Sequence[CollectionRows]) -> list[RowName]:
    """The rows that every collection has, in the order of the first."""
    return [name for name in collections[0].rows if all(name in collection.rows for collection in collections)]


def intervals(groups: Mapping[str, Sequence[float]], confidence: float = 0.95) -> dict[str, Interval]:
    """The mean of each group with its interval."""
    return {name: macro_interval([values], confidence) for name, values in groups.items()}
