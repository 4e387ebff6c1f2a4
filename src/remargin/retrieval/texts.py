"""The texts of a collection, read one after the other or all at once, and word of those that were skipped."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from remargin.data.collection import Collection, open_source
from remargin.data.source import Text, checked_texts
from remargin.data.tables import SKIP, Rejects
from remargin.model.tokenizer import Kind

log = logging.getLogger(__name__)


def collection_texts(data: str | Path, kind: Kind = "documents", rejects: Rejects | None = None) -> Iterator[Text]:
    """All documents of a collection, or the queries of all its splits, without the empty and the repeated ones.

    They are read one after the other: what is encoded or indexed need not fit into memory.

    Args:
        data: a BEIR folder, "irds:NAME", "docstrings:PACKAGES" or "pairs:FILE"; see `open_source`.
        kind: "documents" or "queries".
        rejects: where bad input goes; without it, bad input is an error.

    Example:
        >>> texts = {text.id: text.text for text in collection_texts("docstrings:json")}
        >>> "json.dumps" in texts
        True
    """
    rejects = rejects or Rejects()
    source = open_source(data, rejects)
    if kind == "documents":
        yield from checked_texts(source.documents(), "document", rejects)
    else:
        yield from checked_texts(source.queries(), "query", rejects)


def as_collection(data: str | Path | Collection, split: str = "test", skip_bad: bool = False) -> Collection:
    """A collection that is loaded already, or the one that a name stands for; a warning counts what was skipped.

    >>> collection = Collection.load("docstrings:json")
    >>> as_collection(collection) is collection
    True
    """
    if isinstance(data, Collection):
        return data
    collection = Collection.load(data, split, skip_bad)
    if collection.rejects.count:
        _warn(collection.rejects)
    return collection


@contextmanager
def counted_rejects(skip_bad: bool) -> Iterator[Rejects]:
    """Give a block of work a place for bad input. When the block ends, a warning counts what was skipped."""
    rejects = Rejects(skip=skip_bad)
    try:
        yield rejects
    finally:
        if rejects.count:
            _warn(rejects)


def _warn(rejects: Rejects) -> None:
    first = str(rejects.first).removesuffix(f"; {SKIP}")  # that advice has been followed
    log.warning("skipped bad input: %s, the first is %s", f"{rejects.count:,}", first)
