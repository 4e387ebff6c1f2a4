"""The paper's figure 3: how much the static margin matters, without and with in-batch negatives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from remargin.paper.systems import WITH, WITHOUT
from remargin.report.figures import LineFigure, Panel, Series
from remargin.report.sections import Section
from remargin.report.tables import Block, Cell, Table, number
from remargin.study.experiment import Experiment
from remargin.study.outcome import Outcome
from remargin.study.results import HITS, MEASURE, Results
from remargin.study.systems import STATIC, STATIC_IN_BATCH, UNTUNED_MARGIN, Sweep, sweep, sweep_runs
from remargin.study.tasks import Task

KINDS = {WITHOUT: STATIC, WITH: STATIC_IN_BATCH}


def _tasks(results: Results) -> Iterator[Task]:
    for model in results.models:
        for system in KINDS.values():
            yield from sweep_runs(results, model, system)


def draw(results: Results) -> Outcome:
    """A sweep for each backbone, all on the same triplets."""
    found = results.of_models(lambda model: {kind: sweep(results, model, system) for kind, system in KINDS.items()})
    sweeps = {(model, kind): swept for model, kinds in found.items() for kind, swept in kinds.items()}
    panels = [[_panel(sweeps, list(found), kind, measure) for kind in KINDS] for measure in (MEASURE, HITS)]
    below = "" if all(panel.floor is None for row in panels for panel in row) else " Arrows: collapsed, below the axis."
    figure = LineFigure(
        "static-margins",
        "Effectiveness over the static margin",
        f"{results.name}, dev: BM25's documents re-ranked, the best validation of each run. Dots mark maxima.{below}",
        panels,
    )
    rows: list[list[Cell]] = []
    numbers: dict[str, Any] = {}
    for (model, kind), swept in sweeps.items():
        best = {measure: swept.maxima(measure) for measure in (MEASURE, HITS)}
        at = dict(swept.values(MEASURE))
        untuned = at.get(UNTUNED_MARGIN)
        numbers.setdefault(model, {})[kind] = _numbers(swept, best)
        rows.append(
            [
                Cell(model),
                Cell(kind),
                _margins(best[MEASURE]),
                number(max(at.values())),
                number(untuned),
                number(None if untuned is None else max(at.values()) - untuned),
                _margins(best[HITS]),
                number(swept.seconds, 0),
            ]
        )
    table = Table(
        "The best static margin",
        ["model", "negatives", "best margin", MEASURE, "at 1.0", "gain", f"best for {HITS}", "seconds"],
        [Block("", rows)],
        [f"{HITS} is what the paper calls Hits@100. Seconds are those of the whole sweep."],
    )
    gains = [gain for of_model in numbers.values() for of in of_model.values() if (gain := of["gain"]) is not None]
    summary = [
        f"Tuning the margin instead of taking 1.0 brings between {min(gains):.3f} and {max(gains):.3f} {MEASURE} here."
        if gains
        else "What tuning the margin brings is not known: 1.0 is not among the margins."
    ]
    section = Section("static-margins", "Static margins", summary, [table], [figure], _settings(results), [])
    return Outcome(section, numbers)


def _panel(sweeps: dict[tuple[str, str], Sweep], models: list[str], kind: str, measure: str) -> Panel:
    series = [Series(model, *zip(*sweeps[model, kind].values(measure), strict=True)) for model in models]
    floor = _floor([value for swept in sweeps.values() for value in swept.values(measure)])
    return Panel(kind, "static margin", measure, series, mark_maxima=True, floor=floor)


def _floor(points: list[tuple[float, float]]) -> float | None:
    """The lowest point above a margin of 0, if encoders collapse at 0, which would flatten all that is to be seen.

    >>> _floor([(0.0, 0.02), (0.5, 0.8), (1.0, 0.7)]), _floor([(0.0, 0.65), (0.5, 0.7), (1.0, 0.7)])
    (0.7, None)
    """
    above = [value for margin, value in points if margin > 0]
    at_zero = [value for margin, value in points if margin == 0]
    collapsed = bool(above and at_zero) and min(at_zero) < min(above) / 2
    return min(above) if collapsed else None


def _margins(values: list[float]) -> Cell:
    return Cell(", ".join(f"{value:g}" for value in values), value=values[0] if len(values) == 1 else None)


def _numbers(found: Sweep, best: dict[str, list[float]]) -> dict[str, Any]:
    values = dict(found.values(MEASURE))
    untuned = values.get(UNTUNED_MARGIN)
    return {
        "best": best,
        "highest": max(values.values()),
        "highest_hits": max(dict(found.values(HITS)).values()),
        "gain": None if untuned is None else max(values.values()) - untuned,
        "seconds": found.seconds,
    }


def _settings(results: Results) -> dict[str, Any]:
    plan = results.plan
    return {"margins": plan.margins, "triplets": plan.sweep_triplets, "batch size": plan.batch_size}


EXPERIMENT = Experiment(
    "static-margins",
    "Figure 3: both measures over the static margin, without and with in-batch negatives.",
    tasks=_tasks,
    draw=draw,
)
