"""What is small on disk and without end when it is read: bombs, endless lines, headers that promise too much."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import itertools
import json
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from remargin import Collection, InputError, Run
from remargin.cli.config import read_config
from remargin.data import docstrings, parquet_rows
from remargin.data.beir import read_qrels
from remargin.data.collection import open_source
from remargin.data.tables import Rejects, read_rows
from remargin.data.tokens import TokenStore
from remargin.files import unpacking
from remargin.files.headers import read_json, write_header
from remargin.training.topics import run_topics


def bomb(path: Path, line: bytes, mib: int) -> Path:
    """A gzipped file of many times one line."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    block = line * ((1 << 20) // len(line))
    path.write_bytes(b"".join(packer.compress(block) for _ in range(mib)) + packer.flush())
    assert path.stat().st_size < 1 << 20
    return path


READERS: dict[str, tuple[bytes, Callable[[Path], object]]] = {
    "a.jsonl.gz": (b'{"a": 1}\n', lambda path: list(read_rows(path, Rejects(skip=True)))),
    "a.csv.gz": (b"a,b\n", lambda path: list(read_rows(path, Rejects(skip=True)))),
    "a.tsv.gz": (b"a\tb\n", lambda path: list(read_qrels(path, Rejects(skip=True)))),
    "blank.trec.gz": (b"\n", Run.load),
}


@pytest.mark.parametrize("name", READERS)
def test_a_gzip_bomb_ends_with_what_to_do(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpacking, "HARMLESS", 1 << 20)
    line, read = READERS[name]
    with pytest.raises(InputError, match=rf"{name}: unpacks to more than . MiB, over 200 times its size; unpack it"):
        read(bomb(tmp_path / name, line, 4))


def test_a_gzipped_file_of_texts_is_no_bomb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpacking, "HARMLESS", 0)
    rows = [{"_id": f"d{i}", "text": "the same text again " * 10} for i in range(20_000)]
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode(), 9))
    assert sum(1 for _ in read_rows(tmp_path / "a.jsonl.gz", Rejects())) == 20_000


def test_a_long_line_is_an_error_or_skipped(tmp_path: Path) -> None:
    with (tmp_path / "a.jsonl").open("wb") as file:
        file.write(b'{"a": 1}\n{"a": "')
        file.writelines(itertools.repeat(b"x" * (1 << 20), 100))
        file.write(b'"}\n{"a": 2}\n')
    with pytest.raises(InputError, match=r"a.jsonl:2: a line of more than 33,554,432 bytes; give a text file"):
        list(read_rows(tmp_path / "a.jsonl", Rejects()))
    rejects = Rejects(skip=True)
    assert [row.values["a"] for row in read_rows(tmp_path / "a.jsonl", rejects)] == [1, 2]
    assert rejects.count == 1


def test_a_field_without_end_is_malformed(tmp_path: Path) -> None:
    with (tmp_path / "a.csv").open("wb") as file:
        file.write(b'query,text\na,"b\n')
        file.writelines(itertools.repeat(b"x" * 63 + b"\n", 1 << 20))
    with pytest.raises(InputError, match=r"a.csv:2: malformed CSV \(field larger than field limit .* lines 2 to"):
        list(read_rows(tmp_path / "a.csv", Rejects()))


def dictionary(value: str, count: int) -> Any:
    """A column that has one value many times, but only once in a file."""
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array([value]))


def nested(value: str, count: int) -> Any:
    return pa.ListArray.from_arrays(pa.array(np.arange(count + 1, dtype=np.int32)), dictionary(value, count))


@pytest.mark.parametrize("column", [dictionary, nested])
def test_a_parquet_file_with_one_long_text_many_times(column: Callable[[str, int], Any], tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"query": column("x" * (1 << 24), 20_000)}), path, compression="zstd")
    assert path.stat().st_size < 1 << 14
    with pytest.raises(InputError, match=r"a.parquet:1: unpacks to more than 65,536 MiB, over 1,000 times its size"):
        list(read_rows(path, Rejects()))
    pq.write_table(pa.table({"query": column("x" * ((1 << 25) + 1), 1)}), path, compression="zstd")
    with pytest.raises(InputError, match="a text of 33,554,433 bytes, more than 33,554,432; give a table with shorter"):
        list(read_rows(path, Rejects()))


def test_a_parquet_file_is_unpacked_in_slices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"query": f"q{i % 7}", "n": i, "negatives": [f"a{i}", "b"], "of": {"x": f"y{i % 2}"}} for i in range(300)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    monkeypatch.setattr(parquet_rows, "AT_ONCE", 64)
    assert [row.values for row in read_rows(tmp_path / "a.parquet", Rejects())] == rows


