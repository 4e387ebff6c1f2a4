"""Runs and TREC run files."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remargin import InputError
from remargin.evaluation.runs import Run

IDS = st.text(st.characters(codec="ascii", min_codepoint=33), min_size=1, max_size=4)
SCORES = st.floats(-1e6, 1e6, width=32)


@given(st.dictionaries(IDS, st.dictionaries(IDS, SCORES, min_size=1), min_size=1, max_size=5))
def test_a_run_file_brings_back_every_score_in_the_same_order(scores: dict[str, dict[str, float]]) -> None:
    import tempfile

    run = Run.of(scores)
    with tempfile.TemporaryDirectory() as folder:
        run.save(Path(folder) / "run.trec")
        again = Run.load(Path(folder) / "run.trec")
    for query, ranking in run.rankings.items():
        assert list(again.rankings[query]) == list(ranking)
        assert list(again.rankings[query].values()) == [np.float32(v) for v in ranking.values()]


def test_ties_are_broken_by_id_descending_whatever_order_they_came_in() -> None:
    documents = {"b": 1.0, "c": 1.0, "a": 1.0, "d": 2.0}
    for order in (documents, dict(reversed(documents.items()))):
        assert list(Run.of({"q": order}).rankings["q"]) == ["d", "c", "b", "a"]
    assert Run.of({"q": documents}, depth=2).top("q", 5) == ["d", "c"]


def test_gzip_and_overwriting(tmp_path: Path) -> None:
    run, path = Run.of({"q": {"a": 0.25}}), tmp_path / "run.trec.gz"
    run.save(path, tag="mine")
    assert gzip.decompress(path.read_bytes()) == b"q Q0 a 1 0.25 mine\n"
    assert Run.load(path).rankings == {"q": {"a": 0.25}}
    with pytest.raises(InputError, match="already exists"):
        run.save(path)
    run.save(path, overwrite=True)
    assert [p.name for p in tmp_path.iterdir()] == ["run.trec.gz"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("q Q0 b 2 0.5", "run:2: 5 columns instead of 6"),
        ("q Q0 b 2 high tag", "run:2: id 'q': score 'high' is not a number"),
        ("q Q0 b 2 nan tag", "run:2: id 'q': score 'nan' is not a number"),
        ("q Q0 a 2 0.5 tag", "run:2: id 'q': document 'a' appears a second time"),
    ],
)
def test_a_bad_line_is_named(line: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "run"
    path.write_text(f"q Q0 a 1 0.9 tag\n{line}\n")
    with pytest.raises(InputError, match=message):
        Run.load(path)


def test_an_empty_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("\n")
    with pytest.raises(InputError, match="an empty run"):
        Run.load(tmp_path / "run")
