"""Runs (rankings): for each query, documents in order of their score. Reads and writes TREC run files."""

from __future__ import annotations

import contextlib
import io
import itertools
import math
import operator
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

from remargin.data.tables import LONGEST_LINE, Rejects, read_lines
from remargin.errors import InputError
from remargin.files.atomic import new_file
from remargin.files.unpacking import open_binary


@dataclass
class Run:
    """For each query its documents and their scores, best first. Ties are broken by id, descending, as trec_eval does.

    Scores may come in any order, and as NumPy's numbers.

    Raises:
        InputError: for a score that is NaN, and an id that is no string or has a NUL byte.

    Example:
        >>> run = Run.of({"q1": {"a": 0.5, "b": 0.9, "c": 0.5}})
        >>> list(run.rankings["q1"])
        ['b', 'c', 'a']
        >>> run.top("q1", 1)
        ['b']
    """

    rankings: dict[str, dict[str, float]] = field(repr=False)

    def __post_init__(self) -> None:
        check_ids("query", self.rankings)
        self.rankings = {query: _ranked(query, documents) for query, documents in self.rankings.items()}

    @classmethod
    def of(cls, scores: Mapping[str, Mapping[str, float]], depth: int | None = None) -> Run:
        """A run from scores in any order, with at most `depth` documents for each query."""
        run = cls({query: dict(documents) for query, documents in scores.items()})
        if depth is not None:
            for query, ranking in run.rankings.items():
                run.rankings[query] = dict(itertools.islice(ranking.items(), min(depth, len(ranking))))
        return run

    @classmethod
    def load(cls, path: str | Path) -> Run:
        """Read a TREC run file: query, Q0, document, rank, score, tag. Scores decide the order, not ranks.

        Raises:
            InputError: for a line with other columns, a score that is no finite number, an id with a NUL byte, a
                document that a query has twice, bytes that are not UTF-8, or gzip data that ends early, with file and
                line.
        """
        path = Path(path)
        scores = _read_quickly(path)
        if scores is not None:
            with contextlib.suppress(InputError):
                return cls(scores)
        return cls(_read_carefully(path))

    def save(self, path: str | Path, tag: str = "remargin", overwrite: bool = False) -> None:
        """Write a TREC run file, gzipped if its name ends in .gz. Scores keep every digit that their order may need."""
        tag = "_".join(tag.split()) or "remargin"
        with new_file(path, overwrite) as out:
            for query, ranking in self.rankings.items():
                scores = np.fromiter(ranking.values(), np.float64, len(ranking))
                fits_float32 = (scores == scores.astype(np.float32)).all()
                written = map("{:.9g}".format if fits_float32 else repr, scores.tolist())
                lines = (
                    f"{query} Q0 {document} {rank} {score} {tag}\n"
                    for rank, (document, score) in enumerate(zip(ranking, written, strict=True), 1)
                )
                out.write("".join(lines).encode())

    def top(self, query: str, depth: int) -> list[str]:
        """The best documents of a query."""
        return list(self.rankings.get(query, {}))[:depth]

    def empty(self) -> list[str]:
        """The queries without a single document.

        Example:
            >>> Run.of({"q1": {"a": 2.0}, "q2": {}}).empty()
            ['q2']
        """
        return [query for query, ranking in self.rankings.items() if not ranking]

    def without(self, pairs: Iterable[tuple[str, str]]) -> Run:
        """A run that lacks some documents of some queries, given as pairs of query and document.

        Example:
            >>> Run.of({"q1": {"a": 2.0, "b": 1.0}, "q2": {"a": 1.0}}).without([("q1", "a"), ("q3", "c")]).rankings
            {'q1': {'b': 1.0}, 'q2': {'a': 1.0}}
        """
        rankings = dict(self.rankings)
        for query, document in pairs:
            if document in rankings.get(query, {}):
                rankings[query] = {id: score for id, score in rankings[query].items() if id != document}
        return Run(rankings)

    def __len__(self) -> int:
        return len(self.rankings)


