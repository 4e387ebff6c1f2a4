"""Systems: a loss, what has to be tuned for it, and how dev chooses that; with the training runs that this takes.

What dev has not chosen yet is not known when training runs are declared. `choose` then takes the first value of the
grid in its place and says that the choice is not settled: enough to count the runs of later waves, never to train them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import fsum
from typing import Any, Literal

from remargin.study.hardware import total_energy
from remargin.study.plan import Plan, rate_beyond
from remargin.study.results import MEASURE, Result, Results
from remargin.study.specs import RunSpec
from remargin.study.tasks import Train

UNTUNED_MARGIN = 1.0
Parameter = Literal["margin", "temperature", "teacher scale"]
# The plan's grid of a parameter, and its field in a `RunSpec`.
TUNED: dict[Parameter, tuple[str, str]] = {
    "margin": ("margins", "target"),
    "temperature": ("temperatures", "temperature"),
    "teacher scale": ("teacher_scales", "teacher_scale"),
}


@dataclass(frozen=True)
class System:
    """A row of a table: a loss, and what has to be tuned for it.

    Attributes:
        name: in tables.
        loss: what its runs are told: fields of `RunSpec`, also in place of the plan's, such as a learning rate.
        tuned: the parameter that a sweep chooses; the cost of the sweep counts.
        second_teacher: the system whose model scores the pairs of a batch, for one with two teachers.
    """

    name: str
    loss: tuple[tuple[str, Any], ...]
    tuned: Parameter | None = None
    second_teacher: System | None = None

    def spec(self, plan: Plan, model: str, rate: float, **others: Any) -> RunSpec:
        """A training run of it, of full length unless said otherwise."""
        usual = {"batch_size": plan.batch_size, "triplets": plan.triplets, "rate": rate}
        usual["early_stopping"] = plan.patience is not None
        return RunSpec(model=model, **{**usual, **dict(self.loss), **others})

    def grid(self, plan: Plan) -> tuple[float, ...]:
        """The values of its parameter; none where nothing is tuned."""
        return getattr(plan, TUNED[self.tuned][0]) if self.tuned else ()

    def with_value(self, value: float) -> dict[str, Any]:
        """What a run is told of its parameter."""
        assert self.tuned is not None
        return {TUNED[self.tuned][1]: f"{value:g}" if self.tuned == "margin" else value}


def system(name: str, tuned: Parameter | None = None, second_teacher: System | None = None, **loss: Any) -> System:
    """A system from the fields of its runs.

    >>> system("static", tuned="margin", target="1").spec(Plan(), "minilm", 1e-4).target
    '1'
    """
    return System(name, tuple(loss.items()), tuned, second_teacher)


STATIC = system("static", tuned="margin", target=f"{UNTUNED_MARGIN:g}")
STATIC_IN_BATCH = system("static, in-batch", tuned="margin", target=f"{UNTUNED_MARGIN:g}", in_batch=True)
CONTRASTIVE = system("contrastive", tuned="temperature", target="contrastive")


@dataclass(frozen=True)
class Sweep:
    """A grid over a loss parameter, each point a short run on the same triplets, by the seed: values and results."""

    points: tuple[tuple[float, Result], ...]

    @property
    def seconds(self) -> float:
        """The training time of all points."""
        return fsum(result.seconds for _, result in self.points)

    @property
    def joules(self) -> float | None:
        """The energy of all points; None unless it was recorded for each."""
        return total_energy(result.joules for _, result in self.points)

    def values(self, measure: str) -> list[tuple[float, float]]:
        """For each point the highest validation."""
        return [(value, max(v[measure] for _, v in result.trained)) for value, result in self.points]

    def maxima(self, measure: str) -> list[float]:
        """The points with the highest validation: a measure that is near its ceiling has several."""
        values = self.values(measure)
        highest = max(value for _, value in values)
        return [point for point, value in values if value == highest]

    def best(self) -> float:
        """The first of the points with the highest validation."""
        return self.maxima(MEASURE)[0]


@dataclass(frozen=True)
class Choice:
    """The training run that dev chooses for a system, and the runs that the choice rests on.

    Attributes:
        system: the system.
        spec: the chosen run, with the plan's first seed; provisional unless the choice is settled.
        trials: the runs of the sweep and of the learning rates.
        sweep_specs: the runs of the sweep, by their values; none if nothing is swept.
        settled: whether all trials are trained.
        at_edge: whether the chosen learning rate is the lowest or the highest that was tried, of several.
        second_teacher: the run whose model is the second teacher, for systems that have one.
    """

    system: System
    spec: RunSpec
    trials: tuple[Train, ...]
    sweep_specs: tuple[tuple[float, RunSpec], ...]
    settled: bool
    at_edge: bool = False
    second_teacher: Choice | None = None

    @property
    def tuned_to(self) -> float | None:
        """The margin, temperature or scale that the sweep chose."""
        tuned = self.system.tuned
        return None if tuned is None else float(getattr(self.spec, TUNED[tuned][1]))

    def with_seeds(self, seeds: Iterable[int]) -> list[RunSpec]:
        """The chosen run with each of some seeds."""
        return [replace(self.spec, seed=seed) for seed in seeds]

    def runs(self, specs: Iterable[RunSpec] | None = None, measure: Sequence[str] = ()) -> Iterator[Train]:
        """All training runs behind it: the trials, the second teacher, then the chosen run or others that follow it."""
        if self.second_teacher is not None:
            yield from self.second_teacher.runs()
        yield from self.trials
        teacher = self.second_teacher
        settled = self.settled and (teacher is None or teacher.settled)
        for spec in [self.spec] if specs is None else specs:
            yield Train(spec, tuple(measure), None if teacher is None else teacher.spec, settled)


class _Trials:
    """Collects the runs that a choice rests on, and chooses between them."""

    def __init__(self, results: Results, second_teacher: Choice | None = None) -> None:
        self.runs: list[Train] = []
        self.settled = True
        self.at_edge = False
        self._results, self._teacher = results, second_teacher

    def add(self, specs: Sequence[RunSpec]) -> None:
        teacher = self._teacher
        known = self.settled and (teacher is None or teacher.settled)
        self.runs += [Train(spec, (), None if teacher is None else teacher.spec, known) for spec in specs]

    def best(self, specs: Sequence[RunSpec]) -> RunSpec:
        """The run with the highest validation; the first one, provisionally, as long as one of them is not trained."""
        if len(specs) == 1:
            return specs[0]
        self.add(specs)
        self.settled = self.settled and all(self._results.has(spec) for spec in specs)
        return max(specs, key=self._dev) if self.settled else specs[0]

    def best_rate(self, plan: Plan, model: str, system: System, **others: Any) -> RunSpec:
        """The run with the best learning rate. If that is at an edge of the grid, the next one beyond is tried, too."""
        specs = learning_rates(plan, model, system, **others)
        best = self.best(specs)
        for _ in range(plan.rate_extensions if len(specs) > 1 else 0):
            rate = rate_beyond([spec.rate for spec in specs], best.rate) if self.settled else None
            if rate is None:
                break
            specs.append(replace(best, rate=rate))
            self.add(specs[-1:])
            self.settled = self._results.has(specs[-1])
            if self.settled:
                best = max(best, specs[-1], key=self._dev)
        rates = [spec.rate for spec in specs]
        self.at_edge = len(rates) > 1 and best.rate in (min(rates), max(rates))
        return best

    def _dev(self, spec: RunSpec) -> float:
        return self._results.run(spec).dev


def declare(results: Results, model: str, system: System) -> Choice:
    """What dev chooses for a system: first its own parameter, if it has one, then the learning rate."""
    teacher = None if system.second_teacher is None else declare(results, model, system.second_teacher)
    trials, grid = _Trials(results, teacher), system.grid(results.plan)
    value = system.with_value(grid[0]) if grid else {}
    points: list[tuple[float, RunSpec]] = []
    if len(grid) > 1:
        points = _sweep_points(trials, results.plan, model, system)
        best = trials.best([spec for _, spec in points])
        value = next(system.with_value(point) for point, spec in points if spec == best)
    spec = trials.best_rate(results.plan, model, system, **value)
    return Choice(system, spec, tuple(trials.runs), tuple(points), trials.settled, trials.at_edge, teacher)


def choose(results: Results, model: str, system: System) -> Choice:
    """The settled choice of dev for a system.

    Raises:
        NotTrained: naming a run that the choice lacks.
    """
    choice = declare(results, model, system)
    for trial in () if choice.settled else choice.trials:
        results.run(trial.spec)
    return choice


def sweep_of(results: Results, choice: Choice) -> Sweep | None:
    """The sweep of a settled choice, if there was one."""
    return (
        Sweep(tuple((value, results.run(spec)) for value, spec in choice.sweep_specs)) if choice.sweep_specs else None
    )


def sweep(results: Results, model: str, system: System) -> Sweep:
    """The grid of a system's parameter, with the learning rate that dev chose for its usual value.

    Raises:
        NotTrained: if a run of it, or of the learning rates, is not there.
    """
    trials = _Trials(results)
    points = _sweep_points(trials, results.plan, model, system)
    for trial in () if trials.settled else trials.runs:
        results.run(trial.spec)
    return Sweep(tuple((value, results.run(spec)) for value, spec in points))


def sweep_runs(results: Results, model: str, system: System) -> Iterator[Train]:
    """The training runs of a sweep, and of the learning rates before it."""
    trials = _Trials(results)
    trials.add([spec for _, spec in _sweep_points(trials, results.plan, model, system)])
    yield from trials.runs


def _sweep_points(trials: _Trials, plan: Plan, model: str, system: System) -> list[tuple[float, RunSpec]]:
    """A short run for each value of a grid, with the learning rate that dev chooses for the usual value."""
    rate = trials.best_rate(plan, model, system).rate
    short = {"triplets": plan.sweep_triplets, "early_stopping": False, "seed": plan.seeds[0], **plan.constant_rate}
    return [(value, system.spec(plan, model, rate, **short, **system.with_value(value))) for value in system.grid(plan)]


def learning_rates(plan: Plan, model: str, system: System, **others: Any) -> list[RunSpec]:
    """A run of a system for each learning rate of the plan, with the first seed; one for a system with its own rate."""
    return list(dict.fromkeys(system.spec(plan, model, rate, seed=plan.seeds[0], **others) for rate in plan.rates))
