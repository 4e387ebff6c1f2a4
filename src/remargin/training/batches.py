"""Batches of triplets from a prepared folder: any step's batch, straight away, from the seed and the step alone."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from remargin.data.shuffle import Shuffle
from remargin.data.tokens import TokenStore
from remargin.data.triplets import Triplets
from remargin.encoder import BiEncoder, padded
from remargin.errors import InputError

# On a CPU, texts of similar length share a forward pass: padding is what it would spend most of its time on.
CPU_TEXTS_AT_ONCE = 16


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


def embed(
    module: nn.Module, model: BiEncoder, store: TokenStore, rows: NDArray[np.int64], device: torch.device
) -> Tensor:
    """Vectors of some rows of a store, (n, d), in their order; `module` is the model, or what wraps it for training."""
    tokens = store.take(rows)
    at_once = CPU_TEXTS_AT_ONCE if device.type == "cpu" else len(rows)
    order = np.argsort(tokens.lengths, kind="stable")
    padding = int(model.hf_tokenizer.pad_token_id or 0)
    parts = []
    for start in range(0, len(order), at_once):
        ids, mask = padded(tokens, order[start : start + at_once], padding)
        parts.append(module(ids.to(device, non_blocking=True), mask.to(device, non_blocking=True)))
    back = torch.from_numpy(np.argsort(order)).to(device)
    return torch.cat(parts)[back]
