"""Progress messages and, on a terminal, progress bars. Both can be silenced."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from remargin.errors import printable

T = TypeVar("T")
WARNING = "WARNING"  # lines that begin with it are never silenced


class _Silence:
    asked = False  # of the whole process: work in threads is silent too


@contextmanager
def silenced(quiet: bool = True) -> Iterator[None]:
    """Meanwhile, no progress messages and no bars; warnings, errors and results stay.

    >>> with silenced():
    ...     tell("wrote run.trec")
    ...     show("nDCG@10 0.5")
    nDCG@10 0.5
    """
    before, _Silence.asked = _Silence.asked, quiet or _Silence.asked
    try:
        yield
    finally:
        _Silence.asked = before


def is_live() -> bool:
    """Whether to show bars: standard error is a terminal, and nobody asked for silence."""
    return sys.stderr.isatty() and not _Silence.asked


def tell(line: str, *, error: bool = False) -> None:
    """Print a progress message on standard output, with control characters shown as escapes.

    Args:
        line: the message. It is left out if progress messages are silenced, unless it is a warning.
        error: a warning or an error, for standard error.

    >>> tell("wrote \\x1b[2J.trec")
    wrote \\x1b[2J.trec
    """
    if error or not _Silence.asked or line.startswith(WARNING):
        print(printable(line), file=sys.stderr if error or _Silence.asked else sys.stdout)


def say(line: str) -> None:
    """Print a progress message on standard error, where standard output has the result."""
    if not _Silence.asked or line.startswith(WARNING):
        tell(line, error=True)


def show(line: str) -> None:
    """Print a line of a result that was asked for, on standard output: it is never silenced."""
    print(printable(line))


def track(items: Iterable[T], description: str, total: int | None = None, show: bool | None = None) -> Iterator[T]:
    """The items, with a bar on standard error that counts them: how fast, how long, and for how much longer.

    Args:
        items: what to count.
        description: what is done with them.
        total: how many there are, if that is known.
        show: whether to show the bar. Without it, only if standard error is a terminal; never if bars are silenced.

    >>> list(track([1, 2, 3], "counting"))
    [1, 2, 3]
    """
    if not (is_live() if show is None else show and not _Silence.asked):
        yield from items
        return
    with _bar(total) as progress:
        yield from progress.track(items, total=total, description=description)


def _bar(total: int | None) -> Any:
    """A bar that fits into 80 columns: what, how much of it, how many a second, since when, and how long it takes."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        Task,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    class Rate(TextColumn):
        def render(self, task: Task) -> Any:
            speed = task.finished_speed or task.speed
            self.text_format = "" if speed is None else f"{speed:,.0f}/s" if speed >= 10 else f"{speed:.2g}/s"
            return super().render(task)

    console = Console(stderr=True)
    begin = (TextColumn("{task.description}"), BarColumn(bar_width=20), MofNCompleteColumn(), Rate(""))
    remaining = (TextColumn("left"), TimeRemainingColumn()) if total else ()
    return Progress(*begin, TimeElapsedColumn(), *remaining, console=console, transient=console.is_terminal)
