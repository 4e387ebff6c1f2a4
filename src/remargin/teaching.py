"""A teacher's scores for triplets: by a cross-encoder, or from a file."""

from __future__ import annotations

import hashlib
import itertools
import json
import shutil
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from remargin.cross_encoder import CrossEncoder, Pair
from remargin.data.collection import Collection
from remargin.data.scores import PairScore, read_scores
from remargin.data.tables import SKIP, Rejects, batches
from remargin.data.tokens import LONGER
from remargin.data.triplets import read_id_triplets
from remargin.errors import InputError
from remargin.files import locked, new_file, refuse_existing
from remargin.progress import track

FORMAT = "remargin-teaching-1"
PAIRS_AT_ONCE = 16_384  # in each part of the work, which is not done again once it is done
NOWHERE = np.iinfo(np.uint64).max  # the key of a pair that no triplet has


@dataclass
class Taught:
    """What `teach` wrote, and what that cost.

    Attributes:
        triplets: how many got scores, with so many `negatives` each.
        pairs: distinct pairs of query and document among them, each scored once.
        truncated: pairs whose document the teacher did not read to its end.
        rejected: bad input that was skipped; `first_reject` is the first of it.
        seconds: all the time it took, also that of a run that was killed.
        teacher: the cross-encoder or the file of scores.
        teacher_seconds: what its own training took, if we trained it.
    """

    triplets: int
    negatives: int
    pairs: int
    truncated: int
    rejected: int
    first_reject: str | None
    seconds: float
    pairs_per_second: float
    teacher: str
    teacher_seconds: float | None


def teach(
    triplets: str | Path,
    out: str | Path,
    teacher: CrossEncoder | str | Path,
    collection: Collection | None = None,
    skip_bad: bool = False,
    overwrite: bool = False,
) -> Taught:
    """Write a table of triplets with a teacher's scores: of the positive, and of each negative.

    Each distinct pair of query and document is scored once. A run that was killed goes on with the pairs that it had
    not finished: what it had done lies in a folder beside `out` until all is there. What it cost is written beside
    `out` too, as `out`.json.

    Args:
        triplets: a table of ids, as `mine` writes it; see `read_triplets`. Scores that it has already are replaced.
        out: a .tsv file, gzipped if it ends in .gz.
        teacher: a cross-encoder, or a file of scores; see `read_scores`.
        collection: the texts that a cross-encoder reads.
        skip_bad: leave triplets out that cannot be scored, and count them.
        overwrite: replace `out` if it is there.

    Raises:
        InputError: for bad input, with its file, line and id: an unknown id, a pair without a score, a query that
            leaves no room for a document.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> _ = (folder / "triplets.tsv").write_text("q1\\td1\\td2\\n")
        >>> _ = (folder / "scores.tsv").write_text("q1\\td1\\t8.5\\nq1\\td2\\t-1.5\\n")
        >>> teach(folder / "triplets.tsv", folder / "scored.tsv", folder / "scores.tsv").pairs
        2
        >>> (folder / "scored.tsv").read_text().splitlines()[1].split("\\t")
        ['q1', 'd1', 'd2', '8.5', '-1.5']
    """
    started = time.perf_counter()
    path, out = Path(triplets), Path(out)
    _claim(out, overwrite)
    rejects = Rejects(skip=skip_bad)
    work: _Work
    if isinstance(teacher, CrossEncoder):
        if collection is None:
            raise InputError("a cross-encoder reads texts", do="name the collection that has them (--data)")
        if teacher.untrained:
            do = "name a cross-encoder, or train one (--train-from)"
            raise InputError(f"{teacher.name} has no trained head for scores", do=do)
        table = _without_long_queries(_Table.read(path, rejects, collection), teacher, collection, rejects)
        work = _score(table, teacher, collection, out)
    else:
        table = _Table.read(path, rejects)
        work = _join(table, Path(teacher), rejects)
    table, scores = _with_scores(table, work, teacher, rejects)
    with new_file(out, overwrite) as file:
        for lines in table.lines_with(scores):
            file.write(lines)
        pairs = len(np.unique(table.keys()))
        seconds = time.perf_counter() - started + work.seconds_before
        taught = Taught(
            triplets=len(table.rows),
            negatives=table.rows.shape[1] - 2,
            pairs=pairs,
            truncated=work.truncated,
            rejected=len(rejects.errors),
            first_reject=str(rejects.errors[0]) if rejects.errors else None,
            seconds=round(seconds, 3),
            pairs_per_second=round(pairs / seconds, 1),
            teacher=teacher.name if isinstance(teacher, CrossEncoder) else str(teacher),
            teacher_seconds=_own_seconds(teacher),
        )
        with new_file(report_of(out), overwrite=True) as report:
            report.write(json.dumps({"format": FORMAT, **asdict(taught)}, indent=1).encode() + b"\n")
    if work.parts is not None:
        shutil.rmtree(work.parts)
    return taught


