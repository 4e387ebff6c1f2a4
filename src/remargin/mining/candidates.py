"""Where negatives are drawn from, and drawing them: the part of mining that workers do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypedDict

import numpy as np

from remargin.data.collection import Collection
from remargin.errors import InputError
from remargin.evaluation.runs import Run
from remargin.files.executor import Work
from remargin.files.shapes import Count
from remargin.mining.false_negatives import SUSPICIOUS, Compared, Scored, most_suspicious
from remargin.mining.settings import MiningSettings

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from remargin.mining.similarity import DocumentVectors, Similarities
    from remargin.model.encoder import BiEncoder


class MinedPart(TypedDict):
    """Triplets of some queries, as rows of ids; counts of what was drawn at random, lacks a ranking or was skipped."""

    rows: list[list[str]]
    filled: Count
    empty: Count
    skipped: Count
    suspicious: list[Scored]


class Queries(NamedTuple):
    """Queries to mine for together."""

    number: int
    ids: list[str]


class MinedQueries(NamedTuple):
    """The triplets of some queries, and the language that BM25 split the texts by, if it ranked."""

    number: int
    part: MinedPart
    language: str | None


@dataclass(frozen=True)
class DrawNegatives:
    """Mines for some queries at a time.

    Attributes:
        collection: with the queries and documents.
        settings: how negatives are chosen.
        compares: whether candidates are compared with the positive.
        positives: the relevant documents of each query.
        model: the encoder, if one is needed.
        vectors: of the documents by it, or the folder that they are in; without them, the documents are encoded.
    """

    collection: Collection
    settings: MiningSettings
    compares: bool
    positives: dict[str, list[str]]
    model: BiEncoder | None
    vectors: DocumentVectors | Path | None

    def __call__(self, device: str | None) -> Work[Queries, MinedQueries]:
        """What a worker does with queries."""
        if device is not None and self.model is not None:
            self.model.to(device)
        vectors = self.vectors
        if isinstance(vectors, Path):
            from remargin.retrieval.vectors import Vectors

            vectors = Vectors.mapped(vectors)
        candidates = Candidates(self.collection, self.settings, self.compares, self.model, vectors)
        return lambda chunks: (self._mined(candidates, chunk) for chunk in chunks)

    def _mined(self, candidates: Candidates, chunk: Queries) -> MinedQueries:
        rng = np.random.default_rng([self.settings.seed, chunk.number])
        return MinedQueries(chunk.number, candidates.triplets(chunk.ids, self.positives, rng), candidates.language)


class Candidates:
    """Where negatives are drawn from."""

    def __init__(
        self,
        collection: Collection,
        settings: MiningSettings,
        compares: bool,
        model: BiEncoder | None,
        vectors: DocumentVectors | None,
    ) -> None:
        self._collection = collection
        self._settings = settings
        self._compares = compares
        self._ids = [id for id, text in collection.documents.items() if text.strip()]
        self._empty = collection.documents.keys() - self._ids  # neither positives nor negatives
        self._bm25 = None
        self._similar: Similarities | None = None
        if settings.negatives == "bm25":
            from remargin.retrieval.bm25 import BM25

            self._bm25 = BM25(collection.documents, language=settings.language)
        if model is not None:
            from remargin.mining.similarity import Similarities

            self._similar = Similarities(collection, model, vectors)

    @property
    def language(self) -> str | None:
        """The language of BM25's terms, if BM25 ranks."""
        return None if self._bm25 is None else self._bm25.language

    def triplets(self, queries: list[str], positives: dict[str, list[str]], rng: np.random.Generator) -> MinedPart:
        """The triplets of some queries."""
        texts = {query: self._collection.queries[query] for query in queries}
        vectors = None if self._similar is None else self._similar.encode(list(texts.values()))
        run = self._ranked(texts, vectors)
        part: MinedPart = {"rows": [], "filled": 0, "empty": len(run.empty()), "skipped": 0, "suspicious": []}
        found: list[Scored] = []
        for row, query in enumerate(queries):
            known = {*positives[query], *({query} & self._collection.self_matches)}  # nor is it its own negative
            pool = [d for d in run.top(query, self._settings.depth) if d not in known and d not in self._empty]
            compared = None
            if self._compares and self._similar is not None and vectors is not None:
                compared = Compared.of(self._similar, vectors[row], positives[query], pool)
                found += compared.suspicious(query)
            for number, positive in enumerate(positives[query]):
                kept = pool if compared is None else compared.allowed(number, self._settings.bound)
                skipped = {*pool}.difference(kept)
                part["skipped"] += len(skipped)
                for _ in range(self._settings.triplets):
                    part["rows"].append([query, positive, *self._negatives(kept, skipped, known, rng, part)])
        part["suspicious"] = most_suspicious(found, SUSPICIOUS)
        return part

    def _ranked(self, texts: dict[str, str], vectors: NDArray[np.float32] | None) -> Run:
        """The ranking of the queries that negatives are drawn from; empty for random ones."""
        if self._bm25 is not None:
            return self._bm25.search(texts, self._settings.depth)
        if self._similar is not None and vectors is not None:
            return self._similar.search(list(texts), vectors, self._settings.depth)
        return Run({})

    def _negatives(
        self, pool: list[str], skipped: set[str], known: set[str], rng: np.random.Generator, part: MinedPart
    ) -> list[str]:
        """The negatives of a triplet: from the pool, and what that lacks from the whole collection."""
        wanted = self._settings.per_triplet
        chosen = [pool[i] for i in rng.permutation(len(pool))[:wanted]] if pool else []
        lacking = wanted - len(chosen)
        if self._settings.negatives != "random":
            part["filled"] += lacking
        excluded = known.union(chosen)
        if len(self._ids) - len(excluded | skipped) >= lacking:  # else even what was skipped is better than nothing
            excluded |= skipped
        return chosen + self._random(lacking, excluded, rng)

    def _random(self, count: int, excluded: set[str], rng: np.random.Generator) -> list[str]:
        if count and len(self._ids) - len(excluded) < count:
            problem = "the collection has too few documents to draw negatives from"
            raise InputError(problem, file=self._collection.name, do="ask for fewer negatives, or add documents")
        return list(self._draw(count, excluded, rng))

    def _draw(self, count: int, excluded: set[str], rng: np.random.Generator) -> Iterator[str]:
        drawn: set[str] = set()
        while len(drawn) < count:
            document = self._ids[rng.integers(len(self._ids))]
            if document not in excluded and document not in drawn:
                drawn.add(document)
                yield document
