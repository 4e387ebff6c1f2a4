"""Batches of triplets from a prepared folder: any step's batch, straight away, from the seed and the step alone."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from remargin.ahead import ahead
from remargin.data.shuffle import Shuffle
from remargin.data.tokens import Tokens, TokenStore
from remargin.data.triplets import Triplets
from remargin.errors import InputError
from remargin.training.engine import MicroBatches


class TripletBatch(NamedTuple):
    """Rows of queries, positives and negatives, and the teacher's margins if there are scores."""

    queries: NDArray[np.int64]
    positives: NDArray[np.int64]
    negatives: NDArray[np.int64]
    teacher_margin: Tensor | None


class TrainingData:
    """The token stores and triplets of a folder that `prepare` wrote."""

    def __init__(self, folder: str | Path, batch_size: int, seed: int) -> None:
        folder = Path(folder)
        if not (folder / "triplets").is_dir():
            do = "run `remargin prepare` with --triplets"
            raise InputError("no triplets in the prepared folder", file=folder, do=do)
        self.queries = TokenStore(folder / "tokens" / "queries")
        self.documents = TokenStore(folder / "tokens" / "documents")
        self.triplets = Triplets(folder / "triplets")
        self.batch_size = min(batch_size, len(self.triplets))
        self.steps_per_epoch = len(self.triplets) // self.batch_size
        self._seed = seed

    def batch(self, number: int) -> TripletBatch:
        """The batch of that number since training began. Each epoch has its own order and its turn of the negatives."""
        epoch, place = divmod(number, self.steps_per_epoch)
        shuffle = Shuffle(len(self.triplets), self._seed, epoch)
        rows = self.triplets.take(shuffle(np.arange(place * self.batch_size, (place + 1) * self.batch_size)))
        turn = epoch % self.triplets.negatives
        margin = None
        if rows.scores is not None:
            margin = torch.from_numpy(rows.scores[:, 0] - rows.scores[:, 1 + turn])
        queries, positives, negatives = rows.queries, rows.positives, rows.negatives[:, turn]
        return TripletBatch(queries.astype(np.int64), positives.astype(np.int64), negatives.astype(np.int64), margin)

    def tokens(self, batch: TripletBatch) -> list[Tokens]:
        """The texts of a batch: queries, then positives, then negatives."""
        documents = np.concatenate([batch.positives, batch.negatives])
        return [self.queries.take(batch.queries), self.documents.take(documents)]

    def typical_lengths(self) -> NDArray[np.int64]:
        """How long the texts of the first batch are."""
        return np.concatenate([tokens.lengths for tokens in self.tokens(self.batch(0))])


class Loader:
    """Batches from one number on, read and cut a step ahead in a thread; knows how long it was waited for."""

    def __init__(self, data: TrainingData, start: int, cut: Callable[[Sequence[Tokens]], MicroBatches]) -> None:
        batches = map(data.batch, itertools.count(start))
        self._ready = ahead((batch, cut(data.tokens(batch))) for batch in batches)
        self.waited = 0.0

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._ready.close()

    def __iter__(self) -> Iterator[tuple[TripletBatch, MicroBatches]]:
        return self

    def __next__(self) -> tuple[TripletBatch, MicroBatches]:
        started = time.perf_counter()
        batch = next(self._ready)
        self.waited += time.perf_counter() - started
        return batch
