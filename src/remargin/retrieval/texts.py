"""The texts of a collection, read one after the other: what is encoded or indexed need not fit into memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from remargin.data.collection import open_source
from remargin.data.source import Text, checked_texts
from remargin.data.tables import Rejects

Kind = Literal["documents", "queries"]


def collection_texts(data: str | Path, kind: Kind = "documents", rejects: Rejects | None = None) -> Iterator[Text]:
    """All documents of a collection, or the queries of all its splits, without the empty and the repeated ones.

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
