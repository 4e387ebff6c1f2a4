"""Batches of triplets from a prepared folder. Any batch follows from the seed and its number alone."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from remargin.data.training_data import TrainingData
from remargin.model.tokenizer import Tokens
from remargin.teacher.in_batch import InBatchTeacher
from remargin.training.samplers import Sampler

# Batches may be of different sizes; among the first ones there is one of the usual size.
FIRST_BATCHES = 8


class TripletBatch(NamedTuple):
    """A batch of triplets.

    Attributes:
        queries, positives, negatives: (B,) row numbers in their token stores.
        texts: their 3B texts: queries, then positives, then negatives.
        teacher_margin, in_batch_margin: the margins of teachers, if there are teachers.
    """

    queries: NDArray[np.int64]
    positives: NDArray[np.int64]
    negatives: NDArray[np.int64]
    texts: Tokens
    teacher_margin: Tensor | None
    in_batch_margin: Tensor | None = None


class Batches:
    """The batches of a training run: any of them, by its number.

    Args:
        data: where texts and triplets come from.
        sampler: which triplets make a batch.
        teacher_scale: what a teacher's margins are multiplied with.
        in_batch_teacher: scores all pairs of a batch, if there is one.
    """

    def __init__(
        self,
        data: TrainingData,
        sampler: Sampler,
        teacher_scale: float = 1.0,
        in_batch_teacher: InBatchTeacher | None = None,
    ) -> None:
        self.sampler = sampler
        self._data, self._teacher_scale, self._in_batch_teacher = data, teacher_scale, in_batch_teacher

    @property
    def steps_per_epoch(self) -> int:
        """How many batches an epoch has."""
        return self.sampler.steps_per_epoch

    def batch(self, number: int) -> TripletBatch:
        """The batch of that number since training began."""
        drawn = self.sampler(number)
        rows, each = self._data.triplets.take(drawn.triplets), np.arange(len(drawn.triplets))
        margin = None
        if rows.scores is not None:
            margins = rows.scores[:, 0] - rows.scores[each, 1 + drawn.negatives]
            margin = torch.from_numpy(margins * np.float32(self._teacher_scale))
        columns = rows.queries, rows.positives, rows.negatives[each, drawn.negatives]
        queries, positives, negatives = (column.astype(np.int64) for column in columns)
        teacher = self._in_batch_teacher
        in_batch = None if teacher is None else teacher.margins(queries, positives, negatives)
        documents = self._data.documents.take(np.concatenate([positives, negatives]))
        texts = Tokens.together([self._data.queries.take(queries), documents])
        return TripletBatch(queries, positives, negatives, texts, margin, in_batch)

    def typical_lengths(self) -> NDArray[np.int64]:
        """How many tokens each text of a full batch has: of the largest among the first batches."""
        first = [self.batch(number) for number in range(min(FIRST_BATCHES, self.steps_per_epoch))]
        largest = max(first, key=lambda batch: len(batch.queries))
        return largest.texts.lengths
