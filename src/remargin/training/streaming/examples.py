"""What a line of a stream says: a triplet, a pair, or a vote against a document, from which nothing is learnt."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from remargin.errors import InputError, first_line
from remargin.files.shapes import encodable

DO = "see `remargin fit --help` for what a line may hold (--stream)"


class Example(NamedTuple):
    """Texts to train on.

    Attributes:
        query, positive: the texts.
        positive_id: the positive's id in the collection, if the line says one.
        negatives: texts; none for a pair, whose negatives are still to be mined.
    """

    query: str
    positive: str
    positive_id: str | None
    negatives: tuple[str, ...] = ()


def parse(line: str, documents: Mapping[str, str] | None = None) -> Example | None:
    """What a line holds; None for a vote against a document.

    A line is a JSON object. It has a `query`, a `positive` or `document`, and perhaps a `negative` or `negatives`.
    Instead of the text of a document, there may be its id in the collection: `positive_id` or `document_id`,
    `negative_id` or `negative_ids`. Other fields are ignored; with a `grade` of 0 or less, the line is a vote against
    the document.

    Args:
        line: the line.
        documents: the texts of the collection by id, if there is one.

    Raises:
        InputError: if it is none of these.

    Example:
        >>> parse('{"query": "how?", "positive": "so", "negative": "not so"}')
        Example(query='how?', positive='so', positive_id=None, negatives=('not so',))
        >>> parse('{"query": "how?", "document_id": "d1", "grade": 1}', {"d1": "so"}).positive
        'so'
    """
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(f"not valid JSON ({first_line(error)})", do=DO) from None
    if not isinstance(row, dict):
        raise InputError("not a JSON object", do=DO)
    if "\\u" in line and not encodable(json.dumps(row, ensure_ascii=False)):
        raise InputError("half of a surrogate pair, which is no text", do=DO)
    grade = row.get("grade", 1)
    if isinstance(grade, bool) or not isinstance(grade, int | float):
        raise InputError("grade is not a number", do=DO)
    query = _text(row, "query")
    if query is None:
        raise InputError("no query", do=DO)
    if not grade > 0:
        return None
    positive, id = _document(row, documents)
    return Example(query, positive, id, _negatives(row, documents))


def _document(row: dict[str, Any], documents: Mapping[str, str] | None) -> tuple[str, str | None]:
    text = _text(row, "positive") or _text(row, "document")
    id = row.get("positive_id", row.get("document_id"))
    if id is not None and not isinstance(id, str):
        raise InputError("the id of the document is not text", do=DO)
    if text is None and id is None:
        raise InputError("no document", do=DO)
    return text or _of_collection(str(id), documents), id


def _negatives(row: dict[str, Any], documents: Mapping[str, str] | None) -> tuple[str, ...]:
    for many, one in (("negatives", "negative"), ("negative_ids", "negative_id")):
        values = row.get(many, [row[one]] if row.get(one) is not None else None)
        if values is None:
            continue
        if not isinstance(values, list) or not all(isinstance(value, str) and value.strip() for value in values):
            raise InputError(f"{many if many in row else one} is not text", do=DO)
        by_id = many == "negative_ids"
        if values:
            return tuple(_of_collection(value, documents) if by_id else value.strip() for value in values)
    return ()


def _text(row: dict[str, Any], name: str) -> str | None:
    value = row.get(name)
    if value is None:
        return None
    if not isinstance(value, str) or not value.strip():
        raise InputError(f"{name} is {'empty' if isinstance(value, str) else 'not text'}", do=DO)
    return value.strip()


def _of_collection(id: str, documents: Mapping[str, str] | None) -> str:
    text = (documents or {}).get(id, "").strip()
    if not text:
        problem = "the collection has no document of this id" if documents else "an id, and no collection (--data)"
        raise InputError(problem, id=id, do=DO)
    return text