def report_of(out: Path) -> Path:
    """Where `teach` writes what it cost.

    >>> report_of(Path("runs/scored.tsv")).name
    'scored.tsv.json'
    """
    return out.with_name(f"{out.name}.json")


def _claim(out: Path, overwrite: bool) -> None:
    """Refuse, at once, a place that cannot be read again or that belongs to someone else."""
    if not out.name.removesuffix(".gz").endswith(".tsv"):
        raise InputError("the table to write is a .tsv or .tsv.gz", file=out, do="name it so")
    refuse_existing(out, overwrite)
    report = report_of(out)
    if report.exists():
        try:
            ours = json.loads(report.read_text(encoding="utf-8")).get("format") == FORMAT
        except (OSError, ValueError, AttributeError):
            ours = False
        if not ours:
            raise InputError("exists and is not ours to overwrite", file=report, do="choose another place")


def _own_seconds(teacher: CrossEncoder | str | Path) -> float | None:
    return teacher.trained.get("seconds") if isinstance(teacher, CrossEncoder) and teacher.trained else None


@dataclass
class _Work:
    """Distinct pairs by key, ascending, their scores (NaN where there is none), and what they cost."""

    keys: NDArray[np.uint64]
    scores: NDArray[np.float32]
    truncated: int = 0
    seconds_before: float = 0.0
    parts: Path | None = None


@dataclass
class _Table:
    """Triplets of ids as numbers: rows of query, positive and negatives, and the lines that they came from."""

    path: Path
    queries: dict[str, int]
    documents: dict[str, int]
    rows: NDArray[np.uint32]
    lines: NDArray[np.uint32]

    @classmethod
    def read(cls, path: Path, rejects: Rejects, collection: Collection | None = None) -> _Table:
        """All triplets of a table. Each id gets a number when it first appears."""
        queries: dict[str, int] = {}
        documents: dict[str, int] = {}
        rows, lines = [], []
        for batch in batches(track(read_id_triplets(path, rejects, collection), "triplets")):
            found = [
                [queries.setdefault(t.query, len(queries))]
                + [documents.setdefault(id, len(documents)) for id in (t.positive, *t.negatives)]
                for t in batch
            ]
            rows.append(np.array(found, np.uint32))
            lines.append(np.array([t.line for t in batch], np.uint32))
        if not rows:
            raise InputError("no usable triplets in it", file=path, do=rejects.first())
        return cls(path, queries, documents, np.concatenate(rows), np.concatenate(lines))

    def keep(self, wanted: NDArray[np.bool_], rejects: Rejects) -> _Table:
        """Only some of the triplets, but not none."""
        if not wanted.any():
            raise InputError("no usable triplets in it", file=self.path, do=rejects.first())
        return _Table(self.path, self.queries, self.documents, self.rows[wanted], self.lines[wanted])

    def keys(self) -> NDArray[np.uint64]:
        """The key of each pair of a query and a document, (n, 1 + k)."""
        return self.rows[:, :1].astype(np.uint64) * np.uint64(len(self.documents)) + self.rows[:, 1:]

    def lines_with(self, scores: NDArray[np.float32]) -> Iterator[bytes]:
        """The table to write, header first, some lines at a time."""
        count = self.rows.shape[1] - 2
        numbers = [""] if count == 1 else [f"_{i + 1}" for i in range(count)]
        names = ["query_id", "positive_id", *(f"negative_id{n}" for n in numbers)]
        yield "\t".join([*names, "positive_score", *(f"negative_score{n}" for n in numbers)]).encode() + b"\n"
        queries, documents = list(self.queries), list(self.documents)
        for start in range(0, len(self.rows), 65_536):
            some = slice(start, start + 65_536)
            lines = (
                "\t".join([queries[query], *(documents[d] for d in of_query), *(f"{s:.9g}" for s in of_scores)]) + "\n"
                for (query, *of_query), of_scores in zip(self.rows[some].tolist(), scores[some].tolist(), strict=True)
            )
            yield "".join(lines).encode()


def _without_long_queries(table: _Table, teacher: CrossEncoder, collection: Collection, rejects: Rejects) -> _Table:
    too_long = set(teacher.too_long({id: collection.queries[id] for id in table.queries}))
    fits = np.array([id not in too_long for id in table.queries])[table.rows[:, 0]]
    queries = list(table.queries)
    for row in np.flatnonzero(~fits).tolist():
        problem = f"query leaves no room for a document in {teacher.length} tokens"
        id = queries[table.rows[row, 0]]
        rejects.add(InputError(problem, file=table.path, line=int(table.lines[row]), id=id, do=LONGER))
    return table.keep(fits, rejects)


