"""Asking an index one question, and showing the texts of what it finds."""

from __future__ import annotations

import logging
from collections.abc import Set
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from remargin.data.collection import open_source
from remargin.data.tables import Rejects
from remargin.errors import InputError
from remargin.files.shapes import encodable
from remargin.retrieval.encoders import given_texts
from remargin.retrieval.searching import load_with_texts, model_for, warn_shallow

if TYPE_CHECKING:
    from remargin.model.encoder import BiEncoder
    from remargin.model.ranker import Ranker

log = logging.getLogger(__name__)


class Answer(NamedTuple):
    """A document that answers a question, its score, and its text if that could be read."""

    id: str
    score: float
    text: str | None


def ask(
    question: str,
    index: str | Path,
    k: int = 5,
    model: str | Path | BiEncoder | Ranker | None = None,
    data: str | Path | None = None,
    hybrid: str | float | None = None,
    query_length: int | None = None,
    document_length: int | None = None,
    query_prefix: str | None = None,
    document_prefix: str | None = None,
    pooling: str | None = None,
    similarity: str | None = None,
) -> list[Answer]:
    """The best documents of an index for one question, as `remargin ask` shows them.

    Args:
        question: what to look for.
        index: a folder that `index` wrote.
        k: how many documents.
        model: the encoder that made the index, if it is no longer where it was then.
        data: the collection to read the texts from, instead of the index or, if that keeps none, of the collection that
            it was made of. A warning counts texts that are not found.
        hybrid: "off" for the encoder alone, "on" for its fusion with BM25, or the encoder's weight in it, 0 to 1. If
            not given, or "auto", as the index was made.
        query_length, document_length, query_prefix, document_prefix, pooling, similarity: as in `search`: the index has
            its own, and refuses others.

    Raises:
        InputError: for an empty question, and for a folder that is no index.

    Example:
        >>> import tempfile
        >>> from remargin import index
        >>> folder = Path(tempfile.mkdtemp()) / "index"
        >>> built = index(folder, data="docstrings:json", index="bm25")
        >>> [answer.id for answer in ask("serialize obj to a JSON formatted str", folder, k=1)]
        ['json.dumps']
    """
    if not question.strip():
        raise InputError("the question is empty", do="write it in quotes")
    if not encodable(question):
        raise InputError("the question is not UTF-8", do="set the terminal, or LC_ALL, to UTF-8")
    given = given_texts(query_length, document_length, query_prefix, document_prefix, pooling, similarity)
    opened, kept = load_with_texts(index, model_for(Path(index), model, given), hybrid)
    warn_shallow(opened, k)
    ranking = opened.search({"": question}, k).rankings[""]
    texts = {} if kept is None or data is not None else kept.of(list(ranking))
    if missing := ranking.keys() - texts.keys():
        texts |= _texts(data or opened.data, missing)
    return [Answer(id, score, texts.get(id)) for id, score in ranking.items()]


def _texts(data: str | Path, wanted: Set[str]) -> dict[str, str]:
    """The texts of some documents in a collection. A warning counts those that are not found, and says why."""
    texts: dict[str, str] = {}
    reason = f"not in {data}"
    try:
        for text in open_source(data, Rejects(skip=True)).documents():
            if text.id in wanted:
                texts[text.id] = text.text
            if len(texts) == len(wanted):
                break
    except InputError as error:
        reason = str(error) if data else "the index does not name its collection"
    if missing := sorted(wanted - texts.keys()):
        such_as = f"{len(missing)} documents are without their text, such as {missing[0]!r}"
        log.warning("%s (%s); say where the texts are (--data)", such_as, reason)
    return texts
