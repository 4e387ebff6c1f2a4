"""Votes of people on results, in files that `fit` can train on.

A thumb up is a line of the file that was named, with the query, the document and its id: `--data pairs:votes.jsonl`
takes these lines as pairs. A thumb down is a line of another file beside it, votes.down.jsonl, so that none is taken
for a pair. Lines are appended and flushed to disk one by one. If somebody takes a vote back, the line is removed.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from remargin.data.tables import LONGEST_LINE
from remargin.errors import InputError
from remargin.files.atomic import naming, new_file, refuse_existing

log = logging.getLogger(__name__)
Grade = Literal[1, 0, -1]
MOST = 1_000_000  # votes that are kept
LONGEST_DOCUMENT = 1 << 20  # characters; a line with a longer document is refused


class Judgments:
    """Collects votes; one vote for each query and document, the last one.

    Args:
        path: the JSONL file of the votes for a document; the votes against one are in NAME.down.jsonl beside it. They
            may be there already, from an earlier time.

    Raises:
        InputError: if one of the files is something else, or another server writes it.

    Example:
        >>> import tempfile
        >>> judgments = Judgments(Path(tempfile.mkdtemp()) / "votes.jsonl")
        >>> judgments.vote("how do margins adapt?", "d1", "They adapt.", 1, "after")
        >>> judgments.vote("how do margins adapt?", "d2", "Nothing.", -1, "after")
        >>> json.loads(judgments.path.read_text())["document"], judgments.down.name
        ('They adapt.', 'votes.down.jsonl')
        >>> judgments.of("how do margins adapt?")
        {'d1': 1, 'd2': -1}
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.down = self.path.with_name(f"{self.path.stem}.down{self.path.suffix}")
        if self.path.suffix != ".jsonl":
            raise InputError("votes are written as JSONL", file=path, do="choose a name that ends in .jsonl")
        refuse_existing(self.path, overwrite=True)
        refuse_existing(self.down, overwrite=True)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._held = _hold(self.path)
        self._lock = threading.Lock()
        self._votes: dict[str, dict[str, int]] = {}  # by query, by document
        self._count = 0
        try:
            for file, grade in ((self.path, 1), (self.down, -1)):
                for query, id in _read(file):
                    self._count += id not in self._votes.setdefault(query, {})
                    self._votes[query][id] = grade
        except BaseException:
            self.close()  # whoever corrects the file can try again
            raise

    def close(self) -> None:
        """Let another server write the files."""
        os.close(self._held)

    def of(self, query: str) -> dict[str, int]:
        """The votes on the documents of a query: 1 or -1."""
        with self._lock:
            return dict(self._votes.get(query, {}))

    def vote(self, query: str, id: str, document: str, grade: Grade, system: str) -> None:
        """Keep a vote for (1) or against (-1) a document, or take an earlier one back (0).

        Raises:
            InputError: if there are too many votes, or the document is too long for a line.
            OSError: if the disk is full; nothing is kept then.
        """
        row = {"query": query, "document": document, "document_id": id, "grade": grade, "system": system}
        line = json.dumps({**row, "time": datetime.now(UTC).isoformat(timespec="seconds")}, ensure_ascii=False) + "\n"
        if len(document) > LONGEST_DOCUMENT:
            raise InputError(f"the document has {len(document):,} characters", id=id, do="vote on shorter ones")
        with self._lock:
            votes = self._votes.setdefault(query, {})
            before = votes.get(id, 0)
            if before == grade:
                return
            if self._count >= MOST and not before:
                raise InputError(f"{MOST:,} votes are kept already", do="name another file (--collect)")
            if before:
                _remove(self._file(before), query, id)
                del votes[id]
                self._count -= 1
            if grade:
                _append(self._file(grade), line)
                votes[id] = grade
                self._count += 1

    def _file(self, grade: int) -> Path:
        return self.path if grade > 0 else self.down


def _hold(path: Path) -> int:
    """Keep other servers from writing the files as long as this process lives."""
    descriptor = os.open(path.with_name(f".{path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise InputError("another server collects votes in it", file=path, do="name another file") from None
    return descriptor


def _append(path: Path, line: str) -> None:
    """Write a line at the end and wait until it is on disk; all of it, or nothing."""
    with naming(path), open(path, "ab") as file:
        size = file.tell()
        try:
            file.write(line.encode())
            file.flush()
            os.fsync(file.fileno())
        except OSError:
            os.truncate(path, size)
            raise


def _remove(path: Path, query: str, id: str) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    with new_file(path, overwrite=True) as file:
        file.writelines(line for line in lines if _vote(line) != (query, id))


def _vote(line: bytes) -> tuple[str, str] | None:
    """The query and the document's id of a line; None if the line is no vote."""
    try:
        row = json.loads(line) if len(line) <= LONGEST_LINE else None
    except (RecursionError, ValueError):
        return None
    names = ("query", "document_id")
    if not isinstance(row, dict) or not all(isinstance(row.get(name), str) for name in names):
        return None
    return row["query"], row["document_id"]


def _read(path: Path) -> list[tuple[str, str]]:
    """The votes in a file. A last line that a crash left unfinished is cut off, and a warning says so."""
    lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    last = lines.pop() if lines and not lines[-1].endswith(b"\n") else None
    votes = []
    for number, line in enumerate(lines, start=1):
        if (vote := _vote(line)) is None:
            raise InputError("not a vote that remargin wrote", file=path, line=number, do="name another file")
        votes.append(vote)
    if last is not None and (vote := _vote(last)) is not None:
        _append(path, "\n")
        votes.append(vote)
    elif last is not None:
        log.warning("%s: the last line was not finished, and was removed", path)
        os.truncate(path, path.stat().st_size - len(last))
    return votes
