"""The paper's figure 6: how the similarities behind the distributed targets move during training."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from statistics import fmean
from typing import Any

from remargin.paper.systems import DISTRIBUTED
from remargin.report.figures import LineFigure, Panel, Series
from remargin.report.sections import Section
from remargin.report.tables import Block, Cell, Table, number
from remargin.study.experiment import Experiment
from remargin.study.outcome import Outcome
from remargin.study.results import Results
from remargin.study.specs import RunSpec
from remargin.study.systems import Choice, choose, declare
from remargin.study.targets import SHOWN, BatchTargets, rolling_mean
from remargin.study.tasks import Task

WINDOW = 32  # batches of the rolling mean


def _spec(choice: Choice) -> RunSpec:
    """The run with distributed targets, of full length."""
    return replace(choice.spec, early_stopping=False)


def _tasks(results: Results) -> Iterator[Task]:
    for model in results.models:
        choice = declare(results, model, DISTRIBUTED)
        yield from choice.runs([_spec(choice)])


def draw(results: Results) -> Outcome:
    """Mean, smallest and largest similarity of positives and negatives in the first and last batches."""
    panels, rows, numbers = [], [], {}
    for model, targets in results.of_models(lambda model: _targets(results, model)).items():
        panels.append(_panel(model, targets))
        numbers[model] = found = _numbers(targets)
        rows.append([Cell(model), *(number(found[name]) for name in COLUMNS)])
    caption = (
        f"{results.name}: similarities of a batch's positives to its negatives: mean (line), smallest and largest "
        f"(band), as rolling means over {WINDOW} batches. First and last {SHOWN} batches. A target is (1 + it) / 2."
    )
    figure = LineFigure("target-evolution", "How the targets move", caption, [panels])
    table = Table("Similarities at the beginning and at the end", ["model", *COLUMNS.values()], [Block("", rows)])
    means = [found["last_mean"] for found in numbers.values()]
    summary = [
        f"At the end the mean similarity of positives to negatives is {_range(means)}, a target of "
        f"{_range([(1 + mean) / 2 for mean in means])}; the paper has 0 and 0.5."
    ]
    settings = {"window": WINDOW, "batches shown": SHOWN, "batch size": results.plan.batch_size}
    return Outcome(Section("target-evolution", "Target evolution", summary, [table], [figure], settings, []), numbers)


def _targets(results: Results, model: str) -> list[BatchTargets]:
    return results.run(_spec(choose(results, model, DISTRIBUTED))).targets()


COLUMNS = {
    "first_mean": "mean, first 32 batches",
    "last_mean": "mean, last 32 batches",
    "last_low": "smallest, last",
    "last_high": "largest, last",
}


def _panel(model: str, targets: list[BatchTargets]) -> Panel:
    """Two stretches, each smoothed by itself, with what is between them left out."""
    split = next((i for i in range(1, len(targets)) if targets[i].batch > targets[i - 1].batch + 1), len(targets))
    x: list[float] = []
    lines: dict[str, list[float]] = {"mean": [], "low": [], "high": []}
    for part in (targets[:split], targets[split:]):
        x += [row.batch for row in part]
        for name, values in lines.items():
            values += rolling_mean([getattr(row, name) for row in part], WINDOW)
    gap = None
    if split < len(targets):
        gap = (float(targets[split - 1].batch), float(targets[split].batch))
    series = Series(model, x, lines["mean"], lines["low"], lines["high"])
    return Panel(model, "batch", "similarity", [series], gap=gap)


def _numbers(targets: list[BatchTargets]) -> dict[str, Any]:
    first, last = targets[:WINDOW], targets[-WINDOW:]
    early = [row for row in targets if SHOWN - WINDOW <= row.batch < SHOWN] if targets[-1].batch >= SHOWN else []

    def mean(rows: list[BatchTargets], name: str) -> float:
        return fmean(getattr(row, name) for row in rows)

    return {
        "batches": targets[-1].batch + 1,
        "early_mean": mean(early, "mean") if early else None,
        "first_mean": mean(first, "mean"),
        "last_mean": mean(last, "mean"),
        "last_low": mean(last, "low"),
        "last_high": mean(last, "high"),
    }


def _range(values: list[float]) -> str:
    low, high = min(values), max(values)
    return f"{low:.2f}" if f"{low:.2f}" == f"{high:.2f}" else f"{low:.2f} to {high:.2f}"


EXPERIMENT = Experiment(
    "target-evolution",
    "Figure 6: how the targets move during training.",
    tasks=_tasks,
    draw=draw,
)
