"""Rows of text files and tables: lines, JSONL, CSV, TSV and Parquet, gzipped or not.

Readers report a bad line to a `Rejects`, which either raises the error or, with skip, counts it and continues.
"""

from __future__ import annotations

import contextlib
import csv
import difflib
import gzip
import itertools
import json
import logging
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeVar

from remargin.data.parquet_rows import parquet_rows
from remargin.errors import InputError
from remargin.files.shapes import encodable
from remargin.files.unpacking import open_binary

log = logging.getLogger(__name__)
T = TypeVar("T")
OR_SKIP = ", or skip bad input (--skip-bad)"
SKIP = f"correct it{OR_SKIP}"
PACKED_TOGETHER = 1024
LONGEST_LINE = 1 << 25  # bytes; a file with longer lines is no text
_FORMULA = re.compile(r"'*[=+\-@\t\r]")  # how formulas begin, and texts that were kept from being one


class Rejects:
    """Collects bad input: an error is raised at once, or with `skip` set aside and counted.

    Errors set aside are kept compressed: all lines of a file may be bad, and there may be millions. `empty_documents`
    counts documents without text, which are not bad input, but worth a word.

    >>> rejects = Rejects(skip=True)
    >>> rejects.add(InputError("empty text", file="corpus.jsonl", line=3))
    >>> rejects.count, rejects.first
    (1, InputError('corpus.jsonl:3: empty text'))
    """

    def __init__(self, skip: bool = False) -> None:
        self.skip = skip
        self.count = 0
        self.empty_documents = 0
        self.first: InputError | None = None
        self._latest: list[str] = []
        self._packed: list[bytes] = []

    def add(self, error: InputError) -> None:
        """Raise the error, or set it aside."""
        if not self.skip:
            raise error
        self.count += 1
        self.first = self.first or error
        reject = {"file": error.file, "line": error.line, "id": error.id, "problem": error.problem}
        self._latest.append(json.dumps(reject) + "\n")
        if len(self._latest) == PACKED_TOGETHER:
            self._packed.append(zlib.compress("".join(self._latest).encode(), level=1))
            self._latest.clear()

    @contextlib.contextmanager
    def strict(self) -> Iterator[None]:
        """Until the end of the block, raise errors and set nothing aside."""
        skip, self.skip = self.skip, False
        try:
            yield
        finally:
            self.skip = skip

    def describe(self) -> str | None:
        """How many errors were set aside, and the first of them; None if there were none."""
        return f"the first of {self.count:,} rejects: {self.first}" if self.count else None

    def warn(self) -> None:
        """Log a warning that counts the errors set aside and shows the first, and one that counts empty documents."""
        if self.empty_documents:
            log.warning("documents without text, which are kept: %s", f"{self.empty_documents:,}")
        if self.count:
            first = str(self.first).removesuffix(f"; {SKIP}")  # that advice has been followed
            log.warning("skipped bad input: %s, the first is %s", f"{self.count:,}", first)

    def write(self, path: Path) -> None:
        """One JSON object a line: file, line, id and problem of everything set aside."""
        with open(path, "wb") as out:
            out.writelines(map(zlib.decompress, self._packed))
            out.write("".join(self._latest).encode())


def spreadsheet_cell(text: str) -> str:
    """Text for a CSV cell that no spreadsheet computes: a text that begins like a formula gets an apostrophe.

    >>> spreadsheet_cell("=1+2"), spreadsheet_cell("-0.5"), spreadsheet_cell("q1")
    ("'=1+2", '-0.5', 'q1')
    """
    return f"'{text}" if _FORMULA.match(text) and not is_number(text) else text


def cell_text(cell: str) -> str:
    """The text that `spreadsheet_cell` wrote.

    >>> cell_text("'=1+2"), cell_text("'tis")
    ('=1+2', "'tis")
    """
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell


def is_number(text: str) -> bool:
    """Whether a text is a number, as Python writes it.

    >>> is_number("-1e3"), is_number("-1e3+cmd")
    (True, False)
    """
    try:
        float(text)
    except ValueError:
        return False
    return True


class Row(NamedTuple):
    """One row of a table and the line (for Parquet: the row) that it came from."""

    line: int
    values: dict[str, Any]


def batches(items: Iterable[T], size: int = 4096) -> Iterator[list[T]]:
    """Items in lists of that size, the last of them shorter.

    >>> list(batches("abc", 2))
    [['a', 'b'], ['c']]
    """
    iterator = iter(items)
    while batch := list(itertools.islice(iterator, size)):
        yield batch


def find_file(folder: Path, name: str) -> Path | None:
    """The file of that name, or its gzipped twin."""
    return next((p for p in (folder / name, folder / f"{name}.gz") if p.is_file()), None)


def read_lines(path: Path, rejects: Rejects) -> Iterator[tuple[int, str]]:
    """Numbered lines, decoded one by one so that a bad one can be named and skipped."""
    with open_binary(path) as file:
        number = 0
        try:
            for number, raw in enumerate(_raw_lines(file), 1):
                if len(raw) > LONGEST_LINE:
                    problem = f"a line of more than {LONGEST_LINE:,} bytes"
                    rejects.add(InputError(problem, file=path, line=number, do="give a text file with shorter lines"))
                    continue
                try:
                    line = raw.decode("utf-8-sig" if number == 1 else "utf-8")
                except UnicodeDecodeError as error:
                    problem = f"not UTF-8 (byte {error.object[error.start]:#04x} at column {error.start + 1})"
                    rejects.add(InputError(problem, file=path, line=number, do="convert the file to UTF-8"))
                    continue
                yield number, line
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            problem = "the gzip data ends early" if isinstance(error, EOFError) else f"not valid gzip data ({error})"
            rejects.add(InputError(problem, file=path, line=number + 1, do="fetch or pack the file again"))


