"""The texts of documents by their ids, wherever they are kept: the one place of this room that knows."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Protocol

from remargin.data.tables import Rejects
from remargin.errors import InputError
from remargin.retrieval.texts import collection_texts

log = logging.getLogger(__name__)


class Texts(Protocol):
    """Texts by the ids of their documents."""

    def of(self, ids: Sequence[str]) -> dict[str, str]:
        """The texts of these documents, without those that have none."""


class TextsInMemory:
    """Texts in a dictionary.

    >>> TextsInMemory({"d1": "margins adapt"}).of(["d1", "d2"])
    {'d1': 'margins adapt'}
    """

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = texts

    def of(self, ids: Sequence[str]) -> dict[str, str]:
        """The texts of these documents, without those that are not there."""
        return {id: self._texts[id] for id in ids if id in self._texts}


def texts_of_index(kept: Texts | None, data: str) -> Texts:
    """The texts of an index: those that it keeps, or else those of a collection.

    If the collection cannot be read, there are none, and a warning says why.
    """
    if kept is not None:
        return kept
    try:
        return TextsInMemory({text.id: text.text for text in collection_texts(data, rejects=Rejects(skip=True))})
    except InputError as error:
        log.warning("texts are not shown (%s); say where they are (--data)", error)
        return TextsInMemory({})
