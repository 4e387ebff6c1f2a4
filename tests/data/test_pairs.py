"""Tables of pairs as collections: columns, merging, splits."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pytest

from remargin import Collection, InputError
from remargin.data import pairs
from remargin.data.collection import open_source
from remargin.data.readable_ids import readable_id
from remargin.data.source import Source
from remargin.data.tables import Rejects


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


def test_excel_writes_semicolons_a_byte_order_mark_and_line_breaks_in_cells(tmp_path: Path) -> None:
    rows = "".join(f'{i};"Frage ""{i}""?";"Antwort {i},\r\nzweite Zeile"\r\n' for i in range(30))
    (tmp_path / "faq.csv").write_bytes(b"\xef\xbb\xbf" + f"ID;Frage;Antwort\r\n{rows}".encode())
    collection = Collection.load(f"pairs:{tmp_path / 'faq.csv'}", "train")
    assert collection.documents["7"].splitlines() == ["Antwort 7,", "zweite Zeile"]
    assert 'Frage "7"?' in {text.text for text in open_source(f"pairs:{tmp_path / 'faq.csv'}").queries()}


def ids(source: Source) -> tuple[dict[str, str], dict[str, str], set[tuple[str, str]]]:
    judged = {(j.query, j.document) for split in source.splits() for j in source.judgments(split)}
    return {t.id: t.text for t in source.documents()}, {t.id: t.text for t in source.queries()}, judged


@pytest.mark.parametrize("names", [("id", "question_id"), ("Document_ID", "query_id"), ("answer_id", "Query-ID")])
def test_columns_of_ids_are_found_by_name(names: tuple[str, str], tmp_path: Path) -> None:
    rows = [(f"D{i}", f"Q{i}", *pair) for i, pair in enumerate(many(30))]
    documents, queries, judged = ids(
        open_source(f"pairs:{write_csv(tmp_path / 'faq.csv', rows, (*names, 'query', 'answer'))}")
    )
    assert documents == {f"D{i}": answer for i, (_, answer) in enumerate(many(30))}
    assert queries == {f"Q{i}": question for i, (question, _) in enumerate(many(30))}
    assert judged == {(f"Q{i}", f"D{i}") for i in range(30)}


def test_ids_and_titles_can_be_named_or_left_out(tmp_path: Path) -> None:
    rows = [(str(i), "thema eins", *pair) for i, pair in enumerate(many(30))]
    path = write_csv(tmp_path / "faq.csv", rows, ("nr", "thema", "frage", "antwort"))
    documents, _, _ = ids(open_source(f"pairs:{path}?query=frage&document=antwort&id=nr&title=thema"))
    assert documents["3"] == "thema eins answer number 3."
    path = write_csv(tmp_path / "faq.csv", rows, ("id", "title", "question", "answer"))
    assert ids(open_source(f"pairs:{path}"))[0]["3"] == "thema eins answer number 3."
    assert ids(open_source(f"pairs:{path}?title="))[0]["3"] == "answer number 3."
    assert "3" not in ids(open_source(f"pairs:{path}?id="))[0]
    assert ids(open_source(f"pairs:{path}?query_id=id"))[1]["3"] == "question number 3?"
    with pytest.raises(InputError, match="column 'id' cannot be both id and query_id"):
        list(open_source(f"pairs:{path}?id=id&query_id=id").queries())


def test_a_title_is_the_query_only_if_there_is_no_other(tmp_path: Path) -> None:
    source = open_source(f"pairs:{write_csv(tmp_path / 'a.csv', many(9), ('title', 'text'))}")
    assert {text.text for text in source.queries()} == {question for question, _ in many(9)}
    rows = [(question, question, answer) for question, answer in many(9)]
    source = open_source(f"pairs:{write_csv(tmp_path / 'b.csv', rows, ('title', 'question', 'text'))}")
    assert ids(source)[0].popitem()[1] == "question number 8? answer number 8."
    assert source.notes["WARNING: pairs whose query is their document's title (leave titles out: title=)"] == 9


def test_ids_that_are_made_say_what_the_text_is_and_stay_when_rows_are_added(tmp_path: Path) -> None:
    rows = [("Wo ist mein Paket?", "Sehen Sie in der App nach.")]
    documents, queries, _ = ids(open_source(f"pairs:{write_csv(tmp_path / 'a.csv', rows)}"))
    ((document, _),), ((query, _),) = documents.items(), queries.items()
    assert re.fullmatch(r"sehen-sie-in-der-[0-9a-f]{8}", document)
    assert re.fullmatch(r"wo-ist-mein-paket-[0-9a-f]{8}", query)
    later = ids(open_source(f"pairs:{write_csv(tmp_path / 'b.csv', [*many(40), *rows])}"))
    assert document in later[0]
    assert (query, document) in later[2]


def test_two_texts_that_would_get_one_id_get_two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs, "readable_id", lambda kind, text, digits=1: readable_id(kind, text, digits))
    rows = [(f"which one of them is it, number {i}?", f"it is one of these {i}") for i in range(100)]
    documents, queries, judged = ids(open_source(f"pairs:{write_csv(tmp_path / 'a.csv', rows)}"))
    assert (len(documents), len(queries), len(judged)) == (100, 100, 100)


def test_a_text_with_two_ids_keeps_the_first(tmp_path: Path) -> None:
    rows = [("1", "why?", "because"), ("2", "how come?", "Because"), ("3", "when?", "now"), ("", "where?", "here")]
    source = open_source(f"pairs:{write_csv(tmp_path / 'a.csv', rows, ('id', 'question', 'answer'))}")
    documents, queries, _ = ids(source)
    assert {id: text for id, text in documents.items() if id.isdigit()} == {"1": "because", "3": "now"}
    assert len(queries) == 4
    assert source.notes["further ids of a document with the same text, which keeps its first"] == 1
    assert any(id.startswith("here-") for id in documents)  # no id in its row


def test_an_id_with_two_texts(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = [("1", "why?", "because"), ("1", "when?", "now"), ("2", "where?", "here")]
    path = write_csv(tmp_path / "a.csv", rows, ("id", "question", "answer"))
    documents, _, _ = ids(open_source(f"pairs:{path}"))
    assert not {"1", "2"} & set(documents)
    assert "column 'id' is not used, it does not name documents (id '1', line 3: document id that has" in caplog.text
    for named in (f"pairs:{path}?id=id", f"pairs:{write_csv(tmp_path / 'b.csv', rows, ('doc_id', 'query', 'text'))}"):
        with pytest.raises(
            InputError, match=r"\.csv:3: id '1': document id that has another text on line 2; correct it"
        ):
            list(open_source(named).documents())
        assert len(ids(open_source(named, Rejects(skip=True)))[0]) == 2
    path = write_csv(tmp_path / "c.csv", rows, ("query_id", "question", "answer"))
    with pytest.raises(InputError, match=r"c\.csv:3: id '1': query id that has another text on line 2"):
        list(open_source(f"pairs:{path}").queries())


def test_white_space_in_ids_is_replaced_and_counted(tmp_path: Path) -> None:
    rows = [("A 1", "why?", "because"), ("A 2", "when?", "now")]
    source = open_source(f"pairs:{write_csv(tmp_path / 'a.csv', rows, ('id', 'question', 'answer'))}")
    assert set(ids(source)[0]) == {"A_1", "A_2"}
    assert source.notes["ids whose white space became _"] == 2
    rows = [("A 1", "why?", "because"), ("A_1", "when?", "now")]
    path = write_csv(tmp_path / "a.csv", rows, ("doc_id", "question", "answer"))
    with pytest.raises(InputError, match="'A_1': document id that has another text"):
        ids(open_source(f"pairs:{path}"))


def test_numbers_are_ids_and_lists_are_not(tmp_path: Path) -> None:
    records = [{"id": 1.0, "question": "why?", "answer": "because"}, {"id": 2, "question": "when?", "answer": "now"}]
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    assert set(ids(open_source(f"pairs:{path}"))[0]) == {"1", "2"}
    path.write_text(json.dumps({"id": [1], "question": "why?", "answer": "because"}))
    with pytest.raises(InputError, match=r"a\.jsonl:1: column 'id' is not an id"):
        ids(open_source(f"pairs:{path}"))


def test_a_mistyped_name_is_answered_with_the_nearest(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "t.csv", [("1", "a", "b")], ("nr", "Frage", "Antwort"))
    with pytest.raises(InputError, match=r"no column 'fraeg'; .*; did you mean 'Frage'\?$"):
        list(open_source(f"pairs:{path}?query=fraeg&document=Antwort").queries())
    with pytest.raises(
        InputError, match=r"cannot read 'querry=Frage' after the file name; .*: did you mean 'query'\?$"
    ):
        open_source(f"pairs:{path}?querry=Frage")
    with pytest.raises(InputError, match="cannot read 'query=a' after the file name"):
        open_source(f"pairs:{path}?query=b&query=a")
