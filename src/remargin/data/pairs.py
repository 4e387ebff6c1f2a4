"""Collections from a table of pairs, a query and the document that answers it: FAQs, tickets, titles and texts."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from remargin.data.corpus_table import CorpusTable
from remargin.data.pair_columns import PairColumns, choose_columns, parse_options
from remargin.data.readable_ids import cell_id, readable_id, without_spaces
from remargin.data.source import SPLITS, Judgment, Text
from remargin.data.splits import Groups, normalised, split_of
from remargin.data.tables import SKIP, Rejects, Row, read_rows
from remargin.errors import InputError

log = logging.getLogger(__name__)

# Documents that share a query stay in one split. A group larger than this share of all documents goes to train.
LARGEST_HELD_OUT_GROUP = 0.01


class Pairs:
    """A CSV, TSV, JSONL or Parquet file of pairs. Identical documents, queries and pairs are merged and counted.

    Documents, not pairs, are split into train, dev and test, by a hash of their text; documents that share a query stay
    together. So no test answer was seen in training. When rows are added to the file, a document stays in its split,
    unless they join it to others or its group grows too large to be held out.

    The columns are found by their names, or taken as they are if there are just two; otherwise they are named as in
    `pairs:faq.csv?query=frage&document=antwort&id=nr&title=thema`. A title comes before the document's text. Ids are
    those of the table, or are made of the first words of the text and a hash.

    `pairs:faq.csv?corpus=docs.jsonl` adds the documents of a corpus. Documents of the table are found in it by their id
    or their text, or else added to it.

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
        self._options = parse_options(self._path, options)
        self._rows = rows or (lambda: read_rows(self._path, rejects))
        if rows is None and self._path.is_dir():
            do = f"a table is expected; for a folder of text files write files:{self._path}"
            raise InputError("is a folder", file=self._path, do=do)
        if rows is None and not self._path.is_file():
            raise InputError("no such file", file=self._path, do="check the path")
        corpus = self._options.get("corpus")
        self._corpus = None if corpus is None else CorpusTable(Path(corpus))

    def documents(self) -> Iterator[Text]:
        """The documents of the corpus, then each distinct one that only the table has, in the order of the files."""
        if self._corpus is not None:
            yield from self._corpus.documents(self._rejects)
        yield from self._table.documents

    def queries(self) -> Iterator[Text]:
        """Each distinct query once, in the order of the file."""
        return iter(self._table.queries)

    def splits(self) -> list[str]:
        """Always all three, though a split of a small table may be empty."""
        return list(SPLITS)

    def judgments(self, split: str) -> Iterator[Judgment]:
        """One judgment for each distinct pair of the split; several, if the corpus has copies of the document."""
        return iter(self._table.judgments[split])

    @cached_property
    def _table(self) -> _Table:
        rows, in_corpus = self._checked(self._read())
        queries, documents = _Texts("query", self._path), _Texts("document", self._path)
        pairs: dict[tuple[str, str], int] = {}
        read = replaced = 0
        for row in rows:
            try:
                document = self._document(row, in_corpus)
                keys = queries.add(row.query_id, row.query, row.line), documents.add(row.id, document, row.line)
            except InputError as error:
                self._rejects.add(error)
                continue
            read += 1
            replaced += row.document is not None and normalised(row.document) != keys[1]
            pairs.setdefault(keys, row.line)
        if not pairs:
            do = self._rejects.describe() or "give a table with at least one row"
            raise InputError("no pairs in it", file=self._path, do=do)
        self.notes["pairs read"] = read
        self.notes["repeated pairs merged"] = read - len(pairs)
        self.notes["pairs whose document another pair has too"] = len(pairs) - len(documents.entries)
        self.notes["pairs whose query another pair has too"] = len(pairs) - len(queries.entries)
        self.notes["further ids of a document with the same text, which keeps its first"] = documents.further_ids
        self.notes["further ids of a query with the same text, which keeps its first"] = queries.further_ids
        self.notes["pairs whose document has another text in the corpus, which is kept"] = replaced
        query_ids, document_ids = queries.ids(), documents.ids()
        found = self._find(document_ids)
        splits = _split_documents(list(pairs), list(documents.entries))
        judgments: defaultdict[str, list[Judgment]] = defaultdict(list)
        for (query, document), line in pairs.items():
            for id in found.get(document, [document_ids[document]]):
                judgments[splits[document]].append(Judgment(query_ids[query], id, 1, str(self._path), line))
        added = [text for key, text in zip(documents.entries, documents.texts(), strict=True) if key not in found]
        return _Table(added, queries.texts(), judgments)

    def _read(self) -> tuple[PairColumns | None, list[_Row]]:
        """The rows of the table with their texts and ids, and the columns that these were in."""
        columns: PairColumns | None = None
        rows: list[_Row] = []
        empty = titled = 0
        spaced: set[str] = set()
        for row in self._rows():
            columns = columns or choose_columns(self._path, row, self._options, self._corpus is not None)
            if all(value is None or not str(value).strip() for value in row.values.values()):
                empty += 1  # spreadsheets write such rows
                continue
            try:
                query, document, title = (self._text(row, columns, role) for role in ("query", "document", "title"))
                id, query_id = self._id(row, columns.id), self._id(row, columns.query_id)
                if document is None and id is None:
                    raise InputError(f"column {columns.id!r} is empty", file=self._path, line=row.line, do=SKIP)
            except InputError as error:
                self._rejects.add(error)
                continue
            assert query is not None  # or it had been refused
            titled += title is not None and normalised(title) == normalised(query)
            spaced.update(name for name in (id, query_id) if name is not None and without_spaces(name) != name)
            document = document if document is None or title is None else f"{title} {document}"  # as BEIR does
            ids = (None if name is None else without_spaces(name) for name in (id, query_id))
            rows.append(_Row(row.line, query, document, *ids))
        self.notes["empty rows left out"] = empty
        self.notes["ids whose white space became _"] = len(spaced)
        self.notes["WARNING: pairs whose query is their document's title (leave titles out: title=)"] = titled
        return columns, rows

    def _checked(self, read: tuple[PairColumns | None, list[_Row]]) -> tuple[list[_Row], dict[str, str]]:
        """The rows, without ids that do not name documents, and the texts that the corpus has for these ids."""
        columns, rows = read
        in_corpus: dict[str, str] = {}
        if self._corpus is not None:
            words = {row.document for row in rows if row.document is not None and " " not in row.document}
            in_corpus = self._corpus.texts({row.id for row in rows if row.id is not None} | words, self._quiet)
            self._refuse_ids_as_texts(rows, words & in_corpus.keys(), columns)
        if columns is None or not columns.rows or columns.document is None:
            return rows, in_corpus
        documents = _Texts("document", self._path)
        try:
            for row in rows:
                documents.add(row.id, self._document(row, in_corpus), row.line)
        except InputError as error:
            problem = f"id {error.id!r}, line {error.line}: {error.problem}"
            log.warning("%s: column %r is not used, it does not name documents (%s)", self._path, columns.id, problem)
            return [row._replace(id=None) for row in rows], {}
        return rows, in_corpus

    def _refuse_ids_as_texts(self, rows: list[_Row], ids: set[str], columns: PairColumns | None) -> None:
        """Refuse a column of documents that has ids of the corpus: each would be a document of one word."""
        row = next((row for row in rows if row.document in ids), None)
        if row is not None and columns is not None:
            problem = f"column {columns.document!r} has ids of the corpus where texts are expected"
            do = f"give the column as id={columns.document}, beside corpus="
            raise InputError(problem, file=self._path, line=row.line, id=row.document, do=do)

    def _document(self, row: _Row, in_corpus: dict[str, str]) -> str:
        """The text of a row's document, as the corpus has it, if it does."""
        text = None if row.id is None else in_corpus.get(row.id)
        if row.document is None and not text:
            problem = "the corpus has no document of this id" if text is None else "document has no text in the corpus"
            raise InputError(problem, file=self._path, line=row.line, id=row.id, do=SKIP)
        if row.document is None or text is None:
            return text or row.document or ""
        one, other = normalised(row.document), normalised(text)
        if one not in other and other not in one:  # one may have a title, or be an excerpt
            raise InputError(
                "document has another text in the corpus", file=self._path, line=row.line, id=row.id, do=SKIP
            )
        return text

    def _find(self, ids: dict[str, str]) -> dict[str, list[str]]:
        """The ids that the corpus has for documents, by their normalised texts."""
        if self._corpus is None:
            return {}
        found, count = self._corpus.ids(set(ids), self._quiet)
        self.notes["documents of the corpus"] = count
        self.notes["identical documents of the corpus merged"] = self._corpus.merged
        self.notes["ids of the corpus whose white space became _"] = self._corpus.spaces
        self.notes["documents of the pairs that the corpus has"] = len(found)
        self.notes["documents of the pairs added to the corpus"] = len(ids) - len(found)
        self.notes["copies of these in the corpus, relevant as well"] = sum(map(len, found.values())) - len(found)
        return found

    @property
    def _quiet(self) -> Rejects:
        """For readings of the corpus before `documents`, which reports what is wrong with it."""
        return Rejects(skip=self._rejects.skip)

    def _text(self, row: Row, columns: PairColumns, role: str) -> str | None:
        column = getattr(columns, role)
        if column is None:
            return None
        text = row.values.get(column)
        if text is not None and not isinstance(text, str):
            raise InputError(f"column {column!r} is not text", file=self._path, line=row.line, do=SKIP)
        if text is not None and text.strip():
            return text.strip()
        if role == "title":
            return None
        raise InputError(f"column {column!r} is empty", file=self._path, line=row.line, do=SKIP)

    def _id(self, row: Row, column: str | None) -> str | None:
        value = None if column is None else row.values.get(column)
        if value is None or value != value or not str(value).strip():  # None, NaN or blank
            return None
        id = cell_id(value)
        if id is None:
            raise InputError(f"column {column!r} is not an id", file=self._path, line=row.line, do=SKIP)
        return id


