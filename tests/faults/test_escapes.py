"""Control characters in documents, queries, ids and paths: nothing that a person reads passes them on."""

from __future__ import annotations

import csv
import io
import json
import logging
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from remargin import Collection, InputError, Run
from remargin.data.preparation import prepare
from remargin.data.tables import is_number
from remargin.errors import printable
from remargin.evaluation.comparison import read_query_scores
from remargin.evaluation.measures import evaluate
from remargin.mining.negatives import mine
from remargin.reports.figures import Point, Scatter
from remargin.reports.page import page_text
from remargin.reports.sections import Section
from remargin.reports.tables import Block, Cell, Table

CLEAR = "\x1b[2J"  # clears a terminal
TITLE = "\x1b]0;owned\x07"  # changes the title of its window
EIGHT_BIT = "\x9b31m"  # the same kind of sequence, introduced by one character of Latin-1
MIRRORED = "\u202egnp.exe\u202c"  # shown from right to left
HOSTILE = [CLEAR, TITLE, EIGHT_BIT, MIRRORED]


def refuse(shown: str) -> None:
    """Fails for text with a control character that a terminal or a reader would obey."""
    assert shown == printable(shown)
    assert "\\x1b" in shown  # it is there, as an escape: else the test would show nothing


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A collection with control characters in its texts and ids, in a folder that has some in its name."""
    folder = tmp_path / f"data{CLEAR}"
    (folder / "qrels").mkdir(parents=True)
    documents = [{"_id": f"d{i}{CLEAR}", "text": f"margin number{i} {' '.join(HOSTILE)}"} for i in range(12)]
    queries = [{"_id": f"q{i}{CLEAR}", "text": f"number{i} {CLEAR}"} for i in range(12)]
    for name, records in {"corpus": documents, "queries": queries}.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    for split in ("train", "test"):
        (folder / "qrels" / f"{split}.tsv").write_text("".join(f"q{i}{CLEAR}\td{i}{CLEAR}\t1\n" for i in range(12)))
    return folder


def test_ask_shows_documents_and_ids_escaped(remargin: Callable[..., Any], data: Path, tmp_path: Path) -> None:
    indexed = remargin("index", "--data", data, "--index", "bm25", "--out", tmp_path / f"index{CLEAR}")
    assert indexed.returncode == 0, indexed.stderr
    refuse(indexed.stdout)
    asked = remargin("ask", "number3", "--index", tmp_path / f"index{CLEAR}")
    assert "1. d3\\x1b[2J" in asked.stdout
    refuse(asked.stdout)


def test_inspect_shows_texts_escaped(remargin: Callable[..., Any], data: Path, tiny_model: Any, tmp_path: Path) -> None:
    mine(Collection.load(data, "train"), tmp_path / "t.tsv", triplets=2)
    prepare(data, tiny_model(), tmp_path / "prepared", tmp_path / "t.tsv", document_length=64)
    encoder = ("--model", tiny_model(), "--pooling", "mean", "--similarity", "cosine")
    looked = remargin("inspect", "--data", tmp_path / "prepared", *encoder, "--batch-size", 8)
    assert looked.returncode == 0, looked.stderr
    refuse(looked.stdout)


def test_errors_and_warnings_are_escaped(remargin: Callable[..., Any], data: Path, tmp_path: Path) -> None:
    failed = remargin("search", "--data", tmp_path / f"nowhere{CLEAR}", "--index", "bm25", "--out", tmp_path / "run")
    assert failed.returncode == 2
    refuse(failed.stderr)
    refuse(str(InputError(f"a problem {TITLE}", file=f"a{CLEAR}", id=f"b{CLEAR}", do=f"open {MIRRORED}")))
    with (data / "corpus.jsonl").open("a") as corpus:
        corpus.write("not JSON\n")
    skipped = remargin("search", "--data", data, "--index", "bm25", "--skip-bad", "--out", tmp_path / f"r{CLEAR}.trec")
    assert skipped.returncode == 0
    refuse(skipped.stderr)
    refuse(skipped.stdout)


def test_warnings_of_the_log_are_escaped(remargin: Callable[..., Any], capsys: pytest.CaptureFixture[str]) -> None:
    remargin("info")  # sets up what shows warnings
    logging.getLogger("remargin.model.encoder").warning("%s has no weights for the projection", f"model{CLEAR}")
    refuse(capsys.readouterr().err)


def test_tables_and_pages_are_escaped() -> None:
    words = " ".join(HOSTILE)
    table = Table(words, ["run", words], [Block(words, [[Cell(words), Cell("0.5", value=0.5)]])], [words])
    for shown in (table.terminal(), table.terminal(40, styled=False), table.markdown()):
        refuse(shown)
    assert table.latex() == printable(table.latex())
    assert r"\textbackslash{}x1b[2J" in table.latex()
    section = Section("name", words, [words], [table], settings={words: words}, notes=[words])
    refuse(page_text([section], words))


PARTS = [
    *HOSTILE, "<script>alert(1)</script>", "</title>", "<!--", "]]>", '"><img src=x onerror=alert(1)>', "'", "&amp;",
    "&", "\\\\input{/etc/passwd}", "\\", "{", "}", "$x$", "%", "#", "_", "^", "~", "|", "[a](javascript:alert(1))", "`",
    "*", "=1+1", "+cmd|' /C calc'!A0", "@SUM(A1)", "-1+1", ",", ";", "\n", "\r\n", "\t", "\0", "\u2028", "損失", "a",
]  # fmt: skip
TEXTS = st.lists(st.sampled_from(PARTS), min_size=1, max_size=6).map("".join)


class Markup(HTMLParser):
    """All names of tags and attributes of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found = {"class"}  # which a table gives to columns with long words
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found |= {tag, *(f"{name}=" for name, _ in attrs)}


