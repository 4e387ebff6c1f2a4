"""The paper's figures 4 and 5: both measures over training, for two batch sizes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from remargin.experiments.outcome import Outcome
from remargin.experiments.results import HITS, MEASURE, Result
from remargin.experiments.rows import ADAPTIVE, ADAPTIVE_IN_BATCH, DISTRIBUTED, Row, choose
from remargin.experiments.study import Study
from remargin.report.figures import LineFigure, Panel, Series
from remargin.report.sections import Section
from remargin.report.tables import Block, Cell, Table, number

Curves = dict[tuple[str, str, int], Result]  # by model, row and batch size


def adaptive_margins(study: Study) -> Outcome:
    """Adaptive targets without and with in-batch negatives."""
    return _over_training(study, "adaptive-margins", "Adaptive margins", (ADAPTIVE, ADAPTIVE_IN_BATCH))


def distributed_margins(study: Study) -> Outcome:
    """Distributed targets."""
    return _over_training(study, "distributed-margins", "Distributed margins", (DISTRIBUTED,))


def _over_training(study: Study, name: str, title: str, rows: tuple[Row, ...]) -> Outcome:
    sizes = sorted({study.plan.other_batch_size, study.plan.batch_size})
    found = study.of_models(lambda model: _runs(study, model, rows, sizes))
    models = list(found)
    curves = {(model, *which): result for model, runs in found.items() for which, result in runs.items()}
    # One row: a column for each batch size, as the paper has it; several rows: a column for each.
    columns = [(row.name, sizes) for row in rows] if len(rows) > 1 else [(rows[0].name, [size]) for size in sizes]
    figure = LineFigure(
        name,
        f"{title} over training",
        f"{study.name}, dev: BM25's documents re-ranked. Dots mark maxima.",
        [[_panel(curves, models, row, of, measure) for row, of in columns] for measure in (MEASURE, HITS)],
    )
    cells: list[list[Cell]] = []
    numbers: dict[str, Any] = {}
    for (model, target, size), result in curves.items():
        maxima = _numbers(result, size)
        numbers.setdefault(model, {}).setdefault(target, {})[str(size)] = maxima
        cells.append(
            [
                Cell(model),
                Cell(target),
                Cell(str(size)),
                number(maxima[MEASURE]["highest"]),
                number(maxima[MEASURE]["at"], 2),
                number(maxima[MEASURE]["last"]),
                number(maxima[HITS]["highest"]),
                number(maxima[HITS]["at"], 2),
            ]
        )
    header = ["model", "target", "batch", MEASURE, "reached after", "at the end", HITS, "reached after "]
    notes = ["Reached after: the share of training at which the highest validation was seen."]
    if study.plan.rate_for(1.0, sizes[0]) != study.plan.rate_for(1.0, sizes[-1]):
        notes.append("Learning rates are divided by the batch size, as the paper's.")
    table = Table("Maxima", header, [Block("", cells)], notes)
    summary = [_said(numbers)]
    settings = {"batch sizes": sizes, "triplets": study.plan.triplets, "validated every": study.plan.validate_every}
    return Outcome(Section(name, title, summary, [table], [figure], settings, []), numbers)


def _runs(study: Study, model: str, rows: tuple[Row, ...], sizes: list[int]) -> dict[tuple[str, int], Result]:
    specs = {row.name: replace(choose(study, model, row).spec, early_stopping=False) for row in rows}
    return {
        (name, size): study.run(replace(spec, batch_size=size, rate=study.plan.rate_for(spec.rate, size)))
        for name, spec in specs.items()
        for size in sizes
    }


def _panel(curves: Curves, models: list[str], row: str, sizes: list[int], measure: str) -> Panel:
    series = []
    for model in models:
        for size in sizes:
            curve = curves[model, row, size].trained
            seen = [step * size for step, _ in curve]
            label = ", ".join(([model] if len(models) > 1 else []) + [f"B = {size}"])
            series.append(Series(label, seen, [values[measure] for _, values in curve]))
    title = row if len(sizes) > 1 else f"{row}, B = {sizes[0]}"
    return Panel(title, "triplets seen", measure, series, mark_maxima=True)


def _numbers(result: Result, size: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for measure in (MEASURE, HITS):
        values = [of_step[measure] for _, of_step in result.trained]
        place = values.index(max(values))
        step, _ = result.trained[place]
        found[measure] = {
            "highest": values[place],
            "at": step / result.steps,
            "validation": place + 1,
            "triplets": step * size,
            "last": values[-1],
        }
    return found


def _said(numbers: dict[str, Any]) -> str:
    shares = [found[MEASURE]["at"] for rows in numbers.values() for sizes in rows.values() for found in sizes.values()]
    first, last = f"{min(shares):.0%}", f"{max(shares):.0%}"
    return f"{MEASURE} is highest after {first if first == last else f'{first} to {last}'} of training."
