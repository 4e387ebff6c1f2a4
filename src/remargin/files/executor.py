"""Where long work is done: an executor hands its items to workers, in this process or on other machines.

Encoding, teaching and mining are given one, and know no more of it than is said here. `integrations/ray.py` has one for
the workers of a Ray cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

# Does items one after the other, each as it is asked for the result: there may be no end of them.
Work = Callable[[Iterable[Item]], Iterator[Result]]

# Called once in each worker, with the device to compute on, or None for "where everything is already". It and the items
# are pickled on their way to another process.
Start = Callable[[str | None], Work[Item, Result]]


class Executor(Protocol):
    """Does items of work in any order and as often as it takes: an item that was lost with its worker is done again.

    Work is therefore done so that a second time does no harm, and results say which item they are of.
    """

    @property
    def device(self) -> str | None:
        """The kind of device that the workers compute on; None if they compute where the model is already."""

    def run(self, start: Start[Item, Result], items: Iterable[Item]) -> Iterator[Result]:
        """The results of all items, each as soon as it is there. No more items are taken than are worked on.

        An error of the work ends the run and is raised here.
        """


class InThisProcess:
    """One worker, which is this process: what happens without another executor.

    >>> def start(device):
    ...     return lambda numbers: (number**2 for number in numbers)
    >>> list(InThisProcess().run(start, [1, 2, 3]))
    [1, 4, 9]
    """

    device = None

    def run(self, start: Start[Item, Result], items: Iterable[Item]) -> Iterator[Result]:
        """The results in the order of the items."""
        return start(None)(items)