def drawn(text: str) -> tuple[Table, Section]:
    """A table and a section that have a text wherever a text can be."""
    table = Table(text, ["run", text], [Block(text, [[Cell(text), Cell("0.5", value=0.5)]])], [text])
    points = [Point(0.1, 0.9, text, text), Point(0.5, 0.5, "q2")]
    figures = [Scatter("queries", text, text, text, text, points)]
    return table, Section("name", text, [text], [table], figures, settings={text: text}, notes=[text])


PLAIN_TABLE, PLAIN_SECTION = drawn("a plain text")
PLAIN_PAGE = Markup(page_text([PLAIN_SECTION], "a plain text")).found | {"class="}
WRITTEN = {"backslash", "asciitilde", "asciicircum", "less", "greater", "bar", "quotesingle"}
COMMANDS = {*re.findall(r"\\[a-zA-Z]+", PLAIN_TABLE.latex()), *(rf"\text{name}" for name in WRITTEN)}


@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(TEXTS)
def test_no_text_is_markup_code_or_a_formula(text: str) -> None:
    table, section = drawn(text)
    assert Markup(page_text([section], text)).found <= PLAIN_PAGE
    ElementTree.fromstring(section.figures[0].svg())  # well-formed: no text ended an element
    latex = "\n".join(line for line in table.latex().splitlines() if not line.startswith("% needs"))
    assert {*re.findall(r"\\[a-zA-Z]+", latex)} <= COMMANDS
    assert not re.search(r"(?<!\\)[#$%_^~]", latex.replace(r"\\", "")), "a special character"
    for shown in (table.terminal(), table.latex(), table.markdown()):
        assert shown == printable(shown)
    for row in csv.reader(io.StringIO(table.csv())):
        assert not any(cell[:1] in ("=", "+", "-", "@", "\t", "\r") and not is_number(cell) for cell in row if cell)


FORMULAS = ["=1+2", "+cmd|' /C calc'!A0", "-1+1", "@SUM(A1)", "'=1", "\t=1", "-0.5", "q'1"]


def test_names_are_no_formulas_in_a_spreadsheet(tmp_path: Path) -> None:
    table = Table("", ["=run"], [Block("@block", [[Cell(name)] for name in FORMULAS])])
    header, *rows = table.csv().splitlines()
    assert header == "block,'=run"
    assert [row.partition(",")[2].strip('"')[:2] for row in rows] == ["'=", "'+", "'-", "'@", "''", "'\t", "-0", "q'"]
    ids = [name for name in FORMULAS if not name.startswith("\t")]
    found = evaluate(Run.of({id: {"d": 1.0} for id in ids}), {id: {"d": 1} for id in ids}, ["RR"])
    found.save(tmp_path / "scores.csv")
    cells = [line.split(",")[0] for line in (tmp_path / "scores.csv").read_text().splitlines()[1:]]
    assert [cell[0] for cell in cells] == ["'", "'", "'", "'", "'", "-", "q"]
    assert read_query_scores(tmp_path / "scores.csv") == found.per_query  # and they are read as they were
