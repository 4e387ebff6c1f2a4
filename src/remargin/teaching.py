"""A teacher's scores for triplets: by a cross-encoder, or from a file."""

from __future__ import annotations

import hashlib
import itertools
import json
import shutil
import time
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from remargin.cross_encoder import CrossEncoder, Pair
from remargin.data.collection import Collection, texts_fingerprint
from remargin.data.id_triplets import IdTriplets, require_tsv
from remargin.data.scores import PairScore, read_scores
from remargin.data.tables import SKIP, Rejects, batches, open_binary
from remargin.data.tokens import LONGER
from remargin.errors import InputError
from remargin.files import locked, new_file, read_header, refuse_existing, sha256, write_header
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
        made_from: a hash of triplets, teacher and texts.
        sha256: of the table, unpacked.
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
    made_from: str = field(repr=False)
    sha256: str = field(repr=False)


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
        table = readable_triplets(path, teacher, collection, rejects)
        work = _score(table, teacher, collection, out)
    else:
        table = IdTriplets.read(path, rejects)
        work = _join(table, Path(teacher), rejects)
    table, scores = _with_scores(table, work, teacher, rejects)
    with new_file(out, overwrite) as file:
        digest = hashlib.sha256()
        for lines in table.lines_with(scores):
            file.write(lines)
            digest.update(lines)
        pairs = len(np.unique(table.keys()))
        seconds = time.perf_counter() - started + work.seconds_before
        taught = Taught(
            triplets=len(table.rows),
            negatives=table.rows.shape[1] - 2,
            pairs=pairs,
            truncated=work.truncated,
            rejected=rejects.count,
            first_reject=str(rejects.first) if rejects.count else None,
            seconds=round(seconds, 3),
            pairs_per_second=round(pairs / seconds, 1),
            teacher=teacher.name if isinstance(teacher, CrossEncoder) else str(teacher),
            teacher_seconds=_own_seconds(teacher),
            made_from=_made_from(path, teacher, collection),
            sha256=digest.hexdigest(),
        )
        with new_file(report_of(out), overwrite=True) as report:
            report.write(json.dumps({"format": FORMAT, **asdict(taught)}, indent=1).encode() + b"\n")
    if work.parts is not None:
        shutil.rmtree(work.parts)
    return taught


def taught_before(
    triplets: str | Path, out: str | Path, teacher: CrossEncoder | str | Path, collection: Collection | None = None
) -> Taught | None:
    """What `teach` made of the same triplets, teacher and texts before; None unless it is there as it was written."""
    taught = cost_of(Path(out))
    try:
        same = taught is not None and taught.made_from == _made_from(Path(triplets), teacher, collection)
    except (OSError, InputError):
        return None
    return taught if same else None


def cost_of(out: Path) -> Taught | None:
    """What `teach` wrote beside a table; None unless the table is there as it was written."""
    try:
        report = json.loads(report_of(out).read_text(encoding="utf-8"))
        taught = Taught(**{name: report[name] for name in Taught.__dataclass_fields__})
        with open_binary(out) as file:
            whole = hashlib.file_digest(file, "sha256").hexdigest() == taught.sha256  # type: ignore[arg-type]
    except (OSError, ValueError, KeyError, TypeError, EOFError, zlib.error, InputError):
        return None
    return taught if whole else None


def report_of(out: Path) -> Path:
    """Where `teach` writes what it cost.

    >>> report_of(Path("runs/scored.tsv")).name
    'scored.tsv.json'
    """
    return out.with_name(f"{out.name}.json")


def _claim(out: Path, overwrite: bool) -> None:
    """Refuse, at once, a place that cannot be read again or that belongs to someone else."""
    require_tsv(out)
    refuse_existing(out, overwrite)
    report = report_of(out)
    if report.exists():
        try:
            ours = json.loads(report.read_text(encoding="utf-8")).get("format") == FORMAT
        except (OSError, ValueError, AttributeError):
            ours = False
        if not ours:
            raise InputError("exists and is not ours to overwrite", file=report, do="choose another place")


