"""Tables of every kind, whole and broken."""

from __future__ import annotations

import gzip
import io
import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remargin import Run
from remargin.data import tables
from remargin.data.tables import Rejects, read_lines, read_rows
from remargin.errors import InputError
from remargin.evaluation import runs

ROWS = [{"query": "how?", "document": 'so, "quoted"'}, {"query": "wo?", "document": "über\ndort"}]


def write_csv(path: Path) -> None:
    import csv

    with open(path, "w", encoding="utf-8-sig", newline="") as file:  # as Excel saves it
        writer = csv.DictWriter(file, ["query", "document"])
        writer.writeheader()
        writer.writerows(ROWS)


def write_parquet(path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.Table.from_pylist(ROWS), path)


def write_jsonl(path: Path) -> None:
    path.write_text("\n".join(json.dumps(row) for row in ROWS) + "\n\n")


@pytest.mark.parametrize(
    ("name", "write"), [("t.csv", write_csv), ("t.jsonl", write_jsonl), ("t.parquet", write_parquet)]
)
def test_every_kind_of_table_gives_the_same_rows(name: str, write: Callable[[Path], None], tmp_path: Path) -> None:
    path = tmp_path / name
    write(path)
    assert [row.values for row in read_rows(path, Rejects())] == ROWS
    if not name.endswith(".parquet"):
        packed = tmp_path / f"{name}.gz"
        packed.write_bytes(gzip.compress(path.read_bytes()))
        assert [row.values for row in read_rows(packed, Rejects())] == ROWS


def test_a_tsv_has_no_quotes(tmp_path: Path) -> None:
    path = tmp_path / "t.tsv"
    path.write_text('query\tdocument\n"how\tso "it" is\r\n')
    assert [row.values for row in read_rows(path, Rejects())] == [{"query": '"how', "document": 'so "it" is'}]


