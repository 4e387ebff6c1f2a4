"""Triplets of ids in memory, with four bytes for each id."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from remargin.data.collection import Collection
from remargin.data.tables import Rejects, batches
from remargin.data.triplets import read_id_triplets
from remargin.errors import InputError
from remargin.progress import track


def require_tsv(out: Path) -> None:
    """Refuse a file name without the ending .tsv or .tsv.gz, by which the triplets are read again."""
    if not out.name.removesuffix(".gz").endswith(".tsv"):
        raise InputError("the name of the table does not end in .tsv or .tsv.gz", file=out, do="choose one that does")


@dataclass
class IdTriplets:
    """Triplets of ids as numbers: rows of query, positive and negatives, and the lines that they came from.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "triplets.tsv"
        >>> _ = path.write_text("q1\\td1\\td2\\nq2\\td2\\td3\\n")
        >>> triplets = IdTriplets.read(path, Rejects())
        >>> triplets.rows.tolist(), list(triplets.documents)
        ([[0, 0, 1], [1, 1, 2]], ['d1', 'd2', 'd3'])
    """

    path: Path
    queries: dict[str, int]
    documents: dict[str, int]
    rows: NDArray[np.uint32]
    lines: NDArray[np.uint32]

    @classmethod
    def read(cls, path: Path, rejects: Rejects, collection: Collection | None = None) -> IdTriplets:
        """All triplets of a table. Each id gets a number when it first appears."""
        queries: dict[str, int] = {}
        documents: dict[str, int] = {}
        rows, lines = [], []
        for batch in batches(track(read_id_triplets(path, rejects, collection), "triplets")):
            numbered = [
                [queries.setdefault(t.query, len(queries))]
                + [documents.setdefault(id, len(documents)) for id in (t.positive, *t.negatives)]
                for t in batch
            ]
            rows.append(np.array(numbered, np.uint32))
            lines.append(np.array([t.line for t in batch], np.uint32))
        if not rows:
            raise InputError("no usable triplets in it", file=path, do=rejects.describe())
        return cls(path, queries, documents, np.concatenate(rows), np.concatenate(lines))

    def __len__(self) -> int:
        return len(self.rows)

    def keep(self, wanted: NDArray[np.bool_], rejects: Rejects) -> IdTriplets:
        """Only some of the triplets, but not none."""
        if not wanted.any():
            raise InputError("no usable triplets in it", file=self.path, do=rejects.describe())
        return IdTriplets(self.path, self.queries, self.documents, self.rows[wanted], self.lines[wanted])

    def keys(self) -> NDArray[np.uint64]:
        """The key of each pair of a query and a document, (n, 1 + k)."""
        return self.rows[:, :1].astype(np.uint64) * np.uint64(len(self.documents)) + self.rows[:, 1:]

    def lines_with(self, scores: NDArray[np.float32]) -> Iterator[bytes]:
        """The lines of the table with scores, header first, some at a time."""
        count = self.rows.shape[1] - 2
        suffixes = [""] if count == 1 else [f"_{i + 1}" for i in range(count)]
        names = ["query_id", "positive_id", *(f"negative_id{s}" for s in suffixes)]
        yield ("\t".join([*names, "positive_score", *(f"negative_score{s}" for s in suffixes)]).encode() + b"\n")
        queries, documents = list(self.queries), list(self.documents)
        for start in range(0, len(self.rows), 65_536):
            some = slice(start, start + 65_536)
            lines = (
                "\t".join([queries[query], *(documents[d] for d in rows), *(f"{s:.9g}" for s in row_scores)]) + "\n"
                for (query, *rows), row_scores in zip(self.rows[some].tolist(), scores[some].tolist(), strict=True)
            )
            yield "".join(lines).encode()
