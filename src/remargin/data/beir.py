"""BEIR folders: corpus.jsonl, queries.jsonl and qrels/SPLIT.tsv, each gzipped or not: the common exchange format."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from remargin.data.source import LARGEST_GRADE, SPLITS, Judgment, Text
from remargin.data.tables import SKIP, Rejects, Row, find_file, read_lines, read_rows
from remargin.errors import InputError


class BeirFolder:
    """A collection in BEIR layout. A document's text is its title and text; qrels are BEIR's or TREC's."""

    def __init__(self, folder: Path, rejects: Rejects) -> None:
        self.notes: dict[str, int] = {}
        self._folder = folder
        self._rejects = rejects
        if folder.is_file():
            do = f"a folder is expected; for a table of pairs write pairs:{folder}"
            raise InputError("is a file", file=folder, do=do)
        if not folder.is_dir():
            do = "check the path; or did you mean irds:NAME, docstrings:PACKAGE, pairs:FILE or files:FOLDER?"
            raise InputError("no such folder", file=folder, do=do)
        self._corpus = self._file("corpus.jsonl")
        self._queries = self._file("queries.jsonl")

    def documents(self) -> Iterator[Text]:
        """Documents in the order of corpus.jsonl."""
        return self._texts(self._corpus, ("title", "text"))

    def queries(self) -> Iterator[Text]:
        """Queries in the order of queries.jsonl."""
        return self._texts(self._queries, ("text",))

    def splits(self) -> list[str]:
        """The splits with a file in qrels/, train, dev and test first."""
        files = (p.name for p in (self._folder / "qrels").glob("[!.]*"))
        names = {name.removesuffix(".gz").removesuffix(".tsv") for name in files if name.endswith((".tsv", ".tsv.gz"))}
        return [name for name in SPLITS if name in names] + sorted(names - set(SPLITS))

    def judgments(self, split: str) -> Iterator[Judgment]:
        """The judgments of qrels/SPLIT.tsv."""
        return read_qrels(self._file(f"qrels/{split}.tsv"), self._rejects)

    def _file(self, name: str) -> Path:
        path = find_file(self._folder, name)
        if path is None:
            do = "a BEIR folder has corpus.jsonl, queries.jsonl and qrels/SPLIT.tsv, each also as .gz"
            if name == "corpus.jsonl":
                do += f"; for a folder of text files write files:{self._folder}"
            raise InputError("no such file", file=self._folder / name, do=do)
        return path

    def _texts(self, path: Path, fields: tuple[str, ...]) -> Iterator[Text]:
        for row in read_rows(path, self._rejects):
            problem = _problem(row, fields)
            if problem:
                id = row.values.get("_id")
                error = InputError(problem, file=path, line=row.line, id=None if id is None else str(id), do=SKIP)
                self._rejects.add(error)
                continue
            text = " ".join(part for part in (row.values.get(f) for f in fields) if part).strip()
            yield Text(str(row.values["_id"]), text, str(path), row.line)


def _problem(row: Row, fields: tuple[str, ...]) -> str | None:
    id: Any = row.values.get("_id")
    if isinstance(id, bool) or not isinstance(id, str | int):
        return 'no "_id", or not a string'
    if "text" not in row.values:
        return 'no "text"'
    wrong = [f for f in fields if not isinstance(row.values.get(f), str | None)]
    return f'"{wrong[0]}" is not a string' if wrong else None


def read_qrels(path: Path, rejects: Rejects) -> Iterator[Judgment]:
    """Judgments of a BEIR qrels file (query, document, grade; tabs) or a TREC one (query, 0, document, grade).

    A header line is optional. A pair judged twice must have the same grade both times.
    """
    grades: dict[tuple[str, str], int] = {}
    for number, line in read_lines(path, rejects):
        fields = line.rstrip("\r\n").split("\t") if "\t" in line else line.split()
        if not any(fields) or (number == 1 and fields[-1].strip().lower() in ("score", "grade", "relevance", "rel")):
            continue
        if len(fields) == 4:
            fields = [fields[0], *fields[2:]]
        if len(fields) != 3:
            problem = f"{len(fields)} columns instead of 3 (query, document, grade) or TREC's 4"
            rejects.add(InputError(problem, file=path, line=number, do=SKIP))
            continue
        query, document, grade = (field.strip() for field in fields)
        value = int(grade) if re.fullmatch("[+-]?[0-9]{1,9}", grade) else None
        if value is None or abs(value) > LARGEST_GRADE:
            problem = f"grade {grade!r} is not a whole number from {-LARGEST_GRADE:,} to {LARGEST_GRADE:,}"
            rejects.add(InputError(problem, file=path, line=number, id=query, do=SKIP))
            continue
        before = grades.get((query, document))
        if before is None:
            grades[query, document] = value
            yield Judgment(query, document, value, str(path), number)
        elif before != value:
            problem = f"document {document!r} judged {before} before and {value} now"
            rejects.add(InputError(problem, file=path, line=number, id=query, do=SKIP))


_quoted = json.JSONEncoder(ensure_ascii=False).encode


def append_texts(path: Path, texts: Iterable[Text], title: bool) -> None:
    """Append lines to corpus.jsonl.gz (with a title, left empty) or queries.jsonl.gz.

    The same texts give the same bytes, whenever they are written: the gzip data has neither a time nor a name in it.
    """
    between = '"title": "", ' if title else ""
    lines = [f'{{"_id": {_quoted(item.id)}, {between}"text": {_quoted(item.text)}}}\n' for item in texts]
    with open(path, "ab") as file, gzip.GzipFile("", "wb", compresslevel=1, fileobj=file, mtime=0) as packed:
        packed.write("".join(lines).encode())


class QrelsWriter:
    """Writes a qrels file as BEIR does, and counts the judgments."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(exist_ok=True)
        path.write_text("query-id\tcorpus-id\tscore\n")
        self._path = path
        self.count = 0

    def add(self, judgments: Iterable[Judgment]) -> None:
        """Append some judgments."""
        with open(self._path, "a", encoding="utf-8") as file:
            for query, document, grade, *_ in judgments:
                file.write(f"{query}\t{document}\t{grade}\n")
                self.count += 1