@given(st.lists(st.tuples(st.text(st.characters(codec="utf-8"), min_size=1), st.text(st.characters(codec="utf-8")))))
def test_any_text_survives_jsonl(pairs: list[tuple[str, str]]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.jsonl"
        path.write_text("".join(json.dumps({"q": q, "d": d}, ensure_ascii=False) + "\n" for q, d in pairs), newline="")
        assert [(row.values["q"], row.values["d"]) for row in read_rows(path, Rejects())] == pairs


BROKEN: list[tuple[str, bytes, int, str]] = [
    ("t.jsonl", b'{"a": 1}\n{"a": \n{"a": 2}\n', 2, "t.jsonl:2: not valid JSON"),
    ("t.jsonl", b'{"a": 1}\n[1]\n{"a": 2}\n', 2, "t.jsonl:2: not a JSON object"),
    ("t.jsonl", b'{"a": 1}\n{"a": "\xff"}\n{"a": 2}\n', 2, r"t.jsonl:2: not UTF-8 \(byte 0xff at column 8\)"),
    ("t.jsonl", b'{"a": 1}\n{"a": "\\ud800"}\n{"a": "\\ud83d\\ude00"}\n', 2, "t.jsonl:2: half of a surrogate pair"),
    ("t.csv", b"a,b\n1,2\n3\n4,5\n", 2, "t.csv:3: 1 fields, the header has 2"),
    ("t.csv", b"a,b\n\xff,2\n3,4\n5,6\n", 2, r"t.csv:2: not UTF-8"),
    ("t.csv", b'a,b\n1,2\n3,"x"y\n4,5\n', 2, "t.csv:3: malformed CSV"),
    ("t.tsv", b"a\tb\n1\t2\n1\t2\t3\n4\t5\n", 2, "t.tsv:3: 3 fields, the header has 2"),
    ("t.csv", b'a,b\n1,2\n3,"x\n4,5\n', 1, "t.csv:3: malformed CSV"),
]


@pytest.mark.parametrize(("name", "content", "usable", "message"), BROKEN)
def test_a_broken_row_is_named_or_skipped(name: str, content: bytes, usable: int, message: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        list(read_rows(path, Rejects()))
    rejects = Rejects(skip=True)
    assert len(list(read_rows(path, rejects))) == usable
    assert rejects.count == 1


def test_line_numbers_stay_right_after_a_skipped_line(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b'a,b\n\xff,2\n"3\n",4\n5,6\n')
    assert [row.line for row in read_rows(path, Rejects(skip=True))] == [3, 5]


def test_a_header_that_cannot_be_read_is_fatal(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b"fr\xe4ge,antwort\nwie,so\n")
    with pytest.raises(InputError, match=r"t\.csv:1: not UTF-8"):
        list(read_rows(path, Rejects(skip=True)))


def test_empty_rows_are_rows(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b\n,\n\n1,2\n")
    (tmp_path / "t.tsv").write_text("a\tb\n\t\n\n1\t2\n")
    for name in ("t.csv", "t.tsv"):
        assert [row.line for row in read_rows(tmp_path / name, Rejects())] == [2, 4]


def test_columns_that_python_cannot_hold_are_left_alone(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    times = pa.array([2**62, 1], pa.timestamp("ns"))
    table = pa.table({"query": ["a", "b"], "document": ["c", "d"], "when": times, "raw": pa.array([b"\xff", b""])})
    pq.write_table(table, tmp_path / "t.parquet")
    rows = [row.values for row in read_rows(tmp_path / "t.parquet", Rejects())]
    assert rows == [{"query": "a", "document": "c"}, {"query": "b", "document": "d"}]


def gzipped_lines() -> bytes:
    return gzip.compress(b"".join(b'{"a": %d}\n' % i for i in range(10_000)))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: data[: len(data) // 2], "the gzip data ends early"),
        (lambda data: b"plain text\n", "not valid gzip data"),
        (lambda data: data[:-8] + bytes(8), "not valid gzip data"),
    ],
)
def test_damaged_gzip_is_one_clear_line(damage: Callable[[bytes], bytes], message: str, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl.gz"
    path.write_bytes(damage(gzipped_lines()))
    with pytest.raises(InputError, match=message):
        list(read_rows(path, Rejects()))
    rejects = Rejects(skip=True)
    list(read_rows(path, rejects))
    assert rejects.count == 1


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.csv", b"", "empty table"),
        ("t.csv", b"a,a\n1,2\n", "two columns have the same name"),
        ("t.xlsx", b"", "unknown kind of table '.xlsx'"),
        ("t.parquet", b"not parquet", "not a readable Parquet file"),
        ("t.parquet", None, "no such file"),
        ("t.csv", None, "t.csv: no such file"),
    ],
)
def test_an_unusable_table_is_one_clear_line(name: str, content: Any, message: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message):
        list(read_rows(tmp_path / name, Rejects(skip=True)))


def test_a_folder_is_not_a_table(tmp_path: Path) -> None:
    (tmp_path / "t.csv").mkdir()
    with pytest.raises(InputError, match="is a folder"):
        list(read_lines(tmp_path / "t.csv", Rejects()))


def test_rejects_are_written_one_a_line(tmp_path: Path) -> None:
    rejects = Rejects(skip=True)
    rejects.add(InputError("bad\nline", file="f.csv", line=3, id="x", do="mend"))
    rejects.write(tmp_path / "rejects.jsonl")
    assert json.loads((tmp_path / "rejects.jsonl").read_text()) == {
        "file": "f.csv",
        "line": 3,
        "id": "x",
        "problem": "bad\nline",
    }
    assert str(rejects.first) == "f.csv:3: id 'x': bad line; mend"


def test_many_rejects_do_not_fill_memory(tmp_path: Path) -> None:
    rejects = Rejects(skip=True)
    tracemalloc.start()
    for line in range(1, 30_001):
        rejects.add(InputError("the document is not in the collection", file="triplets.tsv", line=line, id=f"d{line}"))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    rejects.write(tmp_path / "rejects.jsonl")
    lines = (tmp_path / "rejects.jsonl").read_text().splitlines()
    assert (rejects.count, len(lines), json.loads(lines[-1])["id"]) == (30_000, 30_000, "d30000")
    assert peak < sum(map(len, lines)) / 2


def test_an_open_quote_says_how_much_it_swallowed(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text('query,document\na,b\n"c,d\ne,f\ng,h\n')
    rejects = Rejects(skip=True)
    assert len(list(read_rows(tmp_path / "t.csv", rejects))) == 1
    assert "lines 3 to 5" in str(rejects.first)


class Counting(io.BytesIO):
    """Counts how many bytes are read."""

    count = 0

    def readline(self, size: int | None = -1) -> bytes:
        line = super().readline(size)
        self.count += len(line)
        return line


def test_a_line_that_does_not_end_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "LONGEST_LINE", 1000)
    file = Counting(b"one\n" + b"x" * 1_000_000)
    monkeypatch.setattr(tables, "open_binary", lambda path: file)
    lines = read_lines(Path("endless.tsv"), Rejects())
    assert next(lines) == (1, "one\n")
    with pytest.raises(InputError, match=r"endless.tsv:2: a line of more than 1,000 bytes; give a text file with sho"):
        next(lines)
    assert file.count <= 4 + 1001


@pytest.mark.parametrize("name", ["lines.tsv", "lines.tsv.gz"])
def test_lines_that_are_too_long_are_skipped_alone(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "LONGEST_LINE", 1000)
    content = b"one\n" + b"x" * 999 + b"\n" + b"y" * 1001 + b"\n" + b"z" * 5000 + b"\nfive\n" + b"w" * 3000
    with open_for_writing(tmp_path / name) as file:
        file.write(content)
    rejects = Rejects(skip=True)
    lines = dict(read_lines(tmp_path / name, rejects))
    assert {number: line[:4] for number, line in lines.items()} == {1: "one\n", 2: "xxxx", 5: "five"}
    assert rejects.count == 3
    assert "lines.tsv" in str(rejects.first)
    assert ":3: a line of more than 1,000 bytes" in str(rejects.first)


def open_for_writing(path: Path) -> Any:
    return gzip.open(path, "wb") if path.suffix == ".gz" else open(path, "wb")


def test_a_quote_that_is_never_closed_does_not_take_in_the_whole_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "LONGEST_LINE", 1000)
    (tmp_path / "pairs.csv").write_text('query,document\na,"b\n' + "c,d\n" * 1000)
    with pytest.raises(InputError, match=r"pairs.csv:2: malformed CSV \(field larger than field limit \(1000\)\)"):
        list(read_rows(tmp_path / "pairs.csv", Rejects()))


def test_a_run_file_of_one_endless_line_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (tables, runs):
        monkeypatch.setattr(module, "LONGEST_LINE", 1000)
    (tmp_path / "run.trec").write_text("q1 Q0 d1 1 1.0 tag " * 1000)
    with pytest.raises(InputError, match=r"run.trec:1: a line of more than 1,000 bytes"):
        Run.load(tmp_path / "run.trec")
