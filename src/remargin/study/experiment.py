"""What an experiment is: it declares what it needs, and draws what came of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

from remargin.study.outcome import Outcome
from remargin.study.results import Results
from remargin.study.scheduler import Declare
from remargin.study.tasks import Task


@dataclass(frozen=True)
class Experiment:
    """A table or figure: the training runs and measurements that it needs, and how it is drawn from their results.

    Attributes:
        name: of the command and of the folder.
        about: a line for `--help`.
        tasks: declares what the experiment needs; pure, called again whenever results have been added.
        draw: makes tables and figures; a pure function of results.
        compares: whether systems are compared query by query, which takes two queries at least.
        needs_results: whether it is drawn from results; else `draw` ignores them.
    """

    name: str
    about: str
    tasks: Callable[[Results], Iterable[Task]]
    draw: Callable[..., Outcome]
    compares: bool = False
    needs_results: bool = True


def declared_by(experiments: Sequence[Experiment]) -> Declare:
    """The tasks of several experiments together."""
    return lambda results: chain.from_iterable(experiment.tasks(results) for experiment in experiments)
