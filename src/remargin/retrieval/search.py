"""Search a collection with whichever index."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from remargin.data.collection import Collection
from remargin.errors import InputError
from remargin.evaluation.runs import Run
from remargin.retrieval.bm25 import BM25, NO_SPACES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from remargin.model.encoder import BiEncoder
    from remargin.retrieval.dense import DenseIndex


log = logging.getLogger(__name__)
KINDS = ("bm25", "exact", "faiss", "milvus")


class Index(Protocol):
    """Anything that ranks its documents for queries: `BM25`, `DenseIndex`."""

    def search(self, queries: Mapping[str, str], k: int = 1000) -> Run:
        """The k best documents of each query."""


def search(
    collection: Collection, index: str | Path | Index = "exact", model: BiEncoder | None = None, k: int = 1000
) -> Run:
    """Rank documents for each of a collection's queries. A query that is itself a document does not find itself.

    Args:
        collection: the queries, and the documents if the index is made on the way.
        index: "bm25"; "exact", "faiss" or "milvus" with a model; a folder that `remargin index` wrote; an open index.
        model: the encoder. A folder knows its own, and another one is refused.
        k: how many documents for each query.

    Example:
        >>> collection = Collection.load("docstrings:json", split="test")
        >>> run = search(collection, "bm25", k=3)
        >>> list(run.rankings) == list(collection.queries)
        True
    """
    if not isinstance(index, str | Path):
        return _ranked(collection, index, k)
    opened = _open(collection, index, model)
    run = _ranked(collection, opened, k)
    if index not in KINDS:
        _check_documents(opened, run, collection, Path(index))
    if empty := run.empty():
        reason = "; no word of theirs is in a document" if isinstance(opened, BM25) else ""
        reason += f", and {NO_SPACES}: search with a model (--index exact)" if reason and len(empty) == len(run) else ""
        log.warning("nothing was found for %d of %d queries, such as %r%s", len(empty), len(run), empty[0], reason)
    return run


def _ranked(collection: Collection, index: Index, k: int) -> Run:
    if not collection.self_matches:
        return index.search(collection.queries, k)
    run, _ = without_self_matches(index.search(collection.queries, k + 1), collection)
    return Run.of(run.rankings, depth=k)


def without_self_matches(run: Run, collection: Collection) -> tuple[Run, int]:
    """A run without documents that are the query itself, and how many of them it had; see `Collection.self_matches`.

    `search` finds none of them, but other programs may, and with them a run would measure less than it is worth.

    Example:
        >>> documents = {"a": "Dogs bark.", "b": "Cats purr."}
        >>> collection = Collection("", "test", documents, {"a": "Dogs bark."}, {"a": {"b": 1}})
        >>> run, count = without_self_matches(Run.of({"a": {"a": 9.0, "b": 5.0}}), collection)
        >>> run.rankings, count
        ({'a': {'b': 5.0}}, 1)
    """
    itself = [(id, id) for id in collection.self_matches if id in run.rankings.get(id, {})]
    return run.without(itself), len(itself)


def _check_documents(index: BM25 | DenseIndex, run: Run, collection: Collection, folder: Path) -> None:
    """Refuse the index of another collection, and warn if the collection has changed since the index was made."""
    found = {id for ranking in run.rankings.values() for id in ranking}
    unknown = found.difference(collection.documents)
    if found and unknown == found:
        problem = f"is not a document of {collection.name}, nor is any other that the index finds"
        raise InputError(problem, file=folder, id=min(found), do="search the index of this collection")
    lacking = index.lacking(list(collection.documents))
    if lacking or unknown:
        log.warning(
            "%s lacks %d of %d documents of %s, and found %d that are not among them: see `remargin update`",
            *(folder, lacking, len(collection.documents), collection.name, len(unknown)),
        )


def _open(collection: Collection, index: str | Path, model: BiEncoder | None) -> BM25 | DenseIndex:
    if index == "bm25":
        if model is not None:
            raise InputError("index 'bm25' takes no model", do="leave --model out")
        return BM25(collection.documents)
    if index in KINDS:
        if model is None:
            raise InputError(f"index {index!r} needs a model", do="give --model")
        from remargin.retrieval.dense import DenseIndex
        from remargin.retrieval.settings import BackendSettings
        from remargin.retrieval.vectors import Vectors

        settings = BackendSettings(str(index))
        settings.check()
        return DenseIndex.in_memory(model, Vectors.of(model, collection.documents, collection.name), settings)
    if not Path(index).is_dir():
        do = "use bm25, exact, faiss, milvus, or a folder that `remargin index` wrote"
        raise InputError(f"unknown index {str(index)!r}", do=do)
    return load_index(index, model)


def load_index(folder: str | Path, model: BiEncoder | None = None) -> BM25 | DenseIndex:
    """Open the index in a folder: BM25's, or a dense one with its model."""
    from remargin.retrieval import bm25

    if (Path(folder) / bm25.HEADER).is_file():
        if model is not None:
            raise InputError("a BM25 index takes no model", file=folder, do="leave --model out")
        return bm25.BM25.load(folder)
    from remargin.retrieval.index_folder import open_index

    return open_index(folder, model)
