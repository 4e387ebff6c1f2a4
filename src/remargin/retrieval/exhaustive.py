"""Exhaustive search and re-ranking by a model that makes no single vectors: late interaction, or sparse vectors."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from remargin.evaluation.runs import Run
from remargin.model.ranker import Ranker
from remargin.progress import track

log = logging.getLogger(__name__)
DOCUMENTS_AT_ONCE = 1024


class ExhaustiveIndex:
    """Documents that are encoded while they are searched, and compared with every query: fit for small collections.

    Memory holds the queries and some documents at a time, so that late interaction needs no index.

    Args:
        model: which encodes and compares.
        documents: texts by their ids.
        data: the name of their collection.
    """

    def __init__(self, model: Ranker, documents: Mapping[str, str], data: str = "") -> None:
        self.model = model
        self._documents = documents
        self.data = data

    def __len__(self) -> int:
        return len(self._documents)

    def lacking(self, documents: Sequence[str]) -> int:
        """How many of these documents are not in it."""
        return len(set(documents).difference(self._documents))

    def search(self, queries: Mapping[str, str], k: int = 1000) -> Run:
        """The k best documents of each query, by the model's own score."""
        ids = np.array(list(self._documents), object)
        best = np.empty((len(queries), 0), np.float32)
        rows = np.empty((len(queries), 0), np.int64)
        encoded = self.model.encode_queries(list(queries.values()))
        before = self.model.truncated
        for start, block in _blocks(self.model, list(self._documents.values())):
            scores = self.model.scores(encoded, block)
            found = np.broadcast_to(np.arange(start, start + scores.shape[1]), scores.shape)
            best, rows = _largest(np.hstack([best, scores]), np.hstack([rows, found]), k)
        _warn_truncated(self.model, self.model.truncated - before, len(self))
        rankings = {}
        for query, of_query, values in zip(queries, rows, best, strict=True):
            kept = values > self.model.least
            rankings[query] = dict(zip(ids[of_query[kept]].tolist(), values[kept].tolist(), strict=True))
        return Run.of(rankings)


def rescored(
    model: Ranker, queries: Mapping[str, str], candidates: Mapping[str, Sequence[str]], documents: Mapping[str, str]
) -> dict[str, dict[str, float]]:
    """The model's score of each candidate of each query. Each document is encoded once."""
    needed = sorted({document for ranking in candidates.values() for document in ranking})
    places = {document: row for row, document in enumerate(needed)}
    wanted = {query: np.sort([places[document] for document in ranking]) for query, ranking in candidates.items()}
    encoded = model.encode_queries([queries[query] for query in candidates])
    before = model.truncated
    scores: dict[str, dict[str, float]] = {query: {} for query in candidates}
    for start, block in _blocks(model, [documents[document] for document in needed]):
        for place, (query, rows) in enumerate(wanted.items()):
            low, high = np.searchsorted(rows, [start, start + DOCUMENTS_AT_ONCE])
            if low < high:
                some = rows[low:high]
                values = model.scores(encoded[np.array([place])], block[some - start])[0]
                scores[query] |= zip([needed[row] for row in some.tolist()], values.tolist(), strict=True)
    _warn_truncated(model, model.truncated - before, len(needed))
    return scores


def _blocks(model: Ranker, texts: list[str]) -> Any:
    """Some documents at a time, encoded, and the place of the first of them."""
    starts = range(0, len(texts), DOCUMENTS_AT_ONCE)
    blocks = ((start, model.encode_documents(texts[start : start + DOCUMENTS_AT_ONCE])) for start in starts)
    return track(blocks, "encoding and comparing", total=len(starts), show=None if len(starts) > 1 else False)


def _largest(
    scores: NDArray[np.float32], rows: NDArray[np.int64], k: int
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """The k largest scores of each query and their rows; of equal ones, the first."""
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(scores, order, 1), np.take_along_axis(rows, order, 1)


def _warn_truncated(model: Ranker, truncated: int, documents: int) -> None:
    if truncated:
        length = model.text_settings.document_length
        log.warning("%d of %d documents were truncated to %d tokens", truncated, documents, length)
