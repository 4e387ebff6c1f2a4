"""`remargin prepare` as a user runs it: exit codes, one-line errors, nothing half-written."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def beir(tmp_path: Path) -> Path:
    folder = tmp_path / "beir"
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_text('{"_id": "d1", "text": "one"}\n{"_id": "d2", "text": "two"}\n')
    (folder / "queries.jsonl").write_text('{"_id": "q1", "text": "which?"}\n')
    (folder / "qrels" / "train.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td1\t1\n")
    return folder


def append(name: str, content: bytes) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        with open(folder / name, "ab") as file:
            file.write(content)

    return change


def truncate_gzip(folder: Path) -> None:
    lines = "".join(json.dumps({"_id": f"x{i}", "text": f"text {i}"}) + "\n" for i in range(5000))
    packed = gzip.compress((folder / "corpus.jsonl").read_bytes() + lines.encode())
    (folder / "corpus.jsonl").unlink()
    (folder / "corpus.jsonl.gz").write_bytes(packed[: len(packed) // 2])


BAD: dict[str, tuple[Callable[[Path], None], list[str]]] = {
    "malformed line": (append("corpus.jsonl", b'{"_id": "d3"\n'), ["corpus.jsonl:3:", "not valid JSON"]),
    "unknown id": (append("qrels/train.tsv", b"q9\td1\t1\n"), ["train.tsv:3:", "'q9'", "not in the collection"]),
    "missing document": (append("qrels/train.tsv", b"q1\td9\t1\n"), ["train.tsv:3:", "'d9'", "not in the collection"]),
    "empty text": (append("queries.jsonl", b'{"_id": "q3", "text": ""}\n'), ["queries.jsonl:", "'q3'", "no text"]),
    "wrong column": (append("corpus.jsonl", b'{"_id": "d3", "body": "x"}\n'), ["corpus.jsonl:3:", "'d3'", '"text"']),
    "bad encoding": (append("corpus.jsonl", b'{"_id": "d3", "text": "\xe9"}\n'), ["corpus.jsonl:3:", "not UTF-8"]),
    "truncated gzip": (truncate_gzip, ["corpus.jsonl.gz:", "ends early"]),
    "duplicate id": (append("corpus.jsonl", b'{"_id": "d1", "text": "x"}\n'), ["corpus.jsonl:3:", "'d1'", "second"]),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_input_is_one_line_and_exit_code_2_and_leaves_nothing(
    remargin: Any, kind: str, beir: Path, tiny_model: Any, tmp_path: Path
) -> None:
    damage, words = BAD[kind]
    damage(beir)
    arguments = ("prepare", "--data", beir, "--model", tiny_model("bert"), "--out", tmp_path / "out")
    result = remargin(*arguments)
    assert result.returncode == 2
    assert result.stdout == ""
    [line] = result.stderr.splitlines()
    assert line.startswith("error: ")
    assert all(word in line for word in words), line
    assert sorted(p.name for p in tmp_path.iterdir()) == ["beir"]
    result = remargin(*arguments, "--skip-bad")
    assert result.returncode == 0, result.stderr
    assert "bad input set aside in rejects.jsonl: 1" in result.stdout
    [reject] = [json.loads(line) for line in (tmp_path / "out" / "rejects.jsonl").read_text().splitlines()]
    assert reject["problem"]
    assert reject["file"]


def test_a_wrong_column_of_a_table_names_those_that_are_there(remargin: Any, tiny_model: Any, tmp_path: Path) -> None:
    table = tmp_path / "faq.csv"
    table.write_text("nr,frage,antwort\n1,wie?,so\n")
    result = remargin("prepare", "--data", f"pairs:{table}", "--model", tiny_model("bert"), "--out", tmp_path / "out")
    assert result.returncode == 2
    assert "'nr', 'frage', 'antwort'" in result.stderr
    assert "?query=COLUMN&document=COLUMN" in result.stderr
    assert not (tmp_path / "out").exists()


def test_an_existing_output_is_kept_unless_overwriting_is_asked_for(
    remargin: Any, beir: Path, tiny_model: Any, tmp_path: Path
) -> None:
    arguments = ("prepare", "--data", beir, "--model", tiny_model("bert"), "--out", tmp_path / "out")
    result = remargin(*arguments)
    assert result.returncode == 0, result.stderr
    assert "documents: 2" in result.stdout
    assert f"wrote {tmp_path / 'out'}" in result.stdout
    again = remargin(*arguments)
    assert again.returncode == 2
    assert "already exists" in again.stderr
    assert remargin(*arguments, "--overwrite").returncode == 0


def test_flags_override_the_config(remargin: Any, beir: Path, tiny_model: Any, tmp_path: Path) -> None:
    config = tmp_path / "c.yaml"
    config.write_text(f"data: {beir}\nmodel: {tiny_model('bert')}\nout: {tmp_path / 'out'}\nquery-length: 12\n")
    result = remargin("prepare", "--config", config)
    assert result.returncode == 0, result.stderr
    assert "truncated at 12" in result.stdout
    result = remargin("prepare", "--config", config, "--query-length", 13, "--overwrite")
    assert "truncated at 13" in result.stdout
    config.write_text("modell: x\n")
    result = remargin("prepare", "--config", config)
    assert result.returncode == 2
    assert "unknown setting 'modell'" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["prepare"], "error: prepare needs --model and --out; remargin prepare --help has an example"),
        (["prepare", "--model", "x", "--out", "y", "--document-length", "nine"], "--document-length"),
        (
            ["prepare", "--model", "nobody/nothing", "--out", "y", "--data", "docstrings:json"],
            "no model 'nobody/nothing'",
        ),
        (["prepare", "--model", "x", "--out", "y"], "nothing to prepare"),
        (["unheard-of"], "unheard-of"),
    ],
)
def test_wrong_usage_is_exit_code_2_without_a_traceback(remargin: Any, arguments: list[str], words: str) -> None:
    result = remargin(*arguments)
    assert result.returncode == 2
    assert words in result.stderr
    assert "Traceback" not in result.stderr


def test_an_unwritable_place_is_one_line(remargin: Any, beir: Path, tiny_model: Any, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    arguments = ("--data", beir, "--model", tiny_model("bert"), "--out", tmp_path / "file" / "out")
    result = remargin("prepare", *arguments)
    assert result.returncode == 2
    [line] = result.stderr.splitlines()
    assert "Traceback" not in line


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A collection whose tokenisation takes long enough to be stopped in."""
    folder = tmp_path_factory.mktemp("large")
    text = "how do margins adapt to the query and the document " * 8
    lines = (json.dumps({"_id": f"d{i}", "text": f"{i} {text}"}) + "\n" for i in range(10_000))
    (folder / "corpus.jsonl").write_text("".join(lines))
    (folder / "queries.jsonl").write_text('{"_id": "q1", "text": "a query"}\n')
    (folder / "qrels").mkdir()
    (folder / "qrels" / "test.tsv").write_text("q1\td1\t1\n")
    return folder


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stopped_run_leaves_what_the_next_one_uses(
    number: signal.Signals, remargin: Any, large: Path, tiny_model: Any, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    arguments = ["prepare", "--data", str(large), "--model", str(tiny_model("bert")), "--out", str(out)]
    as_usual = partial(signal.signal, number, signal.SIG_DFL)  # tests that run in the background inherit deaf ears
    command = [sys.executable, "-m", "remargin", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=as_usual)
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob(".out.*/new/tokens/documents")) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert list(tmp_path.glob(".out.*/new/tokens/documents")), "it never started writing"
    os.kill(process.pid, number)
    process.communicate(timeout=60)
    assert process.returncode in (130, 128 + number)
    assert [path.name for path in tmp_path.iterdir()] == [".out.unfinished"]
    assert remargin(*arguments).returncode == 0
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