def test_json_and_yaml_have_a_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.yaml").write_text("a: 1\n" * (unpacking.LARGEST_YAML // 5 + 1))
    with pytest.raises(InputError, match=r"a.yaml: is larger than 256 KiB; give the file that is meant"):
        read_config(tmp_path / "a.yaml", ["a"])
    monkeypatch.setattr("remargin.files.headers.LARGEST_JSON", 1 << 20)
    (tmp_path / "a.json").write_text("[" + "0," * (1 << 19) + "0]")
    with pytest.raises(InputError, match=r"a.json: is larger than 1,024 KiB"):
        read_json(tmp_path / "a.json", "")


def test_a_header_that_declares_more_than_there_is(tmp_path: Path, tiny_model: Any) -> None:
    from remargin.model.tokenizer import Tokenizer

    TokenStore.write(tmp_path / "tokens", ["a"], ["a text"], Tokenizer.from_pretrained(tiny_model()), 12)
    header = json.loads((tmp_path / "tokens" / "header.json").read_text())
    del header["checksum"]
    for changed in (
        {"tokens": 1 << 60},
        {"ids": {"count": 1 << 60, "text_bytes": 1}},
        {"ids": {"count": 1, "text_bytes": 1 << 60}},
    ):
        write_header(tmp_path / "tokens" / "header.json", header | changed)
        with pytest.raises(InputError, match=r"bytes long, its header says .* bytes; make it again"):
            TokenStore(tmp_path / "tokens")


def test_an_array_that_declares_more_than_there_is(tmp_path: Path) -> None:
    rows = np.arange(6)
    run_topics(tmp_path / "topics.npy", 6, rows, lambda: rows.astype(np.int32), resume=False, say=lambda line: None)
    array = (tmp_path / "topics.npy").read_bytes()[:-32].replace(b"(6,), }" + b" " * 12, b"(6000000000000,), }", 1)
    (tmp_path / "topics.npy").write_bytes(array + hashlib.sha256(array).digest())
    with pytest.raises(InputError, match="has the topics of other queries"):
        run_topics(tmp_path / "topics.npy", 6, rows, lambda: rows.astype(np.int32), resume=True, say=lambda line: None)


HARD: dict[str, Iterator[str]] = {
    "a.md": itertools.repeat("# the same heading\none two three four five six\n"),
    "b.md": itertools.repeat("![" * 2400 + "\n"),
    "a.html": itertools.repeat("<h1>the same heading</h1><p>one two three four five six"),
    "b.html": itertools.repeat("<a <b"),
    "a.rst": itertools.repeat("`a <"),
}


@pytest.mark.parametrize("name", HARD)
@pytest.mark.timeout(60)
def test_a_page_of_a_pattern_takes_no_long_time(name: str, tmp_path: Path) -> None:
    """Half a MiB took from minutes to hours where work was quadratic."""
    unit = next(HARD[name])
    (tmp_path / name).write_text(unit * ((1 << 19) // len(unit)))
    with contextlib.suppress(InputError):  # no text in it
        list(open_source(f"files:{tmp_path}").documents())


def test_code_that_is_nested_deeply_or_large(tmp_path: Path) -> None:
    body = "a body of some words that say what this function does, and when it is of use to whom"
    good = f'def f():\n    """A summary.\n\n    {body}\n    """\n'
    (tmp_path / "a.py").write_text(good + "if x:\n    pass\n" + "elif x:\n    pass\n" * 900)
    (tmp_path / "b.py").write_text("(" * 100_000)
    with (tmp_path / "c.py").open("wb") as file:
        file.truncate(docstrings.LARGEST_FILE + 1)
    (tmp_path / "d.py").write_text(good.replace("whom", "others"))
    collection = open_source(f"docstrings:{tmp_path}", rejects := Rejects(skip=True))
    assert [text.id.rpartition(".")[2] for text in collection.documents()] == ["f", "f"]
    assert rejects.count == 2


def test_deeply_nested_json_lines(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("[" * 100_000 + "\n" + '{"a":' * 100_000 + "1" + "}" * 100_000 + '\n{"a": 1}\n')
    rejects = Rejects(skip=True)
    assert [row.line for row in read_rows(tmp_path / "a.jsonl", rejects)] == [3]
    assert rejects.count == 2
    with pytest.raises(InputError, match=r"a.jsonl:1: not valid JSON"):
        Collection.load(f"pairs:{tmp_path / 'a.jsonl'}")
