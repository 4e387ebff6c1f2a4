"""Which examples of a stream make the next batch: in the order in which they came, or shuffled among the latest."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from remargin.errors import InputError
from remargin.training.streaming.journal import REMEDY, StreamJournal, Taken

LEAST = 2  # examples in a batch: one alone has nothing to be compared with


class Window(nn.Module):
    """The examples that wait, and how much of the journal was read: all that decides which batches follow.

    The same journal, seed and state give the same batches, whenever the lines came. It is a module so that checkpoints
    keep its state like that of the others; it has no weights.

    Args:
        journal: what was taken of the stream.
        size: the examples among which each one of a batch is drawn (a shuffle buffer); 1 keeps the order.
        seed: for what is drawn.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from remargin.training.streaming.sources import Line
        >>> journal = StreamJournal(Path(tempfile.mkdtemp()))
        >>> line = b'{"query": "q", "document": "d"}'
        >>> journal.add([Line("-", number, 0, len(line), "", line) for number in range(1, 7)])
        >>> window = Window(journal)
        >>> [taken.number for taken in window.batch(4)], window.lacking(4), window.rest(4)
        ([1, 2, 3, 4], 2, 2)
    """

    def __init__(self, journal: StreamJournal, size: int = 1, seed: int = 0) -> None:
        super().__init__()
        self._journal, self._size, self._seed = journal, size, seed
        self._waiting: list[Taken] = []
        self._place = self._lines = self._examples = 0  # read of the journal: bytes, lines, and examples among these
        self._draws = 0

    @property
    def waiting(self) -> int:
        """How many examples there are that no batch has had yet."""
        return self._journal.examples - self._examples + len(self._waiting)

    def lacking(self, count: int) -> int:
        """How many examples have yet to come before a batch of that many can be drawn."""
        return max(0, self._size - 1 + count - self.waiting)

    def rest(self, count: int) -> int:
        """How many examples to draw when no more will come: those that wait, in batches that differ in size by one.

        None if a single one waits, unless batches are to be of one.
        """
        batches = -(-self.waiting // count)
        size = -(-self.waiting // batches) if batches else 0
        return size if size >= min(LEAST, count) else 0

    def batch(self, count: int) -> list[Taken]:
        """Draw that many examples, of those that wait."""
        unread = self._unread()
        drawn = [self._draw(unread) for _ in range(count)]
        unread.close()
        return drawn

    def _draw(self, unread: Iterator[Taken]) -> Taken:
        while len(self._waiting) < self._size and (taken := next(unread, None)) is not None:
            self._waiting.append(taken)
        place = 0
        if self._size > 1:
            place = int(np.random.default_rng([self._seed, self._draws]).integers(len(self._waiting)))
        self._draws += 1
        self._waiting[place], self._waiting[-1] = self._waiting[-1], self._waiting[place]
        return self._waiting.pop()

    def _unread(self) -> Generator[Taken, None, None]:
        """The examples that follow in the journal, which count as read when they are asked for."""
        for end, taken in self._journal.read_on(self._place, self._lines):
            self._place, self._lines = end, self._lines + 1
            if taken is not None:
                self._examples += 1
                yield taken

    def state_dict(self, *_: Any, **__: Any) -> dict[str, Tensor]:  # type: ignore[override]
        """All that decides which batches follow."""
        counts = [self._place, self._lines, self._examples, self._draws]
        waiting = [(taken.place, taken.number) for taken in self._waiting]
        return {"counts": torch.tensor(counts), "waiting": torch.tensor(waiting, dtype=torch.int64).view(-1, 2)}

    def load_state_dict(self, state: Mapping[str, Tensor], *_: Any, **__: Any) -> None:  # type: ignore[override]
        """Go on where `state_dict` was called.

        Raises:
            InputError: if the journal does not have what was read of it then.
        """
        self._place, self._lines, self._examples, self._draws = state["counts"].tolist()
        if self._place > self._journal.end or self._examples > self._journal.examples:
            raise InputError("lines are missing at its end", file=self._journal.path, do=REMEDY)
        self._waiting = [
            Taken(place, number, self._journal.example_at(place)) for place, number in state["waiting"].tolist()
        ]
