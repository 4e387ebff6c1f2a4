"""A teacher's scores of pairs in a file of their own: a table, or a TREC run file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from remargin.data.tables import (
    SKIP,
    Rejects,
    Row,
    delimited_records,
    headless_rows,
    read_lines,
    read_rows,
    require_columns,
)
from remargin.errors import InputError

COLUMNS = ["query_id", "document_id", "score"]
TABLES = (".tsv", ".csv", ".jsonl", ".ndjson", ".parquet", ".pq")
LARGEST = float(np.finfo(np.float32).max)
RUN = "query, Q0, document, rank, score, tag"


class PairScore(NamedTuple):
    """A teacher's score for a query and a document, and the line it was read from."""

    query: str
    document: str
    score: float
    line: int


def read_teacher_scores(path: Path, rejects: Rejects) -> Iterator[PairScore]:
    """Scores of a table with the columns query_id, document_id and score (TSV, CSV, JSONL or Parquet), one by one.

    A TSV of three columns needs no header if the third is a number. A file of any other name is a TREC run file.

    Example:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp()) / "run.trec"
        >>> _ = file.write_text("q1 Q0 d7 1 8.25 teacher\\n")
        >>> list(read_teacher_scores(file, Rejects()))
        [PairScore(query='q1', document='d7', score=8.25, line=1)]
    """
    kind = Path(path.name.removesuffix(".gz")).suffix.lower()
    if kind not in TABLES:
        rows = _run_rows(path, rejects)
    elif kind == ".tsv" and _headless(path):
        rows = headless_rows(path, rejects, COLUMNS)
    else:
        rows = read_rows(path, rejects)
    empty = True
    for row in rows:
        if empty:
            require_columns(path, row, COLUMNS, "scores need query_id, document_id and score")
            empty = False
        try:
            query, document = (_id(row.values[name]) for name in COLUMNS[:2])
            yield PairScore(query, document, _score(row.values["score"]), row.line)
        except (KeyError, ValueError) as error:
            problem = f"no {error}" if isinstance(error, KeyError) else str(error)
            rejects.add(InputError(problem, file=path, line=row.line, do=SKIP))
    if empty:
        raise InputError("no scores in it", file=path, do=rejects.describe() or "give a table with at least one row")


def _headless(path: Path) -> bool:
    _, first = next(delimited_records(path, Rejects(skip=True), "\t"), (1, []))
    try:
        _score(first[2])
    except (IndexError, ValueError):
        return False
    return len(first) == len(COLUMNS)


def _run_rows(path: Path, rejects: Rejects) -> Iterator[Row]:
    for line, text in read_lines(path, rejects):
        fields = text.split()
        if len(fields) == 6:
            yield Row(line, dict(zip(COLUMNS, (fields[0], fields[2], fields[4]), strict=True)))
        elif fields:
            problem = f"{len(fields)} columns instead of 6 ({RUN})"
            rejects.add(InputError(problem, file=path, line=line, do=SKIP))


def _id(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)  # ids are often numbers in JSON and Parquet
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{value!r} is no id")
    return value.strip()


def _score(value: Any) -> float:
    """A number that float32 holds."""
    try:
        score = float(value)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"score {value!r} is not a number") from None
    if not abs(score) <= LARGEST:
        raise ValueError(f"score {value!r} is not a finite number")
    return score
