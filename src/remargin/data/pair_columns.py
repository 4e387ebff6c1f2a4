"""Which column of a table of pairs is which: by the names that need no explanation, or as the user names them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from remargin.data.tables import Row, closest, require_columns
from remargin.errors import InputError

log = logging.getLogger(__name__)

# Column names that need no explanation, in order of preference.
KNOWN_COLUMNS = [
    ("query", "document"),
    ("query", "positive"),
    ("query", "answer"),
    ("query", "passage"),
    ("query", "text"),
    ("question", "answer"),
    ("question", "document"),
    ("question", "passage"),
    ("question", "context"),
    ("question", "text"),
    ("title", "abstract"),
    ("title", "text"),
    ("title", "body"),
    ("summary", "description"),
    ("anchor", "positive"),
]
QUERIES, DOCUMENTS = (list(dict.fromkeys(names)) for names in zip(*KNOWN_COLUMNS, strict=True))
QUERY_IDS = ("query_id", "question_id", "query-id", "qid")
DOCUMENT_IDS = ("document_id", "doc_id", "answer_id", "passage_id", "positive_id", "corpus_id", "corpus-id", "docid")
ROW_IDS = ("id", "_id")  # of the row, and so of its document, if no two documents share one
TITLE = "title"
OPTIONS = ("query", "document", "id", "query_id", "title", "corpus")
WORDS_OF_A_NAME = 5  # a column's name that has more is not one


@dataclass(frozen=True)
class PairColumns:
    """The columns of a table of pairs.

    Attributes:
        query: of queries.
        document: of documents; None if the table has only their ids, and a corpus the texts.
        id: of the documents' ids.
        query_id: of the queries' ids.
        title: of titles, which come before the documents.
        rows: whether `id` may be that of rows, not of documents: it was not named, and is called just id.
    """

    query: str
    document: str | None
    id: str | None = None
    query_id: str | None = None
    title: str | None = None
    rows: bool = False


def parse_options(path: Path, text: str) -> dict[str, str]:
    """The options after the file name: `query=frage&document=antwort`. What is left empty, as `id=`, is not used.

    >>> parse_options(Path("faq.csv"), "query=die%20frage&id=")
    {'query': 'die frage', 'id': ''}
    """
    options = {}
    for part in text.split("&") if text else []:
        name, equals, value = part.partition("=")
        if (
            not equals
            or name not in OPTIONS
            or name in options
            or (name in ("query", "document", "corpus") and not value)
        ):
            do = "write it as 'pairs:faq.csv?query=COLUMN&document=COLUMN', with the quotes"
            if name not in OPTIONS:
                do += f"; it may name {', '.join(OPTIONS)}{closest(name, OPTIONS, ': ')}"
            raise InputError(f"cannot read {part!r} after the file name", file=path, do=do)
        options[name] = unquote(value)
    return options


def choose_columns(path: Path, row: Row, options: Mapping[str, str], has_corpus: bool = False) -> PairColumns:
    """The columns of a table, from its first row.

    Raises:
        InputError: for a column that is not there or has two meanings, and if it cannot be told which is which.

    Example:
        >>> row = Row(2, {"ID": "7", "Question": "why?", "Answer": "because"})
        >>> choose_columns(Path("faq.csv"), row, {})
        PairColumns(query='Question', document='Answer', id='ID', query_id=None, title=None, rows=True)
    """
    do = f"say which: 'pairs:{path}?query=COLUMN&document=COLUMN', with the quotes"
    named = {role: name for role, name in options.items() if role != "corpus" and name}
    require_columns(path, row, named.values(), do)
    for role, name in named.items():
        first = next(other for other, column in named.items() if column == name)
        if first != role:
            raise InputError(f"column {name!r} cannot be both {first} and {role}", file=path, do=do)
    free = {name.lower(): name for name in row.values if name not in named.values()}

    def take(role: str, names: Sequence[str]) -> str | None:
        if role in options:
            return named.get(role)
        return next((free.pop(name) for name in names if name in free), None)

    query_id = take("query_id", QUERY_IDS)
    id = take("id", DOCUMENT_IDS)
    rows = id is None and "id" not in options
    id = take("id", ROW_IDS) if rows else id
    query, document, known = _texts(named, free, has_corpus and id is not None)
    if query is None or (document is None and not (has_corpus and id is not None)):
        problem = f"cannot tell the query and document columns among {_listed(row.values)}"
        raise InputError(problem, file=path, line=row.line, do=do)
    if not known and not named and any(len(name.split()) > WORDS_OF_A_NAME for name in row.values):
        problem = f"its first line should name the columns, but has {_listed(row.values)}"
        raise InputError(problem, file=path, line=1, do="put a line before it, such as: query,document")
    if not known and document is not None:
        log.warning("%s: %r is taken for the column of queries, %r for documents", path, query, document)
    free = {name: column for name, column in free.items() if column not in (query, document)}
    return PairColumns(query, document, id, query_id, take("title", [TITLE]), rows and id is not None)


def _texts(named: Mapping[str, str], free: Mapping[str, str], has_texts: bool) -> tuple[str | None, str | None, bool]:
    """The columns of queries and documents, and whether their names say so."""
    query, document = named.get("query"), named.get("document")
    if query and document:
        return query, document, True
    if query is None and document is None:
        for names in KNOWN_COLUMNS:
            if set(names) <= set(free):
                return free[names[0]], free[names[1]], True
    rest = [name for name in free.values() if name.lower() != TITLE] if len(free) > 2 else list(free.values())
    if query is None and document is None and len(rest) == 2 and not (has_texts and set(QUERIES) & set(free)):
        return rest[0], rest[1], False
    if query is None:
        query = next((free[name] for name in QUERIES if name in free), rest[0] if len(rest) == 1 else None)
    others = {name: column for name, column in free.items() if column != query}
    if document is None:
        rest = [name for name in rest if name != query]
        document = next((others[name] for name in DOCUMENTS if name in others), None)
        if document is None and len(rest) == 1 and not has_texts:
            document = rest[0]
    return query, document, True


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))
