"""What a study has to do for an experiment: train a run, or measure what needs no training."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from remargin.study.results import Results, untrained_key
from remargin.study.specs import RunSpec

if TYPE_CHECKING:
    from remargin.study.study import Study


class Task(Protocol):
    """Something that an experiment needs, and that the scheduler does if it is not there."""

    @property
    def key(self) -> str:
        """What the task makes. Tasks with the same key are one task."""

    @property
    def model(self) -> str | None:
        """The backbone that it needs, if any."""

    @property
    def triplets(self) -> int:
        """How many triplets it trains on; 0 if it only measures."""

    @property
    def settled(self) -> bool:
        """Whether it is known in full. One that is not depends on what dev still has to choose."""

    def is_done(self, results: Results) -> bool:
        """Whether its results are there."""

    def is_ready(self, results: Results) -> bool:
        """Whether all that it builds on is there."""

    def do(self, study: Study) -> None:
        """Train or measure."""


@dataclass(frozen=True)
class Train:
    """A training run, and what to measure of its model.

    Attributes:
        spec: the run.
        measure: what to measure: TEST, LAST, ...
        second_teacher: the run whose model scores the pairs of a batch, for one with two teachers.
        settled: whether the spec is known; see `Task`.
    """

    spec: RunSpec
    measure: tuple[str, ...] = ()
    second_teacher: RunSpec | None = None
    settled: bool = True

    @property
    def key(self) -> str:
        """The run's."""
        return self.spec.key

    @property
    def model(self) -> str:
        """The run's backbone."""
        return self.spec.model

    @property
    def triplets(self) -> int:
        """The most triplets of the run."""
        return self.spec.triplets

    def is_done(self, results: Results) -> bool:
        """Whether the run is trained and measured."""
        return results.has(self.spec, *self.measure)

    def is_ready(self, results: Results) -> bool:
        """Whether its second teacher and its first round are there, if it has them."""
        needed = (self.second_teacher, self.spec.first_round)
        return self.settled and all(spec is None or results.has(spec) for spec in needed)

    def do(self, study: Study) -> None:
        """Train the run, and measure its model."""
        study.run(self.spec, *self.measure, second_teacher=self.second_teacher)


@dataclass(frozen=True)
class MeasureUntrained:
    """A backbone without training, or BM25 (`model` is None), measured."""

    model: str | None
    measure: tuple[str, ...]
    settled: bool = True
    triplets: int = 0

    @property
    def key(self) -> str:
        """The name of its folder."""
        return untrained_key(self.model)

    def is_done(self, results: Results) -> bool:
        """Whether it is measured."""
        return results.has_untrained(self.model, *self.measure)

    def is_ready(self, results: Results) -> bool:
        """It always is."""
        return True

    def do(self, study: Study) -> None:
        """Rank and measure."""
        study.measure_untrained(self.model, *self.measure)


def joined(tasks: Iterable[Task]) -> list[Task]:
    """Every task once, in the order of their first mention; equal runs are measured for all who asked.

    >>> spec = RunSpec("minilm", "distributed", 64, 1000, 1e-4)
    >>> [task.measure for task in joined([Train(spec, ("test",)), Train(spec, ("last", "test"))])]
    [('test', 'last')]
    """
    by_key: dict[str, Task] = {}
    for task in tasks:
        before = by_key.get(task.key)
        if isinstance(task, Train | MeasureUntrained) and isinstance(before, Train | MeasureUntrained):
            measure = tuple(dict.fromkeys([*before.measure, *task.measure]))
            by_key[task.key] = replace(before, measure=measure, settled=before.settled or task.settled)
        elif before is None:
            by_key[task.key] = task
    return list(by_key.values())
