"""A teacher's scores for triplets: by a cross-encoder, or from a file."""

from __future__ import annotations

import hashlib
import time
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from remargin.data.collection import Collection
from remargin.data.id_triplets import IdTriplets, require_tsv
from remargin.data.scores import PairScore, read_teacher_scores
from remargin.data.tables import SKIP, Rejects, batches
from remargin.data.triplets import triplets_hash
from remargin.errors import InputError
from remargin.files.atomic import new_file, refuse_existing
from remargin.files.checksums import sha256
from remargin.files.executor import Executor
from remargin.files.hashes import texts_fingerprint
from remargin.files.headers import read_record, write_header
from remargin.files.unpacking import open_binary
from remargin.model.cross_encoder import CrossEncoder
from remargin.progress import track
from remargin.teacher.scored_pairs import FORMAT, ByModel, ScoredPairs

NOWHERE = np.iinfo(np.uint64).max  # stands for a pair that is in no triplet


@dataclass
class Taught:
    """What `teach` and `score_triplets` wrote, and what that cost.

    Attributes:
        triplets: how many got scores.
        negatives: how many each triplet has.
        pairs: distinct pairs of query and document among them, each scored once.
        truncated: pairs whose document was truncated.
        rejected: how much bad input was skipped.
        first_reject: what was wrong with the first of it.
        seconds: how long it took in all, including the scoring of earlier calls that were interrupted.
        pairs_per_second: `pairs` divided by `seconds`.
        teacher: the cross-encoder or the file of scores.
        teacher_seconds: how long training the teacher took, if remargin trained it.
        made_from: a hash of triplets, teacher and texts.
        sha256: of the bytes of the table, before gzip.
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


def score_triplets(
    triplets: str | Path,
    out: str | Path,
    teacher: CrossEncoder | str | Path,
    collection: Collection | None = None,
    skip_bad: bool = False,
    overwrite: bool = False,
    executor: Executor | None = None,
) -> Taught:
    """Write a table of triplets with a teacher's scores: of the positive, and of each negative.

    Each distinct pair of query and document is scored once. If interrupted, the same call continues after the last
    block of pairs: scores that are done lie in a folder beside `out` until all are there. What it cost is written
    beside `out` too, as `out`.json.

    Args:
        triplets: a table of ids, as `mine` writes it; see `read_triplets`. Scores that it has already are replaced.
        out: a .tsv file, gzipped if it ends in .gz.
        teacher: a cross-encoder, or a file of scores; see `read_teacher_scores`.
        collection: the texts that a cross-encoder reads.
        skip_bad: leave triplets out that cannot be scored, and count them.
        overwrite: replace `out` if it is there.
        executor: where a cross-encoder scores; in this process, if not given.

    Raises:
        InputError: for bad input, with its file, line and id: an unknown id, a pair without a score, a query that
            leaves no room for a document.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> _ = (folder / "triplets.tsv").write_text("q1\\td1\\td2\\n")
        >>> _ = (folder / "scores.tsv").write_text("q1\\td1\\t8.5\\nq1\\td2\\t-1.5\\n")
        >>> score_triplets(folder / "triplets.tsv", folder / "scored.tsv", folder / "scores.tsv").pairs
        2
        >>> (folder / "scored.tsv").read_text().splitlines()[1].split("\\t")
        ['q1', 'd1', 'd2', '8.5', '-1.5']
    """
    started = time.perf_counter()
    path, out = Path(triplets), Path(out)
    _claim(out, overwrite)
    rejects = Rejects(skip=skip_bad)
    scorer = _scorer(teacher, collection, executor)
    table = scorer.read(path, rejects)
    with scorer.scored(table, out, rejects) as pairs:
        table, scores = _with_scores(table, pairs, scorer.name, rejects)
        with new_file(out, overwrite) as file:
            digest = hashlib.sha256()
            for lines in table.lines_with(scores):
                file.write(lines)
                digest.update(lines)
            file.flush()  # a disk that is full shows now, and not when the report is there
            count = len(np.unique(table.keys()))
            seconds = time.perf_counter() - started + pairs.seconds_before
            taught = Taught(
                triplets=len(table.rows),
                negatives=table.rows.shape[1] - 2,
                pairs=count,
                truncated=pairs.truncated,
                rejected=rejects.count,
                first_reject=str(rejects.first) if rejects.count else None,
                seconds=round(seconds, 3),
                pairs_per_second=round(count / seconds, 1),
                teacher=scorer.name,
                teacher_seconds=scorer.training_seconds,
                made_from=_made_from(path, scorer, collection),
                sha256=digest.hexdigest(),
            )
            write_header(report_of(out), {"format": FORMAT, **asdict(taught)})
    return taught


def taught_before(
    triplets: str | Path, out: str | Path, teacher: CrossEncoder | str | Path, collection: Collection | None = None
) -> Taught | None:
    """What an earlier `teach` made from the same triplets, teacher and texts; None if its table is gone or changed."""
    taught = cost_of(Path(out))
    if taught is None:
        return None
    try:
        made_from = _made_from(Path(triplets), _scorer(teacher, collection), collection)
    except (OSError, InputError):
        return None
    return taught if taught.made_from == made_from else None


def cost_of(out: Path) -> Taught | None:
    """The report that `teach` wrote beside a table; None if there is none, or the table has changed since."""
    try:
        taught = read_record(report_of(out), Taught, FORMAT, "teach again")
        with open_binary(out) as file:
            whole = hashlib.file_digest(file, "sha256").hexdigest() == taught.sha256  # type: ignore[arg-type]
    except (OSError, EOFError, zlib.error, InputError):
        return None
    return taught if whole else None


def report_of(out: Path) -> Path:
    """The file beside a table in which `teach` reports what it did and how long it took.

    >>> report_of(Path("runs/scored.tsv")).name
    'scored.tsv.json'
    """
    return out.with_name(f"{out.name}.json")


def _claim(out: Path, overwrite: bool) -> None:
    """Before any work, refuse a name that no reader would take for a table, and files that `teach` did not write."""
    require_tsv(out)
    refuse_existing(out, overwrite)
    report = report_of(out)
    if report.exists():
        try:
            read_record(report, Taught, FORMAT, "choose another place")
        except InputError:
            do = "choose another place"
            raise InputError("exists and is not ours to overwrite", file=report, do=do) from None


def _made_from(triplets: Path, scorer: _Scorer, collection: Collection | None) -> str:
    known = [triplets_hash(triplets), scorer.fingerprint()]
    if collection is not None:
        known += [texts_fingerprint(texts) for texts in (collection.queries, collection.documents)]
    return hashlib.blake2b(" ".join(known).encode(), digest_size=16).hexdigest()


def _with_scores(
    table: IdTriplets, pairs: ScoredPairs, teacher: str, rejects: Rejects
) -> tuple[IdTriplets, NDArray[np.float32]]:
    """The triplets that have all their scores, and these scores, a row for each. The other triplets go to `rejects`."""
    scores = pairs.scores[np.searchsorted(pairs.keys, table.keys())]
    lacking: NDArray[np.bool_] = np.isnan(scores)
    queries, documents = list(table.queries), list(table.documents)
    whole = lacking.sum(1) == 0
    for row in np.flatnonzero(~whole).tolist():
        document = documents[table.rows[row, 1 + int(lacking[row].argmax())]]
        problem = f"no score for its document {document!r} in {teacher}"
        id = queries[table.rows[row, 0]]
        rejects.add(InputError(problem, file=table.path, line=int(table.lines[row]), id=id, do=SKIP))
    return table.keep(whole, rejects), scores[whole]


class _Scorer(Protocol):
    """Where scores come from."""

    name: str
    training_seconds: float | None  # what it took to train it, if we did

    def fingerprint(self) -> str:
        """A hash that differs where scores may differ."""

    def read(self, path: Path, rejects: Rejects) -> IdTriplets:
        """The triplets of a table that it may be able to score; the others go to `rejects`."""

    def scored(self, table: IdTriplets, out: Path, rejects: Rejects) -> AbstractContextManager[ScoredPairs]:
        """The distinct pairs of triplets with their scores. What was kept for a restart goes at the block's end."""


