"""A look at the data: every count against one made by hand, on data that was made up for it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from remargin import BiEncoder
from remargin.data.preparation import prepare
from remargin.data.training_data import TrainingData
from remargin.training import data_look
from remargin.training.data_look import DataLook, SharedTexts, UnlikelyPair, UnlikelyPairs, look, training_pairs

Pairs = Iterable[tuple[str, str]]


def collection(
    folder: Path,
    model: Path,
    documents: dict[str, str],
    queries: dict[str, str],
    train: Pairs,
    held_out: dict[str, Sequence[tuple[str, str, int]]] | None = None,
    **lengths: int,
) -> Path:
    """A prepared folder of given texts and judgments; negatives do not matter here."""
    (folder / "beir" / "qrels").mkdir(parents=True)
    for name, texts in {"corpus": documents, "queries": queries}.items():
        rows = (json.dumps({"_id": id, "text": text}) + "\n" for id, text in texts.items())
        (folder / "beir" / f"{name}.jsonl").write_text("".join(rows))
    train = list(train)
    judged = {"train": [(query, document, 1) for query, document in train], **(held_out or {})}
    for split, judgments in judged.items():
        rows = (f"{query}\t{document}\t{grade}\n" for query, document, grade in judgments)
        (folder / "beir" / "qrels" / f"{split}.tsv").write_text("".join(rows))
    first, second = list(documents)[:2]
    table = "query_id\tpositive_id\tnegative_id\n"
    table += "".join(f"{query}\t{d}\t{first if d != first else second}\n" for query, d in train)
    (folder / "triplets.tsv").write_text(table)
    prepare(folder / "beir", model, folder / "data", folder / "triplets.tsv", **{"document_length": 64, **lengths})
    return folder / "data"


@pytest.fixture
def flawed(tiny_model: Any, tmp_path: Path) -> Path:
    """Everything that can be the matter, in twelve documents."""
    documents = {f"d{i}": f"the document of number{i} is a text" for i in range(10)}
    documents |= {"d10": "The  Document of NUMBER3 is a text", "d11": "the document of number3 is a text "}
    queries = {f"q{i}": f"how is number{i}" for i in range(8)}
    queries |= {"q8": "How is  NUMBER1", "q9": "unrelated", "t0": "how is number2", "t1": "number9", "t2": "number3"}
    train = [(f"q{i}", f"d{i}") for i in range(8)] + [("q8", "d1"), ("q9", "d4")]
    test = [("t0", "d2", 1), ("t1", "d9", 1), ("t2", "d10", 2), ("t1", "d1", 0)]
    return collection(tmp_path, tiny_model(), documents, queries, train, {"test": test, "dev": []})


def test_every_count(flawed: Path) -> None:
    seen = look(flawed)
    assert (seen.pairs, seen.queries, seen.documents, seen.all_queries) == (10, 10, 12, 13)
    assert (seen.repeated_documents, seen.repeated_queries) == (2, 1)
    assert seen.repeats == {"documents": ("d3", "d10"), "queries": ("q1", "q8")}
    # t0 repeats a training pair; t2 has the document of q3 under another id; d1 is not relevant to t1
    assert seen.shared["test"] == SharedTexts(queries=3, same_query=1, same_document=2, same_pair=1)
    assert seen.shared["dev"] == SharedTexts(0, 0, 0, 0)
    assert (seen.popular, seen.popular_queries) in {("d1", 2), ("d4", 2)}
    assert (seen.no_shared_word.compared, seen.no_shared_word.count, seen.unlikely_share) == (10, 1, 0.1)
    assert [(pair.query_id, pair.document_id) for pair in seen.no_shared_word.examples] == [("q9", "d4")]
    assert not seen.less_similar.compared
    assert json.loads(json.dumps(asdict(seen)))["shared"]["test"]["same_document"] == 2


def test_every_line(flawed: Path) -> None:
    assert look(flawed).lines() == [
        "10 training pairs: too few to learn from or to measure; expect noise. 300 or more are a start",
        "2 of 12 documents repeat the text of an earlier one, as d10 that of d3",
        "1 of 10 training queries repeat the text of an earlier one, as q8 that of q1",
        "test: of 3 queries 1 have the text of a training query, 2 have a relevant document of a training query, "
        "1 have both; what they measure was partly learned",
        "unlikely positives: 1 of 10 share no word with their query, such as",
        "  q9 'unrelated' -> d4 'the document of number4 is a text'",
    ]


def test_nothing_is_said_of_clean_data(tiny_model: Any, tmp_path: Path) -> None:
    documents = {f"d{i}": f"the value number{i}" for i in range(80)}
    queries = {f"q{i}": f"how is number{i}" for i in range(80)}
    train, test = [(f"q{i}", f"d{i}") for i in range(60)], [(f"q{i}", f"d{i}", 1) for i in range(60, 80)]
    seen = look(collection(tmp_path, tiny_model(), documents, queries, train, {"test": test}))
    assert seen.lines() == []
    assert (seen.pairs, seen.popular_queries, seen.shared["test"].queries) == (60, 1, 20)


def test_what_is_truncated_is_what_prepare_truncated(tiny_model: Any, tmp_path: Path) -> None:
    documents = {f"d{i}": " ".join(["text"] * (20 if i < 13 else 5)) + f" {i}" for i in range(60)}
    queries = {f"q{i}": f"text of {i}" + (" and the value of the list" if i == 7 else "") for i in range(200)}
    train = [(f"q{i}", f"d{i}") for i in range(60)]
    folder = collection(tmp_path, tiny_model(), documents, queries, train, document_length=16, query_length=9)
    seen = look(folder)
    assert (seen.documents_truncated, seen.queries_truncated) == (13, 1)
    assert seen.truncated_share == 13 / 60
    assert [line for line in seen.lines() if "truncated" in line] == [
        "22% of documents are longer than 16 tokens and will be truncated (--document-length)",
        "1 of 200 queries are longer than 9 tokens and will be truncated (--query-length)",
    ]


@pytest.mark.parametrize(("times", "named"), [(9, False), (10, True), (30, True)])
def test_a_document_for_many_queries(times: int, named: bool, tiny_model: Any, tmp_path: Path) -> None:
    documents = {f"d{i}": f"text of number{i}" for i in range(100)}
    queries = {f"q{i}": f"number{i}" for i in range(100)}
    train = [(f"q{i}", "d99" if i < times else f"d{i}") for i in range(99)]
    seen = look(collection(tmp_path, tiny_model(), documents, queries, train))
    assert (seen.popular, seen.popular_queries) == ("d99", times)
    line = f"document d99 is the answer to {times} of 99 queries"
    assert (line in seen.lines()) == named


def test_pairs_are_counted_once_whatever_their_negatives(scored: Path) -> None:
    triplets = TrainingData(scored).triplets
    rows = triplets.take(np.arange(len(triplets)))
    distinct = sorted(set(zip(rows.queries.tolist(), rows.positives.tolist(), strict=True)))
    assert training_pairs(triplets).tolist() == [list(pair) for pair in distinct]
    assert look(scored).pairs == len(distinct) > 50


def test_pairs_are_read_in_parts(scored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = training_pairs(TrainingData(scored).triplets)
    monkeypatch.setattr(data_look, "AT_ONCE", 7)
    assert np.array_equal(training_pairs(TrainingData(scored).triplets), whole)


def test_unlikely_as_vectors_are_those_of_a_double_loop(prepared: Path, model: BiEncoder) -> None:
    seen, training = look(prepared, model, seed=5), TrainingData(prepared)
    assert seen.less_similar.compared == seen.pairs == 40
    rng, pairs = np.random.default_rng(5), training_pairs(training.triplets)
    for size in (len(pairs), len(pairs)):
        rng.choice(size, size, replace=False)
    random = np.sort(rng.choice(60, 60, replace=False))  # all of them: there are fewer than 100
    queries, documents = (
        model.encode_tokens(store.take(range(len(store)))) for store in (training.queries, training.documents)
    )
    leads = {}
    for query, document in pairs.tolist():
        similarities = sorted(float(queries[query] @ documents[other]) for other in random.tolist())
        leads[training.queries.ids[query]] = float(queries[query] @ documents[document]) - np.mean(similarities[29:31])
    unlikely = sorted((lead, id) for id, lead in leads.items() if lead < 0)
    assert 0 < len(unlikely) < 40
    assert seen.less_similar.count == len(unlikely)
    assert [pair.query_id for pair in seen.less_similar.examples] == [id for _, id in unlikely[:3]]
    assert seen.unlikely_share == len(unlikely) / 40
    assert any("than most random documents" in line for line in seen.lines())


def test_the_same_seed_gives_the_same_look(prepared: Path, model: BiEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_look, "PAIRS_ENCODED", 10)
    monkeypatch.setattr(data_look, "RANDOM_DOCUMENTS", 5)
    first, second, other = (look(prepared, model, seed) for seed in (0, 0, 1))
    assert first == second
    assert first.less_similar.compared == 10
    assert first != other


def test_only_so_many_pairs_are_compared_and_that_is_said(flawed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_look, "PAIRS_READ", 4)
    seen = look(flawed)
    assert (seen.pairs, seen.no_shared_word.compared) == (10, 4)


def test_examples_are_shown_once() -> None:
    worst, other = (UnlikelyPair(id, "a query", f"d-{id}", "a text") for id in ("q1", "q2"))
    words, vectors = UnlikelyPairs(100, 2, [other]), UnlikelyPairs(30, 1, [worst])
    both = DataLook(60, 60, 60, no_shared_word=words, less_similar=vectors)
    assert both.lines() == [
        "unlikely positives: 1 of 30 are less similar to their query than most random documents, such as",
        "  q1 'a query' -> d-q1 'a text'",
        "unlikely positives: 2 of 100 share no word with their query",
    ]
    assert both.unlikely_share == 1 / 30
    alone = DataLook(60, 60, 60, no_shared_word=words, less_similar=UnlikelyPairs(30))
    assert alone.lines()[1] == "  q2 'a query' -> d-q2 'a text'"
    assert alone.unlikely_share == 0  # by vectors there are none


def test_texts_are_shortened() -> None:
    assert data_look._shortened("a  b\nc") == "a b c"
    assert len(data_look._shortened("word " * 100)) == data_look.SHOWN


def test_one_pair() -> None:
    assert DataLook(pairs=1, queries=1, documents=1).lines()[0].startswith("1 training pair: too few")
    assert DataLook(pairs=49, queries=1, documents=1).lines()
    assert not DataLook(pairs=50, queries=50, documents=1).lines()


def test_twenty_thousand_documents_take_seconds(tiny_model: Any, tmp_path: Path) -> None:
    documents = {f"d{i}": f"the value {i} " * 3 + "of a text " * 10 for i in range(20_000)}
    queries = {f"q{i}": f"how is {i}" for i in range(2_000)}
    folder = collection(tmp_path, tiny_model(), documents, queries, [(f"q{i}", f"d{i}") for i in range(2_000)])
    began = time.perf_counter()
    assert look(folder).documents == 20_000
    assert time.perf_counter() - began < 10  # half a second on a machine that is not busy
