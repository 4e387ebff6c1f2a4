"""A shuffle that can resume anywhere: the k-th row of an epoch is computed, not looked up."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

ROUNDS = 6


class Shuffle:
    """A pseudo-random permutation of range(size), a different one for every seed and epoch.

    It takes no memory and no set-up, so training on 40 million triplets resumes at any step at once: a Feistel network
    permutes the next larger power of four, and a position that lands outside is sent through it again until it lands
    inside.

    Example:
        >>> import numpy as np
        >>> shuffle = Shuffle(size=10, seed=1)
        >>> sorted(shuffle(np.arange(10)).tolist()) == list(range(10))
        True
        >>> int(shuffle(np.array([7]))[0]) == int(shuffle(np.arange(10))[7])
        True
    """

    def __init__(self, size: int, seed: int, epoch: int = 0) -> None:
        if size < 1:
            raise ValueError(f"size={size}: there is nothing to shuffle")
        self.size = size
        self._half = np.uint64(max(1, ((size - 1).bit_length() + 1) // 2))  # bits in each half of the network
        self._mask = np.uint64((1 << int(self._half)) - 1)
        digest = hashlib.blake2b(f"{seed}/{epoch}/{size}".encode(), digest_size=8 * ROUNDS).digest()
        self._keys = np.frombuffer(digest, np.uint64)

    def __call__(self, positions: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
        """The rows at some positions of the shuffled order."""
        rows = np.asarray(positions).astype(np.uint64)
        if len(rows) and int(rows.max()) >= self.size:
            raise IndexError(f"position {int(rows.max())} of {self.size}")
        rows = self._permute(rows)
        outside = np.flatnonzero(rows >= self.size)
        while len(outside):
            rows[outside] = self._permute(rows[outside])
            outside = outside[rows[outside] >= self.size]
        return rows.astype(np.int64)

    def _permute(self, rows: NDArray[np.uint64]) -> NDArray[np.uint64]:
        left, right = rows >> self._half, rows & self._mask
        for key in self._keys:
            left, right = right, left ^ (_mix(right ^ key) & self._mask)
        return (left << self._half) | right


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64's finaliser: every input bit reaches every output bit."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