def _scorer(
    teacher: CrossEncoder | str | Path, collection: Collection | None, executor: Executor | None = None
) -> _Scorer:
    """What scores for a teacher. A model needs texts, and a head that was trained."""
    if not isinstance(teacher, CrossEncoder):
        return _FromFile(teacher)
    if collection is None:
        raise InputError("a cross-encoder reads texts", do="name the collection that has them (--data)")
    if teacher.untrained:
        do = "name a cross-encoder, or train one (--train-from)"
        raise InputError(f"{teacher.name} has no trained head for scores", do=do)
    return ByModel(teacher, collection, executor)


class _FromFile:
    """Scores that somebody else made."""

    training_seconds: float | None = None

    def __init__(self, path: str | Path) -> None:
        self.name = str(path)
        self._path = Path(path)

    def fingerprint(self) -> str:
        return sha256(self._path)

    def read(self, path: Path, rejects: Rejects) -> IdTriplets:
        return IdTriplets.read(path, rejects)

    @contextmanager
    def scored(self, table: IdTriplets, out: Path, rejects: Rejects) -> Iterator[ScoredPairs]:
        """Of the scores in the file, only those are kept that the triplets need."""
        pairs = ScoredPairs.of(table)
        keys, scores = pairs.keys, pairs.scores
        for batch in batches(track(read_teacher_scores(self._path, rejects), "scores")):
            wanted = np.array([_key(pair, table) for pair in batch], np.uint64)
            places = np.searchsorted(keys, wanted) % len(keys)
            for number in np.flatnonzero(keys[places] == wanted).tolist():
                pair, place = batch[number], places[number]
                if np.isnan(scores[place]):
                    scores[place] = pair.score
                    continue
                problem = f"its document {pair.document!r} has a score already"
                rejects.add(InputError(problem, file=self._path, line=pair.line, id=pair.query, do=SKIP))
        yield pairs


def _key(pair: PairScore, table: IdTriplets) -> int:
    query, document = table.queries.get(pair.query), table.documents.get(pair.document)
    return NOWHERE if query is None or document is None else query * len(table.documents) + document