def _raw_lines(file: IO[bytes]) -> Iterator[bytes]:
    """The lines of a file; of one that is too long, only so much that this can be seen."""
    for raw in iter(partial(file.readline, LONGEST_LINE + 1), b""):
        yield raw
        while len(raw) > LONGEST_LINE and not raw.endswith(b"\n"):
            raw = file.readline(LONGEST_LINE + 1)
            if not raw:
                return


def read_rows(path: Path, rejects: Rejects) -> Iterator[Row]:
    """Rows of a .jsonl, .csv, .tsv (all also .gz) or .parquet file, by column name."""
    kind = Path(path.name.removesuffix(".gz")).suffix.lower()
    if kind in (".jsonl", ".ndjson"):
        return _json_rows(path, rejects)
    if kind in (".csv", ".tsv"):
        return _delimited_rows(path, rejects, "," if kind == ".csv" else "\t")
    if kind in (".parquet", ".pq"):
        return (Row(number, values) for number, values in enumerate(parquet_rows(path), 1))
    raise InputError(f"unknown kind of table {kind!r}", file=path, do="use .csv, .tsv, .jsonl or .parquet")


def _json_rows(path: Path, rejects: Rejects) -> Iterator[Row]:
    for number, line in read_lines(path, rejects):
        if not line.strip():
            continue
        try:
            values = json.loads(line)
        except (ValueError, RecursionError) as error:
            rejects.add(InputError(f"not valid JSON ({error})", file=path, line=number, do=SKIP))
            continue
        if not isinstance(values, dict):
            rejects.add(InputError("not a JSON object", file=path, line=number, do=SKIP))
        elif "\\u" in line and not encodable(json.dumps(values, ensure_ascii=False)):
            rejects.add(InputError("half of a surrogate pair, which is no text", file=path, line=number, do=SKIP))
        else:
            yield Row(number, values)


def _delimited_rows(path: Path, rejects: Rejects, delimiter: str) -> Iterator[Row]:
    records = delimited_records(path, rejects, delimiter)
    with rejects.strict():  # without the header, no row means anything
        line, header = next(records, (1, []))
    if delimiter == "," and len(header) == 1 and ";" in header[0]:  # as Excel writes it in much of Europe
        yield from _delimited_rows(path, rejects, ";")
        return
    names = [name.strip() for name in header]
    if not any(names):
        raise InputError("empty table", file=path, do="its first line must name the columns")
    if len(set(names)) < len(names):
        raise InputError("two columns have the same name", file=path, line=line, do="rename one")
    for line, fields in records:
        if len(fields) == len(names):
            yield Row(line, dict(zip(names, fields, strict=True)))
        else:
            problem = f"{len(fields)} fields, the header has {len(names)}"
            quoted = delimiter == "\t" and any('"' in field for field in fields)
            do = f"quotes mean nothing between tabs: save it as CSV; or {SKIP}" if quoted else SKIP
            rejects.add(InputError(problem, file=path, line=line, do=do))


def headless_rows(path: Path, rejects: Rejects, names: Sequence[str]) -> Iterator[Row]:
    """The rows of a TSV without a header."""
    for line, fields in delimited_records(path, rejects, "\t"):
        if len(fields) == len(names):
            yield Row(line, dict(zip(names, fields, strict=True)))
        else:
            problem = f"{len(fields)} columns instead of {len(names)}"
            rejects.add(InputError(problem, file=path, line=line, do=SKIP))


def delimited_records(path: Path, rejects: Rejects, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Fields of each record and the line it starts on. Commas come with CSV's quotes, tabs with none."""
    if delimiter == "\t":
        for number, line in read_lines(path, rejects):
            if line.strip("\r\n"):
                yield number, line.rstrip("\r\n").split("\t")
        return
    csv.field_size_limit(LONGEST_LINE)  # a quote that is never closed takes in all that follows
    lines = _Lines(read_lines(path, rejects))
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    while True:
        lines.start = 0
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            upto = f", lines {lines.start} to {lines.last}" if lines.last > lines.start else ""
            rejects.add(InputError(f"malformed CSV ({error}){upto}", file=path, line=lines.start, do=SKIP))
            continue
        if fields:  # not a blank line
            yield lines.start, fields


class _Lines:
    """Lines for csv.reader; remembers the number of the line on which a record began."""

    def __init__(self, lines: Iterator[tuple[int, str]]) -> None:
        self._lines = lines
        self.start = self.last = 0

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        number, line = next(self._lines)
        self.start, self.last = self.start or number, number
        return line


def require_columns(path: Path, row: Row, names: Iterable[str], do: str) -> None:
    """An error that names the columns which a table lacks, and those that it has, the nearest of them first."""
    missing = [name for name in names if name not in row.values]
    if missing:
        problem = f"no column {_listed(missing)}; its columns are {_listed(list(row.values))}"
        raise InputError(problem, file=path, line=row.line, do=closest(missing[0], list(row.values)) or do)


def closest(name: str, names: Sequence[str], before: str = "") -> str:
    """A question that suggests the nearest of some names, after a text; empty if none is near.

    >>> closest("antwrt", ["Frage", "Antwort"]), closest("nr", ["Frage", "Antwort"])
    ("did you mean 'Antwort'?", '')
    """
    by_name = {other.lower(): other for other in reversed(names)}
    near = difflib.get_close_matches(name.lower(), by_name, n=1)
    return f"{before}did you mean {by_name[near[0]]!r}?" if near else ""


def _listed(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names)
