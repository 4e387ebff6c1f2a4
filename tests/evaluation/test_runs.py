"""Runs and TREC run files."""

from __future__ import annotations

import gzip
import math
import tempfile
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from remargin import InputError
from remargin.evaluation import runs
from remargin.evaluation.runs import Run

IDS = st.text(st.characters(codec="ascii", min_codepoint=33), min_size=1, max_size=4)
SCORES = st.floats(-1e6, 1e6, width=32)


@given(st.dictionaries(IDS, st.dictionaries(IDS, SCORES, min_size=1), min_size=1, max_size=5))
def test_a_run_file_brings_back_every_score_in_the_same_order(scores: dict[str, dict[str, float]]) -> None:
    run = Run.of(scores)
    with tempfile.TemporaryDirectory() as folder:
        run.save(Path(folder) / "run.trec")
        again = Run.load(Path(folder) / "run.trec")
    for query, ranking in run.rankings.items():
        assert list(again.rankings[query]) == list(ranking)
        assert list(again.rankings[query].values()) == [np.float32(v) for v in ranking.values()]


def test_scores_of_more_digits_keep_their_order_too(tmp_path: Path) -> None:
    """As those of fused runs, whose float64 differ where a float32 does not."""
    run = Run.of({"q": {"a": 0.12345678912, "b": 0.12345678911}, "r": {"a": 1 / 3, "b": 0.5}})
    run.save(tmp_path / "run.trec")
    again = Run.load(tmp_path / "run.trec")
    assert [list(ranking.items()) for ranking in again.rankings.values()] == [
        list(ranking.items()) for ranking in run.rankings.values()
    ]


def test_ties_are_broken_by_id_descending_whatever_order_they_came_in() -> None:
    documents = {"b": 1.0, "c": 1.0, "a": 1.0, "d": 2.0}
    for order in (documents, dict(reversed(documents.items()))):
        assert list(Run.of({"q": order}).rankings["q"]) == ["d", "c", "b", "a"]
    assert Run.of({"q": documents}, depth=2).top("q", 5) == ["d", "c"]


def test_a_run_is_best_first_and_of_floats_whichever_way_it_is_made() -> None:
    scores = {"b": np.float32(0.25), "a": 0.75, "c": 1}
    for run in (Run({"q": scores}), Run.of({"q": scores})):
        assert list(run.rankings["q"].items()) == [("c", 1.0), ("a", 0.75), ("b", 0.25)]
        assert {type(score) for score in run.rankings["q"].values()} == {float}
        assert run.top("q", 2) == ["c", "a"]


def test_a_score_that_is_nan_is_named() -> None:
    for scores in ({"b": math.nan}, {"a": 1.0, "b": np.float32("nan"), "c": 0.5}):
        for make in (Run, Run.of):
            with pytest.raises(InputError, match="id 'q': the score of document 'b' is NaN"):
                make({"q": scores})
    assert Run.of({"q": {"a": -math.inf, "b": math.inf}}).top("q", 1) == ["b"]


def test_any_depth_is_deep_enough() -> None:
    assert Run.of({"q": {"a": 1.0}}, depth=10**23).rankings == {"q": {"a": 1.0}}


def test_gzip_and_overwriting(tmp_path: Path) -> None:
    run, path = Run.of({"q": {"a": 0.25}}), tmp_path / "run.trec.gz"
    run.save(path, tag="mine")
    assert gzip.decompress(path.read_bytes()) == b"q Q0 a 1 0.25 mine\n"
    assert Run.load(path).rankings == {"q": {"a": 0.25}}
    with pytest.raises(InputError, match="already exists"):
        run.save(path)
    run.save(path, overwrite=True)
    assert [p.name for p in tmp_path.iterdir()] == ["run.trec.gz"]


def test_a_run_without_some_documents_keeps_the_others_in_order_and_the_first_run_as_it_was() -> None:
    run = Run.of({"q": {"a": 3.0, "b": 2.0, "c": 1.0}, "r": {"r": 1.0}})
    assert list(run.without([("q", "b"), ("q", "z"), ("z", "a")]).rankings["q"].items()) == [("a", 3.0), ("c", 1.0)]
    assert run.without([("r", "r"), ("q", "a"), ("q", "c")]).rankings == {"q": {"b": 2.0}, "r": {}}
    assert list(run.rankings["q"]) == ["a", "b", "c"]


