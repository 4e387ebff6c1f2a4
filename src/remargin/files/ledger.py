"""CSV tables that grow by a row at a time; each row ends with a checksum of itself and of all rows before it."""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remargin.errors import InputError
from remargin.files.atomic import naming, new_file

CHECKSUM = "checksum"


class Ledger:
    """A table that is written row by row. It begins anew, with some rows if there are any to keep.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "metrics.csv"
        >>> ledger = Ledger(path, ["step", "loss"])
        >>> ledger.append({"step": 1, "loss": 0.5})
        >>> ledger.append({"step": 2})
        >>> read_ledger(path, "make it again").rows
        [{'step': '1', 'loss': '0.5'}, {'step': '2', 'loss': ''}]
    """

    def __init__(self, path: Path, columns: Sequence[str], rows: Iterable[Mapping[str, object]] = ()) -> None:
        self._path, self._columns = path, list(columns)
        header = _text(columns)
        self._checksum = _chained("", header)
        lines = [f"{header},{CHECKSUM}\n", *map(self._line, rows)]
        with new_file(path, overwrite=True) as file:
            file.write("".join(lines).encode())

    def append(self, row: Mapping[str, object]) -> None:
        """Add a row; a column that it does not have stays empty."""
        with naming(self._path), open(self._path, "ab") as file:
            file.write(self._line(row).encode())

    def _line(self, row: Mapping[str, object]) -> str:
        text = _text([row.get(name, "") for name in self._columns])
        self._checksum = _chained(self._checksum, text)
        return f"{text},{self._checksum}\n"


@dataclass(frozen=True)
class LedgerContent:
    """What is in a `Ledger`: its columns, its rows as texts, and the checksum of all of it."""

    columns: list[str]
    rows: list[dict[str, str]]
    checksum: str


def read_ledger(path: Path, remedy: str, known: Collection[str] | None = None) -> LedgerContent:
    """A table that a `Ledger` wrote, with no other columns than those that are known, if that is said.

    A last line that was not wholly written does not count.

    Raises:
        InputError: if a line is not as it was written.
    """
    header, *lines = path.read_bytes().split(b"\n")[:-1] or [b""]
    columns, _, last = header.decode(errors="replace").rpartition(",")
    names = _fields(columns)
    if last != CHECKSUM or not (known is None or {*names} <= {*known}):
        raise InputError("its first line is damaged", file=path, do=remedy)
    rows, checksum = [], _chained("", columns)
    for number, line in enumerate(lines, start=2):
        text, _, stored = line.decode(errors="replace").rpartition(",")
        checksum = _chained(checksum, text)
        fields = _fields(text)
        if stored != checksum or len(fields) != len(names):
            raise InputError("damaged: not what was written", file=path, line=number, do=remedy)
        rows.append(dict(zip(names, fields, strict=True)))
    return LedgerContent(names, rows, checksum)


def _fields(text: str) -> list[str]:
    """The fields of a line; none if it is no line of CSV."""
    try:
        return next(csv.reader([text]), [])
    except csv.Error:
        return []


def _text(fields: Iterable[Any]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="").writerow(fields)
    return out.getvalue()


def _chained(before: str, text: str) -> str:
    return hashlib.blake2b(f"{before}\n{text}".encode(), digest_size=4).hexdigest()