class _Row(NamedTuple):
    line: int
    query: str
    document: str | None
    id: str | None
    query_id: str | None


class _Entry(NamedTuple):
    text: str
    id: str | None
    line: int


class _Texts:
    """Distinct texts and their ids. Texts are the same if only case and white space differ."""

    def __init__(self, kind: str, path: Path) -> None:
        self._kind, self._path = kind, path
        self.entries: dict[str, _Entry] = {}
        self.further_ids = 0
        self._owners: dict[str, str] = {}

    def add(self, id: str | None, text: str, line: int) -> str:
        """Add a text, unless it is there; returns what it is found by.

        Raises:
            InputError: if another text has the id.
        """
        key = normalised(text)
        owner = key if id is None else self._owners.get(id, key)
        if owner != key:
            problem = f"{self._kind} id that has another text on line {self.entries[owner].line}"
            raise InputError(problem, file=self._path, line=line, id=id, do=SKIP)
        entry = self.entries.setdefault(key, _Entry(text, id, line))
        if id is not None and id not in self._owners:
            self._owners[id] = key
            if entry.id is None:
                self.entries[key] = entry._replace(id=id)
            self.further_ids += entry.id not in (None, id)
        return key

    def ids(self) -> dict[str, str]:
        """An id for each text, made of its words if it has none."""
        taken = set(self._owners)
        ids: dict[str, str] = {}
        for key, entry in self.entries.items():
            id = entry.id or readable_id(self._kind, entry.text)
            if entry.id is None and id in taken:
                id = readable_id(self._kind, entry.text, digits=32)
            taken.add(id)
            ids[key] = id
        return ids

    def texts(self) -> list[Text]:
        """All of them, in order."""
        ids = self.ids()
        return [Text(ids[key], entry.text, str(self._path), entry.line) for key, entry in self.entries.items()]


class _Table(NamedTuple):
    documents: list[Text]
    queries: list[Text]
    judgments: defaultdict[str, list[Judgment]]


def _split_documents(pairs: list[tuple[str, str]], documents: list[str]) -> dict[str, str]:
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
