"""The findings of several experiments together: what the paper's claims are checked against."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from remargin.study.experiment import Experiment
from remargin.study.results import TEST, NotTrained, Results

F = TypeVar("F")
T = TypeVar("T")


class NotFound(LookupError):
    """An experiment has no findings: its training runs are missing."""


class Findings:
    """The findings of experiments. An experiment is the key to its own, whose type is thereby known.

    `triplets` says how long a training run behind them is, if that is known.

    >>> words = Experiment("words", tasks=lambda results: (), findings=lambda results: {"tiny": 3}, draw=print)
    >>> Findings({"words": {"tiny": 3}})[words]["tiny"]
    3
    >>> Findings()[words]
    Traceback (most recent call last):
    remargin.paper.findings.NotFound: there is no words
    """

    def __init__(self, by_name: Mapping[str, Any] | None = None, triplets: int | None = None) -> None:
        self._by_name, self.triplets = dict(by_name or {}), triplets

    def __getitem__(self, experiment: Experiment[F]) -> F:
        if experiment.name not in self._by_name:
            raise NotFound(f"there is no {experiment.name}")
        findings: F = self._by_name[experiment.name]
        return findings

    def __setitem__(self, experiment: Experiment[F], findings: F) -> None:
        self._by_name[experiment.name] = findings

    def __contains__(self, experiment: Experiment[Any]) -> bool:
        return experiment.name in self._by_name

    def __len__(self) -> int:
        return len(self._by_name)

    def add_all(self, experiments: Iterable[Experiment[Any]], results: Results) -> None:
        """Add the findings of all experiments that the results suffice for, except those that are here already."""
        for experiment in experiments:
            if experiment not in self:
                with suppress(NotTrained):
                    self[experiment] = experiment.findings(results)


@dataclass(frozen=True)
class ByTest(Generic[T]):
    """The tables of each backbone on each test collection.

    Attributes:
        own: on the study's own test queries, by backbone.
        further: on further test collections, by their names, then by backbone.

    Example:
        >>> tables = ByTest({"tiny": 0.65, "small": 0.66}, {"DL20": {"tiny": 0.63}})
        >>> tables.labelled()
        {'tiny': 0.65, 'small': 0.66, 'tiny on DL20': 0.63}
    """

    own: Mapping[str, T]
    further: Mapping[str, Mapping[str, T]] = field(default_factory=dict)

    @classmethod
    def of(cls, results: Results, models: Iterable[str], make: Callable[[str, str], T]) -> ByTest[T]:
        """Apply `make` to each backbone and each name of a test collection among the scores of a run."""
        models = list(models)
        tables = {test: {model: make(model, test) for model in models} for test in results.tests}
        return cls(tables.pop(TEST), {results.tests[test]: by_model for test, by_model in tables.items()})

    def collections(self) -> Iterator[tuple[str, Mapping[str, T]]]:
        """The tables of each test collection, by backbone; the study's own collection goes without a name."""
        yield "", self.own
        yield from self.further.items()

    def labelled(self) -> dict[str, T]:
        """All tables, by the names of the backbone and of a further collection."""
        return {
            f"{model} on {collection}" if collection else model: table
            for collection, tables in self.collections()
            for model, table in tables.items()
        }
