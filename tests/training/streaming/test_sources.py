"""Lines of files that grow or are replaced, of folders, and of standard input: each once, in order."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from remargin.errors import InputError
from remargin.serving.judgments import Judgments
from remargin.training.streaming import sources
from remargin.training.streaming.sources import (
    GrowingFile,
    Line,
    Position,
    Source,
    StandardInput,
    WatchedFolder,
    open_source,
)


class Reader:
    """Takes lines as the journal does: it remembers them, and a new source goes on after them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines: list[Line] = []
        self.said: list[str] = []
        self.source = self.open()

    def open(self) -> Source:
        positions = {line.source: Position(*line[1:5]) for line in self.lines}
        self.source = open_source(str(self.path), positions, self.sums, self.said.append, False)
        return self.source

    def sums(self, name: str) -> Iterator[str]:
        return iter([line.sum for line in self.lines if line.source == name])

    def read(self, most: int = 100, closing: bool = False) -> list[str]:
        new = self.source.take(most, closing)
        self.lines += new
        return [line.content.decode() for line in new]


@pytest.mark.parametrize("reopen", [False, True])
def test_a_file_that_grows_gives_each_finished_line_once(tmp_path: Path, reopen: bool) -> None:
    path = tmp_path / "votes.jsonl"
    reader = Reader(path)
    assert reader.said == [f"waiting for {path}, which is not there yet"]
    assert reader.read() == []
    rng, written, taken = random.Random(0), "", list[str]()
    for number in range(60):
        text = rng.choice([f"line {number}\n", f"{number}", "\n", f"{number}\r\n{number}\n"])
        with open(path, "a", newline="") as file:
            file.write(text)
        written += text
        if reopen:
            reader.open()
        while new := reader.read(most=rng.randint(1, 3)):
            taken += new
        finished = written.split("\n")[:-1]
        assert taken == [line for line in finished if line.strip()]
    numbers = [line.number for line in reader.lines]
    assert [written.split("\n")[number - 1] for number in numbers] == taken


def test_a_last_line_without_a_line_break_counts_at_the_end_if_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "votes.jsonl"
    path.write_text('{"a": 1}\n{"a": 2')
    reader = Reader(path)
    assert reader.read(closing=True) == ['{"a": 1}']
    path.write_text('{"a": 1}\n{"a": 2}')
    assert reader.read() == []
    assert reader.read(closing=True) == ['{"a": 2}']
    with open(path, "a") as file:
        file.write('\n{"a": 3}\n')
    assert reader.read() == ['{"a": 3}']


@pytest.mark.parametrize("reopen", [False, True])
def test_votes_that_are_given_changed_and_taken_back_are_each_taken_once(tmp_path: Path, reopen: bool) -> None:
    judgments = Judgments(tmp_path / "votes.jsonl")
    reader, rng, votes = Reader(judgments.path), random.Random(1), list[str]()
    for number in range(150):
        known = [line for line in map(json.loads, votes) if line["query"] in judgments._votes]
        if known and rng.random() < 0.3:
            vote = rng.choice(known)
            judgments.vote(vote["query"], vote["document_id"], vote["document"], 0, "after")
        else:
            judgments.vote(f"query {number}", "d", "text", 1, "after")
        lines = judgments.path.read_text().splitlines()
        if rng.random() < 0.5:
            if reopen:
                reader.open()
            votes += reader.read(most=100)
        assert [line for line in lines if line in votes] == [line for line in votes if line in lines]
    reader.open()
    votes += reader.read(most=1000)
    judgments.close()
    taken = [json.loads(line)["query"] for line in votes]
    assert len(taken) == len(set(taken)) > 60
    assert {json.loads(line)["query"] for line in judgments.path.read_text().splitlines()} <= set(taken)
    assert any("was replaced: of the lines taken before" in line for line in reader.said)


def test_a_file_that_is_emptied_begins_again(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("one\ntwo\n")
    reader = Reader(path)
    assert reader.read() == ["one", "two"]
    path.write_text("six\n")
    assert reader.read() == ["six"]
    assert reader.said == [f"{path} was replaced: of the lines taken before, 0 are still in it"]


def test_files_of_a_folder_come_in_the_order_of_their_names_and_none_is_missed(tmp_path: Path) -> None:
    for name, text in {"2.jsonl": "c\nd\n", "1.jsonl": "a\nb\n", ".3.jsonl": "x\n", "notes.txt": "x\n"}.items():
        (tmp_path / name).write_text(text)
    reader = Reader(tmp_path)
    assert isinstance(reader.source, WatchedFolder)
    assert [reader.read(3), reader.read(3), reader.read(3)] == [["a", "b"], ["c", "d"], []]
    (tmp_path / "0.jsonl").write_text("late\n")
    with open(tmp_path / "1.jsonl", "a") as file:
        file.write("grown\n")
    reader.open()
    assert [reader.read(), reader.read(), reader.read()] == [["late"], ["grown"], []]
    assert [(line.source, line.number) for line in reader.lines[-2:]] == [("0.jsonl", 1), ("1.jsonl", 3)]


def piped(content: bytes) -> int:
    reading, writing = os.pipe()
    os.write(writing, content)
    os.close(writing)
    return reading


def all_of(source: Source) -> list[Line]:
    lines = []
    while not source.ended:
        lines += source.take(1)
    return lines


def test_standard_input_goes_on_after_the_lines_that_were_taken() -> None:
    first = all_of(StandardInput(piped(b"a\n\nb"), None, lambda name: iter(()), print))
    assert [(line.number, line.content) for line in first] == [(1, b"a"), (3, b"b")]
    said: list[str] = []
    second = all_of(StandardInput(piped(b"c\n"), Position(*first[-1][1:5]), lambda name: iter(()), said.append))
    assert [(line.number, line.content) for line in second] == [(4, b"c")]
    assert said == ["the first 3 lines of standard input were taken: it goes on with the next one"]


def test_standard_input_that_begins_again_leaves_out_what_was_taken_and_compares_it() -> None:
    content = b"".join(b"line %d\n" % number for number in range(1, 9))
    first = all_of(StandardInput(piped(content), None, lambda name: iter(()), print))

    def again(content: bytes) -> list[int]:
        sums = [line.sum for line in first[:5]]
        source = StandardInput(piped(content), Position(*first[4][1:5]), lambda name: iter(sums), str, from_start=True)
        return [line.number for line in all_of(source)]

    assert again(content) == [6, 7, 8]
    with pytest.raises(InputError, match=r"standard input:2: is another line"):
        again(content.replace(b"line 2", b"line X"))


def test_a_line_that_is_too_long_is_named_without_being_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "LONGEST_LINE", 5000)
    monkeypatch.setattr(sources, "AT_ONCE", 700)
    content = b"short\n" + b"x" * 9000 + b"\nshort again\n"
    path = tmp_path / "a.jsonl"
    path.write_bytes(content)
    of_file = GrowingFile(path, path.name, None, lambda name: iter(()), print).take(10)
    of_input = all_of(StandardInput(piped(content), None, lambda name: iter(()), print))
    for lines in (of_file, of_input):
        assert [(line.number, line.too_long) for line in lines] == [(1, False), (2, True), (3, False)]
        assert len(lines[1].content) <= 1700
        assert lines[2].content == b"short again"
    assert [line.sum for line in of_file] == [line.sum for line in of_input]


def test_what_is_no_source_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file or folder"):
        open_source(str(tmp_path / "no" / "votes.jsonl"), {}, lambda name: iter(()), print, False)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="no ordinary file; pipe it"):
        open_source(str(tmp_path / "pipe"), {}, lambda name: iter(()), print, False)
