"""Long work that appends blocks to files, and a journal of the blocks that are there: interrupted work resumes.

Blocks come in one order, each after the other. For pieces of work that may be done in any order, see `parts`.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypedDict, TypeVar, cast

from remargin.errors import InputError
from remargin.files.atomic import naming
from remargin.files.shapes import Count, mismatch

JOURNAL = "journal.jsonl"
T = TypeVar("T")


class Entry(TypedDict):
    """A line of a journal.

    Attributes:
        key: a hash of all that the block was made of.
        numbers: what else is to be remembered of the block.
        sizes: how many bytes the block has in each of the files.
        sum: the SHA-256 of these bytes.
    """

    key: str
    numbers: dict[str, Count]
    sizes: list[Count]
    sum: str


class Block(NamedTuple):
    """A block as it was appended: its bytes in each of the files, and its numbers."""

    contents: list[bytes]
    numbers: dict[str, int]


class Journal:
    """Files that grow block by block, and a journal beside them that says which blocks are there.

    Resumed work asks for its blocks in the same order (`find`), and appends those that are missing (`add`). A block
    counts only if it was made of the same input (`key`) and its bytes are intact. After the first block that does not
    count, none does: it and all behind it are replaced.

    Args:
        path: the journal.
        files: the files that grow; they are made if they are missing.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> journal = Journal(folder / JOURNAL, [folder / "squares.bin"])
        >>> journal.add("0 to 3", [bytes([0, 1, 4, 9])], largest=9)
        >>> resumed = Journal(folder / JOURNAL, [folder / "squares.bin"])
        >>> resumed.find("0 to 3"), resumed.find("4 to 7")
        (Block(contents=[b'\\x00\\x01\\x04\\t'], numbers={'largest': 9}), None)
    """

    def __init__(self, path: Path, files: Sequence[Path]) -> None:
        self._path, self._files = path, list(files)
        self._known = read_journal(path, Entry)
        for file in (path, *self._files):
            file.touch()
        self._end, self._ends = 0, [0] * len(self._files)  # of the blocks that count
        self.kept = 0  # how many blocks were there already

    def find(self, key: str) -> Block | None:
        """The next block, if it is there."""
        if not self._known:
            return None
        entry = self._known.pop(0)
        if entry["key"] == key and len(entry["sizes"]) == len(self._files):
            places = zip(self._files, self._ends, entry["sizes"], strict=True)
            contents = [_bytes_at(file, start, size) for file, start, size in places]
            if _sha256(contents) == entry["sum"]:
                self._ends = [end + len(content) for end, content in zip(self._ends, contents, strict=True)]
                self._end += len(journal_line(entry))
                self.kept += 1
                return Block(contents, entry["numbers"])
        self._known.clear()
        return None

    def add(self, key: str, contents: Sequence[Any], **numbers: int) -> None:
        """Append a block: its bytes for each of the files, in anything that has a buffer, such as an array."""
        views = [memoryview(content).cast("B") if len(content) else memoryview(b"") for content in contents]
        self._ends = [_write_at(*given) for given in zip(self._files, self._ends, views, strict=True)]
        sizes = [len(view) for view in views]
        line = journal_line({"key": key, "numbers": numbers, "sizes": sizes, "sum": _sha256(views)})
        self._end = _write_at(self._path, self._end, line)  # not before the block is there

    def close(self) -> None:
        """End the files with the last block that counts."""
        for file, end in zip(self._files, self._ends, strict=True):
            _write_at(file, end, b"")


def journal_line(entry: Mapping[str, Any]) -> bytes:
    """A line of a journal, after a checksum by which `read_journal` notices damage."""
    content = json.dumps(entry).encode() + b"\n"
    return _line_sum(content).encode() + b" " + content


def append_line(path: Path, entry: Mapping[str, Any]) -> None:
    """Append a line to a journal, which is made if it is missing, and wait until it is on disk."""
    with naming(path), open(path, "ab") as file:
        file.write(journal_line(entry))
        file.flush()
        os.fsync(file.fileno())


def read_journal(path: Path, shape: type[T]) -> list[T]:
    """The lines of a journal, up to the first that is damaged or was not wholly written.

    Args:
        path: the file, which need not be there.
        shape: a TypedDict with the fields of a line; see `mismatch`.
    """
    entries: list[T] = []
    if path.is_dir():
        raise InputError("is a folder", file=path, do="delete it")
    for line in path.read_bytes().splitlines(keepends=True) if path.exists() else []:
        entry = read_journal_line(line, shape)
        if entry is None:
            break
        entries.append(entry)
    return entries


def read_journal_line(line: bytes, shape: type[T]) -> T | None:
    """What `journal_line` made a line of; None if it is damaged, not wholly written, or of another shape.

    >>> line = journal_line({"step": 1})
    >>> read_journal_line(line, dict), read_journal_line(line[:-2], dict)
    ({'step': 1}, None)
    """
    before, _, content = line.partition(b" ")
    try:
        entry = json.loads(content) if before == _line_sum(content).encode() else None
        return None if entry is None or mismatch(entry, shape) else cast(T, entry)
    except (RecursionError, ValueError):
        return None


def _bytes_at(path: Path, start: int, size: int) -> bytes:
    with open(path, "rb") as file:
        file.seek(start)
        return file.read(min(size, path.stat().st_size))


def _write_at(path: Path, place: int, content: bytes | memoryview) -> int:
    """Truncate a file at byte `place` and write from there on; returns where that ends."""
    with naming(path), open(path, "r+b") as file:
        file.truncate(place)
        file.seek(place)
        file.write(content)
    return place + len(content)


def _line_sum(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=8).hexdigest()


def _sha256(contents: Iterable[bytes | memoryview]) -> str:
    digest = hashlib.sha256()  # where CPUs have it, twice as fast as BLAKE2
    for content in contents:
        digest.update(content)
    return digest.hexdigest()
