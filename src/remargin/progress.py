"""What people see while something runs: lines of text, and progress bars on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TypeVar

from remargin.errors import printable

T = TypeVar("T")


def tell(line: str, *, error: bool = False) -> None:
    """Print a line for people, on standard output or standard error, with control characters shown as escapes.

    >>> tell("wrote \\x1b[2J.trec")
    wrote \\x1b[2J.trec
    """
    print(printable(line), file=sys.stderr if error else sys.stdout)


def track(items: Iterable[T], description: str, total: int | None = None, show: bool | None = None) -> Iterator[T]:
    """The items, with a bar on standard error that counts them. Without `show`, only where that is a terminal.

    >>> list(track([1, 2, 3], "counting"))
    [1, 2, 3]
    """
    if not (sys.stderr.isatty() if show is None else show):
        yield from items
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    remaining = (TimeRemainingColumn(),) if total else ()
    console = Console(stderr=True)
    with Progress(*columns, *remaining, console=console, transient=console.is_terminal) as progress:
        yield from progress.track(items, total=total, description=description)
