"""A measure of every dev query over the validations of a run, and when it is highest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from remargin.paper.deciding import SAMPLES, Array, Gap, PerQuery, Untold, gap_of, resampled
from remargin.study.results import Result


@dataclass(frozen=True)
class DevCurve:
    """A measure over the validations of a training run.

    Attributes:
        triplets: seen at each validation.
        means: the measure at each.
        length: triplets of the whole run.
        queries: the ids of the dev queries; none if the study has means alone.
        values: of each query (rows) at each validation.

    Example:
        >>> curve = DevCurve((100, 200), (0.25, 0.75), 400)
        >>> curve.highest, curve.place, curve.at, curve.per_query is None
        (0.75, 1, 0.5, True)
    """

    triplets: tuple[int, ...]
    means: tuple[float, ...]
    length: int
    queries: tuple[str, ...] = ()
    values: Sequence[Sequence[float]] = field(default=(), repr=False)

    @property
    def highest(self) -> float:
        """The highest validation."""
        return max(self.means)

    @property
    def place(self) -> int:
        """The first of the highest validations, counted from 0."""
        return self.means.index(self.highest)

    @property
    def at(self) -> float:
        """After which share of training that is."""
        return self.triplets[self.place] / self.length

    @property
    def per_query(self) -> PerQuery | None:
        """The measure of each query at the highest validation, where it is known."""
        return self._at(self.place)

    @property
    def last(self) -> PerQuery | None:
        """The same at the last one."""
        return self._at(len(self.means) - 1)

    @property
    def decline(self) -> Gap:
        """The highest validation minus the last: the best of all but that one."""
        tried = max(1, len(self.means) - 1)
        return difference(self.per_query, self.last, self.highest - self.means[-1], tried)

    def above(self, other: DevCurve, tried: int = 1) -> Gap:
        """The highest validation minus that of another run; this one is the best of so many that were tried."""
        return difference(self.per_query, other.per_query, self.highest - other.highest, tried)

    def places(self) -> Array:
        """The highest validation in each bootstrap sample of the queries, counted from 0."""
        places: Array = self.resampled().argmax(1)
        return places

    def resampled(self) -> Array:
        """The means in each bootstrap sample (rows) at each validation."""
        return resampled(np.array(self.values))

    def _at(self, validation: int) -> PerQuery | None:
        if not self.queries:
            return None
        return {query: row[validation] for query, row in zip(self.queries, self.values, strict=True)}


def difference(one: PerQuery | None, other: PerQuery | None, of_means: float, tried: int = 1) -> Gap:
    """The difference of two validations; if either has means alone, it decides nothing."""
    return Untold.of(of_means) if one is None or other is None else gap_of(([one], [other]), tried=tried)


def dev_curve(result: Result, measure: str) -> DevCurve:
    """How a measure went on dev over a training run."""
    seen = tuple(round(step * result.triplets / result.steps) for step, _ in result.trained)
    means = tuple(values[measure] for _, values in result.trained)
    scores = result.dev_scores()
    if scores is None:
        return DevCurve(seen, means, result.triplets)
    return DevCurve(seen, means, result.triplets, scores.queries, scores.values[measure])


def triplets_to_best(curves: Sequence[DevCurve]) -> Array | None:
    """Triplets to the highest validation in each bootstrap sample, on average over seeds, which are drawn as well.

    None where the scores of single queries are not known.
    """
    if not curves or not all(curve.queries for curve in curves):
        return None
    seen = np.stack([np.array(curve.triplets)[curve.places()] for curve in curves], 1)
    drawn = np.random.default_rng(len(curves)).integers(0, len(curves), (SAMPLES, len(curves)))
    triplets: Array = np.take_along_axis(seen, drawn, 1).mean(1)
    return triplets
