"""The paper's table 5 with the rows that a study trains: on collections that they were not trained on."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean
from typing import Any

from remargin.errors import InputError
from remargin.experiments.outcome import Outcome
from remargin.experiments.published import published_zero_shot
from remargin.experiments.results import LAST, TEST, ZERO_SHOT, ZERO_SHOT_LAST, Result
from remargin.experiments.rows import (
    ADAPTIVE,
    ADAPTIVE_IN_BATCH,
    BESIDE,
    DISTRIBUTED,
    STATIC,
    STATIC_IN_BATCH,
    UNTUNED,
    UNTUNED_IN_BATCH,
    Row,
    choose,
)
from remargin.experiments.study import Study
from remargin.report.sections import Section
from remargin.report.zero_shot import MEASURE, Column, Measured, column_means, zero_shot_table

ROWS: dict[str, tuple[Row, str, str]] = {
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


def zero_shot_rows(study: Study) -> Outcome:
    """A table for each backbone, beside the published rows that have any of the collections."""
    tables, numbers = [], {}
    in_domain = Column(study.name, (study.name,))
    for model, (found, triplets) in study.of_models(lambda model: _rows(study, model)).items():
        table = zero_shot_table(found, study.columns, in_domain, MEASURE, published_zero_shot())
        table.title = f"{model}, trained on {study.name}"
        table.notes.append(f"Each row is one run, with seed {study.plan.seeds[0]}.")
        if untrained := [name for name, count in triplets.items() if not count]:
            table.notes.append(f"Training never came above the model before it, on dev: {'; '.join(untrained)}.")
        tables.append(table)
        numbers[model] = _numbers(study, found, triplets)
    summary = [_said(model, of_model) for model, of_model in numbers.items()]
    notes = [
        "To the end means the last model of a run; with early stopping, and in all other rows, it is the best on dev."
    ]
    settings = {"collections": [column.name for column in study.columns], "measure": MEASURE}
    return Outcome(Section("zero-shot", "Zero-shot", summary, tables, [], settings, notes), numbers)


def _rows(study: Study, model: str) -> tuple[dict[str, dict[str, list[Measured]]], dict[str, int]]:
    """The cells of every row, and the triplets that trained ones have seen until their model was there."""
    triplets = {}
    found = {"BM25": _cells(study, study.bm25(TEST, ZERO_SHOT), TEST, ZERO_SHOT)}
    found["no training"] = _cells(study, study.untrained(model, TEST, ZERO_SHOT), TEST, ZERO_SHOT)
    for name, (row, test, zero_shot) in ROWS.items():
        spec = choose(study, model, row).spec
        whole = replace(spec, early_stopping=spec.early_stopping and test != LAST)
        result = study.run(whole, test, zero_shot)
        found[name] = _cells(study, result, test, zero_shot)
        triplets[name] = result.triplets if test == LAST else result.best_triplets
    return found, triplets


def _cells(study: Study, result: Result, test: str, zero_shot: str) -> dict[str, list[Measured]]:
    scores = result.zero_shot(zero_shot)
    if lacking := {stem for column in study.columns for stem in study.stems(column)} - scores.keys():
        raise InputError(f"has no scores of {min(lacking)}", file=result.folder, do="delete it and go on")
    found = {column.name: [_measured(scores[stem]) for stem in study.stems(column)] for column in study.columns}
    return found | {study.name: [_measured(result.test(test))]}


def _measured(scores: Any) -> Measured:
    return Measured(scores, dict.fromkeys(scores), queries=len(next(iter(scores.values()))))


def _numbers(study: Study, found: dict[str, dict[str, list[Measured]]], triplets: dict[str, int]) -> dict[str, Any]:
    numbers: dict[str, Any] = {}
    for name, cells in found.items():
        means = column_means(cells, [*study.columns, Column(study.name, (study.name,))], MEASURE)
        inside = means.pop(study.name)
        numbers[name] = {"mean": fmean(means.values()), "in-domain": inside, "triplets": triplets.get(name), **means}
    return numbers


def _said(model: str, numbers: dict[str, Any]) -> str:
    rows = {name: numbers[name]["mean"] for name in ROWS}
    best = max(rows, key=rows.__getitem__)
    return (
        f"{model}: zero-shot, the best row is {best} ({rows[best]:.3f} on average); without training the model has "
        f"{numbers['no training']['mean']:.3f}, BM25 {numbers['BM25']['mean']:.3f}."
    )
