"""The paper's figures 4 and 5: both measures over training, for two batch sizes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from remargin.paper.systems import ADAPTIVE, ADAPTIVE_IN_BATCH, DISTRIBUTED
from remargin.report.figures import LineFigure, Panel, Series
from remargin.report.sections import Section
from remargin.report.tables import Block, Cell, Table, number
from remargin.study.experiment import Experiment
from remargin.study.outcome import Outcome
from remargin.study.plan import Plan
from remargin.study.results import HITS, MEASURE, Result, Results
from remargin.study.specs import RunSpec
from remargin.study.systems import Choice, System, choose, declare
from remargin.study.tasks import Task

Curves = dict[tuple[str, str, int], Result]  # by model, row and batch size


def curves(name: str, title: str, about: str, systems: tuple[System, ...]) -> Experiment:
    """The experiment that shows some systems over training."""
    return Experiment(name, about, partial(_tasks, systems), partial(_draw, systems, name, title))


def _tasks(systems: tuple[System, ...], results: Results) -> Iterator[Task]:
    for model in results.models:
        for system in systems:
            choice = declare(results, model, system)
            yield from choice.runs(_specs(results.plan, choice).values())


def _specs(plan: Plan, choice: Choice) -> dict[int, RunSpec]:
    """The chosen run with each batch size, always of full length."""
    whole = replace(choice.spec, early_stopping=False)
    return {size: replace(whole, batch_size=size, rate=plan.rate_for(whole.rate, size)) for size in _sizes(plan)}


def _sizes(plan: Plan) -> list[int]:
    return sorted({plan.other_batch_size, plan.batch_size})


def _draw(rows: tuple[System, ...], name: str, title: str, results: Results) -> Outcome:
    sizes = _sizes(results.plan)
    found = results.of_models(lambda model: _runs(results, model, rows))
    models = list(found)
    curves = {(model, *which): result for model, runs in found.items() for which, result in runs.items()}
    # One row: a column for each batch size, as the paper has it; several rows: a column for each.
    columns = [(row.name, sizes) for row in rows] if len(rows) > 1 else [(rows[0].name, [size]) for size in sizes]
    figure = LineFigure(
        name,
        f"{title} over training",
        f"{results.name}, dev: BM25's documents re-ranked. Dots mark maxima.",
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
    if results.plan.rate_for(1.0, sizes[0]) != results.plan.rate_for(1.0, sizes[-1]):
        notes.append("Learning rates are divided by the batch size, as the paper's.")
    table = Table("Maxima", header, [Block("", cells)], notes)
    summary = [_said(numbers)]
    settings = {"batch sizes": sizes, "triplets": results.plan.triplets, "validated every": results.plan.validate_every}
    return Outcome(Section(name, title, summary, [table], [figure], settings, []), numbers)


def _runs(results: Results, model: str, systems: tuple[System, ...]) -> dict[tuple[str, int], Result]:
    return {
        (system.name, size): results.run(spec)
        for system in systems
        for size, spec in _specs(results.plan, choose(results, model, system)).items()
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


ADAPTIVE_MARGINS = curves(
    "adaptive-margins",
    "Adaptive margins",
    "Figure 4: adaptive targets over training, for two batch sizes.",
    (ADAPTIVE, ADAPTIVE_IN_BATCH),
)
DISTRIBUTED_MARGINS = curves(
    "distributed-margins",
    "Distributed margins",
    "Figure 5: distributed targets over training, for two batch sizes.",
    (DISTRIBUTED,),
)
