"""What tables 3 and 4 share: which rows are equivalent to the best, and how cells are written."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from remargin.evaluation.comparison import ComparedRun, Scores, compare_scores
from remargin.evaluation.significance import widest_interval
from remargin.paper.deciding import PerSeed
from remargin.paper.systems import PAPER
from remargin.reports.tables import MISSING, Cell
from remargin.study.plan import Plan
from remargin.study.results import MEASURE, RECALL, Results
from remargin.study.systems import System, choose

BOUND = 0.05  # the paper's: differences below it do not matter
ENERGY = "Energy is that of the GPU alone, as its driver counts it."
PAPER_NAMES = {row.name for row in PAPER}
Compared = dict[str, dict[str, ComparedRun]]  # by measure and row


@dataclass(frozen=True)
class RowScore:
    """The mean of a measure in a row of tables 3 and 4, and how the row compares with the reference.

    Attributes:
        mean: over queries and seeds.
        equivalent: whether the row is statistically equivalent to the reference.
        better: whether it is significantly better.
        reference: whether it is the reference itself: the best of the paper's targets, or the best TAS-B run.
        deviation: the standard deviation over seeds, if there are several.
        per_seed: each query's value with each seed.
    """

    mean: float
    equivalent: bool = False
    better: bool = False
    reference: bool = False
    deviation: float | None = None
    per_seed: PerSeed = field(default=(), repr=False)


def row_score(compared: ComparedRun, mean: float, deviation: float | None, measured: Sequence[Scores]) -> RowScore:
    """The score of a row that was compared with the reference."""
    difference = compared.difference
    return RowScore(
        mean,
        equivalent=compared.equivalent,
        better=difference is not None and difference.different and difference.mean.mean > 0,
        reference=difference is None,
        deviation=deviation,
        per_seed=[scores[compared.measure] for scores in measured],
    )


def compare_in_groups(scores: dict[str, Scores], reference: str | None = None) -> Compared:
    """Every row against the best of the paper's, or a given one. The paper's rows are one group of tests, ours another.

    So what the paper leaves out does not make its own tests stricter.
    """
    groups = [[name for name in scores if (name in PAPER_NAMES) == in_paper] for in_paper in (True, False)]
    compared: Compared = {}
    for measure in (MEASURE, RECALL):
        means = {name: fmean(scores[name][measure].values()) for name in groups[0]}
        best = reference or max(means, key=means.__getitem__)
        compared[measure] = {}
        for group in filter(None, groups):
            values = {name: {measure: scores[name][measure]} for name in dict.fromkeys([best, *group])}
            comparison = compare_scores(values, reference=best, bound=BOUND, samples=1)  # Fisher's test is not shown
            compared[measure] |= {row.run: row for row in comparison.rows}
    return compared


def chosen_text(system: System, tuned_to: float | None, rate: float) -> str:
    """What dev chose for a system, for people.

    >>> chosen_text(PAPER[0], 0.3, 1e-4)
    'margin 0.3, rate 0.0001'
    """
    return f"{system.tuned} {tuned_to:g}, rate {rate:g}" if system.tuned else f"rate {rate:g}"


def time_text(seconds: float) -> str:
    """Minutes and seconds, or hours and minutes where there are hours.

    >>> time_text(75), time_text(54420)
    ('1:15 min', '15:07 h')
    """
    if seconds < 3600:
        return f"{int(seconds) // 60}:{int(seconds) % 60:02} min"
    return f"{int(seconds) // 3600}:{int(seconds) % 3600 // 60:02} h"


def energy_cell(joules: float | None, marks: str = "") -> Cell:
    """Energy in watt-hours, in kilowatt-hours from 1,000 on; MISSING where none was recorded.

    >>> energy_cell(9_000.0).text, energy_cell(5.4e6).text, energy_cell(None) == MISSING
    ('2.5 Wh', '1.50 kWh', True)
    """
    if joules is None:
        return MISSING
    hours = joules / 3600
    return Cell(f"{hours:.1f} Wh" if hours < 1000 else f"{hours / 1000:.2f} kWh", marks=marks, value=joules)


def resolution(means: Iterable[float], plan: Plan) -> float | None:
    """Half the width of the 95% interval of a validation, at its widest; None if all are 0 or 1."""
    widest = max((widest_interval(mean, plan.validation_queries) for mean in means), default=0.0)
    return min(widest, 0.5) or None


def resolution_text(plan: Plan) -> str:
    """What the bar of that width is, for captions."""
    return (
        f"The bar beside a y axis is as tall as the 95% confidence interval of a mean over {plan.validation_queries:,} "
        "queries can be, and no axis is shorter than two of them."
    )


def at_edges(results: Results, model: str, systems: Iterable[System]) -> list[str]:
    """A line on the systems whose learning rate is the lowest or highest that dev could choose, if any."""
    names = [system.name for system in systems if choose(results, model, system).at_edge]
    line = f"{model}: the learning rate is the lowest or highest that was tried for {'; '.join(names)}."
    return [line] if names else []


def not_trained(model: str, systems: Iterable[System], trained: Container[System]) -> list[str]:
    """A line on the systems that a backbone lacks, if any."""
    lacking = [system.name for system in systems if system not in trained]
    return [f"Not trained for {model}: {'; '.join(lacking)}."] if lacking else []