BIG = [f"q{line // 1000} Q0 d{line} {line % 1000 + 1} {1 / (line % 1000 + 1):.9g} tag".encode() for line in range(5000)]
BAD = {
    b"q2 Q0 x 2 0.5": "5 columns instead of 6",
    b"q2 Q0 x y 2 0.5 tag": "7 columns instead of 6",
    b"q2 Q0 x 2 high tag": "id 'q2': score 'high' is not a number",
    b"q2 Q0 x 2 nan tag": "id 'q2': score 'nan' is not a number",
    b"q2 Q0 x 2 -Infinity tag": "id 'q2': score '-Infinity' is not a number",
    b"q2 Q0 x 2 1e999 tag": "id 'q2': score '1e999' is not a number",
    b"q2 Q0 d2000 2 0.5 tag": "id 'q2': document 'd2000' appears a second time",
    b"q1 Q0 d1999 2 0.5 tag": "id 'q1': document 'd1999' appears a second time",
    b"q2 Q0 x\0a 2 0.5 tag": r"id 'x\x00a': id has a NUL byte in it",
    b"\0 Q0 x 2 0.5 tag": r"id '\x00': id has a NUL byte in it",
    b"q2 Q0 M\xfcller 2 0.5 tag": "not UTF-8 (byte 0xfc at column 8)",
}


@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize("lines", [BIG[:2500], BIG], ids=["at the end", "in the middle"])
@pytest.mark.parametrize("bad", BAD)
def test_a_bad_line_is_named(bad: bytes, lines: list[bytes], ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"run.trec{ending}"
    data = b"\n".join([*lines[:2500], bad, *lines[2500:]])
    path.write_bytes(gzip.compress(data) if ending else data)
    with pytest.raises(InputError) as error:
        Run.load(path)
    assert str(error.value).startswith(f"{path}:2501: {BAD[bad]}")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: data[: len(data) // 2], "the gzip data ends early"),
        (lambda data: data[:-8] + b"oops" + data[-4:], "not valid gzip data"),
        (lambda data: b"q Q0 a 1 0.5 tag", "not valid gzip data"),
    ],
    ids=["cut off", "wrong checksum", "not packed"],
)
def test_damaged_gzip_data_is_named(damage: object, message: str, tmp_path: Path) -> None:
    path = tmp_path / "run.trec.gz"
    path.write_bytes(damage(gzip.compress(b"\n".join(BIG))))  # type: ignore[operator]
    with pytest.raises(InputError, match=rf"run.trec.gz:\d+: {message}") as error:
        Run.load(path)
    assert "\n" not in str(error.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere.trec: no such file"):
        Run.load(tmp_path / "nowhere.trec")


LINES = st.lists(
    st.tuples(
        st.sampled_from(["q1", "q2", "ü"]),
        st.sampled_from(["d1", "d2", "d3", "d\r", "文", "\ufeffd"]),
        st.sampled_from(["1", "0.5", "-2e3", "1", "nan", "inf", "x"]),
        st.sampled_from([" ", "\t", "  ", "\u3000"]),
        st.sampled_from(["\n", "\r\n", " \n", "\n\n", "\r", " more\n"]),
    ),
    max_size=5,
)


@example(lines=[("q1", "d1", "1", " ", "\r"), ("q1", "d2", "1", " ", "\n")], mark="", packed=False)
@given(lines=LINES, mark=st.sampled_from(["", "\ufeff"]), packed=st.booleans())
@settings(max_examples=300)
def test_quick_reading_finds_what_careful_reading_finds_or_leaves_it_alone(
    lines: list[tuple[str, str, str, str, str]], mark: str, packed: bool
) -> None:
    text = "".join(space.join([query, "Q0", id, "1", score, "tag"]) + end for query, id, score, space, end in lines)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / ("run.gz" if packed else "run")
        path.write_bytes(gzip.compress((mark + text).encode()) if packed else (mark + text).encode())
        quick = runs._read_quickly(path)
        if quick is not None:
            careful = runs._read_carefully(path)
            assert [(query, list(found.items())) for query, found in quick.items()] == [
                (query, list(found.items())) for query, found in careful.items()
            ]


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_a_regular_file_is_read_once(mark: bytes, end: bytes, tmp_path: Path) -> None:
    (tmp_path / "run").write_bytes(mark + end.join(BIG) + end)
    with mock.patch.object(runs, "_read_carefully", side_effect=AssertionError("read a second time")):
        found = Run.load(tmp_path / "run")
    assert {query: len(ranking) for query, ranking in found.rankings.items()} == {f"q{i}": 1000 for i in range(5)}
    assert found.rankings["q3"]["d3004"] == 0.2


def test_blank_lines_mean_nothing(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("\nq Q0 a 1 0.5 tag\n\n \nq Q0 b 2 0.75 tag\n\n")
    assert Run.load(tmp_path / "run").rankings == {"q": {"b": 0.75, "a": 0.5}}


def test_lines_of_a_query_need_not_be_together_nor_in_order(tmp_path: Path) -> None:
    path = tmp_path / "run"
    path.write_bytes(b"\n".join(BIG[i] for i in np.random.default_rng(0).permutation(len(BIG))))
    assert list(Run.load(path).rankings["q4"]) == [f"d{4000 + i}" for i in range(1000)]


def test_an_empty_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("\n")
    with pytest.raises(InputError, match="an empty run"):
        Run.load(tmp_path / "run")
