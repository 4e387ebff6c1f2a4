"""Where the lines of a stream come from: standard input, a file that grows, or a folder into which files are put.

A source hands over the lines that follow a position, which the journal of the stream remembers.
"""

from __future__ import annotations

import hashlib
import json
import os
import select
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, NamedTuple, Protocol

from remargin.data.tables import LONGEST_LINE
from remargin.errors import InputError

STANDARD_INPUT = "-"
AT_ONCE = 1 << 16  # bytes that are read from standard input
SHOWN = 1000  # bytes that are kept of a line that is too long


class Line(NamedTuple):
    """A line of a source.

    Attributes:
        source: the name of the source: of the file, or "-".
        number: of the line in its source, from 1.
        end: the byte of its file that follows it; 0 for standard input.
        size: its bytes, its line break included.
        sum: a hash of its content, by which it is recognised.
        content: its bytes without the line break; the first ones if it is too long.
    """

    source: str
    number: int
    end: int
    size: int
    sum: str
    content: bytes

    @property
    def too_long(self) -> bool:
        """Whether it is so long that only its beginning was kept."""
        return self.size > LONGEST_LINE


class Position(NamedTuple):
    """The last line that was taken of a source."""

    number: int
    end: int
    size: int
    sum: str


Positions = Mapping[str, Position]
# The hashes of all lines that were taken of a source so far, in order.
Taken = Callable[[str], Iterator[str]]


class Source(Protocol):
    """Hands over lines, each of them once."""

    def take(self, most: int, closing: bool = False) -> list[Line]:
        """The next lines that are there: about `most` of them, or none. It does not wait for long.

        With `closing`, no more is expected to come: a last line without a line break counts, too.
        """

    @property
    def ended(self) -> bool:
        """Whether there will never be another line."""


def open_source(name: str, positions: Positions, taken: Taken, say: Callable[[str], None], from_start: bool) -> Source:
    """The source that `--stream` names.

    Args:
        name: "-" for standard input; a file or folder.
        positions: the last line that was taken of each source before, by its name.
        taken: the hashes of the lines that were taken of a source before.
        say: called with progress messages.
        from_start: standard input begins again with the first line that it ever had.

    Raises:
        InputError: if there can be no such file.
    """
    if name == STANDARD_INPUT:
        return StandardInput(0, positions.get(STANDARD_INPUT), taken, say, from_start)
    path = Path(name)
    if path.is_dir():
        return WatchedFolder(path, positions, taken, say)
    if not path.parent.is_dir():
        raise InputError("no such file or folder", file=path, do="check the path, or give - for standard input")
    if not path.exists():
        say(f"waiting for {path}, which is not there yet")
    elif not stat.S_ISREG(path.stat().st_mode):
        raise InputError("is no ordinary file", file=path, do=f"pipe it: remargin fit --stream - < {path}")
    return GrowingFile(path, path.name, positions.get(path.name), taken, say)


class GrowingFile:
    """A file that others append lines to, such as the votes that `remargin serve --collect` keeps.

    Others may also replace it by itself without some of its lines, as votes that are taken back are removed: then the
    place after the lines that were taken is found again.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "votes.jsonl"
        >>> _ = path.write_text("one\\ntwo\\nthr")
        >>> file = GrowingFile(path, "votes.jsonl", None, lambda name: iter(()), print)
        >>> [line.content for line in file.take(10)], file.take(10)  # the last line is not finished
        ([b'one', b'two'], [])
    """

    ended = False

    def __init__(
        self, path: Path, name: str, position: Position | None, taken: Taken, say: Callable[[str], None]
    ) -> None:
        self._path, self._name, self._taken, self._say = path, name, taken, say
        self._last = position
        self._number, self._end = (0, 0) if position is None else (position.number, position.end)
        self._seen: object = None  # the state of the file when it was looked at last

    def take(self, most: int, closing: bool = False) -> list[Line]:
        """The next lines; see `Source.take`."""
        if not self._path.exists():
            return []
        lines: list[Line] = []
        with open(self._path, "rb") as file:
            about = os.fstat(file.fileno())
            now = about.st_ino, about.st_size, about.st_mtime_ns
            if now != self._seen:  # an inode's number may be that of a file that was replaced
                self._find_again(file)
                self._seen = now
            file.seek(self._end)
            while len(lines) < most and (line := self._next(file, closing)) is not None:
                if line.content.strip():
                    lines.append(line)
                self._number, self._end = line.number, line.end
        if lines:
            self._last = Position(*lines[-1][1:5])
        return lines

    def _next(self, file: IO[bytes], closing: bool) -> Line | None:
        """The line that follows, if it is finished."""
        raw = _read_line(file)
        if raw is None or not (raw.finished or (closing and _is_json(raw.content))):
            return None
        return Line(self._name, self._number + 1, self._end + raw.size, raw.size, raw.sum, raw.content)

    def _find_again(self, file: IO[bytes]) -> None:
        """Go to the line after those that were taken, also if some of them are no longer there."""
        last = self._last
        if last is None:
            self._number = self._end = 0
            return
        if last.size <= last.end <= os.fstat(file.fileno()).st_size:
            file.seek(last.end - last.size)
            raw = _read_line(file)
            if raw is not None and (raw.size, raw.sum) == (last.size, last.sum):
                return
        file.seek(0)
        self._number = self._end = kept = 0
        number, known = 0, self._taken(self._name)
        while (raw := _read_line(file)) is not None:
            number += 1
            if raw.content.strip():
                if not any(raw.sum == sum for sum in known):  # goes on after the last that was found
                    break
                kept += 1
            self._number, self._end = number, self._end + raw.size
        self._say(f"{self._path} was replaced: of the lines taken before, {kept:,} are still in it")


