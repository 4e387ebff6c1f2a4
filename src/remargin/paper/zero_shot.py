"""The paper's table 5 with the rows that a study trains: on collections that they were not trained on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from statistics import fmean

from remargin.errors import InputError
from remargin.evaluation.comparison import Scores
from remargin.paper.deciding import PerQuery
from remargin.paper.published import published_zero_shot
from remargin.paper.systems import (
    ADAPTIVE,
    ADAPTIVE_IN_BATCH,
    BESIDE,
    DISTRIBUTED,
    UNTUNED,
    UNTUNED_IN_BATCH,
    untrained,
)
from remargin.paper.zero_shot_table import MEASURE, Measured, column_means, column_scores, zero_shot_table
from remargin.reports.sections import Section
from remargin.reports.tables import Table
from remargin.study.columns import Column
from remargin.study.experiment import Experiment
from remargin.study.results import LAST, TEST, ZERO_SHOT, ZERO_SHOT_LAST, NotTrained, Result, Results
from remargin.study.specs import RunSpec
from remargin.study.systems import STATIC, STATIC_IN_BATCH, Choice, System, choose, declare
from remargin.study.tasks import Task


@dataclass(frozen=True)
class ZeroShotSystem:
    """A row of table 5: a system, measured by its best model on dev, or by its last one."""

    name: str
    system: System
    to_the_end: bool = False

    @property
    def scores(self) -> tuple[str, str]:
        """The names of its scores among those of a run: on test, and on the other collections."""
        return (LAST, ZERO_SHOT_LAST) if self.to_the_end else (TEST, ZERO_SHOT)

    def spec(self, choice: Choice) -> RunSpec:
        """The chosen run; one whose last model is measured is not stopped early."""
        return replace(choice.spec, early_stopping=choice.spec.early_stopping and not self.to_the_end)


ADAPTIVE_ROW = ZeroShotSystem("adaptive", ADAPTIVE)
ADAPTIVE_IN_BATCH_ROW = ZeroShotSystem("adaptive, in-batch", ADAPTIVE_IN_BATCH)
UNTUNED_ROW = ZeroShotSystem("static untuned", UNTUNED)
UNTUNED_IN_BATCH_ROW = ZeroShotSystem("static untuned, in-batch", UNTUNED_IN_BATCH)
TUNED_ROW = ZeroShotSystem("static tuned", STATIC)
TUNED_IN_BATCH_ROW = ZeroShotSystem("static tuned, in-batch", STATIC_IN_BATCH)
TO_THE_END_ROW = ZeroShotSystem("distributed, to the end", DISTRIBUTED, to_the_end=True)
EARLY_STOPPING_ROW = ZeroShotSystem("distributed, early stopping", DISTRIBUTED)
ROWS = (
    ADAPTIVE_ROW,
    UNTUNED_IN_BATCH_ROW,
    ADAPTIVE_IN_BATCH_ROW,
    UNTUNED_ROW,
    TO_THE_END_ROW,
    TUNED_IN_BATCH_ROW,
    TUNED_ROW,
    EARLY_STOPPING_ROW,
    *(ZeroShotSystem(system.name, system) for system in BESIDE),
)
Cells = dict[str, list[Measured]]  # by column, one for each part of the column


@dataclass(frozen=True)
class ZeroShotRow:
    """The effectiveness of a system of table 5, as nDCG@10.

    Attributes:
        mean: over the other collections.
        in_domain: on the study's own collection.
        columns: on each of the other collections.
        triplets: seen until the model was there; 0 if no validation was above that before training.
        per_query: each query's, by collection; those of the study's own collection in `own`.
    """

    mean: float
    in_domain: float
    columns: Mapping[str, float]
    triplets: int = 0
    per_query: Mapping[str, PerQuery] = field(default_factory=dict, repr=False)
    own: PerQuery = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class ZeroShotTable:
    """Table 5 for one backbone."""

    rows: Mapping[ZeroShotSystem, ZeroShotRow]
    no_training: ZeroShotRow
    bm25: ZeroShotRow


def _tasks(results: Results) -> Iterator[Task]:
    if not results.columns:
        return
    yield from untrained(results, TEST, ZERO_SHOT)
    for model in results.models:
        for row in ROWS:
            choice = declare(results, model, row.system)
            yield from choice.runs([row.spec(choice)], row.scores)


def findings(results: Results) -> Mapping[str, ZeroShotTable]:
    """The rows of each backbone."""
    if not results.columns:
        raise NotTrained("no other collections were named", file=results.out, do="name them: --zero-shot")
    return results.of_models(lambda model: _zero_shot_table(results, model))


def _zero_shot_table(results: Results, model: str) -> ZeroShotTable:
    bm25, no_training = _bm25(results), _no_training(results, model)
    rows = {}
    for row in ROWS:
        result = _run(results, model, row)
        triplets = result.triplets if row.to_the_end else result.best_triplets
        rows[row] = _zero_shot_row(results, _cells(results, result, *row.scores), triplets)
    return ZeroShotTable(rows, _zero_shot_row(results, no_training), _zero_shot_row(results, bm25))


def _run(results: Results, model: str, row: ZeroShotSystem) -> Result:
    return results.run(row.spec(choose(results, model, row.system)), *row.scores)


def _bm25(results: Results) -> Cells:
    return _cells(results, results.bm25(TEST, ZERO_SHOT), TEST, ZERO_SHOT)


def _no_training(results: Results, model: str) -> Cells:
    return _cells(results, results.untrained(model, TEST, ZERO_SHOT), TEST, ZERO_SHOT)


def _cells(results: Results, result: Result, test: str, zero_shot: str) -> Cells:
    scores = result.zero_shot(zero_shot)
    if lacking := {stem for column in results.columns for stem in results.stems(column)} - scores.keys():
        raise InputError(f"has no scores of {min(lacking)}", file=result.folder, do="delete it and go on")
    cells = {column.name: [_measured(scores[stem]) for stem in results.stems(column)] for column in results.columns}
    return cells | {results.name: [_measured(result.test(test))]}


def _measured(scores: Scores) -> Measured:
    return Measured(scores, dict.fromkeys(scores), queries=len(next(iter(scores.values()))))


def _zero_shot_row(results: Results, cells: Cells, triplets: int = 0) -> ZeroShotRow:
    means = column_means(cells, [*results.columns, Column(results.name, (results.name,))], MEASURE)
    in_domain = means.pop(results.name)
    scores = {name: column_scores(parts, MEASURE) for name, parts in cells.items()}
    own = scores.pop(results.name)
    return ZeroShotRow(fmean(means.values()), in_domain, means, triplets, scores, own)


def draw(results: Results, findings: Mapping[str, ZeroShotTable]) -> Section:
    """A table for each backbone, beside the published rows that have any of the collections."""
    summary = [_summary(model, table) for model, table in findings.items()]
    tables = [_table(results, model, table) for model, table in findings.items()]
    notes = [
        "To the end means the last model of a run; with early stopping, and in all other rows, it is the best on dev."
    ]
    settings = {"collections": [column.name for column in results.columns], "measure": MEASURE}
    return Section("zero-shot", "Zero-shot", summary, tables, [], settings, notes)


def _table(results: Results, model: str, table: ZeroShotTable) -> Table:
    cells = {"BM25": _bm25(results), "no training": _no_training(results, model)}
    cells |= {row.name: _cells(results, _run(results, model, row), *row.scores) for row in table.rows}
    in_domain = Column(results.name, (results.name,))
    drawn = zero_shot_table(cells, results.columns, in_domain, MEASURE, published_zero_shot())
    drawn.title = f"{model}, trained on {results.name}"
    drawn.notes.append(f"Each row is one run, with seed {results.plan.seeds[0]}.")
    if unchanged := [system.name for system, row in table.rows.items() if not row.triplets]:
        drawn.notes.append(f"Training never came above the model before it, on dev: {'; '.join(unchanged)}.")
    return drawn


def _summary(model: str, table: ZeroShotTable) -> str:
    """The best row, in a sentence."""
    best, row = max(table.rows.items(), key=lambda item: item[1].mean)
    return (
        f"{model}: zero-shot, the best row is {best.name} ({row.mean:.3f} on average); without training the model has "
        f"{table.no_training.mean:.3f}, BM25 {table.bm25.mean:.3f}."
    )


EXPERIMENT = Experiment(
    "zero-shot",
    tasks=_tasks,
    findings=findings,
    draw=draw,
    compares=True,
)
