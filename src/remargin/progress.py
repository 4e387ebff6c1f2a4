"""Progress messages and, on a terminal, progress bars. Both can be silenced."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from remargin.errors import printable

T = TypeVar("T")
WARNING = "WARNING"  # lines that begin with it are never silenced


class _Screen:
    """What is on the screen of this process, its threads included."""

    quiet = False  # progress messages and bars are silenced
    bar = False  # a bar is shown: another one inside it would be drawn over it
    line = False  # a live line is shown, which the next line replaces


@contextmanager
def silenced(quiet: bool = True) -> Iterator[None]:
    """Meanwhile, no progress messages and no bars; warnings, errors and results stay.

    >>> with silenced():
    ...     tell("wrote run.trec")
    ...     show("nDCG@10 0.5")
    nDCG@10 0.5
    """
    before, _Screen.quiet = _Screen.quiet, quiet or _Screen.quiet
    try:
        yield
    finally:
        _Screen.quiet = before


def is_live() -> bool:
    """Whether to show a bar: standard error is a terminal, nobody asked for silence, and there is no other bar."""
    return sys.stderr.isatty() and not (_Screen.quiet or _Screen.bar)


def tell(line: str, *, error: bool = False) -> None:
    """Print a progress message on standard output, with control characters shown as escapes.

    Args:
        line: the message. It is left out if progress messages are silenced, unless it is a warning.
        error: a warning or an error, for standard error.

    >>> tell("wrote \\x1b[2J.trec")
    wrote \\x1b[2J.trec
    """
    if error or not _Screen.quiet or line.startswith(WARNING):
        _clear()
        print(printable(line), file=sys.stderr if error or _Screen.quiet else sys.stdout)


def tell_or_show(line: str, shown: str) -> None:
    """Print a progress message; or, if these are silenced, what scripts want of it, as a result.

    >>> with silenced():
    ...     tell_or_show("wrote runs/faq/model after 100 steps", "runs/faq/model")
    runs/faq/model
    """
    show(shown) if _Screen.quiet else tell(line)


def say(line: str) -> None:
    """Print a progress message on standard error, where standard output has the result."""
    if not _Screen.quiet or line.startswith(WARNING):
        tell(line, error=True)


def show(line: str) -> None:
    """Print a line of a result that was asked for, on standard output: it is never silenced."""
    _clear()
    print(printable(line))


def show_live(line: str) -> None:
    """Show a line on the terminal in place of the last live line, cut to the width of the terminal."""
    width = shutil.get_terminal_size().columns
    print(f"\r{printable(line)[: width - 1]}\x1b[K", end="", file=sys.stderr, flush=True)
    _Screen.line = True


def end_live() -> None:
    """Leave the last live line on the screen, and go on below it."""
    if _Screen.line:
        print(file=sys.stderr)
    _Screen.line = False


def _clear() -> None:
    """Make room for a line where a live line is shown."""
    if _Screen.line:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    _Screen.line = False


def track(
    items: Iterable[T],
    description: str,
    total: int | None = None,
    show: bool | None = None,
    size: Callable[[T], int] | None = None,
) -> Iterator[T]:
    """The items, with a bar on standard error that counts them: how fast, how long, and for how much longer.

    Args:
        items: what to count.
        description: what is done with them.
        total: how many there are, if that is known.
        show: whether to show the bar. Without it, only if standard error is a terminal; never if bars are silenced, or
            inside another bar.
        size: what an item counts for; without it, for one.

    >>> list(track([1, 2, 3], "counting"))
    [1, 2, 3]
    """
    if not (is_live() if show is None else show and not (_Screen.quiet or _Screen.bar)):
        yield from items
        return
    _clear()
    _Screen.bar = True
    description = printable(description)  # it may have the name of a file in it
    try:
        with _bar(total) as progress:
            if size is None:
                yield from progress.track(items, total=total, description=description)
                return
            task = progress.add_task(description, total=total)
            for item in items:
                yield item
                progress.advance(task, size(item))
    finally:
        _Screen.bar = False


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
    begin = (TextColumn("{task.description}", markup=False), BarColumn(bar_width=20), MofNCompleteColumn(), Rate(""))
    remaining = (TextColumn("left"), TimeRemainingColumn()) if total else ()
    return Progress(*begin, TimeElapsedColumn(), *remaining, console=console, transient=console.is_terminal)
