"""The texts of a collection, read one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from remargin.data.collection import open_source
from remargin.data.source import Text, checked_texts
from remargin.data.tables import Rejects
from remargin.model.tokenizer import Kind


def collection_texts(data: str | Path, kind: Kind = "documents", rejects: Rejects | None = None) -> Iterator[Text]:
    """All documents of a collection, or the queries of all its splits, without the empty and the repeated ones.

    They are read one after the other: what is encoded or indexed need not fit into memory.

    Args:
        data: a BEIR folder, "pairs:FILE", "files:FOLDER", "docstrings:PACKAGES" or "irds:NAME"; see `open_source`.
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


@contextmanager
def counted_rejects(skip_bad: bool) -> Iterator[Rejects]:
    """Give a block of work a place for bad input. When the block ends, a warning counts what was skipped."""
    rejects = Rejects(skip=skip_bad)
    try:
        yield rejects
    finally:
        rejects.warn()
