"""The rows of the paper's tables: which loss, what is tuned for it, and how that is chosen on dev."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import fsum
from typing import Any, Literal

import numpy as np

from remargin.evaluation.comparison import Scores
from remargin.experiments.results import LAST, MEASURE, TEST, ZERO_SHOT, ZERO_SHOT_LAST, Result
from remargin.experiments.specs import RunSpec
from remargin.experiments.study import Study

UNTUNED_MARGIN, UNTUNED_TEMPERATURE = 1.0, 0.05
Parameter = Literal["margin", "temperature", "teacher scale"]
# The plan's grid of a parameter, and what a run calls it.
TUNED: dict[Parameter, tuple[str, str]] = {
    "margin": ("margins", "target"),
    "temperature": ("temperatures", "temperature"),
    "teacher scale": ("teacher_scales", "teacher_scale"),
}


@dataclass(frozen=True)
class Row:
    """A system of the tables, and what has to be tuned for it.

    Attributes:
        name: in tables.
        loss: what it is told beside the batch size: fields of `RunSpec`.
        tuned: what is chosen by a sweep, whose cost counts.
    """

    name: str
    loss: tuple[tuple[str, Any], ...]
    tuned: Parameter | None = None

    def spec(self, study: Study, model: str, rate: float, **others: Any) -> RunSpec:
        """A run of it, of full length unless said otherwise."""
        plan = study.plan
        usual = {"batch_size": plan.batch_size, "triplets": plan.triplets, "rate": rate}
        usual["early_stopping"] = plan.patience is not None
        return RunSpec(model=model, **{**usual, **dict(self.loss), **others})


def _row(name: str, tuned: Any = None, **loss: Any) -> Row:
    return Row(name, tuple(loss.items()), tuned)


STATIC = _row("static", tuned="margin", target=f"{UNTUNED_MARGIN:g}")
STATIC_IN_BATCH = _row("static, in-batch", tuned="margin", target=f"{UNTUNED_MARGIN:g}", in_batch=True)
ADAPTIVE = _row("adaptive", target="adaptive")
ADAPTIVE_IN_BATCH = _row("adaptive, in-batch", target="adaptive", in_batch=True)
DISTRIBUTED = _row("distributed", target="distributed")
PAPER = (STATIC, STATIC_IN_BATCH, ADAPTIVE, ADAPTIVE_IN_BATCH, DISTRIBUTED)

CONTRASTIVE = _row("contrastive", tuned="temperature", target="contrastive")
STOPPED = _row("distributed, stopped target", target="distributed", stop_gradient=True)
RELEASED = _row("distributed, released broadcast", target="distributed", released=True)
EXPLICIT_MEAN = _row("explicit mean", target="mean")
BESIDE = (CONTRASTIVE, STOPPED, RELEASED, EXPLICIT_MEAN)


def teacher_row(name: str, **others: Any) -> Row:
    """A row that learns a teacher's margins, scaled to what suits the student's similarity."""
    return _row(name, tuned="teacher scale", target="teacher", **others)


UNTUNED = _row("static 1.0", target=f"{UNTUNED_MARGIN:g}")
UNTUNED_IN_BATCH = _row("static 1.0, in-batch", target=f"{UNTUNED_MARGIN:g}", in_batch=True)


@dataclass(frozen=True)
class Sweep:
    """A grid over a loss parameter, each point a short run on the same triplets: values and what came of them."""

    points: tuple[tuple[float, Result], ...]

    @property
    def seconds(self) -> float:
        """What it cost in all."""
        return fsum(result.seconds for _, result in self.points)

    def values(self, measure: str) -> list[tuple[float, float]]:
        """For each point the highest validation."""
        return [(value, max(v[measure] for _, v in result.trained)) for value, result in self.points]

    def maxima(self, measure: str) -> list[float]:
        """The points with the highest validation: a measure that is near its ceiling has several."""
        found = self.values(measure)
        highest = max(value for _, value in found)
        return [point for point, value in found if value == highest]

    def best(self) -> float:
        """The point with the highest validation, the first of them."""
        return self.maxima(MEASURE)[0]


@dataclass(frozen=True)
class Chosen:
    """The run that dev chose for a row: its settings, and what it took to find what had to be tuned."""

    row: Row
    spec: RunSpec
    sweep: Sweep | None

    @property
    def tuned_to(self) -> float | None:
        """The margin, temperature or scale that the sweep chose."""
        return None if self.row.tuned is None else float(getattr(self.spec, TUNED[self.row.tuned][1]))

    def results(self, study: Study, every_seed: bool = True) -> list[Result]:
        """What came of it, measured, for each seed of the plan or for the first alone."""
        seeds = study.plan.seeds if every_seed else study.plan.seeds[:1]
        return [_run(study, replace(self.spec, seed=seed), *wanted(study, self.row, seed)) for seed in seeds]


def rate_of(study: Study, model: str, row: Row, **others: Any) -> float:
    """The learning rate that dev chooses for a row, by the first seed."""
    specs = [row.spec(study, model, rate, seed=study.plan.seeds[0], **others) for rate in study.plan.rates]
    return specs[0].rate if len(specs) == 1 else max(specs, key=lambda spec: _run(study, spec).dev).rate


def sweep(study: Study, model: str, row: Row) -> Sweep:
    """The grid of a row's parameter, with the learning rate that dev chose for the usual value."""
    plan = study.plan
    rate = rate_of(study, model, row)
    points = []
    for value in _grid(study, row):
        short = {"triplets": plan.sweep_triplets, "early_stopping": False}
        spec = row.spec(study, model, rate, seed=plan.seeds[0], **short, **_tuned(row, value))
        points.append((value, _run(study, spec)))
    return Sweep(tuple(points))


