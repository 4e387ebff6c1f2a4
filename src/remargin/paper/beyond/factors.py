"""One factor at a time, for the recipe and for its rival: triplets, batch size, negatives, a second round of mining."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from remargin.paper.beyond.systems import OURS, TUNED, measures, untrained_tasks
from remargin.paper.compared import time_text
from remargin.reports.figures import LineFigure, Panel, Series
from remargin.reports.sections import Section
from remargin.reports.tables import Block, Cell, Table, number
from remargin.study.blending import CHOSEN, blend_of, blended_at
from remargin.study.experiment import Experiment
from remargin.study.plan import Plan
from remargin.study.results import MEASURE, TEST, ZERO_SHOT, NotTrained, Result, Results
from remargin.study.specs import RunSpec
from remargin.study.systems import choose, declare
from remargin.study.tasks import Task

NAME = "beyond-factors"
SYSTEMS = (OURS, TUNED)  # the rival with the temperature and the learning rate that dev chose for the plan's factors
SHARES = (0.05, 0.2, 4.0)  # of the plan's triplets
BATCH_SIZES = (32, 64, 256, 512, 1024)
NEGATIVES = (2, 4)


@dataclass(frozen=True)
class FactorRow:
    """A system with one factor changed, with the first seed: means of nDCG@10, without and with blending.

    >>> FactorRow(32, 0.7, 0.4, 0.71, 0.43, 60.0).blended_home
    0.71
    """

    value: int
    home: float
    away: float | None
    blended_home: float
    blended_away: float | None
    seconds: float


Factors = Mapping[str, Mapping[str, list[FactorRow]]]  # by factor and system


def changes(plan: Plan) -> dict[str, list[tuple[int, dict[str, Any]]]]:
    """The values of each factor, and what a run is told; the plan's own value is among them.

    >>> [value for value, _ in changes(Plan(triplets=100_000))["triplets"]]
    [5000, 20000, 100000, 400000]
    """
    triplets = sorted({plan.triplets, *(max(1, round(plan.triplets * share)) for share in SHARES)})
    sizes = sorted({plan.batch_size, *(size for size in BATCH_SIZES if size <= plan.triplets)})
    return {
        "triplets": [(value, {"triplets": value}) for value in triplets],
        "batch size": [(value, {"batch_size": value}) for value in sizes],
        "negatives of a triplet": [(value, {"negatives": value}) for value in (1, *NEGATIVES)],
        "round of mining": [(1, {}), (2, {"second_round": True})],
    }


def _specs(plan: Plan, chosen: RunSpec) -> Iterator[tuple[str, int, RunSpec]]:
    for factor, values in changes(plan).items():
        for value, told in values:
            yield factor, value, replace(chosen, **told)


def _tasks(results: Results) -> Iterator[Task]:
    yield from untrained_tasks(results)
    for model in results.models:
        for system in SYSTEMS:
            choice = declare(results, model, system)
            specs = [spec for _, _, spec in _specs(results.plan, choice.spec)]
            yield from choice.runs(list(dict.fromkeys(specs)), measures(results))  # a first round before its second


def findings(results: Results) -> Mapping[str, Factors]:
    """The rows of each backbone that are there.

    Raises:
        NotTrained: if nothing but the plan's own runs is there.
    """
    return results.of_models(lambda model: _factors(results, model))


def _factors(results: Results, model: str) -> Factors:
    found: dict[str, dict[str, list[FactorRow]]] = {}
    lacking: NotTrained | None = None
    trained = 0
    for system in SYSTEMS:
        chosen = choose(results, model, system).spec
        for factor, value, spec in _specs(results.plan, chosen):
            try:
                row = _row(results.run(spec, *measures(results)), value)
            except NotTrained as error:
                lacking = error
                continue
            trained += spec != chosen
            found.setdefault(factor, {}).setdefault(system.name, []).append(row)
    if lacking and not trained:
        raise lacking
    return found


def _row(run: Result, value: int) -> FactorRow:
    home, away = _means(run, TEST, ZERO_SHOT)
    blended = _means(run, blended_at(TEST, CHOSEN), blended_at(ZERO_SHOT, CHOSEN))
    return FactorRow(value, home, away, *blended, run.seconds + blend_of(run).seconds)


def _means(run: Result, test: str, zero_shot: str) -> tuple[float, float | None]:
    away = run.zero_shot(zero_shot) if run.scores.get(zero_shot) else {}
    means = [fmean(scores[MEASURE].values()) for scores in away.values()]
    return fmean(run.test(test)[MEASURE].values()), fmean(means) if means else None


def draw(results: Results, findings: Mapping[str, Factors]) -> Section:
    """A table and a figure for each factor and backbone."""
    tables, figures = [], []
    for model, factors in findings.items():
        for factor, systems in factors.items():
            blocks = [Block(system, [_line(row) for row in rows]) for system, rows in systems.items()]
            header = [factor, "home", "away", "home, blended", "away, blended", "time of a run"]
            tables.append(Table(f"{factor.capitalize()}: {model}, {results.name}", header, blocks))
            lines = [
                Series(f"{system}{words}", [row.value for row in rows], [getattr(row, field) for row in rows])
                for system, rows in systems.items()
                for words, field in (("", "home"), (", blended", "blended_home"))
            ]
            panel = Panel("", factor, f"home {MEASURE}", lines)
            figures.append(LineFigure(f"{factor.replace(' ', '-')}-{model}", f"{factor}: {model}", "", [[panel]]))
    notes = [
        "One factor at a time, the others as in the plan, with the first seed; temperature and learning rate of the "
        "rival are those that dev chose there.",
    ]
    title = "Beyond the paper: one factor at a time"
    return Section(NAME, title, [], tables, list(figures), {"triplets": results.plan.triplets}, notes)


def _line(row: FactorRow) -> list[Cell]:
    cells = [number(value) for value in (row.home, row.away, row.blended_home, row.blended_away)]
    return [Cell(f"{row.value:,}", value=row.value), *cells, Cell(time_text(row.seconds), value=row.seconds)]


EXPERIMENT = Experiment(NAME, _tasks, findings, draw, compares=True)
