"""What was taken of a stream, line by line, before anything is done with it; and the lines that are malformed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, TypedDict

from remargin.errors import InputError, printable
from remargin.files.appended import Appended
from remargin.files.atomic import new_file
from remargin.files.shapes import Count, Size
from remargin.training.streaming.examples import Example, parse
from remargin.training.streaming.sources import Line, Position

JOURNAL, REJECTS = "stream.jsonl", "rejects.jsonl"
REMEDY = "start another training run: what it had taken of the stream is not known for certain"
Kind = Literal["example", "against", "malformed"]
FREE = 10  # malformed lines that stop nothing
MOST_REJECTS = 0.1


class Entry(TypedDict):
    """A line as it was taken.

    Attributes:
        source, number, end, size, sum: as in `Line`.
        kind: what it holds; "against" for a vote against a document.
        text: its text.
        problem: what is wrong with it, if it is malformed.
    """

    source: str
    number: Size
    end: Count
    size: Size
    sum: str
    kind: Kind
    text: str
    problem: str


class Taken(NamedTuple):
    """An example of the stream, and where it is in the journal.

    Attributes:
        place: the byte where it begins in the journal.
        number: of the line in the journal, from 1.
        example: what it holds.
    """

    place: int
    number: int
    example: Example


class StreamJournal:
    """Keeps each line of a stream on disk before it is used, so that none is lost and none is taken twice.

    What training read, and what it reads after it was killed, comes from here and not from the source.

    Args:
        folder: of the training run.
        read: makes an example of a line, None of a vote against a document; raises an InputError for a malformed line.
        most_rejects: the share of malformed lines from which on the stream is stopped; the first ten are free, unless
            the share is 0.

    Raises:
        InputError: if the journal is damaged.

    Example:
        >>> import tempfile
        >>> journal = StreamJournal(Path(tempfile.mkdtemp()), parse)
        >>> journal.add([Line("-", 1, 0, 9, "", b'{"query": "q", "document": "d"}'), Line("-", 2, 0, 5, "", b"what?")])
        >>> journal.examples, journal.rejected, journal.positions["-"].number
        (1, 1, 2)
        >>> [taken and taken.example.query for _, taken in journal.read_on(0)]
        ['q', None]
    """

    def __init__(
        self, folder: Path, read: Callable[[str], Example | None] = parse, most_rejects: float = MOST_REJECTS
    ) -> None:
        self._file = Appended(folder / JOURNAL, Entry, REMEDY)
        self._read, self._most_rejects = read, most_rejects
        self.positions: dict[str, Position] = {}
        self.lines = self.examples = self.rejected = self.against = 0
        for stored in self._file.scan():
            self._count(stored.entry)
        self._rejects = folder / REJECTS
        self._complete_rejects()

    def add(self, lines: Sequence[Line]) -> None:
        """Keep lines that were taken. When this returns, they are on disk.

        Raises:
            InputError: if too many lines of the stream are malformed.
        """
        if not lines:
            return
        entries = [self._entry(line) for line in lines]
        self._file.append(entries)
        for entry in entries:
            self._count(entry)
        rejects = [entry for entry in entries if entry["kind"] == "malformed"]
        if rejects:
            with open(self._rejects, "ab") as file:
                file.writelines(map(_reject_line, rejects))
            self._require_few(rejects[-1])

    def read_on(self, place: int, number: int = 0) -> Iterator[tuple[int, Taken | None]]:
        """The lines from a place in the journal on, each with the byte that follows it.

        There is no example for those from which nothing is learnt.

        Args:
            place: the byte where the first of them begins.
            number: how many lines there are before it.
        """
        for count, stored in enumerate(self._file.scan(place), start=number + 1):
            if stored.entry["kind"] == "example":
                yield stored.end, Taken(stored.start, count, self._example(stored.entry))
            else:
                yield stored.end, None

    def example_at(self, place: int) -> Example:
        """The example that begins at a byte of the journal."""
        return self._example(self._file.read(place))

    @property
    def path(self) -> Path:
        """Its file."""
        return self._file.path

    @property
    def end(self) -> int:
        """How many bytes it has."""
        return self._file.end

    def sums(self, source: str) -> Iterator[str]:
        """The hashes of all lines that were taken of a source, in order."""
        return (stored.entry["sum"] for stored in self._file.scan() if stored.entry["source"] == source)

    def _entry(self, line: Line) -> Entry:
        text, problem = line.content.decode("utf-8-sig", errors="replace"), ""
        kind: Kind = "example"
        try:
            if line.too_long:
                raise InputError(f"too long: {line.size:,} bytes")
            try:
                line.content.decode()
            except UnicodeDecodeError as error:
                raise InputError(f"not UTF-8 (byte {error.object[error.start]:#04x})") from None
            if self._read(text) is None:
                kind = "against"
        except InputError as error:
            kind, problem = "malformed", f"id {error.id!r}: {error.problem}" if error.id else error.problem
        return {
            "source": line.source,
            "number": line.number,
            "end": line.end,
            "size": line.size,
            "sum": line.sum,
            "kind": kind,
            "text": text,
            "problem": printable(problem),
        }

    def _example(self, entry: Entry) -> Example:
        example = self._read(entry["text"])
        if example is None:
            problem = f"line {entry['number']:,} of {entry['source']} is kept as an example, which it is not"
            raise InputError(problem, file=self.path, do=REMEDY)
        return example

    def _count(self, entry: Entry) -> None:
        self.lines += 1
        self.examples += entry["kind"] == "example"
        self.rejected += entry["kind"] == "malformed"
        self.against += entry["kind"] == "against"
        self.positions[entry["source"]] = Position(entry["number"], entry["end"], entry["size"], entry["sum"])

    def _complete_rejects(self) -> None:
        """Write the file of malformed lines anew if a kill left it behind the journal."""
        if self._rejects.exists():
            with open(self._rejects, "rb") as file:
                if sum(line.endswith(b"\n") for line in file) == self.rejected:
                    return
        with new_file(self._rejects, overwrite=True) as out:
            for stored in self._file.scan():
                if stored.entry["kind"] == "malformed":
                    out.write(_reject_line(stored.entry))

    def _require_few(self, last: Entry) -> None:
        allowed = self._most_rejects * self.lines + (FREE if self._most_rejects else 0)
        if self.rejected > allowed:
            file = "standard input" if last["source"] == "-" else last["source"]
            problem = f"{self.rejected:,} of {self.lines:,} lines are malformed, the last one: {last['problem']}"
            do = f"see {self._rejects}; correct what writes the lines, and resume, or allow more (--most-rejects)"
            raise InputError(problem, file=file, line=last["number"], do=do)


def _reject_line(entry: Entry) -> bytes:
    kept = {"source": entry["source"], "line": entry["number"], "problem": entry["problem"], "text": entry["text"]}
    return json.dumps(kept, ensure_ascii=False).encode() + b"\n"