def choose(study: Study, model: str, row: Row) -> Chosen:
    """What dev chooses for a row: first its own parameter, if it has one, then the learning rate."""
    grid = _grid(study, row)
    found = sweep(study, model, row) if len(grid) > 1 else None
    others = _tuned(row, found.best() if found else grid[0]) if grid else {}
    rate = rate_of(study, model, row, **others)
    return Chosen(row, row.spec(study, model, rate, seed=study.plan.seeds[0], **others), found)


def _run(study: Study, spec: RunSpec, *wanted: str) -> Result:
    """What came of a run. The second teacher, where there are two, is the contrastive row's model."""
    if not spec.two_teachers:
        return study.run(spec, *wanted)
    return study.run(spec, *wanted, second_teacher=lambda: choose(study, spec.model, CONTRASTIVE).spec)


def _grid(study: Study, row: Row) -> tuple[float, ...]:
    """What a row's parameter may be; nothing where there is none."""
    return getattr(study.plan, TUNED[row.tuned][0]) if row.tuned else ()


def _tuned(row: Row, value: float) -> dict[str, Any]:
    """What a run is told of a row's parameter."""
    assert row.tuned is not None
    return {TUNED[row.tuned][1]: f"{value:g}" if row.tuned == "margin" else value}


def over_seeds(results: list[Result], what: str = TEST) -> Scores:
    """Each query's scores, as the mean over seeds."""
    every = [result.test(what) for result in results]
    return {
        measure: {query: float(np.mean([scores[measure][query] for scores in every])) for query in of_measure}
        for measure, of_measure in every[0].items()
    }


def mean_and_spread(results: list[Result], measure: str, what: str = TEST) -> tuple[float, float | None]:
    """The mean of a measure over queries and seeds, and the standard deviation of the seeds' means, if several."""
    means = [float(np.mean(list(result.test(what)[measure].values()))) for result in results]
    return float(np.mean(means)), float(np.std(means, ddof=1)) if len(means) > 1 else None


def wanted(study: Study, row: Row, seed: int) -> tuple[str, ...]:
    """What to measure of a run as long as its model is there: tables 3, 4 and 5 share their runs."""
    shared = study.can_train and seed == study.plan.seeds[0] and row in ZERO_SHOT_ROWS
    if not (shared and study.columns):
        return tuple(study.tests)
    to_the_end = row is DISTRIBUTED and study.plan.patience is None
    return (*study.tests, ZERO_SHOT, *((LAST, ZERO_SHOT_LAST) if to_the_end else ()))


ZERO_SHOT_ROWS = (*PAPER, *BESIDE, UNTUNED, UNTUNED_IN_BATCH)
