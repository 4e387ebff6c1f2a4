"""What lines may hold, how they are kept, and when too many are malformed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from remargin.errors import InputError
from remargin.training.streaming.examples import Example, parse
from remargin.training.streaming.journal import JOURNAL, REJECTS, StreamJournal
from remargin.training.streaming.sources import Line

DOCUMENTS = {"d1": "first text", "d2": "second text", "d3": " "}
GOOD = b'{"query": "q", "document": "d"}'


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('{"query": " q ", "positive": "p", "negatives": ["n", "m"]}', Example("q", "p", None, ("n", "m"))),
        ('{"query": "q", "document_id": "d1"}', Example("q", "first text", "d1")),
        ('{"query": "q", "document": "D", "document_id": "gone"}', Example("q", "D", "gone")),
        ('{"query": "q", "positive_id": "d1", "negative_id": "d1"}', Example("q", "first text", "d1", ("first text",))),
        ('{"query": "q", "positive": "p", "negatives": []}', Example("q", "p", None)),
        ('{"query": "q", "document": "d", "grade": 1, "system": "after"}', Example("q", "d", None)),
        ('{"query": "q", "document": "d", "grade": -1}', None),
    ],
)  # fmt: skip
def test_what_a_line_says(line: str, expected: Example | None) -> None:
    assert parse(line, DOCUMENTS) == expected


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ("[]", "not a JSON object"),
        ('{"document": "d"}', "no query"),
        ('{"query": "q"}', "no document"),
        ('{"query": 3, "document": "d"}', "query is not text"),
        ('{"query": " ", "document": "d"}', "query is empty"),
        ('{"query": "q", "document": ["d"]}', "document is not text"),
        ('{"query": "q", "document": "d", "negative": ""}', "negative is not text"),
        ('{"query": "q", "document": "d", "negatives": "n"}', "negatives is not text"),
        ('{"query": "q", "document": "d", "grade": "high"}', "grade is not a number"),
        ('{"query": "q", "document_id": "d9"}', "no document of this id"),
        ('{"query": "q", "document_id": "d3"}', "no document of this id"),
        ('{"query": "q", "document_id": 1}', "id of the document is not text"),
        ('{"query": "\\ud800", "document": "d"}', "half of a surrogate pair"),
    ],
)
def test_what_is_malformed(line: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        parse(line, DOCUMENTS)


def lines(*contents: bytes, first: int = 1) -> list[Line]:
    return [Line("a.jsonl", n, 0, len(content), str(n), content) for n, content in enumerate(contents, first)]


def rejected(folder: Path) -> list[tuple[int, str]]:
    rows = map(json.loads, (folder / REJECTS).read_text().splitlines())
    return [(row["line"], row["text"]) for row in rows]


def test_malformed_lines_are_counted_and_put_aside_with_number_and_problem(tmp_path: Path) -> None:
    journal = StreamJournal(tmp_path)
    journal.add(lines(GOOD, b"what?", b"\xff", GOOD, b'{"query": "q", "document": "d", "grade": -1}'))
    assert (journal.lines, journal.examples, journal.rejected, journal.against) == (5, 2, 2, 1)
    problems = [json.loads(line)["problem"] for line in (tmp_path / REJECTS).read_text().splitlines()]
    assert problems == ["not valid JSON (Expecting value: line 1 column 1 (char 0))", "not UTF-8 (byte 0xff)"]
    assert rejected(tmp_path) == [(2, "what?"), (3, "�")]
    again = StreamJournal(tmp_path)
    assert (again.examples, again.rejected, again.against, again.positions) == (2, 2, 1, journal.positions)


@pytest.mark.parametrize("left", ["", "{", "whole", "gone"])
def test_a_file_of_malformed_lines_that_a_kill_left_behind_is_completed(tmp_path: Path, left: str) -> None:
    StreamJournal(tmp_path).add(lines(b"one", GOOD, b"two"))
    whole = (tmp_path / REJECTS).read_text()
    (tmp_path / REJECTS).write_text({"whole": whole}.get(left, whole.splitlines(keepends=True)[0] + left))
    if left == "gone":
        (tmp_path / REJECTS).unlink()
    StreamJournal(tmp_path)
    assert (tmp_path / REJECTS).read_text() == whole


def test_too_many_malformed_lines_stop_the_stream_and_are_kept_nonetheless(tmp_path: Path) -> None:
    journal = StreamJournal(tmp_path, most_rejects=0.1)
    journal.add(lines(*10 * [b"bad"], *10 * [GOOD]))
    journal.add(lines(b"bad", b"bad", first=21))  # 12 of 22
    journal.add(lines(*30 * [GOOD], first=23))
    with pytest.raises(InputError, match=r"a.jsonl:56: 16 of 56 lines are malformed, the last one: not valid JSON"):
        journal.add(lines(*4 * [b"bad"], first=53))
    assert StreamJournal(tmp_path).rejected == len(rejected(tmp_path)) == 16


def test_with_a_share_of_0_the_first_malformed_line_stops(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="1 of 1 lines"):
        StreamJournal(tmp_path, most_rejects=0).add(lines(b"bad"))


def test_a_damaged_journal_is_refused(tmp_path: Path) -> None:
    StreamJournal(tmp_path).add(lines(GOOD, GOOD))
    path = tmp_path / JOURNAL
    path.write_bytes(path.read_bytes().replace(b'"d\\"', b'"e\\"', 1))
    with pytest.raises(InputError, match=r"stream.jsonl:1: damaged"):
        StreamJournal(tmp_path)
