"""Runs: for each query, documents in order of their score. TREC run files in and out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from remargin.data.tables import Rejects, read_lines
from remargin.errors import InputError
from remargin.files import new_file


@dataclass
class Run:
    """For each query its documents and their scores, best first. Ties are broken by id, descending, as trec_eval does.

    Example:
        >>> run = Run.of({"q1": {"a": 0.5, "b": 0.9, "c": 0.5}})
        >>> list(run.rankings["q1"])
        ['b', 'c', 'a']
        >>> run.top("q1", 1)
        ['b']
    """

    rankings: dict[str, dict[str, float]] = field(repr=False)

    @classmethod
    def of(cls, scores: Mapping[str, Mapping[str, float]], depth: int | None = None) -> Run:
        """A run from scores in any order, cut at some depth."""
        return cls({query: dict(_ranked(documents)[:depth]) for query, documents in scores.items()})

    @classmethod
    def load(cls, path: str | Path) -> Run:
        """Read a TREC run file: query, Q0, document, rank, score, tag. Scores decide the order, not ranks."""
        path, rejects = Path(path), Rejects()
        scores: dict[str, dict[str, float]] = {}
        for number, line in read_lines(path, rejects):
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
            ranking = scores.setdefault(query, {})
            if document in ranking:
                problem = f"document {document!r} appears a second time"
                raise InputError(problem, file=path, line=number, id=query, do="keep one of the two lines")
            ranking[document] = score
        if not scores:
            raise InputError("an empty run", file=path, do="give a TREC run file")
        return cls.of(scores)

    def save(self, path: str | Path, tag: str = "remargin", overwrite: bool = False) -> None:
        """Write a TREC run file, gzipped if its name ends in .gz. Scores keep every digit of a float32."""
        with new_file(path, overwrite) as out:
            for query, ranking in self.rankings.items():
                lines = (
                    f"{query} Q0 {document} {rank} {score:.9g} {tag}\n"
                    for rank, (document, score) in enumerate(ranking.items(), 1)
                )
                out.write("".join(lines).encode())

    def top(self, query: str, depth: int) -> list[str]:
        """The best documents of a query."""
        return list(self.rankings.get(query, {}))[:depth]

    def __len__(self) -> int:
        return len(self.rankings)


def _ranked(documents: Mapping[str, float]) -> list[tuple[str, float]]:
    return sorted(documents.items(), key=lambda item: (item[1], item[0]), reverse=True)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
