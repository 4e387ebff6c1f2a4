"""Collections from a table of pairs, a query and the document that answers it: FAQs, tickets, titles and texts."""

from __future__ import annotations

import hashlib
import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qsl

from remargin.data.source import SPLITS, Judgment, Text
from remargin.data.splits import Groups, normalised, split_of
from remargin.data.tables import SKIP, Rejects, Row, read_rows, require_columns
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
    ("title", "abstract"),
    ("title", "text"),
    ("title", "body"),
    ("summary", "description"),
    ("anchor", "positive"),
]

# Documents that share a query stay in one split. A group larger than this share of all documents goes to train.
LARGEST_HELD_OUT_GROUP = 0.01
WORDS_OF_A_NAME = 5  # a column's name that has more is not one


class Pairs:
    """A CSV, TSV, JSONL or Parquet file of pairs. Identical documents, queries and pairs are merged and counted.

    Documents, not pairs, are split into train, dev and test, by a hash of their text; documents that share a query stay
    together. So no test answer was seen in training. When rows are added to the file, a document stays in its split,
    unless they join it to others or its group grows too large to be held out.

    The columns are found by their names, or taken as they are if there are just two; otherwise they are named as in
    `pairs:faq.csv?query=frage&document=antwort`.

    Args:
        spec: what comes after `pairs:`.
        rejects: takes bad rows.
        rows: reads the rows, if they are not in a file.
    """

    def __init__(self, spec: str, rejects: Rejects, rows: Callable[[], Iterator[Row]] | None = None) -> None:
        name, _, options = spec.partition("?")
        self.notes: dict[str, int] = {}
        self._path = Path(name)
        self._rejects = rejects
        self._columns = dict(parse_qsl(options))
        unknown = set(self._columns) - {"query", "document"}
        if unknown or (options and not self._columns):
            do = "write it as 'pairs:faq.csv?query=COLUMN&document=COLUMN', with the quotes"
            raise InputError(f"cannot read {options!r} after the file name", file=self._path, do=do)
        self._rows = rows or (lambda: read_rows(self._path, rejects))
        if rows is None and not self._path.is_file():
            raise InputError("no such file", file=self._path, do="check the path")

    def documents(self) -> Iterator[Text]:
        """Each distinct document once, in the order of the file."""
        return iter(self._table.documents.values())

    def queries(self) -> Iterator[Text]:
        """Each distinct query once, in the order of the file."""
        return iter(self._table.queries.values())

    def splits(self) -> list[str]:
        """Always all three, though a split of a small table may be empty."""
        return list(SPLITS)

    def judgments(self, split: str) -> Iterator[Judgment]:
        """One judgment for each distinct pair of the split."""
        return iter(self._table.judgments[split])

    @cached_property
    def _table(self) -> _Table:
        documents: dict[str, Text] = {}
        queries: dict[str, Text] = {}
        pairs: dict[tuple[str, str], tuple[str, int]] = {}
        rows = empty = 0
        columns: tuple[str, str] | None = None
        for row in self._rows():
            columns = columns or self._choose_columns(row)
            if all(value is None or not str(value).strip() for value in row.values.values()):
                empty += 1  # spreadsheets write such rows
                continue
            texts = self._texts(row, columns)
            if texts is None:
                continue
            rows += 1
            query, document = texts
            query_key, document_key = normalised(query), normalised(document)
            queries.setdefault(query_key, Text(_id("q", query_key), query, str(self._path), row.line))
            documents.setdefault(document_key, Text(_id("d", document_key), document, str(self._path), row.line))
            pairs.setdefault((query_key, document_key), (str(self._path), row.line))
        if not pairs:
            do = self._rejects.describe() or "give a table with at least one row"
            raise InputError("no pairs in it", file=self._path, do=do)
        self.notes["pairs read"] = rows
        self.notes["empty rows left out"] = empty
        self.notes["repeated pairs merged"] = rows - len(pairs)
        self.notes["pairs whose document another pair has too"] = len(pairs) - len(documents)
        self.notes["pairs whose query another pair has too"] = len(pairs) - len(queries)
        splits = _split_documents(pairs, documents)
        judgments: defaultdict[str, list[Judgment]] = defaultdict(list)
        for (query_key, document_key), place in pairs.items():
            judgment = Judgment(queries[query_key].id, documents[document_key].id, 1, *place)
            judgments[splits[document_key]].append(judgment)
        return _Table(documents, queries, judgments)

    def _choose_columns(self, row: Row) -> tuple[str, str]:
        by_name = {name.lower(): name for name in row.values}
        chosen = [pair for pair in KNOWN_COLUMNS if set(pair) <= set(by_name)]
        query, document = (by_name[name] for name in chosen[0]) if chosen else [*row.values, "", ""][:2]
        query, document = self._columns.get("query", query), self._columns.get("document", document)
        do = f"say which: 'pairs:{self._path}?query=COLUMN&document=COLUMN', with the quotes"
        if not chosen and len(row.values) != 2 and len(self._columns) < 2:
            problem = f"cannot tell the query and document columns among {', '.join(map(repr, row.values))}"
            raise InputError(problem, file=self._path, line=row.line, do=do)
        require_columns(self._path, row, (query, document), do)
        if not chosen and not self._columns and any(len(name.split()) > WORDS_OF_A_NAME for name in row.values):
            problem = f"its first line should name the columns, but has {', '.join(map(repr, row.values))}"
            raise InputError(problem, file=self._path, line=1, do="put a line before it, such as: query,document")
        if query == document:
            raise InputError(f"column {query!r} cannot be both query and document", file=self._path, do=do)
        if not chosen and not self._columns:
            log.warning("%s: %r is taken for the column of queries, %r for documents", self._path, query, document)
        return query, document

    def _texts(self, row: Row, columns: tuple[str, str]) -> tuple[str, str] | None:
        texts = []
        for column in columns:
            text = row.values.get(column)
            if not isinstance(text, str) or not text.strip():
                empty = text is None or (isinstance(text, str) and not text.strip())
                problem = f"column {column!r} is {'empty' if empty else 'not text'}"
                self._rejects.add(InputError(problem, file=self._path, line=row.line, do=SKIP))
                return None
            texts.append(text.strip())
        return texts[0], texts[1]


class _Table(NamedTuple):
    documents: dict[str, Text]
    queries: dict[str, Text]
    judgments: defaultdict[str, list[Judgment]]


def _id(prefix: str, key: str) -> str:
    return prefix + hashlib.blake2b(key.encode(), digest_size=8).hexdigest()


def _split_documents(pairs: dict[tuple[str, str], tuple[str, int]], documents: dict[str, Text]) -> dict[str, str]:
    groups = Groups()
    first: dict[str, str] = {}
    for query, document in pairs:
        if first.setdefault(query, document) != document:
            groups.join([first[query], document])
    sizes = Counter(groups.name(document) for document in documents)
    limit = max(1, LARGEST_HELD_OUT_GROUP * len(documents))
    splits = {}
    for document in documents:
        group = groups.name(document)
        splits[document] = split_of(group) if sizes[group] <= limit else "train"
    return splits
