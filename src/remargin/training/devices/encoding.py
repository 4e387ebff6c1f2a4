"""Encoding for validation on all devices: the leader asks, and every process encodes its part of the texts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from remargin.model.packing import Packed
from remargin.model.tokenizer import Tokens
from remargin.training.devices.ranks import Ranks
from remargin.training.engine import Engine


class SharedEncoding:
    """What a validator needs of an engine, by all processes together.

    The leader gives it to a validator. At the same time, the others `take_part`, who need to know nothing of what is
    measured: they get their texts from the leader, once.

    Args:
        engine: this process's.
        ranks: the processes.
    """

    def __init__(self, engine: Engine, ranks: Ranks) -> None:
        self.device = engine.device
        self._engine, self._ranks = engine, ranks
        self._own: list[Packed] | None = None
        self._rows: list[int] = []

    def parts(self, tokens: Tokens) -> tuple[list[Packed], NDArray[np.int64]]:
        """The texts of this process, packed, and the order in which `evaluate` will give the vectors of all texts."""
        order = self._shared(tokens)
        assert self._own is not None
        return self._own, order

    def evaluate(self, parts: Sequence[Packed]) -> Tensor:
        """Vectors of all texts, one process's after another's."""
        return torch.cat(self._ranks.gather(self._engine.evaluate(parts), self._rows))

    def take_part(self) -> None:
        """What a process does that follows, while the leader validates."""
        if self._own is None:
            self._shared(None)
        assert self._own is not None
        self.evaluate(self._own)

    def _shared(self, tokens: Tokens | None) -> NDArray[np.int64]:
        """Share the leader's texts out, short and long ones to every process; the order of all of them in the end."""
        tokens = self._ranks.hear(tokens)
        assert tokens is not None
        by_length = np.argsort(-tokens.lengths, kind="stable")
        self._own, order = self._engine.parts(tokens, by_length[self._ranks.rank :: self._ranks.size])
        orders = self._ranks.collect(order)
        self._rows = [len(rows) for rows in orders]
        return np.concatenate(orders)
