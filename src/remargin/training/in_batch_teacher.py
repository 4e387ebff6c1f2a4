"""The second teacher of TAS-B's dual supervision: an encoder whose vectors score every pair of a batch at no cost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from remargin.data.tokens import TokenStore
from remargin.encoder import BiEncoder
from remargin.errors import InputError
from remargin.files import new_file
from remargin.progress import track

TEXTS_AT_ONCE = 16_384


class InBatchTeacher:
    """Vectors of all queries and documents, from which the margins of all pairs of a batch follow.

    >>> teacher = InBatchTeacher(np.eye(2, dtype="f4"), np.eye(2, dtype="f4"))
    >>> teacher.margins(np.array([0, 1]), np.array([0, 1]), np.array([1, 0]))
    tensor([[1., 0.],
            [0., 1.]])
    """

    def __init__(self, queries: NDArray[Any], documents: NDArray[Any]) -> None:
        self._queries, self._documents = queries, documents

    @classmethod
    def load(
        cls,
        model: str | Path,
        queries: TokenStore,
        documents: TokenStore,
        out: Path,
        device: torch.device,
        resume: bool,
        say: Callable[[str], None],
    ) -> InBatchTeacher:
        """Encode a prepared collection; a run that goes on has its vectors already."""
        files = [out / "teacher" / f"{name}.npy" for name in ("queries", "documents")]
        if not (resume and all(file.exists() for file in files)):
            teacher = BiEncoder.from_pretrained(model).to(device)
            say(f"in-batch teacher: {model}")
            queries.require(teacher.tokenizer, teacher.query_length, teacher.query_prefix)
            documents.require(teacher.tokenizer, teacher.document_length, teacher.document_prefix)
            for file, store in zip(files, (queries, documents), strict=True):
                _encode(teacher, store, file)
        return cls(*(np.load(file, mmap_mode="r", allow_pickle=False) for file in files))

    def margins(self, queries: NDArray[np.int64], positives: NDArray[np.int64], negatives: NDArray[np.int64]) -> Tensor:
        """How much more similar query i is to its positive than to negative j, (B, B), for the teacher."""
        q = torch.from_numpy(np.asarray(self._queries[queries], np.float32))
        p, n = (torch.from_numpy(np.asarray(self._documents[rows], np.float32)) for rows in (positives, negatives))
        return (q * p).sum(1, keepdim=True) - q @ n.T


def _encode(model: BiEncoder, store: TokenStore, file: Path) -> None:
    blocks = [np.arange(i, min(i + TEXTS_AT_ONCE, len(store))) for i in range(0, len(store), TEXTS_AT_ONCE)]
    found = np.empty((len(store), model.dimension), np.float16)
    for rows in track(blocks, "encoding for the teacher", total=len(blocks)):
        found[rows] = model.encode_tokens(store.take(rows))
    if not np.isfinite(found).all():
        raise InputError("the in-batch teacher gives vectors that are not numbers", do="use another model")
    with new_file(file, overwrite=True) as out:
        np.save(out, found, allow_pickle=False)
