"""Sections of a report, kept as files: all that a page shows, without the code that made the numbers."""

from __future__ import annotations

import math
import numbers
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypedDict

from remargin.errors import InputError
from remargin.files.atomic import new_file, refuse_existing
from remargin.files.headers import read_header, write_header
from remargin.files.shapes import mismatch
from remargin.reports.figures import Figure, figure_from_json, figure_json
from remargin.reports.tables import Table, table_from_json, table_json

FILE = "section.json"
FORMAT = "remargin-section-1"
AGAIN = "make it again"


class SectionHeader(TypedDict):
    """A `Section` on disk."""

    format: str
    name: str
    title: str
    summary: list[str]
    tables: list[dict[str, Any]]
    figures: list[dict[str, Any]]
    settings: dict[str, Any]
    notes: list[str]


@dataclass
class Section:
    """A part of a report: one experiment, or one run.

    Attributes:
        name: short, for files and links.
        title: its heading.
        summary: the outcome in plain words, a string for each paragraph.
        tables: the numbers.
        figures: the pictures.
        settings: what is needed to repeat it. Values that JSON does not know become text.
        notes: what else a reader should know.

    Example:
        >>> import tempfile
        >>> section = Section("loss", "How the losses compare", ["Distributed is best."], settings={"seed": 0})
        >>> folder = section.save(Path(tempfile.mkdtemp()) / "loss")
        >>> Section.load(folder) == section
        True
    """

    name: str
    title: str
    summary: list[str] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.settings = _plain(self.settings)

    def save(self, folder: str | Path, overwrite: bool = False) -> Path:
        """Write it to a folder, beside whatever else is there, and return the folder. section.json comes last.

        folder/
          section.json           everything, for `load`
          TABLE.csv              each table, by its title
          tables.md tables.tex   all tables
          figures/NAME.svg .csv  each figure, and its numbers

        Raises:
            InputError: if there is a section already, and it is not to be overwritten.
        """
        folder = Path(folder)
        refuse_existing(folder / FILE, overwrite)
        old: set[str] = set()
        if (folder / FILE).exists():
            with suppress(InputError):  # one that is damaged is replaced all the same
                old = {name for name, _ in Section.load(folder).files()}
        for name, text in self.files():
            old.discard(name)
            with new_file(folder / name, overwrite=True) as file:
                file.write(text.encode())
        write_header(folder / FILE, self.to_json())
        for name in old:
            (folder / name).unlink(missing_ok=True)
        return folder

    def files(self) -> Iterator[tuple[str, str]]:
        """The names of all files but section.json, and what is in them.

        >>> from remargin.reports.tables import Block, Cell
        >>> section = Section("loss", "Losses", tables=[Table("Means, test", ["run"], [Block("", [[Cell("a")]])])])
        >>> [name for name, text in section.files()]
        ['means-test.csv', 'tables.md', 'tables.tex']
        """
        names = unique_names(table.title or "table" for table in self.tables)
        for name, table in zip(names, self.tables, strict=True):
            yield f"{name}.csv", table.csv()
        if self.tables:
            yield "tables.md", "\n".join(table.markdown() for table in self.tables)
            yield "tables.tex", "\n".join(table.latex() for table in self.tables)
        for name, figure in zip(unique_names(figure.name for figure in self.figures), self.figures, strict=True):
            yield f"figures/{name}.svg", figure.svg(standalone=True) + "\n"
            yield f"figures/{name}.csv", figure.csv()

    def to_json(self) -> dict[str, Any]:
        """All of it as plain values.

        >>> Section("loss", "Losses").to_json()["format"]
        'remargin-section-1'
        """
        return {
            "format": FORMAT,
            "name": self.name,
            "title": self.title,
            "summary": self.summary,
            "tables": [table_json(table) for table in self.tables],
            "figures": [figure_json(figure) for figure in self.figures],
            "settings": self.settings,
            "notes": self.notes,
        }

    @classmethod
    def load(cls, path: str | Path) -> Section:
        """A section that `save` wrote, from its folder or its file.

        Raises:
            InputError: if there is none, or if it is damaged or of another version.
        """
        path = Path(path)
        path = path / FILE if path.is_dir() else path
        header = read_header(path, SectionHeader, FORMAT, AGAIN)
        try:
            tables = [table_from_json(table) for table in header["tables"]]
            figures = [figure_from_json(figure) for figure in header["figures"]]
            for drawn in (*tables, *figures):
                if problem := mismatch(asdict(drawn), type(drawn), type(drawn).__name__):
                    raise InputError(f"not a section that can be read ({problem})", file=path, do=AGAIN)
            about = header["name"], header["title"], header["summary"]
            return cls(*about, tables, figures, header["settings"], header["notes"])
        except RecursionError:
            raise InputError("not a section that can be read (nested too deeply)", file=path, do=AGAIN) from None
        except InputError:
            raise
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise InputError(f"not a section that can be read ({error!r})", file=path, do=AGAIN) from None


def unique_names(titles: Iterable[str]) -> list[str]:
    """Titles as short names for files and links, no two of them alike.

    >>> unique_names(["Zero-shot, nDCG@10", "Loss", "loss", "損失"])
    ['zero-shot-ndcg-10', 'loss', 'loss-2', '損失']
    """
    names: list[str] = []
    for title in titles:
        name = re.sub(r"\W+", "-", title.lower()).strip("-")[:60].strip("-") or "unnamed"
        count = 1
        while (name if count == 1 else f"{name}-{count}") in names:
            count += 1
        names.append(name if count == 1 else f"{name}-{count}")
    return names


def _plain(value: Any) -> Any:
    """The value in types that JSON keeps: lists for tuples, Python's own numbers, and text for anything else."""
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real) and math.isfinite(value):
        return float(value)
    return str(value)
