"""Batches of triplets from a prepared folder. Any batch follows from the seed and its number alone."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from remargin.data.training_data import TrainingData
from remargin.model.tokenizer import Tokens
from remargin.teacher.in_batch import InBatchTeacher
from remargin.training.devices.ranks import ALONE, Ranks
from remargin.training.samplers import Sampler

# Batches may be of different sizes; among the first ones there is one of the usual size.
FIRST_BATCHES = 8


class TripletBatch(NamedTuple):
    """A batch of triplets.

    Attributes:
        queries, positives, negatives: (B,) row numbers in their token stores; negatives are (B, k) if each triplet has
            several.
        texts: their texts: queries, then positives, then negatives, triplet by triplet. Where several processes train
            together, each has the texts of its own triplets alone; all else is of the whole batch.
        teacher_margin, in_batch_margin: the margins of teachers, if there are teachers: of each negative, and of all
            pairs of the B * k triplets of one negative.
    """

    queries: NDArray[np.int64]
    positives: NDArray[np.int64]
    negatives: NDArray[np.int64]
    texts: Tokens
    teacher_margin: Tensor | None
    in_batch_margin: Tensor | None = None

    def split(self, *vectors: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Vectors of the texts as a loss takes them: queries, positives, and negatives (B, d) or (B, k, d).

        Vectors of several processes come in the order of their ranks, and make one batch.
        """
        k = self._texts_of_one - 2
        sizes = [len(part) // self._texts_of_one for part in vectors]
        columns = zip(*(part.split([n, n, n * k]) for part, n in zip(vectors, sizes, strict=True)), strict=True)
        queries, positives, negatives = (c[0] if len(c) == 1 else torch.cat(c) for c in columns)
        return queries, positives, negatives.unflatten(0, (sum(sizes), *self.negatives.shape[1:]))

    def texts_of_each(self, ranks: Ranks) -> list[int]:
        """How many of the batch's texts each process has."""
        bounds = ranks.bounds(len(self.queries))
        return [(end - start) * self._texts_of_one for start, end in pairwise(bounds)]

    @property
    def _texts_of_one(self) -> int:
        """How many texts a triplet has."""
        return 2 + self.negatives.size // len(self.queries)


class Batches:
    """The batches of a training run: any of them, by its number.

    Args:
        data: where texts and triplets come from.
        sampler: which triplets make a batch.
        teacher_scale: what a teacher's margins are multiplied with.
        in_batch_teacher: scores all pairs of a batch, if there is one.
        ranks: the processes that train together, of which each has the texts of its share of a batch.
    """

    def __init__(
        self,
        data: TrainingData,
        sampler: Sampler,
        teacher_scale: float = 1.0,
        in_batch_teacher: InBatchTeacher | None = None,
        ranks: Ranks = ALONE,
    ) -> None:
        self.sampler, self._ranks = sampler, ranks
        self._data, self._teacher_scale, self._in_batch_teacher = data, teacher_scale, in_batch_teacher

    @property
    def steps_per_epoch(self) -> int:
        """How many batches an epoch has."""
        return self.sampler.steps_per_epoch

    def batch(self, number: int) -> TripletBatch:
        """The batch of that number since training began."""
        drawn = self.sampler(number)
        rows, of_each = self._data.triplets.take(drawn.triplets), drawn.negatives.shape
        chosen = drawn.negatives.reshape(len(drawn.triplets), -1)  # (B, k)
        margin = None
        if rows.scores is not None:
            margins = rows.scores[:, :1] - np.take_along_axis(rows.scores, 1 + chosen, 1)
            margin = torch.from_numpy(margins.reshape(of_each) * np.float32(self._teacher_scale))
        columns = rows.queries, rows.positives, np.take_along_axis(rows.negatives, chosen, 1).reshape(of_each)
        queries, positives, negatives = (column.astype(np.int64) for column in columns)
        in_batch = None
        if self._in_batch_teacher is not None:
            q, p = (np.repeat(column, chosen.shape[1]) for column in (queries, positives))
            in_batch = self._in_batch_teacher.margins(q, p, negatives.ravel())
        own = self._ranks.share(len(queries))
        documents = self._data.documents.take(np.concatenate([positives[own], negatives[own].ravel()]))
        texts = Tokens.together([self._data.queries.take(queries[own]), documents])
        return TripletBatch(queries, positives, negatives, texts, margin, in_batch)

    def typical_lengths(self) -> NDArray[np.int64]:
        """How many tokens each text of a full batch has: of the largest among the first batches."""
        first = [self.batch(number) for number in range(min(FIRST_BATCHES, self.steps_per_epoch))]
        largest = max(first, key=lambda batch: len(batch.queries))
        return largest.texts.lengths
