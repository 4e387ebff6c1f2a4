"""Collections from BEIR folders and ir_datasets, whole and broken."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from remargin import Collection, InputError
from remargin.data.collection import open_collection, open_source

from ..irds import Part, registered_with

DOCUMENTS = [
    {"_id": "d1", "title": "First", "text": "about margins"},
    {"_id": "d2", "title": "", "text": "about queries"},
    {"_id": "d3", "title": None, "text": "über alles"},
]
QUERIES = [{"_id": "q1", "text": "margins?"}, {"_id": "q2", "text": "queries?"}, {"_id": "q3", "text": "unjudged"}]
QRELS = "query-id\tcorpus-id\tscore\nq1\td1\t2\nq1\td2\t0\nq2\td2\t1\n"


def write_lines(path: Path, records: list[Any]) -> None:
    path.write_text("".join(r if isinstance(r, str) else json.dumps(r, ensure_ascii=False) + "\n" for r in records))


@pytest.fixture
def beir(tmp_path: Path) -> Path:
    folder = tmp_path / "beir"
    (folder / "qrels").mkdir(parents=True)
    write_lines(folder / "corpus.jsonl", DOCUMENTS)
    write_lines(folder / "queries.jsonl", QUERIES)
    (folder / "qrels" / "test.tsv").write_text(QRELS)
    return folder


def check(collection: Collection) -> None:
    assert collection.documents == {"d1": "First about margins", "d2": "about queries", "d3": "über alles"}
    assert collection.queries == {"q1": "margins?", "q2": "queries?"}
    assert collection.qrels == {"q1": {"d1": 2, "d2": 0}, "q2": {"d2": 1}}


def test_a_beir_folder(beir: Path) -> None:
    check(Collection.load(beir))


def test_a_gzipped_beir_folder(beir: Path) -> None:
    for name in ("corpus.jsonl", "queries.jsonl", "qrels/test.tsv"):
        path = beir / name
        (beir / f"{name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    check(Collection.load(beir))


def test_trec_qrels_and_qrels_without_a_header(beir: Path) -> None:
    (beir / "qrels" / "test.tsv").write_text("q1 0 d1 2\nq1 0 d2 0\nq2 0 d2 1\n")
    check(Collection.load(beir))
    (beir / "qrels" / "test.tsv").write_text(QRELS.partition("\n")[2])
    check(Collection.load(beir))


def test_splits_come_in_their_usual_order(beir: Path) -> None:
    for split in ("train", "dev", "extra"):
        (beir / "qrels" / f"{split}.tsv").write_text(QRELS)
    assert open_source(beir).splits() == ["train", "dev", "test", "extra"]
    check(Collection.load(beir, split="extra"))


BAD_LINES: list[tuple[str, str, str]] = [
    ("corpus.jsonl", '{"_id": "d4", "text": }\n', "corpus.jsonl:4: not valid JSON"),
    ("corpus.jsonl", '{"_id": "d1", "text": "again"}\n', "corpus.jsonl:4: id 'd1': .*second time"),
    ("corpus.jsonl", '{"_id": "d 4", "text": "x"}\n', "corpus.jsonl:4: id 'd 4': .*white space"),
    ("corpus.jsonl", '{"_id": "", "text": "x"}\n', "corpus.jsonl:4: id '': .*empty"),
    ("corpus.jsonl", '{"id": "d4", "text": "x"}\n', 'corpus.jsonl:4: no "_id"'),
    ("corpus.jsonl", '{"_id": "d4", "body": "x"}\n', "corpus.jsonl:4: id 'd4': no \"text\""),
    ("corpus.jsonl", '{"_id": "d4", "text": 7}\n', "corpus.jsonl:4: id 'd4': \"text\" is not a string"),
    ("corpus.jsonl", '{"_id": "d\\u0000", "text": "x"}\n', r"corpus.jsonl:4: id 'd\\x00': document id has a NUL byte"),
    ("queries.jsonl", '{"_id": "q4", "text": ""}\n', "queries.jsonl:4: id 'q4': query has no text"),
    ("qrels/test.tsv", "q2\td9\t1\n", "test.tsv:5: id 'd9': judgment for a document that is not in the collection"),
    ("qrels/test.tsv", "q9\td1\t1\n", "test.tsv:5: id 'q9': judgment for a query that is not in the collection"),
    ("qrels/test.tsv", "q2\td1\n", "test.tsv:5: 2 columns instead of 3"),
    ("qrels/test.tsv", "q2\td1\thigh\n", "test.tsv:5: id 'q2': grade 'high' is not a whole number"),
    ("qrels/test.tsv", "q2\td1\t1_0\n", "test.tsv:5: id 'q2': grade '1_0' is not a whole number"),
    ("qrels/test.tsv", "q2\td1\t1000001\n", "id 'q2': grade '1000001' .* from -1,000,000 to 1,000,000"),
    ("qrels/test.tsv", f"q2\td1\t-{'9' * 5000}\n", "test.tsv:5: id 'q2': grade '-9+' is not a whole number"),
    ("qrels/test.tsv", "q2\td1\0\t1\n", r"test.tsv:5: id 'd1\\x00': judgment for a document that is not in"),
    ("qrels/test.tsv", "q2\td2\t0\n", "test.tsv:5: id 'q2': document 'd2' judged 1 before and 0 now"),
]


@pytest.mark.parametrize(("name", "line", "message"), BAD_LINES)
def test_a_bad_line_is_named_or_skipped(name: str, line: str, message: str, beir: Path) -> None:
    with open(beir / name, "a") as file:
        file.write(line)
    with pytest.raises(InputError, match=message) as error:
        Collection.load(beir)
    assert "\n" not in str(error.value)
    assert "--skip-bad" in str(error.value)
    collection = Collection.load(beir, skip_bad=True)
    check(collection)
    assert collection.rejects.count == 1


def test_judgments_that_are_not_utf_8_or_cut_off_are_named(beir: Path) -> None:
    path = beir / "qrels" / "test.tsv"
    lines = [b"q1\td1\t2\n"] * 5000
    path.write_bytes(b"".join([*lines, b"q1\td\xfc\t2\n", *lines]))
    with pytest.raises(InputError, match=r"test.tsv:5001: not UTF-8 \(byte 0xfc at column 5\)"):
        Collection.load(beir)
    path.unlink()
    path.with_name("test.tsv.gz").write_bytes(gzip.compress(b"".join(lines))[:-10])
    with pytest.raises(InputError, match=r"test.tsv.gz:\d+: the gzip data ends early"):
        Collection.load(beir)


def test_a_judgment_that_is_repeated_with_the_same_grade_counts_once(beir: Path) -> None:
    with open(beir / "qrels" / "test.tsv", "a") as file:
        file.write("q2\td2\t1\n\n")
    check(Collection.load(beir))


def test_only_tsv_files_are_splits(beir: Path) -> None:
    for name in ("train.tsv~", "._test.tsv", "dev.tsv.bak", "notes.txt"):
        (beir / "qrels" / name).write_text("x")
    assert open_source(beir).splits() == ["test"]


def test_numbers_as_ids_are_taken_as_text(beir: Path) -> None:
    with open(beir / "corpus.jsonl", "a") as file:
        file.write('{"_id": 4, "text": "x"}\n')
    assert Collection.load(beir).documents["4"] == "x"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("nowhere", "nowhere: no such folder; check the path; or did you mean irds:NAME"),
        ("", "no collection is named"),
        (__file__, "is a file; .* write pairs:"),
        ("irds:", "nothing after irds:"),
        ("irds:no/such/name", "ir_datasets knows no data set 'no/such/name'"),
        ("docstrings:no_such_package", "no Python code for package 'no_such_package'"),
        ("docstrings:./no-such-folder", "no package or folder"),
        ("pairs:nowhere.csv", "nowhere.csv: no such file"),
        (f"pairs:{Path(__file__).parent}", "is a folder; .* write files:"),
    ],
)
def test_data_that_is_not_there_is_one_clear_line(data: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Collection.load(data)


def test_a_folder_that_lacks_a_file_says_which(beir: Path) -> None:
    (beir / "queries.jsonl").unlink()
    with pytest.raises(InputError, match=r"queries.jsonl: no such file; a BEIR folder has"):
        Collection.load(beir)


def test_a_split_that_is_not_there_lists_those_that_are(beir: Path) -> None:
    with pytest.raises(InputError, match="no split 'dev'; it has: test"):
        Collection.load(beir, split="dev")
    (beir / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n")
    with pytest.raises(InputError, match="split 'test' has no judgments"):
        Collection.load(beir)
    (beir / "corpus.jsonl").write_text("")
    with pytest.raises(InputError, match="there are no documents in it"):
        Collection.load(beir)


@pytest.fixture
def registered(beir: Path, tmp_path: Path) -> Iterator[str]:
    """A data set registered with ir_datasets from local files: local-test, with train and test."""
    documents = {d["_id"]: f"{d['title'] or ''} {d['text']}" for d in DOCUMENTS}
    queries = {q["_id"]: q["text"] for q in QUERIES}
    parts: dict[str, Part] = {"": Part()}
    for split, text in {"train": "q1 0 d1 2\n", "test": "q1 0 d1 2\nq1 0 d2 0\nq2 0 d2 1\n"}.items():
        parts[split] = parts[f"{split}/judged"] = Part(queries, text)
    with registered_with("local-test", tmp_path, documents, parts):
        yield "local-test"


def test_ir_datasets(registered: str) -> None:
    for data in (f"irds:{registered}/test", f"irds:{registered}", f"irds:{registered}/train"):
        check(Collection.load(data, split="test"))
    assert Collection.load(f"irds:{registered}/test", split="train").qrels == {"q1": {"d1": 2}}


def test_a_download_that_fails_is_one_clear_line(registered: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import ir_datasets

    def offline() -> Any:
        raise ConnectionError("no route\nto host")

    monkeypatch.setattr(ir_datasets.load(f"{registered}/test"), "docs_iter", offline, raising=False)
    with pytest.raises(InputError, match=r"could not read irds:local-test/test \(no route\)"):
        Collection.load(f"irds:{registered}/test")


def test_an_ir_datasets_name_that_ends_in_no_split_is_a_test_split(registered: str) -> None:
    assert open_source(f"irds:{registered}/train/judged").splits() == ["test"]
    with pytest.raises(InputError, match="no split 'train'"):
        Collection.load(f"irds:{registered}/train/judged", split="train")


def test_judgments_of_ir_datasets_that_contradict_each_other_are_counted(registered: str, tmp_path: Path) -> None:
    with open(tmp_path / "local-test-test.qrels", "a") as file:
        file.write("q1 0 d1 2\nq1 0 d1 1\nq2 0 d2 0\n")
    collection = Collection.load(f"irds:{registered}/test")
    check(collection)
    assert collection.notes == {"judgments dropped because an earlier one has another grade": 2}


def test_a_grade_of_ir_datasets_that_is_too_large_is_refused(registered: str, tmp_path: Path) -> None:
    with open(tmp_path / "local-test-test.qrels", "a") as file:
        file.write("q2 0 d1 4294967297\n")
    with pytest.raises(InputError, match="irds:local-test/test: id 'q2': document 'd1' has grade 4294967297"):
        Collection.load(f"irds:{registered}/test")


def collection(documents: dict[str, str], queries: dict[str, str], qrels: dict[str, dict[str, int]]) -> Collection:
    return Collection("", "test", documents, queries, qrels)


def test_a_query_that_is_a_document_itself_is_a_self_match() -> None:
    documents = {"1": "Title  A claim,\nat length.", "2": "An answer.", "3": "Another claim"}
    queries = {"1": "A claim, at  length.", "3": "Another claim"}
    qrels = {id: {"2": 1} for id in queries}
    assert collection(documents, queries, qrels).self_matches == {"1", "3"}


def test_ids_that_coincide_by_accident_and_judged_documents_are_no_self_matches() -> None:
    documents = {"1": "flow past a wing", "2": "heat transfer", "3": "shock waves"}
    queries = {"1": "what is heat transfer", "2": "heat transfer", "3": "shock waves", "4": "flow past a wing"}
    qrels = {"1": {"2": 1}, "2": {"2": 1}, "3": {"3": 0, "1": 1}, "4": {"1": 1}}
    assert collection(documents, queries, qrels).self_matches == frozenset()


def test_documents_without_text_are_kept_and_counted(beir: Path, caplog: pytest.LogCaptureFixture) -> None:
    with open(beir / "corpus.jsonl", "a") as file:
        file.write('{"_id": "d4", "title": "", "text": "  "}\n')
    with open(beir / "qrels" / "test.tsv", "a") as file:
        file.write("q2\td4\t1\n")
    collection = open_collection(beir)
    assert collection.documents["d4"] == ""
    assert collection.qrels["q2"] == {"d2": 1, "d4": 1}
    assert collection.rejects.count == 0
    assert caplog.messages == ["documents without text, which are kept: 1"]
