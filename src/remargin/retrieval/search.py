"""Search a collection with whichever index."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

from remargin.data.collection import Collection
from remargin.errors import InputError
from remargin.evaluation.runs import Run

if TYPE_CHECKING:
    from remargin.encoder import BiEncoder

Index = Literal["bm25", "exact"]


def search(collection: Collection, index: Index = "exact", model: BiEncoder | None = None, k: int = 1000) -> Run:
    """Rank the collection's documents for each of its queries.

    Args:
        collection: documents and queries.
        index: "bm25", or "exact" dense search with a model.
        model: the encoder, for every index but bm25.
        k: how many documents for each query.

    Example:
        >>> collection = Collection.load("docstrings:json", split="test")
        >>> run = search(collection, "bm25", k=3)
        >>> list(run.rankings) == list(collection.queries)
        True
    """
    if index not in get_args(Index):
        raise InputError(f"unknown index {index!r}", do=f"use {' or '.join(get_args(Index))}")
    if (model is None) != (index == "bm25"):
        raise InputError(f"index {index!r} {'takes no' if model else 'needs a'} model", do="see --help")
    if model is None:
        from remargin.retrieval.bm25 import BM25

        return BM25(collection.documents).search(collection.queries, k)
    from remargin.retrieval.exact import DocumentIndex

    return DocumentIndex(model, collection.documents).search(collection.queries, k)
