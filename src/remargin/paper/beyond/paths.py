"""The path from the start to the trained weights, home and away: a picture of blending, and of the rule for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from statistics import fmean

from remargin.paper.beyond.constants import choose_on_others
from remargin.paper.beyond.systems import OURS, TUNED, measures, untrained_tasks
from remargin.reports.figures import LineFigure, Panel, Series
from remargin.reports.sections import Section
from remargin.reports.tables import Block, Cell, Table, number
from remargin.study.blending import blend_of, blended_at
from remargin.study.experiment import Experiment
from remargin.study.results import MEASURE, TEST, ZERO_SHOT, Result, Results
from remargin.study.systems import System, choose, declare
from remargin.study.tasks import Task
from remargin.training.blending import KEEP, choose_weight

NAME = "beyond-path"
POINTS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)  # at 0 is the model without training
KEEPS = (0.8, 0.85, 0.9, 0.95, 1.0)  # shares of the best gain that the rule could keep
SYSTEMS = (OURS, TUNED)


@dataclass(frozen=True)
class Path:
    """A run with the first seed, at points from the start (0) to the trained weights (1).

    Attributes:
        dev: the validation at each point that the rule looks at.
        home: nDCG@10 on test, by point.
        away: the mean of the other collections, by point; empty without any.
    """

    dev: Mapping[float, float]
    home: Mapping[float, float]
    away: Mapping[float, float]

    def nearest(self, point: float) -> float:
        """The measured point that is nearest to one of dev's."""
        return min(self.home, key=lambda measured: abs(measured - point))

    def kept(self, keep: float) -> float:
        """The measured point that the rule chooses if it keeps a share of the best gain."""
        return self.nearest(choose_weight(list(self.dev), list(self.dev.values()), keep))

    def worth(self, keep: float, home: Mapping[float, float]) -> float:
        """Home, on dev or on test, and away, added up, at the point that the rule chooses."""
        point = self.kept(keep)
        return home[min(home, key=lambda measured: abs(measured - point))] + self.away.get(point, 0.0)


@dataclass(frozen=True)
class CollectionPaths:
    """The paths of one backbone on one collection, by system."""

    name: str
    paths: Mapping[str, Path]


def _kinds(results: Results) -> tuple[str, ...]:
    return (TEST, ZERO_SHOT) if results.columns else (TEST,)


def _tasks(results: Results) -> Iterator[Task]:
    yield from untrained_tasks(results)
    wanted = [*measures(results), *(blended_at(kind, point) for point in POINTS for kind in _kinds(results))]
    for model in results.models:
        for system in SYSTEMS:
            choice = declare(results, model, system)
            yield from choice.runs(None, wanted)


def findings(results: Results) -> Mapping[str, CollectionPaths]:
    """The paths of each backbone."""
    return results.of_models(
        lambda model: CollectionPaths(results.name, {one.name: _path(results, model, one) for one in SYSTEMS})
    )


def _path(results: Results, model: str, system: System) -> Path:
    wanted = [*measures(results), *(blended_at(kind, point) for point in POINTS for kind in _kinds(results))]
    run = results.run(choose(results, model, system).spec, *wanted)
    start, blend = results.untrained(model, *_kinds(results)), blend_of(run)
    home = {0.0: _home(start, TEST)} | {point: _home(run, blended_at(TEST, point)) for point in POINTS}
    away: dict[float, float] = {}
    if results.columns:
        away = {0.0: _away(start, ZERO_SHOT)} | {p: _away(run, blended_at(ZERO_SHOT, p)) for p in POINTS}
    return Path(dict(zip(blend.points, blend.values, strict=True)), home, away)


def _home(result: Result, what: str) -> float:
    return fmean(result.test(what)[MEASURE].values())


def _away(result: Result, what: str) -> float:
    return fmean(fmean(scores[MEASURE].values()) for scores in result.zero_shot(what).values())


def draw(results: Results, findings: Mapping[str, CollectionPaths]) -> Section:
    """A figure and the rule for each backbone, on one collection."""
    return section({model: [paths] for model, paths in findings.items()})


def section(by_model: Mapping[str, Sequence[CollectionPaths]]) -> Section:
    """The same, on one collection or several."""
    figures = [_figure(model, collection) for model, every in by_model.items() for collection in every]
    tables = [table for model, every in by_model.items() for table in _tables(model, every)]
    chosen = [
        f"{model} on {collection.name}: {system} keeps {path.kept(KEEP):g} of the way, with home "
        f"{path.home[path.kept(KEEP)]:.3f} against {path.home[1.0]:.3f} at the end."
        for model, every in by_model.items()
        for collection in every
        for system, path in collection.paths.items()
    ]
    notes = ["Runs with the first seed. Dev chooses; home and away are measured on test queries and choose nothing."]
    return Section(NAME, "Beyond the paper: from the start to the end", chosen, tables, list(figures), {}, notes)


def _figure(model: str, collection: CollectionPaths) -> LineFigure:
    panels = []
    for kind in ("dev", "home", "away"):
        values: Callable[[Path], Mapping[float, float]] = attrgetter(kind)
        lines = [
            Series(name, list(values(path)), list(values(path).values())) for name, path in collection.paths.items()
        ]
        if any(line.x for line in lines):
            panels.append([Panel(kind, "weight of the trained model", MEASURE, lines, mark_maxima=True)])
    caption = "Dots mark maxima. At 0 is the model before training, at 1 the trained one."
    name = f"path-{model}-{collection.name}"
    return LineFigure(name, f"From the start to the trained weights: {model}, {collection.name}", caption, panels)


def _tables(model: str, collections: Sequence[CollectionPaths]) -> Iterator[Table]:
    """For each system: where the rule goes with each share of the gain, and what dev of the others would choose."""
    for system in collections[0].paths:
        paths = {c.name: c.paths[system] for c in collections if system in c.paths}
        header = ["share kept", *(f"{name} {kind}" for name in paths for kind in ("weight", "home", "away"))]
        rows = [
            [
                number(keep, 2, bold=keep == KEEP),
                *(cell for path in paths.values() for cell in _cells(path, path.kept(keep))),
            ]
            for keep in KEEPS
        ]
        yield Table(f"The rule: {model}, {system}", header, [Block("", rows)])
        if len(paths) > 1:
            yield _left_out(f"The rule, leave-one-collection-out: {model}, {system}", paths)


def _cells(path: Path, point: float) -> list[Cell]:
    return [number(point, 2), number(path.home[point]), number(path.away.get(point))]


def _left_out(title: str, paths: Mapping[str, Path]) -> Table:
    """What the other collections choose, by dev and away, and what the one that is left out gets."""
    sums = {name: {keep: path.worth(keep, path.dev) for keep in KEEPS} for name, path in paths.items()}
    rows = []
    for name, path in paths.items():
        keep = choose_on_others(sums, name)
        rows.append([Cell(name), number(keep, 2), *(number(path.worth(share, path.home)) for share in (keep, KEEP))])
    header = ["left out", "share that the others choose", "home + away with it", f"with {KEEP:g}"]
    return Table(title, header, [Block("", rows)], ["The others choose by dev and away, added up."])


EXPERIMENT = Experiment(NAME, _tasks, findings, draw, compares=True)
