"""Tables on the screen."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from remargin.reports.tables import Cell, Table


def screen_width() -> int | None:
    """How many characters a line of the terminal has; None if the output goes elsewhere, such as into a file."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def print_tables(tables: Iterable[Table]) -> None:
    """Print tables with an empty line between them: on a terminal styled and of its width, elsewhere as plain text."""
    width = screen_width()
    print("\n".join(table.terminal(width, styled=width is not None) for table in tables), end="")


def table_data(table: Table) -> dict[str, Any]:
    """A table for machines: each row as an object of its columns, with numbers in full precision."""
    rows = [
        {"block": block.label, **dict(zip(table.header, (_value(cell) for cell in row), strict=True))}
        for block in table.blocks
        for row in block.rows
    ]
    return {"title": table.title, "rows": rows, "notes": table.notes}


def _value(cell: Cell) -> float | str:
    return cell.text if cell.value is None else cell.value
