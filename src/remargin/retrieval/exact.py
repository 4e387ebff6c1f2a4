"""Exact dense search: every query against every document, without the whole score matrix."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from remargin.encoder import BiEncoder
from remargin.evaluation.runs import Run

DOCUMENTS_AT_ONCE = 65_536
QUERIES_AT_ONCE = 256


def top_k(
    queries: NDArray[Any], documents: NDArray[Any], k: int, device: torch.device | str = "cpu"
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Scores and rows of the k documents with the largest dot product for each query, best first.

    >>> scores, rows = top_k(np.eye(2, dtype="f4"), np.array([[1, 0], [0, 2], [3, 1]], "f4"), k=2)
    >>> rows.tolist()
    [[2, 0], [1, 2]]
    """
    k = min(k, len(documents))
    all_scores, all_rows = [], []
    for q in range(0, len(queries), QUERIES_AT_ONCE):
        block = torch.from_numpy(queries[q : q + QUERIES_AT_ONCE]).to(device)
        best = torch.empty(len(block), 0, device=device)
        rows = torch.empty(len(block), 0, dtype=torch.long, device=device)
        for d in range(0, len(documents), DOCUMENTS_AT_ONCE):
            part = torch.from_numpy(documents[d : d + DOCUMENTS_AT_ONCE]).to(device)
            scores, found = (block @ part.T).topk(min(k, len(part)))
            best, order = torch.cat([best, scores], 1).topk(min(k, best.shape[1] + scores.shape[1]))
            rows = torch.cat([rows, found + d], 1).gather(1, order)
        all_scores.append(best.float().cpu().numpy())
        all_rows.append(rows.cpu().numpy())
    if not all_scores:
        return np.empty((0, k), np.float32), np.empty((0, k), np.int64)
    return np.concatenate(all_scores), np.concatenate(all_rows)


class DocumentIndex:
    """Documents encoded once, to be searched with the same model as often as you like."""

    def __init__(self, model: BiEncoder, documents: Mapping[str, str]) -> None:
        self._model = model
        self._ids = np.array(list(documents), object)
        self._vectors = model.encode_documents(list(documents.values()))

    def search(self, queries: Mapping[str, str], k: int = 1000) -> Run:
        """The k best documents of each query, by the model's similarity."""
        vectors = self._model.encode_queries(list(queries.values()))
        scores, rows = top_k(vectors, self._vectors, k, self._model.device)
        found = zip(queries, rows, scores, strict=True)
        return Run.of({query: dict(zip(self._ids[r].tolist(), s.tolist(), strict=True)) for query, r, s in found})
