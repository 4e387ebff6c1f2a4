"""A corpus beside a table of pairs: what is found in it, what is added to it, and where negatives come from."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from remargin import Collection, InputError, mine
from remargin.data.collection import open_source
from remargin.data.tables import Rejects

from .test_pairs import ids, many, write_csv

CORPUS = [{"_id": f"c{i}", "title": "", "text": f"answer number {i}."} for i in range(200)]


def write_corpus(path: Path, records: list[dict[str, str]]) -> Path:
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
    elif path.suffix == ".parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.Table.from_pylist(records), path)
    else:
        with open(path, "w", newline="") as file:
            writer = csv.DictWriter(file, list(records[0]), delimiter="\t" if path.suffix == ".tsv" else ",")
            writer.writeheader()
            writer.writerows(records)
    return path


@pytest.mark.parametrize("kind", ["jsonl", "csv", "tsv", "parquet"])
def test_documents_of_the_pairs_are_found_by_their_text_or_added(kind: str, tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / f"docs.{kind}", CORPUS)
    rows = [*many(50), ("what else?", "only the table has this"), ("what more?", "Answer  NUMBER 7.")]
    path = write_csv(tmp_path / "faq.csv", rows)
    source = open_source(f"pairs:{path}?corpus={corpus}")
    documents, queries, judged = ids(source)
    assert list(documents)[:200] == [f"c{i}" for i in range(200)]
    assert len(documents) == 201
    texts = {(queries[query], documents[document]) for query, document in judged}
    assert texts == {*many(50), ("what else?", "only the table has this"), ("what more?", "answer number 7.")}
    assert source.notes["documents of the corpus"] == 200
    assert source.notes["documents of the pairs that the corpus has"] == 50
    assert source.notes["documents of the pairs added to the corpus"] == 1


def test_pairs_may_have_only_the_ids_of_documents(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "docs.jsonl", [{**CORPUS[i], "title": f"Title {i}"} for i in range(60)])
    rows = [(f"question number {i}?", f"c{i}") for i in range(50)]
    path = write_csv(tmp_path / "faq.csv", rows, ("question", "document_id"))
    source = open_source(f"pairs:{path}?corpus={corpus}")
    documents, queries, judged = ids(source)
    assert {(queries[query], document) for query, document in judged} == set(rows)
    assert documents["c3"] == "Title 3 answer number 3."
    assert {split for split in source.splits() if list(source.judgments(split))} == {"train", "dev", "test"}
    write_csv(path, [*rows, ("lost?", "c99")], ("question", "id"))
    with pytest.raises(InputError, match=r"faq\.csv:52: id 'c99': the corpus has no document of this id"):
        ids(open_source(f"pairs:{path}?corpus={corpus}"))
    assert len(ids(open_source(f"pairs:{path}?corpus={corpus}", Rejects(skip=True)))[2]) == 50
    with pytest.raises(InputError, match="cannot tell the query and document columns"):
        ids(open_source(f"pairs:{path}?query=question"))
    write_csv(path, [("lost?", "")], ("question", "id"))
    with pytest.raises(InputError, match=r"faq\.csv:2: column 'id' is empty"):
        ids(open_source(f"pairs:{path}?corpus={corpus}"))


def test_ids_where_texts_are_expected_are_named(tmp_path: Path) -> None:
    """They were documents of one word otherwise, added to the corpus."""
    corpus = write_corpus(tmp_path / "docs.jsonl", CORPUS)
    path = write_csv(tmp_path / "faq.csv", [(f"question {i}?", f"c{i}") for i in range(50)])
    line = r"faq.csv:2: id 'c0': column 'answer' has ids of the corpus where texts are expected; give .* id=answer, "
    with pytest.raises(InputError, match=line):
        Collection.load(f"pairs:{path}?corpus={corpus}", "train")
    assert len(Collection.load(f"pairs:{path}?id=answer&corpus={corpus}", "train").documents) == len(CORPUS)


def test_an_id_that_both_have_is_the_same_document_unless_the_texts_say_otherwise(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "docs.jsonl", [{"_id": "7", "title": "Refunds", "text": "Within 14 days."}])
    path = write_csv(tmp_path / "a.csv", [("7", "how long?", "within 14 days.")], ("doc_id", "query", "text"))
    source = open_source(f"pairs:{path}?corpus={corpus}")
    assert ids(source)[0] == {"7": "Refunds Within 14 days."}
    assert source.notes["pairs whose document has another text in the corpus, which is kept"] == 1
    write_csv(path, [("7", "how long?", "something else")], ("doc_id", "query", "text"))
    with pytest.raises(InputError, match=r"a\.csv:2: id '7': document has another text in the corpus"):
        ids(open_source(f"pairs:{path}?corpus={corpus}"))
    write_csv(path, [("7", "how long?", "something else")], ("id", "query", "text"))  # the number of a row
    assert list(ids(open_source(f"pairs:{path}?corpus={corpus}"))[0].values())[1:] == ["something else"]


def test_copies_in_the_corpus_are_relevant_as_well(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "docs.jsonl", [*CORPUS[:5], {"_id": "copy", "text": "Answer number 3."}])
    source = open_source(f"pairs:{write_csv(tmp_path / 'a.csv', many(5))}?corpus={corpus}")
    _, queries, judged = ids(source)
    assert {document for query, document in judged if queries[query] == "question number 3?"} == {"c3", "copy"}
    assert source.notes["copies of these in the corpus, relevant as well"] == 1
    splits = [split for split in source.splits() for j in source.judgments(split) if j.document in ("c3", "copy")]
    assert len(set(splits)) == 1


def test_a_corpus_without_ids_gets_them_from_its_texts(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "docs.csv", [{"text": "a first text"}, {"text": "A second"}, {"text": "a second"}])
    source = open_source(f"pairs:{write_csv(tmp_path / 'a.csv', [('?', 'a second')])}?corpus={corpus}")
    documents, _, judged = ids(source)
    assert [id.rpartition("-")[0] for id in documents] == ["a-first-text", "a-second"]
    assert {document for _, document in judged} == {list(documents)[1]}
    assert source.notes["identical documents of the corpus merged"] == 1


def test_bad_lines_of_a_corpus_are_named_or_counted_once(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "docs.jsonl", CORPUS)
    with open(corpus, "a") as file:
        file.write('{"_id": "x"}\n{"_id": "y", "text": 3}\n{"text": "no id"}\nno JSON\n{"_id": "empty", "text": ""}\n')
    data = f"pairs:{write_csv(tmp_path / 'a.csv', many(50))}?corpus={corpus}"
    with pytest.raises(InputError, match=r"docs\.jsonl:201: no column 'text'"):
        Collection.load(data, "train")
    collection = Collection.load(data, "train", skip_bad=True)
    assert collection.rejects.count == 4
    assert (len(collection.documents), collection.documents["empty"]) == (201, "")
    with pytest.raises(InputError, match="no such file; check the path after corpus="):
        open_source(f"pairs:{tmp_path / 'a.csv'}?corpus={tmp_path / 'other.jsonl'}")
    (tmp_path / "odd.csv").write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match=r"odd\.csv:2: no column of texts among 'a', 'b'"):
        list(open_source(f"pairs:{tmp_path / 'a.csv'}?corpus={tmp_path / 'odd.csv'}").documents())


def test_negatives_come_from_the_whole_corpus(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "docs.jsonl", CORPUS)
    data = f"pairs:{write_csv(tmp_path / 'a.csv', many(40))}?corpus={corpus}"
    mine(data, tmp_path / "triplets.tsv", negatives="random", triplets=5)
    negatives = {line.split("\t")[2] for line in (tmp_path / "triplets.tsv").read_text().splitlines()[1:]}
    assert any(int(id[1:]) >= 40 for id in negatives)
