"""compare from Python: run files or runs, a collection or its judgments, and the table that it writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from remargin import Collection, InputError, Run, compare
from remargin.reports.comparing import comparison_text, run_names

QUERIES = [f"q{i}" for i in range(6)]
DOCUMENTS = {"a": "Dogs bark.", "b": "Cats purr.", "c": "Fish are mute."}


@pytest.fixture
def collection() -> Collection:
    queries = dict.fromkeys(QUERIES, "Who purrs?")
    return Collection("pets", "test", DOCUMENTS, queries, {query: {"b": 1} for query in QUERIES})


@pytest.fixture
def runs() -> dict[str, Run]:
    ranked = {"good": {"b": 2.0, "a": 1.0}, "bad": {"a": 2.0, "b": 1.0}}
    return {name: Run.of(dict.fromkeys(QUERIES, scores)) for name, scores in ranked.items()}


def test_runs_files_collections_and_judgments_are_the_same(
    collection: Collection, runs: dict[str, Run], tmp_path: Path
) -> None:
    files = []
    for name, run in runs.items():
        files.append(tmp_path / f"{name}.trec")
        run.save(files[-1])
    wanted = compare(runs, collection, ["RR", "nDCG@10"])
    assert wanted.runs == ["good", "bad"]
    assert wanted.row("RR", "bad").mean.mean == 0.5
    assert compare(files, collection, ["RR", "nDCG@10"]).rows == wanted.rows
    assert compare(runs, collection.qrels, ["RR", "nDCG@10"]).rows == wanted.rows
    mixed = compare({"good": files[0], "bad": runs["bad"]}, collection, ["RR", "nDCG@10"], reference=files[0])
    assert mixed.rows == wanted.rows


def test_a_collection_tells_which_documents_are_the_query_itself(runs: dict[str, Run]) -> None:
    queries = {"a": "Dogs bark.", **dict.fromkeys(QUERIES, "Who purrs?")}
    collection = Collection("pets", "test", DOCUMENTS, queries, {query: {"b": 1} for query in queries})
    itself = {name: Run.of({**run.rankings, "a": {"a": 9.0, "b": 5.0}}) for name, run in runs.items()}
    comparison = compare({**itself, "other": runs["good"]}, collection, "RR")
    assert comparison.self_matches == {"good": 1, "bad": 1, "other": 0}
    assert comparison.row("RR", "good").mean.mean == 1.0
    assert compare(itself, collection.qrels, "RR").row("RR", "good").mean.mean == pytest.approx(6.5 / 7)


@pytest.mark.parametrize(("ending", "format"), [(".csv", "csv"), (".tex", "latex"), (".md", "markdown")])
def test_the_table_is_written_in_the_format_of_its_ending(
    ending: str, format: str, collection: Collection, runs: dict[str, Run], tmp_path: Path
) -> None:
    out = tmp_path / f"table{ending}"
    comparison = compare(runs, collection, out=out)
    assert out.read_text() == comparison_text(comparison, format)
    with pytest.raises(InputError, match="exists"):
        compare(runs, collection, out=out)
    compare(runs, collection, format="csv", out=out, overwrite=True)
    assert out.read_text() == comparison_text(comparison, "csv")


def test_bad_input_is_found_before_anything_is_read(runs: dict[str, Run], tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    with pytest.raises(InputError, match="reference 'c' is none of the runs"):
        compare(runs, nowhere, reference="c")
    with pytest.raises(InputError, match="unknown format"):
        compare(runs, nowhere, format="word")
    with pytest.raises(InputError, match="its ending names no format"):
        compare(runs, nowhere, out=tmp_path / "table.docx")
    with pytest.raises(InputError, match="given twice"):
        compare([tmp_path / "a.trec", tmp_path / "a.trec"], nowhere)
    with pytest.raises(InputError, match="none of its queries is judged in split 'test' of pets"):
        compare(runs, Collection("pets", "test", DOCUMENTS, {"x": "Who?"}, {"x": {"b": 1}}))


def test_names_are_short_and_tell_the_runs_apart() -> None:
    def names(*paths: str) -> list[str]:
        return list(run_names([Path(path) for path in paths]))

    assert names("a/bm25.trec.gz", "a/margin-0.3.run", "a/margin-0.5") == ["bm25", "margin-0.3", "margin-0.5"]
    assert names("s/1/run.trec", "s/2/run.trec", "s/2/other.trec") == ["1/run", "2/run", "2/other"]
    assert names("a.trec", "a.run") == ["a.trec", "a.run"]
    assert names("out/best.trec", "out/last.trec") == ["out/best", "out/last"]  # best means something else
    assert names("best.trec", "last.trec") == ["best.trec", "last.trec"]
