"""The report as one HTML file that needs nothing else: no network, no scripts, no fonts."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2

from remargin import __version__
from remargin.errors import printable
from remargin.files.atomic import new_file
from remargin.reports.sections import Section, unique_names
from remargin.reports.svg.style import DARK_PAPER, PAPER, STYLE
from remargin.reports.tables import MISSING, Table


def write_page(out: str | Path, sections: Sequence[Section], title: str, overwrite: bool = False) -> Path:
    """Write sections as one page, and return where it is. The same sections always give the same bytes.

    Raises:
        InputError: if the file is there already, and it is not to be overwritten.

    Example:
        >>> import tempfile
        >>> section = Section("loss", "How the losses compare", ["Distributed is best."])
        >>> page = write_page(Path(tempfile.mkdtemp()) / "report.html", [section], "Losses")
        >>> "<h2>How the losses compare</h2>" in page.read_text(encoding="utf-8")
        True
    """
    out = Path(out)
    with new_file(out, overwrite) as file:
        file.write(page_text(sections, title).encode(errors="replace"))
    return out


def page_text(sections: Sequence[Section], title: str) -> str:
    """The HTML of a page.

    >>> page_text([], "Nothing <yet>")[:15], "<h1>Nothing &lt;yet&gt;</h1>" in page_text([], "Nothing <yet>")
    ('<!doctype html>', True)
    """
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined, finalize=_shown
    )
    environment.filters["settings"] = settings_rows
    environment.globals.update(missing=MISSING, width_of_marks=width_of_marks)
    template = environment.from_string(_file("page.html"))
    style = _file("page.css").replace("PAPER_DARK", DARK_PAPER).replace("PAPER", PAPER) + STYLE
    links = unique_names(section.name for section in sections)
    return template.render(
        title=title, sections=list(zip(links, sections, strict=True)), style=style, version=__version__
    )


def settings_rows(settings: dict[str, Any]) -> list[tuple[str, str]]:
    """Settings as lines of a table, nested ones under the name of what they are in.

    >>> settings_rows({"seed": 0, "loss": {"target": "distributed", "in_batch": False}, "sizes": [64, 128]})
    [('seed', '0'), ('loss.target', 'distributed'), ('loss.in_batch', 'false'), ('sizes', '64, 128')]
    """
    rows: list[tuple[str, str]] = []
    for name, value in settings.items():
        if isinstance(value, dict) and value:
            rows += [(f"{name}.{inner}", text) for inner, text in settings_rows(value)]
        elif isinstance(value, list):
            rows.append((name, ", ".join(map(_setting, value)) or "none"))
        else:
            rows.append((name, _setting(value)))
    return rows


def width_of_marks(table: Table) -> list[int]:
    """For each column of numbers, the length of its longest marks, which is how much room is left after every number.

    >>> from remargin.reports.tables import Block, Cell, number
    >>> width_of_marks(Table("", ["run", "RR"], [Block("", [[Cell("a"), number(0.5, marks="†")]])]))
    [0, 1]
    """
    rows = [row for block in table.blocks for row in block.rows]
    columns = enumerate(table.numeric())
    return [max((len(row[i].marks) for row in rows), default=0) if is_number else 0 for i, is_number in columns]


def _shown(value: Any) -> Any:
    """What stands on the page for a value: texts from elsewhere without control characters, markup as it is."""
    return printable(value) if type(value) is str else value


def _setting(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "; ".join(f"{name} {text}" for name, text in settings_rows(value)) or "none"
    return "none" if value is None else str(value)


def _file(name: str) -> str:
    return (resources.files("remargin.reports") / name).read_text(encoding="utf-8")
