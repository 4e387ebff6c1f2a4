"""Tables of pairs as collections: columns, merging, splits."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from remargin import Collection, InputError
from remargin.data.collection import open_source


def write_csv(path: Path, rows: list[tuple[str, ...]], header: tuple[str, ...] = ("question", "answer")) -> Path:
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def many(count: int) -> list[tuple[str, ...]]:
    return [(f"question number {i}?", f"answer number {i}.") for i in range(count)]


def test_every_pair_is_in_just_one_split(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "faq.csv", many(1000))
    source = open_source(f"pairs:{path}")
    found = {split: {(j.query, j.document) for j in source.judgments(split)} for split in source.splits()}
    assert sum(len(pairs) for pairs in found.values()) == 1000
    assert len(set.union(*found.values())) == 1000
    assert 70 < len(found["dev"]) < 130
    assert 70 < len(found["test"]) < 130


def test_splits_stay_when_rows_are_added(tmp_path: Path) -> None:
    before = open_source(f"pairs:{write_csv(tmp_path / 'a.csv', many(300))}")
    after = open_source(f"pairs:{write_csv(tmp_path / 'b.csv', list(reversed(many(600))))}")
    for split in ("train", "dev", "test"):
        assert {j.document for j in before.judgments(split)} <= {j.document for j in after.judgments(split)}


def test_duplicates_are_merged_and_counted(tmp_path: Path) -> None:
    rows = [
        *many(50),
        ("Question  number 1?", "answer NUMBER 1."),  # the same pair but for case and blanks
        ("another way to ask 2?", "answer number 2."),  # a second query for a document
        ("question number 3?", "a second answer"),  # a second document for a query
    ]
    source = open_source(f"pairs:{write_csv(tmp_path / 'faq.csv', rows)}")
    assert len(list(source.documents())) == 51
    assert len(list(source.queries())) == 51
    judgments = [j for split in source.splits() for j in source.judgments(split)]
    assert len(judgments) == 52
    assert source.notes["pairs read"] == 53
    assert source.notes["repeated pairs merged"] == 1


def test_empty_rows_of_a_spreadsheet_are_left_out(tmp_path: Path) -> None:
    file = write_csv(tmp_path / "faq.csv", [*many(5), ("", ""), (" ", "")])
    source = open_source(f"pairs:{file}")
    assert len(list(source.queries())) == 5
    assert source.notes["empty rows left out"] == 2
    with pytest.raises(InputError, match=r"faq\.csv:7: column 'answer' is empty"):
        list(open_source(f"pairs:{write_csv(file, [*many(5), ('half', '')])}").queries())


def test_semicolons_separate_as_commas_do(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = "".join(f'{query};"{document}, and; more"\n' for query, document in many(5))
    (tmp_path / "faq.csv").write_text(f"Frage;Antwort\n{rows}", encoding="utf-8-sig")
    source = open_source(f"pairs:{tmp_path / 'faq.csv'}")
    assert [text.text for text in source.documents()] == [f"{document}, and; more" for _, document in many(5)]
    assert "faq.csv: 'Frage' is taken for the column of queries, 'Antwort' for documents" in caplog.text
    caplog.clear()
    list(open_source(f"pairs:{tmp_path / 'faq.csv'}?query=Frage&document=Antwort").queries())
    list(open_source(f"pairs:{write_csv(tmp_path / 'known.csv', many(5))}").queries())
    assert "is taken" not in caplog.text


def test_a_table_without_names_of_columns_is_refused(tmp_path: Path) -> None:
    (tmp_path / "faq.csv").write_text("how do I get my money back?,write to us\nwhere are you?,here\n")
    with pytest.raises(InputError, match=r"faq\.csv:1: its first line should name the columns, but has 'how do I get"):
        list(open_source(f"pairs:{tmp_path / 'faq.csv'}").queries())


def test_quotes_between_tabs_are_named(tmp_path: Path) -> None:
    (tmp_path / "faq.tsv").write_text('query\tdocument\nwhere?\t"here,\nor there"\n')
    with pytest.raises(InputError, match=r"faq\.tsv:3: 1 fields, the header has 2") as error:
        list(open_source(f"pairs:{tmp_path / 'faq.tsv'}").queries())
    assert "save it as CSV" in str(error.value)


def test_documents_that_share_a_query_stay_together(tmp_path: Path) -> None:
    rows = [(f"question {i % 300}?", f"answer number {i}.") for i in range(600)]
    source = open_source(f"pairs:{write_csv(tmp_path / 'faq.csv', rows)}")
    split_of_query: dict[str, str] = {}
    for split in source.splits():
        for judgment in source.judgments(split):
            assert split_of_query.setdefault(judgment.query, split) == split
    assert set(split_of_query.values()) == {"train", "dev", "test"}


def test_a_large_group_goes_to_train(tmp_path: Path) -> None:
    rows = [*many(200), *((f"help! {salt}", f"ticket {salt} {i}") for salt in range(12) for i in range(40))]
    source = open_source(f"pairs:{write_csv(tmp_path / 'tickets.csv', rows)}")
    texts = {text.id: text.text for text in source.queries()}
    for split in ("dev", "test"):
        assert not [j for j in source.judgments(split) if texts[j.query].startswith("help!")]


@pytest.mark.parametrize("header", [("question", "answer"), ("Title", "Abstract"), ("frage", "antwort")])
def test_columns_are_found_by_name_or_because_there_are_two(header: tuple[str, ...], tmp_path: Path) -> None:
    path = write_csv(tmp_path / "t.csv", many(30), header)
    assert Collection.load(f"pairs:{path}", split="train").documents


def test_columns_can_be_named(tmp_path: Path) -> None:
    rows = [(str(i), f"frage {i}", f"antwort {i}") for i in range(30)]
    path = write_csv(tmp_path / "t.csv", rows, ("nr", "frage", "antwort"))
    with pytest.raises(InputError, match=r"cannot tell the query and document columns among 'nr', 'frage', 'antwort'"):
        Collection.load(f"pairs:{path}", split="train")
    collection = Collection.load(f"pairs:{path}?query=frage&document=antwort", split="train")
    assert "antwort 3" in collection.documents.values()
    with pytest.raises(InputError, match=r"no column 'antwrt'; its columns are 'nr', 'frage', 'antwort'"):
        Collection.load(f"pairs:{path}?query=frage&document=antwrt", split="train")
    with pytest.raises(InputError, match="both query and document"):
        Collection.load(f"pairs:{path}?query=frage&document=frage", split="train")
    with pytest.raises(InputError, match="cannot read 'q=frage' after the file name"):
        Collection.load(f"pairs:{path}?q=frage", split="train")


def test_jsonl_and_parquet(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    records = [{"question": q, "answer": a} for q, a in many(40)]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    pq.write_table(pa.Table.from_pylist(records), tmp_path / "t.parquet")
    write_csv(tmp_path / "t.csv", many(40))
    jsonl, parquet, table = (
        Collection.load(f"pairs:{tmp_path / name}", split="train") for name in ("t.jsonl", "t.parquet", "t.csv")
    )
    assert jsonl.documents == parquet.documents == table.documents
    assert jsonl.qrels == parquet.qrels == table.qrels


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (("question", ""), r"t\.csv:32: column 'answer' is empty"),
        (("  ", "answer"), r"t\.csv:32: column 'question' is empty"),
        (("only one",), r"t\.csv:32: 1 fields, the header has 2"),
    ],
)
def test_a_bad_row_is_named_or_skipped(row: tuple[str, ...], message: str, tmp_path: Path) -> None:
    path = write_csv(tmp_path / "t.csv", [*many(30), row])
    with pytest.raises(InputError, match=message):
        Collection.load(f"pairs:{path}", split="train")
    collection = Collection.load(f"pairs:{path}", split="train", skip_bad=True)
    assert len(collection.documents) == 30
    assert collection.rejects.count == 1


def test_a_table_without_rows_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no pairs in it"):
        Collection.load(f"pairs:{write_csv(tmp_path / 't.csv', [])}")
