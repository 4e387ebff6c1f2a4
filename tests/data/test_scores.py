"""Scores of pairs from tables and run files."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from remargin import InputError
from remargin.data.scores import read_teacher_scores
from remargin.data.tables import Rejects

PAIRS = [("1", "d7", 8.25), ("1", "d8", -1.5), ("2", "d7", 0.0)]


def write(path: Path) -> None:
    kind = path.name.partition(".")[2]
    header = ["query_id", "document_id", "score"]
    if kind == "parquet":
        columns = {"query_id": [1, 1, 2], "document_id": ["d7", "d8", "d7"], "score": [8.25, -1.5, 0.0]}
        pq.write_table(pa.table(columns), path)
    elif kind == "jsonl":
        path.write_text("".join(json.dumps(dict(zip(header, (int(q), d, s), strict=True))) + "\n" for q, d, s in PAIRS))
    elif kind == "trec":
        path.write_text("".join(f"{q} Q0 {d} {rank} {s} tag\n" for rank, (q, d, s) in enumerate(PAIRS)))
    else:
        between = "," if kind.startswith("csv") else "\t"
        rows = [] if path.stem.startswith("headless") else [header]
        lines = "".join(between.join(map(str, row)) + "\n" for row in [*rows, *PAIRS])
        path.write_bytes(gzip.compress(lines.encode()) if kind.endswith("gz") else lines.encode())


@pytest.mark.parametrize(
    "name", ["s.tsv", "s.tsv.gz", "s.csv", "s.jsonl", "s.parquet", "headless.tsv", "headless.tsv.gz", "run.trec"]
)
def test_every_layout_says_the_same(name: str, tmp_path: Path) -> None:
    write(tmp_path / name)
    found = list(read_teacher_scores(tmp_path / name, Rejects()))
    assert [pair[:3] for pair in found] == PAIRS
    first = 2 if name.startswith("s.") and name.endswith(("tsv", "gz", "csv")) else 1
    assert [pair.line for pair in found] == [first, first + 1, first + 2]


@pytest.mark.parametrize(
    ("name", "line", "message"),
    [
        ("s.tsv", "1\td9\thigh", "score 'high' is not a number"),
        ("s.tsv", "1\td9\tnan", "score 'nan' is not a finite number"),
        ("s.tsv", "1\td9\t1e39", "score '1e39' is not a finite number"),
        ("s.tsv", "1\td9", "2 fields, the header has 3"),
        ("s.tsv", "1\t \t3", "' ' is no id"),
        ("headless.tsv", "1\td9", "2 columns instead of 3"),
        ("headless.tsv", "1\td9\tinf", "score 'inf' is not a finite number"),
        ("s.jsonl", '{"query_id": 1, "document_id": "d9"}', "no 'score'"),
        ("s.jsonl", '{"query_id": 1, "document_id": null, "score": 1}', "None is no id"),
        ("s.jsonl", '{"query_id": 1, "document_id": "d", "score": null}', "score None is not a number"),
        ("run.trec", "1 Q0 d9 1 2.5", r"5 columns instead of 6 \(query, Q0, document, rank, score, tag\)"),
        ("run.trec", "1 Q0 d9 1 much tag", "score 'much' is not a number"),
    ],
)
def test_a_bad_line_is_named_or_skipped(name: str, line: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / name
    write(path)
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines, line, lines[-1]]) + "\n")
    with pytest.raises(InputError, match=rf"{name}:{len(lines) + 1}: {message}; correct it"):
        list(read_teacher_scores(path, Rejects()))
    rejects = Rejects(skip=True)
    assert len(list(read_teacher_scores(path, rejects))) == 4
    assert rejects.count == 1


def test_wrong_columns_and_empty_files_are_one_clear_line(tmp_path: Path) -> None:
    path = tmp_path / "s.csv"
    path.write_text("qid,pid,score\n1,2,3\n")
    with pytest.raises(InputError, match="no column 'query_id', 'document_id'; its columns are 'qid', 'pid', 'score'"):
        list(read_teacher_scores(path, Rejects()))
    path.write_text("query_id,document_id,score\n")
    with pytest.raises(InputError, match=r"s\.csv: no scores in it"):
        list(read_teacher_scores(path, Rejects()))
    (tmp_path / "run").write_text("")
    with pytest.raises(InputError, match="no scores in it"):
        list(read_teacher_scores(tmp_path / "run", Rejects()))
    with pytest.raises(InputError, match="no such file"):
        list(read_teacher_scores(tmp_path / "nowhere.tsv", Rejects()))
