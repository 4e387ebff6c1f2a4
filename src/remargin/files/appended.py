"""A file to which entries are appended for good: what was appended survives a kill, and damage is noticed.

Unlike the blocks of a `Journal`, the entries come from outside and cannot be made again.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from remargin.errors import InputError
from remargin.files.atomic import naming
from remargin.files.journal import journal_line, read_journal_line

T = TypeVar("T")


class Stored(NamedTuple, Generic[T]):
    """An entry, the byte where it begins, and the byte where the next one does."""

    start: int
    end: int
    entry: T


class Appended(Generic[T]):
    """A file of entries, one checksummed line each. It is read without holding more than one entry in memory.

    An entry at the end that was not wholly written, as the process was killed meanwhile, is removed: whoever appended
    it did not hear that it was kept.

    Args:
        path: the file; it is made if it is missing.
        shape: a TypedDict with the fields of an entry; see `mismatch`.
        remedy: what to do about a damaged file.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "steps.jsonl"
        >>> steps = Appended(path, dict[str, int], "begin anew")
        >>> steps.append([{"step": 1}, {"step": 2}])
        >>> [stored.entry for stored in Appended(path, dict[str, int], "begin anew").scan()]
        [{'step': 1}, {'step': 2}]
    """

    def __init__(self, path: Path, shape: type[T], remedy: str) -> None:
        self.path, self._shape, self._remedy = path, shape, remedy
        if path.is_dir():
            raise InputError("is a folder", file=path, do=remedy)
        with naming(path), open(path, "ab+") as file:
            self.end = _whole_lines(file, file.tell())
            file.truncate(self.end)

    def append(self, entries: Iterable[Mapping[str, Any]], flush: bool = True) -> None:
        """Append entries, all of them or none.

        With `flush`, they are safely on disk afterwards; without it, they survive a kill of this process, but not the
        loss of power.
        """
        content = b"".join(map(journal_line, entries))
        with naming(self.path), open(self.path, "r+b") as file:
            try:
                file.seek(self.end)
                file.write(content)
                file.flush()
                if flush:
                    os.fsync(file.fileno())
            except OSError:
                os.truncate(self.path, self.end)
                raise
        self.end += len(content)

    def scan(self, start: int = 0) -> Iterator[Stored[T]]:
        """The entries from one that begins at byte `start`.

        Raises:
            InputError: if one is not as it was written.
        """
        with open(self.path, "rb") as file:
            file.seek(start)
            while start < self.end:
                line = file.readline()
                entry = read_journal_line(line, self._shape)
                if entry is None:
                    number = _lines_before(self.path, start) + 1
                    raise InputError("damaged: not what was written", file=self.path, line=number, do=self._remedy)
                yield Stored(start, start + len(line), entry)
                start += len(line)

    def read(self, start: int) -> T:
        """The entry that begins at byte `start`."""
        for stored in self.scan(start):
            return stored.entry
        raise InputError("entries are missing at its end", file=self.path, do=self._remedy)


def _whole_lines(file: Any, size: int) -> int:
    """Up to which byte a file consists of whole lines."""
    at = size
    while at > 0:
        start = max(0, at - 65_536)
        file.seek(start)
        place = file.read(at - start).rfind(b"\n")
        if place >= 0:
            return int(start + place + 1)
        at = start
    return 0


def _lines_before(path: Path, place: int) -> int:
    with open(path, "rb") as file:
        return sum(1 for line in iter(file.readline, b"") if file.tell() <= place)
