"""The paper's figure 6: how the similarities behind the distributed targets move during training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import fmean

from remargin.paper.systems import DISTRIBUTED, whole_run
from remargin.reports.figures import LineFigure, Panel, Series
from remargin.reports.sections import Section
from remargin.reports.tables import Block, Cell, Table, number
from remargin.study.experiment import Experiment
from remargin.study.results import Results
from remargin.study.systems import choose, declare
from remargin.study.targets import SHOWN, BatchTargets, rolling_mean
from remargin.study.tasks import Task

WINDOW = 32  # batches of the rolling mean


@dataclass(frozen=True)
class TargetEvolution:
    """Similarities of a batch's positives to its negatives, in 32 batches each of a training run.

    Attributes:
        batches: how many the run had.
        first: the first batches.
        early: those up to batch 500; none for a run that is no longer than that.
        last: the last batches.
    """

    batches: int
    first: tuple[BatchTargets, ...]
    early: tuple[BatchTargets, ...]
    last: tuple[BatchTargets, ...]

    @property
    def first_mean(self) -> float:
        """The mean similarity in the first batches."""
        return fmean(batch.mean for batch in self.first)

    @property
    def last_mean(self) -> float:
        """The mean similarity in the last batches."""
        return fmean(batch.mean for batch in self.last)

    @property
    def last_low(self) -> float:
        """The smallest similarity of a batch, in the last ones."""
        return fmean(batch.low for batch in self.last)

    @property
    def last_high(self) -> float:
        """The largest similarity of a batch, in the last ones."""
        return fmean(batch.high for batch in self.last)


def _tasks(results: Results) -> Iterator[Task]:
    for model in results.models:
        choice = declare(results, model, DISTRIBUTED)
        yield from choice.runs([whole_run(results.plan, choice)])


def findings(results: Results) -> Mapping[str, TargetEvolution]:
    """The similarities in the first and last batches of each backbone."""
    return results.of_models(lambda model: _evolution(_targets(results, model)))


def draw(results: Results, findings: Mapping[str, TargetEvolution]) -> Section:
    """Mean, smallest and largest similarity of positives and negatives in the first and last batches."""
    caption = (
        f"{results.name}: similarities of a batch's positives to its negatives: mean (line), smallest and largest "
        f"(band), as rolling means over {WINDOW} batches. First and last {SHOWN} batches. A target is (1 + it) / 2."
    )
    panels = [_panel(model, _targets(results, model)) for model in findings]
    figure = LineFigure("target-evolution", "How the targets move", caption, [panels])
    rows = [
        [Cell(model), *map(number, (moved.first_mean, moved.last_mean, moved.last_low, moved.last_high))]
        for model, moved in findings.items()
    ]
    header = ["model", "mean, first 32 batches", "mean, last 32 batches", "smallest, last", "largest, last"]
    table = Table("Similarities at the beginning and at the end", header, [Block("", rows)])
    means = [moved.last_mean for moved in findings.values()]
    summary = [
        f"At the end the mean similarity of positives to negatives is {_range(means)}, a target of "
        f"{_range([(1 + mean) / 2 for mean in means])}; the paper has 0 and 0.5."
    ]
    settings = {"window": WINDOW, "batches shown": SHOWN, "batch size": results.plan.batch_size}
    return Section("target-evolution", "Target evolution", summary, [table], [figure], settings, [])


def _targets(results: Results, model: str) -> list[BatchTargets]:
    return results.run(whole_run(results.plan, choose(results, model, DISTRIBUTED))).targets()


def _evolution(targets: list[BatchTargets]) -> TargetEvolution:
    first, last = targets[:WINDOW], targets[-WINDOW:]
    early = [row for row in targets if SHOWN - WINDOW <= row.batch < SHOWN] if targets[-1].batch >= SHOWN else []
    return TargetEvolution(targets[-1].batch + 1, tuple(first), tuple(early), tuple(last))


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


def _range(values: list[float]) -> str:
    low, high = min(values), max(values)
    return f"{low:.2f}" if f"{low:.2f}" == f"{high:.2f}" else f"{low:.2f} to {high:.2f}"


EXPERIMENT = Experiment(
    "target-evolution",
    tasks=_tasks,
    findings=findings,
    draw=draw,
)
