"""Batches of triplets for a cross-encoder: pairs of query and document, and of positive and negative, as tokens."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from remargin.data.collection import Collection
from remargin.data.shuffle import Shuffle
from remargin.data.tables import Rejects
from remargin.model.cross_encoder import CrossEncoder, Pair
from remargin.model.tokenizer import PairTokens
from remargin.teacher.scored_pairs import readable_triplets

# Distributed targets of a positive are estimated from at most this many of its batch's negatives, its own among them.
# Each costs a pair of two documents: all of a batch's would be the square of its size.
TARGETS_AT_MOST = 8


class PairBatch(NamedTuple):
    """Each query with its positive and then its negatives; each positive with the negatives that make its targets."""

    scored: PairTokens
    documents: PairTokens | None


class PairBatches:
    """Batches of triplets as tokens, in another order each epoch.

    Attributes:
        steps: how many batches there are in all epochs.
        width: how many documents a query has.
        targets: how many negatives each positive is paired with, for the given target of the loss.
    """

    def __init__(
        self,
        model: CrossEncoder,
        collection: Collection,
        path: Path,
        rejects: Rejects,
        batch_size: int,
        epochs: int,
        seed: int,
        target: str,
    ) -> None:
        table = readable_triplets(path, model, collection, rejects)
        self._rows = table.rows
        self._queries = [collection.queries[id] for id in table.queries]
        self._documents = [collection.documents[id] for id in table.documents]
        self._model, self._epochs, self._seed = model, epochs, seed
        self._steps = math.ceil(len(self) / batch_size)
        self.steps = epochs * self._steps
        self.width = table.rows.shape[1] - 1
        own = self.width - 1
        self.targets = {"adaptive": own, "distributed": max(own, TARGETS_AT_MOST)}.get(target, 0)

    def __len__(self) -> int:
        return len(self._rows)

    def batches(self, done: int) -> Iterator[PairBatch]:
        """All batches after the first `done`."""
        tokens, length = self._model.tokenizer.pairs, self._model.length
        for epoch in range(done // self._steps, self._epochs):
            order = Shuffle(len(self), self._seed, epoch)(np.arange(len(self)))
            for rows in np.array_split(order, self._steps)[max(0, done - epoch * self._steps) :]:
                documents = list(self.of_documents(rows))
                scored = tokens(list(self._pairs(rows)), length)
                yield PairBatch(scored, tokens(documents, length, truncate="longest_first") if documents else None)

    def _pairs(self, rows: NDArray[np.int64]) -> Iterator[Pair]:
        """Each query with its positive, and then with each negative."""
        for query, *documents in self._rows[rows].tolist():
            yield from ((self._queries[query], self._documents[document]) for document in documents)

    def of_documents(self, rows: NDArray[np.int64]) -> Iterator[Pair]:
        """Each positive with its own negatives, and then with those of the triplets after it, around the batch."""
        triplets = self._rows[rows]
        negatives = triplets[:, 2:].reshape(-1).tolist()
        count = min(self.targets, len(negatives))
        for i, positive in enumerate(triplets[:, 1].tolist()):
            for j in range(count):
                negative = negatives[(i * (self.width - 1) + j) % len(negatives)]
                yield self._documents[positive], self._documents[negative]
