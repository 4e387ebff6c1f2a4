"""The systems of the paper's tables, those that we put beside them, and what is measured of each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from remargin.study.plan import Plan
from remargin.study.results import LAST, ZERO_SHOT, ZERO_SHOT_LAST, Results
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
# Of all rows, only the contrastive one is told which documents of a batch are known to be relevant. What that is worth:
UNMASKED = system("contrastive, nothing left out", tuned="temperature", target="contrastive", mask_known=False)

UNTUNED = system("static 1.0", target=f"{UNTUNED_MARGIN:g}")
UNTUNED_IN_BATCH = system("static 1.0, in-batch", target=f"{UNTUNED_MARGIN:g}", in_batch=True)


def taught(name: str, second_teacher: System | None = None, **others: Any) -> System:
    """A system that learns a teacher's margins, scaled to what suits the student's similarity.

    With a second teacher, the model of that system scores the pairs of a batch.
    """
    if second_teacher is not None:
        others |= {"in_batch": True, "in_batch_teacher": second_teacher.name}
    return system(name, tuned="teacher scale", second_teacher=second_teacher, target="teacher", **others)


MARGIN_MSE = taught("MarginMSE")
EASY_BINS_DROPPED = taught("TAS-B, easy bins dropped", sampler="tas-balanced", drop_bins=5)
# The contrastive model is the better teacher of the two, and a rival of all rows; MarginMSE's knows no more than the
# cross-encoder has taught it.
TAUGHT_BY_MARGIN_MSE = (
    taught("MarginMSE, in-batch by MarginMSE", MARGIN_MSE),
    taught("TAS-B, in-batch by MarginMSE", MARGIN_MSE, sampler="tas-balanced"),
)
TAS_B = (
    taught("TAS-B", sampler="tas-balanced"),
    taught("TAS-B, in-batch", CONTRASTIVE, sampler="tas-balanced"),
    TAUGHT_BY_MARGIN_MSE[1],
    EASY_BINS_DROPPED,
)
TEACHERS = (MARGIN_MSE, taught("MarginMSE, in-batch", CONTRASTIVE), TAUGHT_BY_MARGIN_MSE[0], *TAS_B)

ZERO_SHOT_SYSTEMS = (*PAPER, *BESIDE, UNTUNED, UNTUNED_IN_BATCH, *TAS_B)


def whole_run(plan: Plan, choice: Choice) -> RunSpec:
    """The run of figures 4 to 6: the chosen one, never stopped early; at a constant rate in the paper's regime."""
    return replace(choice.spec, early_stopping=False, validate_every=plan.curve_validate_every, **plan.constant_rate)


def measured_runs(results: Results, model: str, system: System) -> Iterator[Task]:
    """The training runs behind a row of tables 3 and 4, measured on test.

    Tables 3, 4 and 5 share their runs. As long as a model of table 5 is there, it is measured for that table, too.
    """
    choice = declare(results, model, system)
    first, *others = choice.with_seeds(results.plan.seeds)
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
