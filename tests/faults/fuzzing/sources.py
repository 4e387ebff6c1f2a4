"""What collections are read from: a table of pairs, a corpus beside it, and a folder of text files."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

from remargin.data.collection import open_source
from remargin.data.source import checked_texts
from remargin.data.tables import Rejects

from .mutations import BINARY, JSON_LINES, Format
from .running import Case
from .world import WORDS, World


def _read_csv(path: Path) -> Any:
    return list(csv.reader(io.StringIO(path.read_text())))


def _write_csv(path: Path, value: Any) -> None:
    with open(path, "w", newline="", errors="replace") as file:
        csv.writer(file).writerows(row if isinstance(row, list) else [row] for row in value)


CSV = Format(_read_csv, _write_csv)


def _read(data: str, skip: bool) -> None:
    """All that a verb reads of a collection. What is skipped must leave judgments that hold."""
    rejects = Rejects(skip)
    source = open_source(data, rejects)
    documents = {text.id for text in checked_texts(source.documents(), "document", rejects)}
    queries = {text.id for text in checked_texts(source.queries(), "query", rejects)}
    judged = [judgment for split in source.splits() for judgment in source.judgments(split)]
    if not rejects.count:
        assert all(j.query in queries and j.document in documents for j in judged), "a judgment of nothing"


def pairs_and_corpus(world: World) -> Case:
    folder = world.folder("pairs")
    rows = [[f"Q{i}", f"how is a {word}?", f"d{i}", f"the {word} of a file"] for i, word in enumerate(WORDS)]
    _write_csv(folder / "pairs.csv", [["query_id", "query", "document_id", "text"], *rows])
    documents = [{"_id": f"d{i}", "title": "", "text": f"the {word} of a file"} for i, word in enumerate(WORDS[:6])]
    corpus = [*documents, {"_id": "e", "title": "Another", "text": "text"}]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(record) + "\n" for record in corpus))

    def read(folder: Path) -> None:
        _read(f"pairs:{folder / 'pairs.csv'}?corpus={folder / 'corpus.jsonl'}", skip=False)

    def skip(folder: Path) -> None:
        _read(f"pairs:{folder / 'pairs.csv'}?corpus={folder / 'corpus.jsonl'}", skip=True)

    return Case(folder, {"pairs.csv": CSV, "corpus.jsonl": JSON_LINES}, (read, skip), count=600)


def text_files(world: World) -> Case:
    folder, body = world.folder("text-files"), "some words that are under this heading"
    texts = {
        "a.md": f"---\ntitle: A\n---\n# One\n{body}\n## Two `x`\n```\n# no\n```\n[a](b) {body} 2\n\nC\n---\n{body}\n",
        "b.rst": f"=====\nFirst\n=====\n{body} 4\n\nSecond\n------\n.. note:: :ref:`x <y>`\n\n   {body} 5\n",
        "c.html": f"<html><head><title>T</title></head><body><h1 id='a'>Page</h1><p>{body} 6</p><h2>B&amp;C</h2>{body}",
        "d.txt": f"A title\n\n{body} 8\n",
    }
    for name, text in texts.items():
        (folder / name).write_text(text)

    def read(folder: Path) -> None:
        _read(f"files:{folder}", skip=False)

    return Case(folder, dict.fromkeys(texts, BINARY), (read,), count=600, heals=True)


TARGETS = [pairs_and_corpus, text_files]
