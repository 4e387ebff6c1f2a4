"""Training triplets: a query, its positive, one or several negatives, and perhaps a teacher's scores."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import numpy as np
from numpy.typing import NDArray

from remargin.data.collection import Collection
from remargin.data.irds import doc_pairs, irds_name
from remargin.data.shuffle import Shuffle
from remargin.data.tables import (
    SKIP,
    Rejects,
    Row,
    delimited_records,
    headless_rows,
    is_number,
    read_rows,
    require_columns,
)
from remargin.errors import InputError
from remargin.files.arrays import map_array, write_array
from remargin.files.checksums import sha256, verify_files
from remargin.files.headers import read_header, write_header
from remargin.files.shapes import Checksums, Count, Size

# The columns of a TSV without a header: texts or ids, and a teacher's scores of ids.
PLAIN = ["query", "positive", "negative"]
SCORED_IDS = ["positive_score", "negative_score", *PLAIN]
# Margins sampled to estimate how large a teacher's margins are.
MARGINS_AT_MOST = 1_000_000


class Batch(NamedTuple):
    """Some triplets as row numbers: queries (B,), positives (B,), negatives (B, k), and scores (B, 1 + k) if any."""

    queries: NDArray[np.uint32]
    positives: NDArray[np.uint32]
    negatives: NDArray[np.uint32]
    scores: NDArray[np.float32] | None


class TripletsHeader(TypedDict):
    """How many `Triplets` there are, of how many negatives, and whether they have scores."""

    format: str
    count: Count
    negatives: Size
    scores: bool
    sha256: Checksums


class Triplets:
    """Triplets as row numbers into a store of queries and a store of documents, memory-mapped.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp()) / "triplets"
        >>> triplets = Triplets.write(folder, [[0, 5, 3], [1, 2, 4]], scores=[[9.0, 1.5], [7.0, 2.0]])
        >>> len(triplets), triplets.take([1]).negatives.tolist(), triplets.take([1]).scores.tolist()
        (2, [[4]], [[7.0, 2.0]])
    """

    FORMAT = "remargin-triplets-1"
    REMEDY = "run `remargin prepare` again"

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.header = read_header(self.folder / "header.json", TripletsHeader, self.FORMAT, self.REMEDY)
        count, self.negatives = self.header["count"], self.header["negatives"]
        self._rows = map_array(self.folder / "rows.bin", np.uint32, (count, 2 + self.negatives))
        self._scores = None
        if self.header["scores"]:
            self._scores = map_array(self.folder / "scores.bin", np.float32, (count, 1 + self.negatives))

    @classmethod
    def write(cls, folder: Path, rows: Any, scores: Any = None) -> Triplets:
        """Triplets from an array of rows: query, positive, negatives."""
        writer = TripletWriter(folder)
        writer.add(np.asarray(rows, np.uint32), None if scores is None else np.asarray(scores, np.float32))
        writer.close()
        return cls(folder)

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def queries(self) -> NDArray[np.uint32]:
        """The query of every triplet, not read before it is used."""
        return self._rows[:, 0]

    def take(self, positions: Sequence[int] | NDArray[np.integer[Any]]) -> Batch:
        """The triplets at some positions."""
        positions = np.asarray(positions, np.int64)
        rows = np.asarray(self._rows[positions])
        scores = None if self._scores is None else np.asarray(self._scores[positions])
        return Batch(rows[:, 0], rows[:, 1], rows[:, 2:], scores)

    def large_margin(self) -> float | None:
        """The 99th percentile of the teacher's absolute margins, of a sample if there are many; None without scores."""
        count, most = len(self), max(1, MARGINS_AT_MOST // self.negatives)
        rows = np.arange(count) if count <= most else np.sort(Shuffle(count, seed=0)(np.arange(most)))
        scores = self.take(rows).scores
        return None if scores is None else float(np.percentile(np.abs(scores[:, :1] - scores[:, 1:]), 99))

    def verify(self) -> None:
        """Read every byte and compare with the checksums in the header."""
        verify_files(self.folder, self.header["sha256"], self.REMEDY)


class TripletWriter:
    """Fills a folder with `Triplets`, batch by batch."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        (folder / "rows.bin").touch()
        self._width = 0
        self._has_scores = False
        self.count = 0

    def add(self, rows: NDArray[np.uint32], scores: NDArray[np.float32] | None) -> None:
        """Append triplets of the same width as before, with scores if those before had them."""
        if rows.ndim != 2 or rows.shape[1] < 3:
            raise ValueError(f"rows {rows.shape}: query, positive and at least one negative in each")
        if scores is not None and scores.shape != (len(rows), rows.shape[1] - 1):
            raise ValueError(f"scores {scores.shape} for rows {rows.shape}: one for the positive and each negative")
        if self.count and (rows.shape[1], scores is not None) != (self._width, self._has_scores):
            raise ValueError("triplets of different widths, or scores on only some")
        self._width, self._has_scores = rows.shape[1], scores is not None
        self.count += len(rows)
        for name, array in (("rows.bin", rows), ("scores.bin", scores)):
            if array is not None:
                with open(self._folder / name, "ab") as file:
                    write_array(file, array)

    def close(self) -> TripletsHeader:
        """Write the header; returns it."""
        files = ["rows.bin", "scores.bin"] if self._has_scores else ["rows.bin"]
        header: TripletsHeader = {
            "format": Triplets.FORMAT,
            "count": self.count,
            "negatives": self._width - 2,
            "scores": self._has_scores,
            "sha256": {name: sha256(self._folder / name) for name in files},
        }
        write_header(self._folder / "header.json", header)
        return header


class TripletText(NamedTuple):
    """One triplet as read: texts, or ids over a collection; the negatives; scores of the positive and each negative."""

    query: str
    positive: str
    negatives: list[str]
    scores: list[float] | None
    line: int


def read_triplets(path: Path, rejects: Rejects, ids: bool) -> tuple[bool, Iterator[TripletText]]:
    """Triplets of a table or of ir_datasets, one by one, and whether they are ids over a collection (else texts).

    `irds:NAME` is a data set of ir_datasets with docpairs, which are triplets of ids.

    Columns of a table: `query`, `positive`, `negative` for texts, `query_id`, `positive_id`, `negative_id` for ids;
    several negatives as `negative_1`, `negative_2`, or as a list in JSONL and Parquet. Optional: `positive_score` and
    `negative_score` (`negative_score_1`, ...), or a list `scores`, the positive's first. A TSV without a header that
    has three columns is query, positive, negative: taken for ids or texts as the argument `ids` says. One of five, the
    first two of them numbers, is the format published for MS MARCO: positive_score, negative_score, query_id,
    positive_id, negative_id.
    """
    if (name := irds_name(path)) is not None:
        return True, _numbered_pairs(name, doc_pairs(name), rejects)
    names = _headless(path) if path.name.removesuffix(".gz").endswith(".tsv") else None
    if names is not None:
        return ids or names == SCORED_IDS, _parsed(path, headless_rows(path, rejects, names), "", rejects)
    rows = read_rows(path, rejects)
    first = next(rows, None)
    if first is None:
        raise InputError("no triplets in it", file=path, do="give a table with at least one row")
    suffix = "_id" if "query_id" in first.values else ""
    do = "triplets need query, positive and negative, or query_id, positive_id and negative_id"
    require_columns(path, first, [f"query{suffix}", f"positive{suffix}"], do)
    if not (_negative_columns(first.values, suffix)):
        require_columns(path, first, [f"negative{suffix}"], do)
    return bool(suffix), _parsed(path, itertools.chain([first], rows), suffix, rejects)


def _numbered_pairs(name: str, pairs: Iterator[tuple[str, str, str]], rejects: Rejects) -> Iterator[TripletText]:
    for number, (query, positive, negative) in enumerate(pairs, 1):
        if positive == negative:
            problem = "its positive is also its negative"
            rejects.add(InputError(problem, file=f"irds:{name}", line=number, id=positive, do=SKIP))
        else:
            yield TripletText(query, positive, [negative], None, number)


def require_triplets(path: Path) -> None:
    """Refuse triplets that are not there, before any work.

    Args:
        path: a table, or `irds:NAME`.
    """
    if (name := irds_name(path)) is not None:
        doc_pairs(name)
    elif not path.is_file():
        raise InputError("no such file", file=path, do="check the path")


def triplets_hash(path: Path) -> str:
    """What tells triplets from others: the hash of a table, the name of a data set, whose downloads have checksums."""
    require_triplets(path)
    return str(path) if irds_name(path) is not None else sha256(path)


def read_id_triplets(path: Path, rejects: Rejects, collection: Collection | None = None) -> Iterator[TripletText]:
    """Triplets of ids, of a table or of ir_datasets. Triplets with ids that the collection lacks go to `rejects`."""
    are_ids, triplets = read_triplets(path, rejects, ids=True)
    if not are_ids:
        do = "give query_id, positive_id and negative_id, as `remargin mine` writes them"
        raise InputError("these triplets are texts, not ids", file=path, do=do)
    for triplet in triplets:
        unknown = None if collection is None else _unknown(triplet, collection)
        if unknown is None:
            yield triplet
        else:
            problem, id = unknown
            rejects.add(InputError(problem, file=path, line=triplet.line, id=id, do=SKIP))


def _unknown(triplet: TripletText, collection: Collection) -> tuple[str, str] | None:
    """The problem of a triplet whose query or document the collection lacks, and that id; None if it has both."""
    if triplet.query not in collection.queries:
        return f"query is not in the collection's {collection.split} split", triplet.query
    for id in (triplet.positive, *triplet.negatives):
        if id not in collection.documents:
            return "document is not in the collection", id
    return None


def _headless(path: Path) -> list[str] | None:
    """The columns of a TSV whose first line is no header; None if it is one."""
    _, first = next(delimited_records(path, Rejects(skip=True), "\t"), (1, []))
    if len(first) == len(SCORED_IDS) and all(map(is_number, first[:2])):
        return SCORED_IDS
    if len(first) != len(PLAIN) or {name.strip().removesuffix("_id") for name in first} & {"query", "positive"}:
        return None
    return PLAIN


def _parsed(path: Path, rows: Iterable[Row], suffix: str, rejects: Rejects) -> Iterator[TripletText]:
    expected: tuple[int, bool] | None = None
    for row in rows:
        try:
            triplet = _parse(row, suffix)
        except ValueError as error:
            rejects.add(InputError(str(error), file=path, line=row.line, do=SKIP))
            continue
        shape = (len(triplet.negatives), triplet.scores is not None)
        if expected not in (None, shape):
            problem = f"{_described(shape)}, but the first triplet has {_described(expected or shape)}"
            rejects.add(InputError(problem, file=path, line=row.line, do=SKIP))
            continue
        expected = shape
        yield triplet


def _described(shape: tuple[int, bool]) -> str:
    count, scores = shape
    return f"{count} {'negative' if count == 1 else 'negatives'} {'with' if scores else 'without'} scores"


def _parse(row: Row, suffix: str) -> TripletText:
    values = row.values
    query, positive = (_text(values.get(name + suffix), name + suffix) for name in ("query", "positive"))
    name = f"negative{suffix}"
    negatives = []
    for column in _negative_columns(values, suffix):
        given = values[column]
        negatives += [_text(text, column) for text in (given if isinstance(given, list) else [given])]
    if not negatives:
        raise ValueError(f"no {name!r} in it")
    if positive in negatives:
        raise ValueError("its positive is also its negative")
    return TripletText(query, positive, negatives, _scores(values, len(negatives)), row.line)


def _negative_columns(values: dict[str, Any], suffix: str) -> list[str]:
    """The column of negatives, or several if they are numbered."""
    whole = [name for name in ("negative_ids" if suffix else "negatives", f"negative{suffix}") if name in values]
    return whole[:1] or _numbered(values, f"negative{suffix}")


def _scores(values: dict[str, Any], negatives: int) -> list[float] | None:
    given = values.get("scores")
    if given is None:
        columns = ["negative_score"] if "negative_score" in values else _numbered(values, "negative_score")
        if "positive_score" not in values and not columns:
            return None
        if "positive_score" not in values:
            raise ValueError(f"there is {columns[0]!r} but no 'positive_score'")
        given = [values["positive_score"], *(values[column] for column in columns)]
    if not isinstance(given, list) or len(given) != 1 + negatives:
        names = "positive_score, negative_score" + ("_1, negative_score_2, ..." if negatives > 1 else "")
        raise ValueError(f"scores must be {1 + negatives} numbers: a list `scores`, or columns {names}")
    try:
        scores = [float(score) for score in given]
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"scores {given} are not all numbers") from None
    with np.errstate(over="ignore"):
        finite = np.isfinite(np.array(scores, np.float32)).all()
    if not finite:
        raise ValueError(f"scores {given} are not all finite")
    return scores


def _numbered(values: dict[str, Any], name: str) -> list[str]:
    columns = {int(m[1]): column for column in values if (m := re.fullmatch(rf"{re.escape(name)}_(\d+)", column))}
    return [columns[number] for number in sorted(columns)]


def _text(value: Any, name: str) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)  # ids are often numbers in JSON and Parquet
    if not isinstance(value, str):
        raise ValueError(f"no column {name!r}, or not text in it")
    if not value.strip():
        raise ValueError(f"empty {name!r}")
    return value.strip()
