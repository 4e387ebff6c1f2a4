"""Dense search: a model's vectors of the documents, and a back end that finds the nearest of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from remargin.errors import InputError
from remargin.evaluation.runs import Run
from remargin.model.encoder import BiEncoder
from remargin.retrieval.base import Backend, storage_class
from remargin.retrieval.exact import Exact
from remargin.retrieval.settings import BackendSettings
from remargin.retrieval.vectors import Vectors, finite

HITS_AT_ONCE = 1 << 25  # at most this many scores, with their rows, are in memory at a time


class Ranking(NamedTuple):
    """The documents of one query, as rows of the index's ids, and their scores, best first."""

    documents: NDArray[np.int64]
    scores: NDArray[np.float32]


class DenseIndex:
    """Documents as vectors, to be searched with the model that made them. A document scores as its best passage.

    Args:
        model: the encoder that made the vectors.
        vectors: of the documents.
        backend: which finds the nearest; without one, an exact search on the model's device.
        over_fetch: how many times as many vectors as wanted an approximate back end is asked for; their exact scores
            then decide.
        deleted: True for documents that must not be found.

    Example:
        >>> model = BiEncoder.from_pretrained(model_folder)
        >>> index = DenseIndex(model, Vectors.of(model, {"d1": "one text", "d2": "another"}))
        >>> index.search({"q": "one text"}, k=1).rankings["q"].keys()
        dict_keys(['d1'])
    """

    def __init__(
        self,
        model: BiEncoder,
        vectors: Vectors,
        backend: Backend | None = None,
        over_fetch: int = 1,
        deleted: NDArray[np.bool_] | None = None,
    ) -> None:
        made = vectors.made
        if made.dimension != model.dimension:
            problem = f"the vectors have {made.dimension} numbers, those of model {model.name} {model.dimension}"
            truncate = made.dimension < model.whole_dimension and made.model_fingerprint == model.fingerprint()
            do = f"truncate its vectors, too (dims={made.dimension})" if truncate else f"search with {made.model}"
            raise InputError(problem, do=do)
        if made.model_fingerprint != model.fingerprint():
            problem = f"the vectors were made by another model than {model.name}"
            raise InputError(problem, do=f"search with {made.model} as it was, or encode the documents again")
        self.model = model
        self.vectors = vectors
        self._backend = backend or Exact(vectors.matrix, model.device)
        self._over_fetch = over_fetch
        self._deleted = np.zeros(len(vectors.ids), bool) if deleted is None else deleted
        self._count = len(self._deleted) - int(self._deleted.sum())

    @classmethod
    def in_memory(cls, model: BiEncoder, vectors: Vectors, settings: BackendSettings) -> DenseIndex:
        """An index that is searched once: it has no folder, and goes with this object."""
        storage, unit = storage_class(settings.backend), vectors.made.similarity == "cosine"
        backend = storage.in_memory(vectors.matrix, unit, settings, model.device)
        return cls(model, vectors, backend, settings.fetch_factor)

    @property
    def data(self) -> str:
        """The collection that the vectors were made of, as it was named then."""
        return self.vectors.made.data

    def __len__(self) -> int:
        return self._count

    def search(self, queries: Mapping[str, str], k: int = 1000) -> Run:
        """The k best documents of each query, by the model's similarity."""
        rankings = self.search_vectors(self.model.encode_queries(list(queries.values())), k)
        ids = self.vectors.ids
        return Run.of(
            {
                query: dict(zip([ids[row] for row in rows.tolist()], scores.tolist(), strict=True))
                for query, (rows, scores) in zip(queries, rankings, strict=True)
            }
        )

    def lacking(self, documents: Sequence[str]) -> int:
        """How many of these documents are not in it, or were deleted."""
        live = (id for id, deleted in zip(self.vectors.ids, self._deleted.tolist(), strict=True) if not deleted)
        return len(set(documents).difference(live))

    def search_vectors(self, queries: NDArray[np.float32], k: int) -> list[Ranking]:
        """The k best documents for each query's vector; fewer if the index has fewer or finds no more."""
        rows, wanted = len(self.vectors.matrix), min(k, self._count)
        if wanted < 1:
            return [Ranking(np.empty(0, np.int64), np.empty(0, np.float32)) for _ in queries]
        depth = min(rows, -(-wanted * rows // self._count))
        at_once = max(1, HITS_AT_ONCE // (depth * self._over_fetch))
        rankings: list[Ranking] = []
        for start in range(0, len(queries), at_once):
            rankings += self._search(finite(queries[start : start + at_once], self.vectors.made), wanted, depth)
        return rankings

    def _search(self, queries: NDArray[np.float32], wanted: int, depth: int) -> list[Ranking]:
        """Search; deeper for queries that merged passages or deleted documents left with too few."""
        rankings: dict[int, Ranking] = {}
        waiting = list(range(len(queries)))
        while waiting:
            short = []
            for query, (scores, rows, more) in zip(waiting, self._nearest(queries[waiting], depth), strict=True):
                rankings[query] = self._documents(scores, rows, wanted)
                if more and len(rankings[query].documents) < wanted:
                    short.append(query)
            waiting, depth = short, 2 * depth
        return [rankings[query] for query in range(len(queries))]

    def _nearest(
        self, queries: NDArray[np.float32], depth: int
    ) -> Iterator[tuple[NDArray[np.float32], NDArray[np.int64], bool]]:
        """For each query the nearest vectors, best first: exact scores, rows, and whether there may be more."""
        matrix = self.vectors.matrix
        asked = min(len(matrix), depth * self._over_fetch if self._backend.approximate else depth)
        for query, scores, rows in zip(queries, *self._backend.search(queries, asked), strict=True):
            known = (rows >= 0) & (rows < len(matrix))  # -1, or a row that came after this index was opened
            scores, rows = scores[known], rows[known]
            more = len(rows) == asked < len(matrix) or len(rows) > depth
            if self._backend.approximate:
                rows = np.sort(rows)  # in the order in which they lie on disk
                scores = matrix[rows].astype(np.float32) @ query
                best = np.argsort(-scores, kind="stable")[:depth]
                scores, rows = scores[best], rows[best]
            yield scores, rows, more

    def _documents(self, scores: NDArray[np.float32], rows: NDArray[np.int64], k: int) -> Ranking:
        """The documents behind vectors, each once with its best score, without the deleted."""
        owners = self.vectors.owners
        if owners is not None:
            rows = owners[rows].astype(np.int64)
            first = np.sort(np.unique(rows, return_index=True)[1])
            scores, rows = scores[first], rows[first]
        live = ~self._deleted[rows]
        return Ranking(rows[live][:k], scores[live][:k])