def _with_scores(
    table: _Table, work: _Work, teacher: CrossEncoder | str | Path, rejects: Rejects
) -> tuple[_Table, NDArray[np.float32]]:
    """The triplets of which all pairs have scores, and those. The others go to `rejects`."""
    scores = work.scores[np.searchsorted(work.keys, table.keys())]
    lacking: NDArray[np.bool_] = np.isnan(scores)
    queries, documents = list(table.queries), list(table.documents)
    whole = lacking.sum(1) == 0
    for row in np.flatnonzero(~whole).tolist():
        document = documents[table.rows[row, 1 + int(lacking[row].argmax())]]
        problem = f"no score for its document {document!r} in {teacher}"
        id = queries[table.rows[row, 0]]
        rejects.add(InputError(problem, file=table.path, line=int(table.lines[row]), id=id, do=SKIP))
    return table.keep(whole, rejects), scores[whole]


def _join(table: _Table, path: Path, rejects: Rejects) -> _Work:
    """Scores from a file, of which only those are kept that the triplets need."""
    keys = np.unique(table.keys())
    scores = np.full(len(keys), np.nan, np.float32)
    for batch in batches(track(read_scores(path, rejects), "scores")):
        wanted = np.array([_key(pair, table) for pair in batch], np.uint64)
        places = np.searchsorted(keys, wanted) % len(keys)
        for number in np.flatnonzero(keys[places] == wanted).tolist():
            pair, place = batch[number], places[number]
            if np.isnan(scores[place]):
                scores[place] = pair.score
                continue
            problem = f"its document {pair.document!r} has a score already"
            rejects.add(InputError(problem, file=path, line=pair.line, id=pair.query, do=SKIP))
    return _Work(keys, scores)


def _key(pair: PairScore, table: _Table) -> int:
    query, document = table.queries.get(pair.query), table.documents.get(pair.document)
    return NOWHERE if query is None or document is None else query * len(table.documents) + document


def _score(table: _Table, teacher: CrossEncoder, collection: Collection, out: Path) -> _Work:
    """Scores by a cross-encoder, in parts, each of which is kept on disk until all are there."""
    keys = np.unique(table.keys())
    parts = out.absolute().parent / f".{out.name}.{_fingerprint(table, teacher, collection, keys)}"
    parts.mkdir(parents=True, exist_ok=True)
    queries = [collection.queries[id] for id in table.queries]
    documents = [collection.documents[id] for id in table.documents]
    blocks = [keys[start : start + PAIRS_AT_ONCE] for start in range(0, len(keys), PAIRS_AT_ONCE)]
    files = [parts / f"{number}.json" for number in range(len(blocks))]

    def texts(block: NDArray[np.uint64]) -> list[Pair]:
        rows = (side.tolist() for side in np.divmod(block, np.uint64(len(documents))))
        return [(queries[query], documents[document]) for query, document in zip(*rows, strict=True)]

    def scored(todo: list[int]) -> Iterator[None]:
        before = time.perf_counter()
        found = teacher.score_blocks(texts(blocks[number]) for number in todo)
        for number, (scores, truncated) in zip(todo, found, strict=True):
            now = time.perf_counter()
            with new_file(files[number]) as file:
                part = {"scores": scores.tolist(), "truncated": truncated, "seconds": now - before}
                file.write(json.dumps(part).encode())
            before = now
            yield from itertools.repeat(None, len(scores))

    with locked(parts):
        done = {number for number, file in enumerate(files) if file.exists()}
        todo = [number for number in range(len(files)) if number not in done]
        for _ in track(scored(todo), "scoring pairs", total=sum(len(blocks[number]) for number in todo)):
            pass
        work = _Work(keys, np.empty(len(keys), np.float32), parts=parts)
        for number, file in enumerate(files):
            part: dict[str, Any] = json.loads(file.read_text())
            work.scores[number * PAIRS_AT_ONCE :][: len(part["scores"])] = part["scores"]
            work.truncated += part["truncated"]
            work.seconds_before += part["seconds"] if number in done else 0.0
    return work


def _fingerprint(table: _Table, teacher: CrossEncoder, collection: Collection, keys: NDArray[np.uint64]) -> str:
    """Names the folder of parts, so that only a run with the same pairs, texts and teacher goes on with them."""
    digest = hashlib.blake2b(f"{teacher.fingerprint()} {PAIRS_AT_ONCE}".encode(), digest_size=8)
    for ids, texts in ((table.queries, collection.queries), (table.documents, collection.documents)):
        for id in ids:
            digest.update(texts[id].encode() + b"\0")
    digest.update(keys.tobytes())
    return digest.hexdigest()