class WatchedFolder:
    """A folder into which files of lines (.jsonl) are put. They are taken in the order of their names.

    A file may grow after it was taken. Files whose names begin with a dot are left alone.
    """

    ended = False

    def __init__(self, folder: Path, positions: Positions, taken: Taken, say: Callable[[str], None]) -> None:
        self._folder, self._positions, self._taken, self._say = folder, positions, taken, say
        self._files: dict[str, GrowingFile] = {}

    def take(self, most: int, closing: bool = False) -> list[Line]:
        """The next lines, all of one file; see `Source.take`."""
        names = sorted(entry.name for entry in os.scandir(self._folder) if entry.name.endswith(".jsonl"))
        for name in names:
            if name.startswith("."):
                continue
            if name not in self._files:
                position = self._positions.get(name)
                self._files[name] = GrowingFile(self._folder / name, name, position, self._taken, self._say)
            if lines := self._files[name].take(most, closing):
                return lines
        return []


class StandardInput:
    """Lines that another program writes. They cannot be read twice, so all that were read are handed over at once.

    Args:
        descriptor: the number of the open file: 0.
        position: the last line that was taken before.
        taken: the hashes of all of these.
        say: called with progress messages.
        from_start: the first line is the first of all once more, and those that were taken are left out. Without it,
            the first line is the one that follows them.
    """

    def __init__(
        self,
        descriptor: int,
        position: Position | None,
        taken: Taken,
        say: Callable[[str], None],
        from_start: bool = False,
    ) -> None:
        self._descriptor = descriptor
        self.ended = False
        before = 0 if position is None else position.number
        self._again = taken(STANDARD_INPUT) if from_start else iter(())
        self._number = 0 if from_start else before
        self._before = before
        self._begun = bytearray()  # of a line that is not finished
        self._size = 0  # of that line
        self._hash = hashlib.blake2b(digest_size=8)
        if before:
            then = "are left out" if from_start else "were taken: it goes on with the next one"
            say(f"the first {before:,} lines of standard input {then}")

    def take(self, most: int, closing: bool = False) -> list[Line]:
        """The next lines; see `Source.take`."""
        lines: list[Line] = []
        while not (lines or self.ended) and select.select([self._descriptor], [], [], 0)[0]:
            read = os.read(self._descriptor, AT_ONCE)
            self.ended = not read
            *whole, rest = read.split(b"\n")
            for part in whole:
                lines += self._finish(part + b"\n")
            self._add(rest)
            if self.ended and self._size:
                lines += self._finish(b"")
        return lines

    def _add(self, part: bytes) -> None:
        self._size += len(part)
        self._hash.update(part.rstrip(b"\n"))
        if self._size <= LONGEST_LINE:
            self._begun += part
        else:
            del self._begun[SHOWN:]

    def _finish(self, part: bytes) -> list[Line]:
        """The line that ends here, if it is new and not blank."""
        self._add(part)
        self._number += 1
        content = bytes(self._begun).rstrip(b"\n")
        line = Line(STANDARD_INPUT, self._number, 0, self._size, self._hash.hexdigest(), content)
        self._begun.clear()
        self._size, self._hash = 0, hashlib.blake2b(digest_size=8)
        if not content.strip():
            return []
        if self._number > self._before:
            return [line]
        if next(self._again, None) != line.sum:
            do = "give the same lines again, or leave out --from-start to go on with new ones"
            raise InputError("is another line than when it was taken", file="standard input", line=line.number, do=do)
        return []


class _Raw(NamedTuple):
    """A line as it was read: its size in bytes, its hash, its content or the beginning, and whether it ended."""

    size: int
    sum: str
    content: bytes
    finished: bool


def _read_line(file: IO[bytes]) -> _Raw | None:
    """The next line of a file; None at its end. Of one that is too long, only the beginning is held in memory."""
    part = file.readline(LONGEST_LINE + 1)
    if not part:
        return None
    digest, size, content = hashlib.blake2b(digest_size=8), 0, part.rstrip(b"\n")
    while part:
        digest.update(part.rstrip(b"\n"))
        size += len(part)
        if part.endswith(b"\n"):
            break
        content = content if size <= LONGEST_LINE else content[:SHOWN]
        part = file.readline(LONGEST_LINE + 1)
    return _Raw(size, digest.hexdigest(), content, finished=part.endswith(b"\n"))


def _is_json(content: bytes) -> bool:
    """Whether a line is a whole JSON object, which no longer line begins with."""
    with suppress(ValueError, RecursionError):
        return isinstance(json.loads(content), dict)
    return False
