"""Smaller vectors: a byte or a bit for each number instead of four bytes. What they lose, re-scoring brings back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from remargin.retrieval.settings import Coding


@dataclass(frozen=True)
class Coder:
    """Turns each number x of a vector into a code c so that x is about offset + scale * c, dimension by dimension.

    `int8` has 255 levels between the largest deviations from the mean; `binary` says on which side of the mean x is,
    and its scale is how far from it x lies on average.

    >>> vectors = np.array([[0.5, -1.0], [0.7, 1.0], [0.6, 0.0]], "f4")
    >>> coder = Coder.fit(vectors, "int8")
    >>> coder.encode(vectors).tolist()
    [[-127, -127], [127, 127], [0, 0]]
    """

    coding: Coding
    offset: NDArray[np.float32]
    scale: NDArray[np.float32]

    @classmethod
    def fit(cls, matrix: NDArray[Any], coding: Coding) -> Coder:
        """Offsets and scales for a matrix of vectors, read once or twice, block by block."""
        mean = _mean(matrix, lambda block: block)
        if coding == "binary":
            return cls(coding, mean, _mean(matrix, lambda block: np.abs(block - mean)))
        largest = np.zeros_like(mean)
        for block in _blocks(matrix):
            largest = np.maximum(largest, np.abs(block - mean).max(0))
        return cls(coding, mean, np.where(largest > 0, largest / 127, 1).astype(np.float32))

    def encode(self, vectors: NDArray[Any]) -> NDArray[Any]:
        """The codes: int8 (n, d), or bits in uint8 (n, d / 8 rounded up)."""
        centred = vectors.astype(np.float32) - self.offset
        if self.coding == "binary":
            bits: NDArray[np.uint8] = np.packbits(centred > 0, axis=1, bitorder="little")
            return bits
        levels: NDArray[np.float32] = np.rint(centred / self.scale)
        return levels.clip(-127, 127).astype(np.int8)

    def decode(self, codes: Tensor) -> Tensor:
        """The codes as floats, before scale and offset: -127 to 127, or -1 and 1."""
        if self.coding == "int8":
            return codes.float()
        bits = codes.unsqueeze(2) >> torch.arange(8, dtype=torch.uint8, device=codes.device) & 1
        return bits.flatten(1)[:, : len(self.scale)].float().mul_(2).sub_(1)

    def covers(self, vectors: NDArray[Any]) -> bool:
        """Whether all numbers are within, or close to, the range of the codes; with `binary` they always are."""
        beyond = np.abs(vectors.astype(np.float32) - self.offset) > 1.1 * 127 * self.scale
        return self.coding == "binary" or not beyond.any()

    def width(self) -> int:
        """How many bytes a vector takes."""
        return len(self.scale) if self.coding == "int8" else -(-len(self.scale) // 8)


def _mean(matrix: NDArray[Any], of: Any) -> NDArray[np.float32]:
    total = np.zeros(matrix.shape[1])
    for block in _blocks(matrix):
        total += of(block).sum(0, dtype=np.float64)
    return (total / max(1, len(matrix))).astype(np.float32)


def _blocks(matrix: NDArray[Any], size: int = 65_536) -> Any:
    return (matrix[i : i + size].astype(np.float32) for i in range(0, len(matrix), size))