def check_ids(kind: str, ids: Iterable[str]) -> None:
    """Refuse ids on which pytrec_eval crashes, or which it truncates at a NUL byte."""
    with contextlib.suppress(TypeError):  # an id that is not a string
        if "\0" not in "".join(ids):
            return
    bad = next(id for id in ids if not isinstance(id, str) or "\0" in id)
    problem = "has a NUL byte in it" if isinstance(bad, str) else "is not a string"
    raise InputError(f"{kind} id {bad!r} {problem}", do="give strings without a NUL, in run and judgments alike")


def _ranked(query: str, documents: dict[str, float]) -> dict[str, float]:
    """The documents in descending order of score and, where scores are equal, of id.

    Most files are in order, and nothing is sorted then; otherwise by score alone, which is enough without ties; and by
    score and id if that was not enough.
    """
    check_ids("document", documents)
    total = sum(documents.values())
    if type(total) not in (float, int):  # one of NumPy's makes the sum one
        documents = {document: float(score) for document, score in documents.items()}
    if math.isnan(total):  # a NaN, or infinities of both signs
        nan = [document for document, score in documents.items() if math.isnan(score)]
        if nan:
            raise InputError(f"the score of document {nan[0]!r} is NaN", id=query, do="give a number")
    for key in (operator.itemgetter(1), operator.itemgetter(1, 0)):
        if not _in_order(documents):
            documents = dict(sorted(documents.items(), key=key, reverse=True))
    return documents


def _in_order(documents: Mapping[str, float]) -> bool:
    scores = list(documents.values())
    if all(map(operator.gt, scores, scores[1:])):
        return True
    ids = list(documents)
    return all(map(operator.gt, zip(scores, ids, strict=True), zip(scores[1:], ids[1:], strict=True)))


def _read_quickly(path: Path) -> dict[str, dict[str, float]] | None:
    """The scores of a run file without a fault; else None, and `_read_carefully` names the fault."""
    scores: dict[str, dict[str, float]] = {}
    ranking: dict[str, float] = {}
    lines, last = 0, ""
    try:
        with io.TextIOWrapper(open_binary(path), "utf-8-sig", newline="\n") as file:
            for line in iter(partial(file.readline, LONGEST_LINE), ""):
                query, _, document, _, score, _ = line.split()
                if query != last:
                    ranking, last = scores.setdefault(query, {}), query
                ranking[document] = float(score)
                lines += 1
    except (ValueError, EOFError, OSError, zlib.error):
        return None
    repeated = sum(map(len, scores.values())) < lines
    finite = all(math.isfinite(sum(ranking.values())) for ranking in scores.values())
    return scores if scores and finite and not repeated else None


def _read_carefully(path: Path) -> dict[str, dict[str, float]]:
    scores: dict[str, dict[str, float]] = {}
    for number, line in read_lines(path, Rejects()):
        fields = line.split()
        if not fields:
            continue
        if len(fields) != 6:
            problem = f"{len(fields)} columns instead of 6 (query, Q0, document, rank, score, tag)"
            raise InputError(problem, file=path, line=number, do="write it as a TREC run file")
        query, _, document, _, text, _ = fields
        score = _number(text)
        if score is None:
            do = "write a finite number there"
            raise InputError(f"score {text!r} is not a number", file=path, line=number, id=query, do=do)
        for id in (query, document):
            if "\0" in id:
                raise InputError("id has a NUL byte in it", file=path, line=number, id=id, do="write it without")
        ranking = scores.setdefault(query, {})
        if document in ranking:
            problem = f"document {document!r} appears a second time"
            raise InputError(problem, file=path, line=number, id=query, do="keep one of the two lines")
        ranking[document] = score
    if not scores:
        raise InputError("an empty run", file=path, do="give a TREC run file")
    return scores


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
