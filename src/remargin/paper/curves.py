"""The paper's figures 4 and 5: both measures over training, for two batch sizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial

from remargin.paper.compared import resolution, resolution_text
from remargin.paper.dev_curves import DevCurve, dev_curve
from remargin.paper.ranked import validated
from remargin.paper.systems import ADAPTIVE, ADAPTIVE_IN_BATCH, DISTRIBUTED, whole_run
from remargin.reports.figures import LineFigure, Panel, Series
from remargin.reports.sections import Section
from remargin.reports.tables import Block, Cell, Table, number
from remargin.study.experiment import Experiment
from remargin.study.plan import Plan
from remargin.study.results import HITS, MEASURE, Result, Results
from remargin.study.specs import RunSpec
from remargin.study.systems import Choice, System, choose, declare
from remargin.study.tasks import Task

Systems = tuple[System, ...]


Curves = Mapping[System, Mapping[int, Mapping[str, DevCurve]]]  # by system, batch size and measure


def curves(name: str, title: str, systems: Systems) -> Experiment[Mapping[str, Curves]]:
    """The experiment that shows some systems over training."""
    return Experiment(
        name,
        tasks=partial(_tasks, systems),
        findings=partial(_findings, systems),
        draw=partial(_draw, systems, name, title),
    )


def _tasks(systems: Systems, results: Results) -> Iterator[Task]:
    for model in results.models:
        for system in systems:
            choice = declare(results, model, system)
            yield from choice.runs(_specs(results.plan, choice).values())


def _specs(plan: Plan, choice: Choice) -> dict[int, RunSpec]:
    """The chosen run with each batch size, always of full length."""
    whole = whole_run(plan, choice)
    return {size: replace(whole, batch_size=size, rate=plan.rate_for(whole.rate, size)) for size in _sizes(plan)}


def _sizes(plan: Plan) -> list[int]:
    return sorted({plan.other_batch_size, plan.batch_size})


def _runs(results: Results, model: str, system: System) -> dict[int, Result]:
    """The training runs of a system, by batch size."""
    specs = _specs(results.plan, choose(results, model, system))
    return {size: results.run(spec) for size, spec in specs.items()}


def _findings(systems: Systems, results: Results) -> Mapping[str, Curves]:
    def of_model(model: str) -> Curves:
        return {
            system: {
                size: {measure: dev_curve(result, measure) for measure in (MEASURE, HITS)}
                for size, result in _runs(results, model, system).items()
            }
            for system in systems
        }

    return results.of_models(of_model)


def _draw(systems: Systems, name: str, title: str, results: Results, findings: Mapping[str, Curves]) -> Section:
    plan, sizes = results.plan, _sizes(results.plan)
    table, figure = _table(findings, plan), _figure(results, list(findings), systems, name, title)
    shares = [
        maxima[MEASURE].at
        for by_system in findings.values()
        for by_size in by_system.values()
        for maxima in by_size.values()
    ]
    first, last = f"{min(shares):.0%}", f"{max(shares):.0%}"
    summary = [f"{MEASURE} is highest after {first if first == last else f'{first} to {last}'} of training."]
    every = plan.curve_validate_every or plan.validate_every
    settings = {"batch sizes": sizes, "triplets": plan.triplets, "validated every": every}
    return Section(name, title, summary, [table], [figure], settings, [])


def _table(findings: Mapping[str, Curves], plan: Plan) -> Table:
    rows = [
        [
            Cell(model),
            Cell(system.name),
            Cell(str(size)),
            number(maxima[MEASURE].highest),
            number(maxima[MEASURE].at, 2),
            number(maxima[MEASURE].means[-1]),
            number(maxima[HITS].highest),
            number(maxima[HITS].at, 2),
        ]
        for model, by_system in findings.items()
        for system, by_size in by_system.items()
        for size, maxima in by_size.items()
    ]
    header = ["model", "target", "batch", MEASURE, "reached after", "at the end", HITS, "reached after "]
    notes = ["Reached after: the share of training at which the highest validation was seen."]
    if len({plan.rate_for(1.0, size) for size in _sizes(plan)}) > 1:
        notes.append("Learning rates are divided by the batch size, as the paper's.")
    return Table("Maxima", header, [Block("", rows)], notes)


def _figure(results: Results, models: list[str], systems: Systems, name: str, title: str) -> LineFigure:
    """One system: a column for each batch size, as the paper has it. Several systems: a column for each."""
    runs = {(model, system): _runs(results, model, system) for model in models for system in systems}
    sizes = _sizes(results.plan)
    columns = [(system, sizes) for system in systems] if len(systems) > 1 else [(systems[0], [size]) for size in sizes]
    shown = [values for by_size in runs.values() for run in by_size.values() for _, values in run.trained]
    intervals = {
        measure: resolution([values[measure] for values in shown], results.plan) for measure in (MEASURE, HITS)
    }

    def panel(system: System, sizes: list[int], measure: str) -> Panel:
        series = []
        for model in models:
            for size in sizes:
                curve = runs[model, system][size].trained
                label = ", ".join(([model] if len(models) > 1 else []) + [f"B = {size}"])
                seen = [step * size for step, _ in curve]
                series.append(Series(label, seen, [values[measure] for _, values in curve]))
        heading = system.name if len(sizes) > 1 else f"B = {sizes[0]}"
        return Panel(heading, "triplets seen", measure, series, mark_maxima=True, interval=intervals[measure])

    return LineFigure(
        name,
        f"{title} over training",
        f"{validated(results)}. Dots mark maxima. {resolution_text(results.plan)}",
        [[panel(system, sizes, measure) for system, sizes in columns] for measure in (MEASURE, HITS)],
    )


ADAPTIVE_MARGINS = curves(
    "adaptive-margins",
    "Adaptive margins",
    (ADAPTIVE, ADAPTIVE_IN_BATCH),
)
DISTRIBUTED_MARGINS = curves(
    "distributed-margins",
    "Distributed margins",
    (DISTRIBUTED,),
)
