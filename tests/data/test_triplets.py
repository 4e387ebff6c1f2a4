"""Triplets as tables and as row numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from remargin import InputError, Triplets
from remargin.data.tables import Rejects
from remargin.data.triplets import TripletWriter, read_triplets


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
    assert len(rejects.errors) == 1


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
