"""What an experiment is: it declares what it needs, finds numbers in the results, and draws them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Generic, TypeVar, cast

from remargin.reports.sections import Section
from remargin.study.results import Results
from remargin.study.scheduler import Declare
from remargin.study.tasks import Task

F = TypeVar("F")


@dataclass(frozen=True)
class Experiment(Generic[F]):
    """A table or figure: the training runs and measurements that it needs, its findings, and how they are drawn.

    Attributes:
        name: of the command and of the folder.
        tasks: declares what the experiment needs; pure, called again whenever results have been added.
        findings: the numbers behind the table or figure, in types of the experiment's own, mostly by backbone; a pure
            function of results, which raises NotTrained where these do not suffice.
        draw: makes tables and figures of the findings; what only a figure shows is read from the results.
        compares: whether systems are compared query by query, which takes two queries at least.
        needs_results: whether it is made from results; else `findings` and `draw` ignore them.
    """

    name: str
    tasks: Callable[[Results], Iterable[Task]]
    findings: Callable[[Results], F]
    draw: Callable[[Results, F], Section]
    compares: bool = False
    needs_results: bool = True

    def section(self, results: Results | None) -> Section:
        """The findings, drawn. Only an experiment that needs no results can be drawn without any.

        Raises:
            NotTrained: if training runs are missing.
        """
        assert results is not None or not self.needs_results, f"{self.name} needs results"
        given = cast(Results, results)
        return self.draw(given, self.findings(given))


def declared_by(experiments: Sequence[Experiment[Any]]) -> Declare:
    """The tasks of several experiments together."""
    return lambda results: chain.from_iterable(experiment.tasks(results) for experiment in experiments)
