"""The systems of the paper's tables, those that we put beside them, and what is measured of each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from remargin.evaluation.comparison import Scores
from remargin.study.plan import Plan
from remargin.study.results import LAST, TEST, ZERO_SHOT, ZERO_SHOT_LAST, Result, Results
from remargin.study.specs import RunSpec
from remargin.study.systems import (
    CONTRASTIVE,
    STATIC,
    STATIC_IN_BATCH,
    UNTUNED_MARGIN,
    Choice,
    System,
    declare,
    system,
)
from remargin.study.tasks import MeasureUntrained, Task

WITHOUT, WITH = "without in-batch negatives", "with in-batch negatives"

ADAPTIVE = system("adaptive", target="adaptive")
ADAPTIVE_IN_BATCH = system("adaptive, in-batch", target="adaptive", in_batch=True)
DISTRIBUTED = system("distributed", target="distributed")
PAPER = (STATIC, STATIC_IN_BATCH, ADAPTIVE, ADAPTIVE_IN_BATCH, DISTRIBUTED)

STOPPED = system("distributed, stopped target", target="distributed", stop_gradient=True)
RELEASED = system("distributed, released broadcast", target="distributed", released=True)
EXPLICIT_MEAN = system("explicit mean", target="mean")
BESIDE = (CONTRASTIVE, STOPPED, RELEASED, EXPLICIT_MEAN)

UNTUNED = system("static 1.0", target=f"{UNTUNED_MARGIN:g}")
UNTUNED_IN_BATCH = system("static 1.0, in-batch", target=f"{UNTUNED_MARGIN:g}", in_batch=True)
ZERO_SHOT_SYSTEMS = (*PAPER, *BESIDE, UNTUNED, UNTUNED_IN_BATCH)


def taught(name: str, **others: Any) -> System:
    """A system that learns a teacher's margins, scaled to what suits the student's similarity.

    With in-batch negatives a second teacher scores the pairs of a batch: the model of the contrastive system.
    """
    second = CONTRASTIVE if others.get("in_batch") else None
    return system(name, tuned="teacher scale", second_teacher=second, target="teacher", **others)


def whole_run(plan: Plan, choice: Choice) -> RunSpec:
    """The run of figures 4 to 6: the chosen one, never stopped early; at a constant rate in the paper's regime."""
    return replace(choice.spec, early_stopping=False, validate_every=plan.curve_validate_every, **plan.constant_rate)


def measured_runs(results: Results, model: str, system: System, every_seed: bool) -> Iterator[Task]:
    """The training runs behind a row of tables 3 and 4, measured on test.

    Tables 3, 4 and 5 share their runs. As long as a model of table 5 is there, it is measured for that table, too.
    """
    choice, seeds = declare(results, model, system), results.plan.seeds
    first, *others = choice.with_seeds(seeds if every_seed else seeds[:1])
    yield from choice.runs([first], (*results.tests, *_shared(results, system)))
    yield from choice.runs(others, tuple(results.tests))


def _shared(results: Results, system: System) -> tuple[str, ...]:
    if not results.columns or system not in ZERO_SHOT_SYSTEMS:
        return ()
    to_the_end = system is DISTRIBUTED and results.plan.patience is None
    return (ZERO_SHOT, *((LAST, ZERO_SHOT_LAST) if to_the_end else ()))


def untrained(results: Results, *measure: str) -> Iterator[Task]:
    """BM25 and the backbones without training, measured."""
    yield MeasureUntrained(None, measure)
    for model in results.models:
        yield MeasureUntrained(model, measure)


def over_seeds(results: list[Result], test: str = TEST) -> Scores:
    """Each query's scores, as the mean over seeds."""
    every = [result.test(test) for result in results]
    return {
        measure: {query: float(np.mean([scores[measure][query] for scores in every])) for query in queries}
        for measure, queries in every[0].items()
    }


def mean_and_deviation(results: list[Result], measure: str, test: str = TEST) -> tuple[float, float | None]:
    """The mean of a measure over queries and seeds, and the standard deviation of the seeds' means, if several."""
    means = [float(np.mean(list(result.test(test)[measure].values()))) for result in results]
    return float(np.mean(means)), float(np.std(means, ddof=1)) if len(means) > 1 else None
