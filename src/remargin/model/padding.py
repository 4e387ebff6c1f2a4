"""Texts as rectangles of tokens, filled up to the longest, for models that are computed as transformers does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from remargin.model.packing import select, split
from remargin.model.tokenizer import Tokens


def padded_batches(
    tokens: Tokens, padding: int, at_once: int, device: torch.device
) -> Iterator[tuple[NDArray[np.int64], torch.Tensor, torch.Tensor]]:
    """Rows of texts, their ids and their attention mask, about as many tokens at once as is said, by length.

    >>> tokens = Tokens(np.array([7, 8, 9], np.uint32), np.array([1, 2]))
    >>> [(rows.tolist(), ids.tolist()) for rows, ids, _ in padded_batches(tokens, 0, 100, torch.device("cpu"))]
    [([1, 0], [[8, 9], [7, 0]])]
    """
    for rows in split(tokens.lengths, at_once, by_length=True):
        some = select(tokens, rows)
        there = np.arange(int(some.lengths.max()))[None] < some.lengths[:, None]
        ids = torch.from_numpy(padded(some.ids, there, padding))
        yield rows, ids.to(device), torch.from_numpy(there.astype(np.int64)).to(device)


def padded(flat: NDArray[Any], there: NDArray[np.bool_], filler: int) -> NDArray[np.int64]:
    """Numbers of texts that lie end to end, as a row for each text, filled up to the same length."""
    rectangle = np.full(there.shape, filler, np.int64)
    rectangle[there] = flat
    return rectangle
