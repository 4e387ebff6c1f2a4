"""Triplets as tables and as row numbers."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from remargin import Collection, InputError, Triplets
from remargin.data.tables import Rejects
from remargin.data.triplets import TripletWriter, read_id_triplets, read_triplets


def read(path: Path, ids: bool = False) -> tuple[bool, list[tuple[Any, ...]]]:
    are_ids, triplets = read_triplets(path, Rejects(), ids)
    return are_ids, [t[:4] for t in triplets]


def test_a_headless_tsv_is_query_positive_negative(tmp_path: Path) -> None:
    path = tmp_path / "t.tsv"
    path.write_text('what "is" it\tthis\tthat\nhow\tso\tnot so\n')
    expected = [('what "is" it', "this", ["that"], None), ("how", "so", ["not so"], None)]
    assert read(path) == (False, expected)
    assert read(path, ids=True) == (True, expected)


@pytest.mark.parametrize("suffix", ["", "_id"])
def test_headers_say_what_is_text_and_what_is_an_id(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / "t.tsv"
    path.write_text("\t".join(f"{name}{suffix}" for name in ("query", "positive", "negative")) + "\nq\tp\tn\n")
    assert read(path, ids=not suffix) == (bool(suffix), [("q", "p", ["n"], None)])


def test_several_negatives_and_scores(tmp_path: Path) -> None:
    expected = (False, [("q", "p", ["n1", "n2"], [9.0, 1.5, -2.0])])
    table = tmp_path / "t.csv"
    table.write_text(
        "query,positive,negative_2,negative_1,positive_score,negative_score_1,negative_score_2\nq,p,n2,n1,9,1.5,-2\n"
    )
    assert read(table) == expected
    lines = tmp_path / "t.jsonl"
    lines.write_text(json.dumps({"query": "q", "positive": "p", "negatives": ["n1", "n2"], "scores": [9, 1.5, -2]}))
    assert read(lines) == expected
    ids = tmp_path / "ids.jsonl"
    ids.write_text(json.dumps({"query_id": 1, "positive_id": 2, "negative_ids": [3, 4]}))
    assert read(ids) == (True, [("1", "2", ["3", "4"], None)])


PUBLISHED = "8.25\t-1.5\t1185869\t0\t2942565\n9\t1e-1\t1185868\t16\t3839762\n"


@pytest.mark.parametrize("name", ["scores_ids.tsv", "scores_ids.tsv.gz"])
@pytest.mark.parametrize("ids", [True, False])
def test_the_published_scores_of_ms_marco(name: str, ids: bool, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(gzip.compress(PUBLISHED.encode()) if name.endswith(".gz") else PUBLISHED.encode())
    first = ("1185869", "0", ["2942565"], [8.25, -1.5])
    assert read(path, ids) == (True, [first, ("1185868", "16", ["3839762"], [9.0, 0.1])])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("8.25\t-1.5\t7\t8", "4 columns instead of 5"),
        ("7\t8\t9", "3 columns instead of 5"),
        ("8.25\t-1.5\t7\t8\t9\t10", "6 columns instead of 5"),
        ("8.25\thigh\t7\t8\t9", r"scores \['8.25', 'high'\] are not all numbers"),
        ("nan\t1\t7\t8\t9", ".*not all finite"),
        ("1e39\t1\t7\t8\t9", ".*not all finite"),
        ("8.25\t-1.5\t\t8\t9", "empty 'query'"),
        ("8.25\t-1.5\t7\t8\t ", "empty 'negative'"),
        ("8.25\t-1.5\t7\t8\t8", "its positive is also its negative"),
    ],
)
def test_a_bad_line_of_published_scores_is_named_or_skipped(line: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "t.tsv"
    path.write_text(f"{PUBLISHED}{line}\n{PUBLISHED}")
    with pytest.raises(InputError, match=rf"t\.tsv:3: {message}"):
        read(path)
    rejects = Rejects(skip=True)
    assert len(list(read_triplets(path, rejects, ids=True)[1])) == 4
    assert rejects.count == 1


def test_five_columns_that_do_not_begin_with_two_numbers_need_a_header(tmp_path: Path) -> None:
    path = tmp_path / "t.tsv"
    path.write_text("query_id\tpositive_id\tnegative_id\tpositive_score\tnegative_score\n1\t2\t3\t8\t4\n")
    assert read(path) == (True, [("1", "2", ["3"], [8.0, 4.0])])
    path.write_text("8.25\thigh\t7\t8\t9\n8.25\t1\t7\t8\t9\n")
    with pytest.raises(InputError, match=r"no column 'query', 'positive'; its columns are '8\.25', 'high'"):
        read(path)


def test_triplets_of_ids_are_checked_against_a_collection(tmp_path: Path) -> None:
    collection = Collection("c", "train", {"d1": "one", "d2": "two"}, {"q1": "which?"}, {"q1": {"d1": 1}})
    path = tmp_path / "t.tsv"
    path.write_text("q1\td1\td2\nq2\td1\td2\nq1\td1\td3\nq1\td2\td1\n")
    with pytest.raises(InputError, match=r"t\.tsv:2: id 'q2': query is not in the collection's train split"):
        list(read_id_triplets(path, Rejects(), collection))
    rejects = Rejects(skip=True)
    assert [t.line for t in read_id_triplets(path, rejects, collection)] == [1, 4]
    rejects.write(tmp_path / "rejects.jsonl")
    second = json.loads((tmp_path / "rejects.jsonl").read_text().splitlines()[1])
    assert (second["line"], second["id"], second["problem"]) == (3, "d3", "document is not in the collection")
    assert len(list(read_id_triplets(path, Rejects()))) == 4
    path.write_text("query\tpositive\tnegative\na\tb\tc\n")
    with pytest.raises(InputError, match="these triplets are texts, not ids; give query_id"):
        list(read_id_triplets(path, Rejects()))


BAD: list[tuple[dict[str, Any], str]] = [
    ({"query": "q", "positive": "p"}, "no 'negative' in it"),
    ({"query": "q", "positive": "", "negative": "n"}, "empty 'positive'"),
    ({"query": "q", "positive": "p", "negative": None}, "no column 'negative'"),
    ({"query": "q", "positive": "p", "negatives": []}, "no 'negative' in it"),
    ({"query": "q", "positive": "p", "negative": ["n", 3.5]}, "'negative', or not text"),
    ({"query": "q", "positive": "p", "negative": "p"}, "its positive is also its negative"),
    (
        {"query": "q", "positive": "p", "negative": ["n", "m"]},
        "2 negatives without scores, but the first .* 1 negative",
    ),
    ({"query": "q", "positive": "p", "negative": "n", "scores": [1, 2]}, "with scores, but the first triplet"),
    ({"query": "q", "positive": "p", "negative": "n", "scores": [1]}, "scores must be 2 numbers"),
    ({"query": "q", "positive": "p", "negative": "n", "scores": [1, "high"]}, "not all numbers"),
    ({"query": "q", "positive": "p", "negative": "n", "scores": [1, float("nan")]}, "not all finite"),
    ({"query": "q", "positive": "p", "negative": "n", "scores": [1, 1e39]}, "not all finite"),
    ({"query": "q", "positive": "p", "negative": "n", "scores": [1, 10**400]}, "not all numbers"),
    ({"query": "q", "positive": "p", "negative": "n", "positive_score": 1}, "scores must be 2 numbers"),
    (
        {"query": "q", "positive": "p", "negative": "n", "negative_score": 1},
        "there is 'negative_score' but no 'positive_score'",
    ),
]


@pytest.mark.parametrize(("row", "message"), BAD)
def test_a_bad_triplet_is_named_or_skipped(row: dict[str, Any], message: str, tmp_path: Path) -> None:
    good = json.dumps({"query": "q", "positive": "p", "negative": "n"})
    path = tmp_path / "t.jsonl"
    path.write_text(f"{good}\n{json.dumps(row)}\n{good}\n")
    with pytest.raises(InputError, match=rf"t\.jsonl:2: .*{message}"):
        read(path)
    rejects = Rejects(skip=True)
    assert len(list(read_triplets(path, rejects, ids=False)[1])) == 2
    assert rejects.count == 1


def test_wrong_columns_and_empty_tables_are_one_clear_line(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("anchor,pos,neg\na,b,c\n")
    with pytest.raises(InputError, match="no column 'query', 'positive'; its columns are 'anchor', 'pos', 'neg'"):
        read(path)
    path.write_text("query,positive,negativ\na,b,c\n")
    with pytest.raises(InputError, match="no column 'negative'; its columns are 'query', 'positive', 'negativ'"):
        read(path)
    path.write_text("query,positive,negative\n")
    with pytest.raises(InputError, match="no triplets in it"):
        read(path)
    ragged = tmp_path / "t.tsv"
    ragged.write_text("a\tb\tc\nd\te\n")
    with pytest.raises(InputError, match=r"t\.tsv:2: 2 columns instead of 3"):
        read(ragged)


def test_rows_and_scores_come_back(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows, scores = rng.integers(0, 1000, (100, 5)), rng.normal(size=(100, 4)).astype(np.float32)
    writer = TripletWriter(tmp_path / "t")
    for part in np.array_split(np.arange(100), 3):
        writer.add(rows[part].astype(np.uint32), scores[part])
    writer.close()
    triplets = Triplets(tmp_path / "t")
    triplets.verify()
    assert (len(triplets), triplets.negatives) == (100, 3)
    positions = rng.integers(0, 100, 17)
    batch = triplets.take(positions)
    np.testing.assert_array_equal(batch.queries, rows[positions, 0])
    np.testing.assert_array_equal(batch.positives, rows[positions, 1])
    np.testing.assert_array_equal(batch.negatives, rows[positions, 2:])
    np.testing.assert_array_equal(batch.scores, scores[positions])
    assert sorted(p.name for p in (tmp_path / "t").iterdir()) == ["header.json", "rows.bin", "scores.bin"]


def test_triplets_without_scores_have_none(tmp_path: Path) -> None:
    triplets = Triplets.write(tmp_path / "t", [[0, 1, 2]])
    assert triplets.take([0]).scores is None
    assert sorted(p.name for p in (tmp_path / "t").iterdir()) == ["header.json", "rows.bin"]


@pytest.mark.parametrize(
    ("rows", "scores", "message"),
    [
        ([[0, 1]], None, "at least one negative"),
        ([[0, 1, 2]], [[1.0]], "one for the positive and each negative"),
        ([[0, 1, 2, 3]], None, "different widths"),
        ([[0, 1, 2]], [[1.0, 2.0]], "scores on only some"),
    ],
)
def test_rows_that_do_not_fit_are_refused(rows: Any, scores: Any, message: str, tmp_path: Path) -> None:
    writer = TripletWriter(tmp_path / "t")
    writer.add(np.array([[0, 1, 2]], np.uint32), None)
    with pytest.raises(ValueError, match=message):
        writer.add(np.array(rows, np.uint32), None if scores is None else np.array(scores, np.float32))
    writer.close()


def test_damage_is_noticed(tmp_path: Path) -> None:
    triplets = Triplets.write(tmp_path / "t", [[0, 1, 2], [3, 4, 5]])
    triplets.verify()
    (tmp_path / "t" / "rows.bin").write_bytes(bytes(24))
    with pytest.raises(InputError, match=r"rows\.bin: damaged"):
        Triplets(tmp_path / "t").verify()
