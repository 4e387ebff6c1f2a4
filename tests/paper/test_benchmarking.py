"""The zero-shot table end to end with tiny models."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from remargin.errors import InputError
from remargin.evaluation.runs import Run
from remargin.paper import benchmarking as module
from remargin.paper.benchmarking import benchmark
from remargin.paper.zero_shot_table import Column
from remargin.reports.collect import sections_in
from remargin.reports.tables import Table
from remargin.study.columns import find_column, stems

MEASURE = "nDCG@10"
WriteBeir = Callable[..., Path]


def measured_cells(table: Table) -> dict[str, list[str]]:
    """The rows measured here as text, bold in stars."""
    rows = table.blocks[-1].rows
    return {row[0].text: [f"*{c.text}*{c.marks}" if c.bold else c.text + c.marks for c in row[1:]] for row in rows}


@pytest.fixture
def write_beir(tmp_path: Path) -> WriteBeir:
    def write(name: str, size: int = 12, itself: bool = False, bad: int = 0, shift: int = 0) -> Path:
        """A BEIR folder; with `itself`, each query is a document and has another one as its answer."""
        folder = tmp_path / name
        (folder / "qrels").mkdir(parents=True)
        text = "value{} is in the list of text{}"
        documents = [{"_id": f"d{i}", "text": text.format(i, i + shift)} for i in range(size)]
        documents += [{"_id": f"bad {i}", "text": "x"} for i in range(bad)]
        queries = [{"_id": f"d{i}" if itself else f"q{i}", "text": text.format(i, i + shift)} for i in range(size)]
        for file, records in (("corpus", documents), ("queries", queries)):
            (folder / f"{file}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
        answers = [f"{query['_id']}\td{(i + itself) % size}\t1\n" for i, query in enumerate(queries)]
        (folder / "qrels" / "test.tsv").write_text("".join(answers))
        return folder

    return write


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Which collection was searched with which index, in order."""
    done: list[tuple[str, str]] = []
    real = module.search

    def spy(collection: Any, index: str, *rest: Any, **named: Any) -> Run:
        done.append((Path(collection.name).name, index))
        return real(collection, index, *rest, **named)

    monkeypatch.setattr(module, "search", spy)
    return done


def quiet(line: str) -> None:
    pass


def test_names_of_collections(write_beir: WriteBeir, tmp_path: Path) -> None:
    assert find_column("irds:beir/arguana").name == find_column("ArguAna").name == find_column("arguana").name == "AgA"
    assert find_column("irds:beir/cqadupstack/android").name == "beir/cqadupstack/android"
    assert find_column("MSM").split == "dev"
    assert find_column(str(write_beir("scifact"))) == Column("SCF", (str(tmp_path / "scifact"),))
    assert find_column(f"mine={tmp_path / 'scifact'}").name == "mine"
    assert find_column(str(write_beir("other"))).name == "other"
    for part in find_column("CDS").parts:
        write_beir(f"cqadupstack/{Path(part).name}")
    column = find_column(str(tmp_path / "cqadupstack"))
    assert (column.name, len(column.parts), stems(column)[-1]) == ("CDS", 12, "CDS-wordpress")


def test_end_to_end_with_self_matches_and_bad_lines(tiny_encoder: Any, write_beir: WriteBeir, tmp_path: Path) -> None:
    data = [write_beir("arguana", itself=True), write_beir("plain", bad=2), write_beir("third")]
    models = {"before": tiny_encoder("bert"), "after": tiny_encoder("distilbert")}
    out = tmp_path / "out"
    with pytest.raises(InputError, match="white space"):
        benchmark(models, [str(path) for path in data], out, say=quiet)
    said: list[str] = []
    own = str(write_beir("own"))
    tables = benchmark(
        models, [str(path) for path in data], out, in_domain=own, skip_bad=True, overwrite=True, say=said.append
    )
    assert len(said) == 12
    table = tables["table"]
    assert table.header == ["system", "AgA", "plain", "third", "in-domain", "mean"]
    measured = measured_cells(table)
    assert list(measured) == ["BM25", "before", "after"]
    assert measured["BM25"][1].strip("*†") == "1.000"
    assert measured["before"][1].strip("*†") == "1.000"  # a document like the query itself comes first
    assert float(measured["before"][0].strip("*†")) < 1
    notes = " ".join(table.notes)
    assert "skipped: plain 2." in notes
    assert "which they were not allowed to find: AgA 12." in notes
    with open(out / "scores" / "before" / "AgA.csv", newline="") as file:
        scores = [float(row[MEASURE]) for row in csv.DictReader(file)]
    assert len(scores) == 12
    [line] = [line for line in (out / "zero-shot-ndcg-10.csv").read_text().splitlines() if ",before," in line]
    assert float(line.split(",")[2]) == pytest.approx(sum(scores) / 12)
    assert set(tables) == {"table", "recall", "judged", "tost"}
    assert [row[1].text for row in tables["tost"].blocks[0].rows] == ["before", "after", "after"]
    made = {path.name for path in out.iterdir() if path.suffix != ".csv"}
    assert made == {"section.json", "tables.md", "tables.tex", "settings.json", "scores"}
    (section,) = sections_in(out)  # `remargin report` shows it
    assert section.tables == list(tables.values())
    assert len(list(out.glob("*.csv"))) == 4
    settings = json.loads((out / "settings.json").read_text())
    assert settings["collections"]["plain"] == {
        "column": "plain", "split": "test", "documents": 12, "queries": 12, "skipped": 2, "self_matches": 0
    }  # fmt: skip
    assert settings["systems"]["before"]["fingerprint"] != settings["systems"]["after"]["fingerprint"]
    assert str(tmp_path) not in "".join(path.read_text() for path in out.rglob("*") if path.is_file())


