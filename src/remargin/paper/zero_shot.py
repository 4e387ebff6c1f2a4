"""The paper's table 5 with the rows that a study trains: on collections that they were not trained on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from statistics import fmean
from typing import Any

from remargin.errors import InputError
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
from remargin.paper.zero_shot_table import MEASURE, Measured, column_means, zero_shot_table
from remargin.report.sections import Section
from remargin.study.columns import Column
from remargin.study.experiment import Experiment
from remargin.study.outcome import Outcome
from remargin.study.results import LAST, TEST, ZERO_SHOT, ZERO_SHOT_LAST, Result, Results
from remargin.study.specs import RunSpec
from remargin.study.systems import STATIC, STATIC_IN_BATCH, Choice, System, choose, declare
from remargin.study.tasks import Task

ROWS: dict[str, tuple[System, str, str]] = {
    "adaptive": (ADAPTIVE, TEST, ZERO_SHOT),
    "static untuned, in-batch": (UNTUNED_IN_BATCH, TEST, ZERO_SHOT),
    "adaptive, in-batch": (ADAPTIVE_IN_BATCH, TEST, ZERO_SHOT),
    "static untuned": (UNTUNED, TEST, ZERO_SHOT),
    "distributed, to the end": (DISTRIBUTED, LAST, ZERO_SHOT_LAST),
    "static tuned, in-batch": (STATIC_IN_BATCH, TEST, ZERO_SHOT),
    "static tuned": (STATIC, TEST, ZERO_SHOT),
    "distributed, early stopping": (DISTRIBUTED, TEST, ZERO_SHOT),
    **{row.name: (row, TEST, ZERO_SHOT) for row in BESIDE},
}


def _spec(choice: Choice, test: str) -> RunSpec:
    """The chosen run; one that is measured at its end is not stopped early."""
    return replace(choice.spec, early_stopping=choice.spec.early_stopping and test != LAST)


def _tasks(results: Results) -> Iterator[Task]:
    if not results.columns:
        return
    yield from untrained(results, TEST, ZERO_SHOT)
    for model in results.models:
        for system, test, zero_shot in ROWS.values():
            choice = declare(results, model, system)
            yield from choice.runs([_spec(choice, test)], (test, zero_shot))


def draw(results: Results) -> Outcome:
    """A table for each backbone, beside the published rows that have any of the collections."""
    tables, numbers = [], {}
    in_domain = Column(results.name, (results.name,))
    for model, (found, triplets) in results.of_models(lambda model: _rows(results, model)).items():
        table = zero_shot_table(found, results.columns, in_domain, MEASURE, published_zero_shot())
        table.title = f"{model}, trained on {results.name}"
        table.notes.append(f"Each row is one run, with seed {results.plan.seeds[0]}.")
        if untrained := [name for name, count in triplets.items() if not count]:
            table.notes.append(f"Training never came above the model before it, on dev: {'; '.join(untrained)}.")
        tables.append(table)
        numbers[model] = _numbers(results, found, triplets)
    summary = [_said(model, of_model) for model, of_model in numbers.items()]
    notes = [
        "To the end means the last model of a run; with early stopping, and in all other rows, it is the best on dev."
    ]
    settings = {"collections": [column.name for column in results.columns], "measure": MEASURE}
    return Outcome(Section("zero-shot", "Zero-shot", summary, tables, [], settings, notes), numbers)


def _rows(results: Results, model: str) -> tuple[dict[str, dict[str, list[Measured]]], dict[str, int]]:
    """The cells of every row, and the triplets that trained ones have seen until their model was there."""
    triplets = {}
    found = {"BM25": _cells(results, results.bm25(TEST, ZERO_SHOT), TEST, ZERO_SHOT)}
    found["no training"] = _cells(results, results.untrained(model, TEST, ZERO_SHOT), TEST, ZERO_SHOT)
    for name, (row, test, zero_shot) in ROWS.items():
        result = results.run(_spec(choose(results, model, row), test), test, zero_shot)
        found[name] = _cells(results, result, test, zero_shot)
        triplets[name] = result.triplets if test == LAST else result.best_triplets
    return found, triplets


def _cells(results: Results, result: Result, test: str, zero_shot: str) -> dict[str, list[Measured]]:
    scores = result.zero_shot(zero_shot)
    if lacking := {stem for column in results.columns for stem in results.stems(column)} - scores.keys():
        raise InputError(f"has no scores of {min(lacking)}", file=result.folder, do="delete it and go on")
    found = {column.name: [_measured(scores[stem]) for stem in results.stems(column)] for column in results.columns}
    return found | {results.name: [_measured(result.test(test))]}


def _measured(scores: Any) -> Measured:
    return Measured(scores, dict.fromkeys(scores), queries=len(next(iter(scores.values()))))


def _numbers(results: Results, found: dict[str, dict[str, list[Measured]]], triplets: dict[str, int]) -> dict[str, Any]:
    numbers: dict[str, Any] = {}
    for name, cells in found.items():
        means = column_means(cells, [*results.columns, Column(results.name, (results.name,))], MEASURE)
        inside = means.pop(results.name)
        numbers[name] = {"mean": fmean(means.values()), "in-domain": inside, "triplets": triplets.get(name), **means}
    return numbers


def _said(model: str, numbers: dict[str, Any]) -> str:
    rows = {name: numbers[name]["mean"] for name in ROWS}
    best = max(rows, key=rows.__getitem__)
    return (
        f"{model}: zero-shot, the best row is {best} ({rows[best]:.3f} on average); without training the model has "
        f"{numbers['no training']['mean']:.3f}, BM25 {numbers['BM25']['mean']:.3f}."
    )


EXPERIMENT = Experiment(
    "zero-shot",
    "Table 5: on collections that a model was not trained on, beside the published rows.",
    tasks=_tasks,
    draw=draw,
    compares=True,
)
