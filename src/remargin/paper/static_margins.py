"""The paper's figure 3: how much the static margin matters, without and with in-batch negatives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from remargin.paper.compared import resolution, resolution_text
from remargin.paper.dev_curves import DevCurve, dev_curve
from remargin.paper.ranked import validated
from remargin.paper.systems import WITH, WITHOUT
from remargin.reports.figures import LineFigure, Panel, Series
from remargin.reports.sections import Section
from remargin.reports.tables import Block, Cell, Table, number
from remargin.study.experiment import Experiment
from remargin.study.plan import Plan
from remargin.study.results import HITS, MEASURE, Results
from remargin.study.systems import STATIC, STATIC_IN_BATCH, UNTUNED_MARGIN, Sweep, System, sweep, sweep_runs
from remargin.study.tasks import Task

KINDS = {WITHOUT: STATIC, WITH: STATIC_IN_BATCH}


@dataclass(frozen=True)
class Peak:
    """The highest validation of a sweep by one measure, and the margins that reach it: several where they are level."""

    value: float
    margins: tuple[float, ...]


@dataclass(frozen=True)
class MarginSweep:
    """A sweep over the static margin.

    Attributes:
        peaks: by measure, nDCG@10 and Hits@100.
        untuned: nDCG@10 with a margin of 1.0; None if that is not among the margins.
        seconds: the training time of the whole sweep.
        points: by measure, how it went on dev with each margin.
    """

    peaks: Mapping[str, Peak]
    untuned: float | None
    seconds: float
    points: Mapping[str, Mapping[float, DevCurve]]

    @property
    def gain(self) -> float | None:
        """How much nDCG@10 the best margin gains over 1.0."""
        return None if self.untuned is None else self.peaks[MEASURE].value - self.untuned


@dataclass(frozen=True)
class StaticMargins:
    """The two sweeps of a backbone."""

    with_in_batch: MarginSweep
    without_in_batch: MarginSweep

    @property
    def by_kind(self) -> dict[str, MarginSweep]:
        """The sweeps by what the table calls them, in its order."""
        return {WITHOUT: self.without_in_batch, WITH: self.with_in_batch}


def _tasks(results: Results) -> Iterator[Task]:
    for model in results.models:
        for system in KINDS.values():
            yield from sweep_runs(results, model, system)


def findings(results: Results) -> Mapping[str, StaticMargins]:
    """The best margins of each backbone, all from sweeps over the same triplets."""
    return results.of_models(
        lambda model: StaticMargins(
            with_in_batch=_margin_sweep(results, model, STATIC_IN_BATCH),
            without_in_batch=_margin_sweep(results, model, STATIC),
        )
    )


def _margin_sweep(results: Results, model: str, system: System) -> MarginSweep:
    swept = sweep(results, model, system)
    peaks = {
        measure: Peak(max(value for _, value in swept.values(measure)), tuple(swept.maxima(measure)))
        for measure in (MEASURE, HITS)
    }
    points = {
        measure: {margin: dev_curve(result, measure) for margin, result in swept.points} for measure in (MEASURE, HITS)
    }
    return MarginSweep(peaks, dict(swept.values(MEASURE)).get(UNTUNED_MARGIN), swept.seconds, points)


def draw(results: Results, findings: Mapping[str, StaticMargins]) -> Section:
    """The best margins as a table, and both measures over the margin as a figure."""
    figure, table = _figure(results, list(findings)), _table(findings)
    gains = [
        swept.gain for margins in findings.values() for swept in margins.by_kind.values() if swept.gain is not None
    ]
    summary = [
        f"Tuning the margin instead of taking 1.0 brings between {min(gains):.3f} and {max(gains):.3f} {MEASURE} here."
        if gains
        else "What tuning the margin brings is not known: 1.0 is not among the margins."
    ]
    return Section("static-margins", "Static margins", summary, [table], [figure], _settings(results), [])


def _table(findings: Mapping[str, StaticMargins]) -> Table:
    rows = [
        [
            Cell(model),
            Cell(kind),
            _margins(swept.peaks[MEASURE]),
            number(swept.peaks[MEASURE].value),
            number(swept.untuned),
            number(swept.gain),
            _margins(swept.peaks[HITS]),
            number(swept.seconds, 0),
        ]
        for model, margins in findings.items()
        for kind, swept in margins.by_kind.items()
    ]
    return Table(
        "The best static margin",
        ["model", "negatives", "best margin", MEASURE, "at 1.0", "gain", f"best for {HITS}", "seconds"],
        [Block("", rows)],
        [f"{HITS} is what the paper calls Hits@100. Seconds are those of the whole sweep."],
    )


def _margins(peak: Peak) -> Cell:
    value = peak.margins[0] if len(peak.margins) == 1 else None
    return Cell(", ".join(f"{margin:g}" for margin in peak.margins), value=value)


def _figure(results: Results, models: list[str]) -> LineFigure:
    sweeps = {(model, kind): sweep(results, model, system) for model in models for kind, system in KINDS.items()}
    panels = [[_panel(sweeps, models, kind, measure, results.plan) for kind in KINDS] for measure in (MEASURE, HITS)]
    resolved = resolution_text(results.plan)
    below = "" if all(panel.floor is None for row in panels for panel in row) else " Arrows: collapsed, below the axis."
    return LineFigure(
        "static-margins",
        "Effectiveness over the static margin",
        f"{validated(results)}, the best validation of each run. Dots mark maxima.{below} {resolved}",
        panels,
    )


def _panel(sweeps: dict[tuple[str, str], Sweep], models: list[str], kind: str, measure: str, plan: Plan) -> Panel:
    series = [Series(model, *zip(*sweeps[model, kind].values(measure), strict=True)) for model in models]
    points = [point for swept in sweeps.values() for point in swept.values(measure)]
    floor = _floor(points)
    interval = resolution([value for _, value in points if floor is None or value >= floor], plan)
    return Panel(kind, "static margin", measure, series, mark_maxima=True, floor=floor, interval=interval)


def _floor(points: list[tuple[float, float]]) -> float | None:
    """The lowest point above a margin of 0, if encoders collapse at 0, which would flatten all that is to be seen.

    >>> _floor([(0.0, 0.02), (0.5, 0.8), (1.0, 0.7)]), _floor([(0.0, 0.65), (0.5, 0.7), (1.0, 0.7)])
    (0.7, None)
    """
    above = [value for margin, value in points if margin > 0]
    at_zero = [value for margin, value in points if margin == 0]
    collapsed = bool(above and at_zero) and min(at_zero) < min(above) / 2
    return min(above) if collapsed else None


def _settings(results: Results) -> dict[str, Any]:
    plan = results.plan
    return {"margins": plan.margins, "triplets": plan.sweep_triplets, "batch size": plan.batch_size}


EXPERIMENT = Experiment(
    "static-margins",
    tasks=_tasks,
    findings=findings,
    draw=draw,
)