def readable_triplets(path: Path, model: CrossEncoder, collection: Collection, rejects: Rejects) -> IdTriplets:
    """Triplets of a table whose queries leave a cross-encoder room for documents. The others go to `rejects`."""
    table = IdTriplets.read(path, rejects, collection)
    too_long = set(model.too_long({id: collection.queries[id] for id in table.queries}))
    fits = np.array([id not in too_long for id in table.queries])[table.rows[:, 0]]
    queries = list(table.queries)
    for row in np.flatnonzero(~fits).tolist():
        problem = f"query leaves no room for a document in {model.length} tokens"
        id = queries[table.rows[row, 0]]
        rejects.add(InputError(problem, file=path, line=int(table.lines[row]), id=id, do=LONGER))
    return table.keep(fits, rejects)


def _made_from(triplets: Path, teacher: CrossEncoder | str | Path, collection: Collection | None) -> str:
    known = [sha256(triplets), teacher.fingerprint() if isinstance(teacher, CrossEncoder) else sha256(teacher)]
    if collection is not None:
        known += [texts_fingerprint(texts) for texts in (collection.queries, collection.documents)]
    return hashlib.blake2b(" ".join(known).encode(), digest_size=16).hexdigest()


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


def _with_scores(
    table: IdTriplets, work: _Work, teacher: CrossEncoder | str | Path, rejects: Rejects
) -> tuple[IdTriplets, NDArray[np.float32]]:
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


def _join(table: IdTriplets, path: Path, rejects: Rejects) -> _Work:
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


def _key(pair: PairScore, table: IdTriplets) -> int:
    query, document = table.queries.get(pair.query), table.documents.get(pair.document)
    return NOWHERE if query is None or document is None else query * len(table.documents) + document


def _score(table: IdTriplets, teacher: CrossEncoder, collection: Collection, out: Path) -> _Work:
    """Scores by a cross-encoder, in parts, each of which is kept on disk until all are there."""
    keys = np.unique(table.keys())
    parts = out.absolute().parent / f".{out.name}.{_fingerprint(table, teacher, collection, keys)}"
    parts.mkdir(parents=True, exist_ok=True)
    queries = [collection.queries[id] for id in table.queries]
    documents = [collection.documents[id] for id in table.documents]
    blocks = [keys[start : start + PAIRS_AT_ONCE] for start in range(0, len(keys), PAIRS_AT_ONCE)]
    files = [parts / f"{number}.json" for number in range(len(blocks))]
    work = _Work(keys, np.empty(len(keys), np.float32), parts=parts)

    def take(number: int, scores: Any, truncated: int) -> None:
        work.scores[number * PAIRS_AT_ONCE :][: len(blocks[number])] = scores
        work.truncated += truncated

    def texts(block: NDArray[np.uint64]) -> list[Pair]:
        rows = (side.tolist() for side in np.divmod(block, np.uint64(len(documents))))
        return [(queries[query], documents[document]) for query, document in zip(*rows, strict=True)]

    def scored(todo: list[int]) -> Iterator[None]:
        before = time.perf_counter()
        found = teacher.score_blocks(texts(blocks[number]) for number in todo)
        for number, (scores, truncated) in zip(todo, found, strict=True):
            now = time.perf_counter()
            part = {"format": FORMAT, "scores": scores.tolist(), "truncated": truncated, "seconds": now - before}
            write_header(files[number], part)
            take(number, scores, truncated)
            before = now
            yield from itertools.repeat(None, len(scores))

    with locked(parts):
        todo = []
        for number, file in enumerate(files):
            if (part := _read_part(file, len(blocks[number]))) is None:
                todo.append(number)
                continue
            take(number, part["scores"], part["truncated"])
            work.seconds_before += part["seconds"]
        for _ in track(scored(todo), "scoring pairs", total=sum(len(blocks[number]) for number in todo)):
            pass
    return work


def _read_part(file: Path, pairs: int) -> dict[str, Any] | None:
    """A part of the work that is done; None if it is not, or was damaged since."""
    try:
        part = read_header(file, FORMAT, "score it again")
    except InputError:
        return None
    return part if len(part["scores"]) == pairs else None


def _fingerprint(table: IdTriplets, teacher: CrossEncoder, collection: Collection, keys: NDArray[np.uint64]) -> str:
    """Names the folder of parts, so that only a run with the same pairs, texts and teacher goes on with them."""
    digest = hashlib.blake2b(f"{teacher.fingerprint()} {PAIRS_AT_ONCE}".encode(), digest_size=8)
    for ids, texts in ((table.queries, collection.queries), (table.documents, collection.documents)):
        for id in ids:
            digest.update(texts[id].encode() + b"\0")
    digest.update(keys.tobytes())
    return digest.hexdigest()
