"""A corpus in one file: documents with ids, titles and texts, as BEIR's corpus.jsonl or a table."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from remargin.data.pair_columns import DOCUMENT_IDS, DOCUMENTS, ROW_IDS, TITLE
from remargin.data.readable_ids import cell_id, readable_id, without_spaces
from remargin.data.source import Text
from remargin.data.splits import normalised
from remargin.data.tables import SKIP, Rejects, Row, read_rows
from remargin.errors import InputError

IDS = ("_id", *ROW_IDS, *DOCUMENT_IDS)
TEXTS = ("text", *DOCUMENTS, "content", "contents")


class CorpusTable:
    """A JSONL, CSV, TSV or Parquet file of documents; it is read anew each time, and never in memory as a whole.

    A document's text is its title and its text. Without a column of ids, they are made of the texts, and identical
    documents are one; `merged` counts those of the latest reading. `spaces` counts ids that had white space in them.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.merged = self.spaces = 0
        if not path.is_file():
            raise InputError("no such file", file=path, do="check the path after corpus=")

    def documents(self, rejects: Rejects) -> Iterator[Text]:
        """Every document, in the order of the file."""
        self.merged = self.spaces = 0
        columns: _Columns | None = None
        made: set[str] = set()
        for row in read_rows(self.path, rejects):
            columns = columns or _Columns(self.path, row)
            text = columns.document(row, rejects)
            if text is None:
                continue
            id = columns.id_of(row)
            if columns.id is None:
                id = readable_id("document", text, digits=16)  # so many that no two texts share an id
                if id in made:
                    self.merged += 1
                    continue
                made.add(id)
            elif id is None:
                problem = f"column {columns.id!r} has no id"
                rejects.add(InputError(problem, file=self.path, line=row.line, do=SKIP))
                continue
            self.spaces += without_spaces(id) != id
            yield Text(without_spaces(id), text, str(self.path), row.line)

    def texts(self, ids: set[str], rejects: Rejects) -> dict[str, str]:
        """The texts of some documents, by their ids."""
        return {item.id: item.text for item in self.documents(rejects) if item.id in ids}

    def ids(self, keys: set[str], rejects: Rejects) -> tuple[dict[str, list[str]], int]:
        """The ids of the documents with some normalised texts, and how many documents there are."""
        of_key: dict[str, list[str]] = {}
        count = 0
        for item in self.documents(rejects):
            count += 1
            if (key := normalised(item.text)) in keys:
                of_key.setdefault(key, []).append(item.id)
        return of_key, count


class _Columns:
    """The columns of a corpus, from its first row."""

    def __init__(self, path: Path, row: Row) -> None:
        by_name = {name.lower(): name for name in row.values}
        self.path = path
        self.id = next((by_name[name] for name in IDS if name in by_name), None)
        self.title = by_name.get(TITLE)
        found = next((by_name[name] for name in TEXTS if name in by_name), None)
        if found is None:
            problem = f"no column of texts among {', '.join(map(repr, row.values))}"
            raise InputError(problem, file=path, line=row.line, do="a corpus has the columns id, title and text")
        self.text = found

    def document(self, row: Row, rejects: Rejects) -> str | None:
        """Title and text; empty if the row has neither, None if they are no text."""
        parts = []
        if self.text not in row.values:
            rejects.add(InputError(f"no column {self.text!r}", file=self.path, line=row.line, do=SKIP))
            return None
        for name in (self.title, self.text):
            part = row.values.get(name) if name is not None else None
            if part is not None and not isinstance(part, str):
                rejects.add(InputError(f"column {name!r} is not text", file=self.path, line=row.line, do=SKIP))
                return None
            parts.append((part or "").strip())
        return " ".join(part for part in parts if part)

    def id_of(self, row: Row) -> str | None:
        return None if self.id is None else cell_id(row.values.get(self.id))
