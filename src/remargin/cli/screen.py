"""Tables and progress messages on the screen."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

from remargin.progress import tell

if TYPE_CHECKING:
    from remargin.reports.tables import Table


def screen_width() -> int | None:
    """How many characters a line of the terminal has; None if the output goes elsewhere, such as into a file."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def print_tables(tables: Iterable[Table]) -> None:
    """Print tables with an empty line between them: on a terminal styled and of its width, elsewhere as plain text."""
    width = screen_width()
    print("\n".join(table.terminal(width, styled=width is not None) for table in tables), end="")


def say(line: str) -> None:
    """Show a progress message, on standard error."""
    tell(line, error=True)