def test_a_stopped_one_goes_on_where_it_was(
    tiny_encoder: Any, write_beir: WriteBeir, tmp_path: Path, searches: list[tuple[str, str]]
) -> None:
    data = [str(write_beir("one")), str(write_beir("two"))]
    out = tmp_path / "out"
    models = {"tiny": tiny_encoder("bert")}
    first = benchmark(models, data, out, say=quiet)
    assert searches == [("one", "bm25"), ("one", "exact"), ("two", "bm25"), ("two", "exact")]
    searches.clear()
    again = benchmark(models, data, out, say=quiet)
    assert searches == []
    assert again == first
    (out / "scores" / "tiny" / "two.json").unlink()  # as if killed before it was written
    assert (
        benchmark(models, [*data, str(write_beir("three"))], out, bm25=False, say=quiet)["table"].header[3] == "three"
    )
    assert searches == [("two", "exact"), ("three", "exact")]
    searches.clear()
    benchmark(models, data, out, bm25=False, overwrite=True, say=quiet)
    assert searches == [("one", "exact"), ("two", "exact")]


def test_scores_of_other_settings_are_not_taken_for_ours(
    tiny_encoder: Any, write_beir: WriteBeir, tmp_path: Path, searches: list[tuple[str, str]]
) -> None:
    data, out = str(write_beir("one")), tmp_path / "out"
    benchmark({"tiny": tiny_encoder("bert")}, [data], out, bm25=False, say=quiet)
    searches.clear()
    with pytest.raises(InputError, match=r"one\.csv: was measured with another fingerprint; choose"):
        benchmark({"tiny": tiny_encoder("distilbert")}, [data], out, bm25=False, say=quiet)
    other = f"one={write_beir('other', size=5)}"
    with pytest.raises(InputError, match="another judgments"):
        benchmark({"tiny": tiny_encoder("bert")}, [other], out, bm25=False, say=quiet)
    scores = out / "scores" / "tiny" / "one.csv"
    scores.write_text(scores.read_text().replace("q1,", "q99,"))
    with pytest.raises(InputError, match="is not as it was written"):
        benchmark({"tiny": tiny_encoder("bert")}, [data], out, bm25=False, say=quiet)
    assert searches == []
    benchmark({"tiny": tiny_encoder("distilbert")}, [data], out, bm25=False, overwrite=True, say=quiet)


def test_skipping_bad_input_later_or_no_longer(
    write_beir: WriteBeir, tmp_path: Path, searches: list[tuple[str, str]]
) -> None:
    data, out = [str(write_beir("good")), str(write_beir("bad", bad=1))], tmp_path / "out"
    with pytest.raises(InputError, match="--skip-bad"):
        benchmark({}, data, out, say=quiet)
    benchmark({}, data, out, skip_bad=True, say=quiet)
    assert searches == [("good", "bm25"), ("bad", "bm25")]  # the good one was not done again
    with pytest.raises(InputError, match=r"bad\.csv: bad input was skipped"):
        benchmark({}, data, out, say=quiet)


def test_a_folder_of_something_else_is_left_alone(write_beir: WriteBeir) -> None:
    folder = write_beir("one")
    with pytest.raises(InputError, match=r"no settings\.json in it"):
        benchmark({}, [str(folder)], folder, say=quiet)


def test_cqadupstack_folders_are_averaged(
    write_beir: WriteBeir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for i, part in enumerate(find_column("CDS").parts):
        write_beir(f"cqadupstack/{Path(part).name}", size=2 + i)

    def search(collection: Any, *rest: Any, **named: Any) -> Run:
        good = Path(collection.name).name == "android"  # 2 of 90 queries, but one part of twelve
        return Run(
            {query: {next(iter(collection.qrels[query])) if good else "none": 1.0} for query in collection.queries}
        )

    monkeypatch.setattr(module, "search", search)
    table = benchmark({}, [str(tmp_path / "cqadupstack")], tmp_path / "out", say=quiet)["table"]
    assert measured_cells(table)["BM25"][0] == "0.083"
    assert len(list((tmp_path / "out" / "scores" / "BM25").glob("CDS-*.csv"))) == 12
