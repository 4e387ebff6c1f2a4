"""Mined triplets: never a known positive, seeded, restartable."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from remargin import BiEncoder, Collection, InputError
from remargin.data.tables import Rejects
from remargin.data.triplets import read_triplets
from remargin.mining import negatives as mining
from remargin.mining.candidates import Candidates
from remargin.mining.negatives import mine
from remargin.mining.settings import MiningSettings


@pytest.fixture
def collection() -> Collection:
    words = ["margin", "query", "document", "value", "token", "model"]
    documents = {f"d{i}": f"{words[i % 6]} {words[(i + 1) % 6]} text number {i}" for i in range(60)}
    queries = {f"q{i}": f"{words[i % 6]} number {i}" for i in range(30)}
    qrels = {f"q{i}": {f"d{i}": 1, f"d{i + 6}": 2, f"d{i + 1}": 0} for i in range(30)}
    return Collection("made", "train", documents, queries, qrels)


def triplets_in(path: Path) -> list[tuple[str, str, list[str]]]:
    are_ids, triplets = read_triplets(path, Rejects(), ids=False)
    assert are_ids
    return [(t.query, t.positive, t.negatives) for t in triplets]


@pytest.mark.parametrize("negatives", ["bm25", "random", "model"])
def test_negatives_are_never_known_positives(
    negatives: Any, collection: Collection, tiny_encoder: Any, tmp_path: Path
) -> None:
    model = BiEncoder.from_pretrained(tiny_encoder("bert")) if negatives == "model" else None
    mined = mine(collection, tmp_path / "t.tsv", negatives, model, depth=25, triplets=3, per_triplet=2)
    found = triplets_in(tmp_path / "t.tsv")
    assert mined.triplets == len(found) == 30 * 2 * 3
    assert {(query, positive) for query, positive, _ in found} == {
        (query, document) for query, judged in collection.qrels.items() for document, grade in judged.items() if grade
    }
    for query, _, chosen in found:
        assert len(set(chosen)) == 2
        assert not {document for document, grade in collection.qrels[query].items() if grade} & set(chosen)
    assert len({tuple(chosen) for _, _, chosen in found}) > 60


def test_bm25_negatives_share_words_with_the_query(collection: Collection, tmp_path: Path) -> None:
    mined = mine(collection, tmp_path / "t.tsv", depth=5)
    assert mined.filled_at_random == 0
    for query, _, [negative] in triplets_in(tmp_path / "t.tsv"):
        topic, _, number = collection.queries[query].split()
        assert {topic, number} & set(collection.documents[negative].split())


def test_what_the_ranking_lacks_is_drawn_at_random_and_counted(collection: Collection, tmp_path: Path) -> None:
    collection.queries["q0"] = "zzz"
    mined = mine(collection, tmp_path / "t.tsv")
    assert mined.filled_at_random == 2


def test_the_seed_decides(collection: Collection, tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        mine(collection, tmp_path / f"{name}.tsv", seed=seed)
    first, again, other = ((tmp_path / f"{name}.tsv").read_bytes() for name in "abc")
    assert first == again != other


def test_a_stopped_run_goes_on_where_it_was(
    collection: Collection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mining, "QUERIES_AT_ONCE", 7)
    mine(collection, tmp_path / "whole.tsv")
    original, calls = Candidates.triplets, []

    def stop_at_third(self: Any, chunk: list[str], *rest: Any) -> Any:
        if len(calls) == 2:
            raise KeyboardInterrupt
        calls.append(chunk)
        return original(self, chunk, *rest)

    monkeypatch.setattr(Candidates, "triplets", stop_at_third)
    with pytest.raises(KeyboardInterrupt):
        mine(collection, tmp_path / "t.tsv")
    assert not (tmp_path / "t.tsv").exists()
    again: list[Any] = []
    monkeypatch.setattr(
        Candidates, "triplets", lambda self, chunk, *rest: again.append(chunk) or original(self, chunk, *rest)
    )
    mine(collection, tmp_path / "t.tsv")
    assert len(again) == 3  # of five
    assert (tmp_path / "t.tsv").read_bytes() == (tmp_path / "whole.tsv").read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["t.tsv", "whole.tsv"]


def test_a_damaged_part_is_mined_again(collection: Collection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mining, "QUERIES_AT_ONCE", 7)
    mine(collection, tmp_path / "whole.tsv")
    with monkeypatch.context() as stopped:
        stopped.setattr(mining, "_join", lambda *given: pytest.fail("stopped"))
        with pytest.raises(pytest.fail.Exception):
            mine(collection, tmp_path / "t.tsv")
    [parts] = tmp_path.glob(".t.tsv.*")
    part = parts / "2.json"
    changed = re.sub(r'"d\d+"', '"d999"', part.read_text(), count=1)
    assert changed != part.read_text()
    part.write_text(changed)
    mine(collection, tmp_path / "t.tsv")
    assert (tmp_path / "t.tsv").read_bytes() == (tmp_path / "whole.tsv").read_bytes()
    assert not parts.exists()


@pytest.mark.parametrize("other", ["model", "length", "positives", "texts"])
def test_a_run_with_other_input_does_not_go_on_with_what_was_done(
    other: str, collection: Collection, tiny_encoder: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mining, "QUERIES_AT_ONCE", 7)
    settings, model = {"negatives": "model", "depth": 5}, BiEncoder.from_pretrained(tiny_encoder("bert"))
    original, calls = Candidates.triplets, []

    def stop_at_third(self: Any, chunk: list[str], *rest: Any) -> Any:
        calls.append(chunk)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return original(self, chunk, *rest)

    monkeypatch.setattr(Candidates, "triplets", stop_at_third)
    with pytest.raises(KeyboardInterrupt):
        mine(collection, tmp_path / "t.tsv", model=model, **settings)
    monkeypatch.setattr(Candidates, "triplets", original)
    if other == "model":
        model = BiEncoder.from_pretrained(tiny_encoder("bert"), pooling="mean")
    elif other == "length":
        model.document_length = 4
    elif other == "texts":
        collection.documents["d3"] = collection.queries["q0"]
    else:
        collection.qrels["q0"] = {"d3": 1}
    for name in ("t.tsv", "whole.tsv"):
        mine(collection, tmp_path / name, model=model, **settings)
    assert (tmp_path / "t.tsv").read_bytes() == (tmp_path / "whole.tsv").read_bytes()


def test_two_at_once_do_not_share_their_work(
    collection: Collection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Candidates.triplets

    def second(self: Any, *arguments: Any) -> Any:
        with pytest.raises(InputError, match="another process is writing it"):
            mine(collection, tmp_path / "t.tsv")
        return original(self, *arguments)

    monkeypatch.setattr(Candidates, "triplets", second)
    assert mine(collection, tmp_path / "t.tsv").queries == 30


def test_wrong_settings_are_one_clear_line(collection: Collection, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"t\.csv: the name of the table does not end in \.tsv or \.tsv\.gz"):
        mine(collection, tmp_path / "t.csv")
    with pytest.raises(InputError, match="unknown negatives 'hard'; use bm25, random, model"):
        MiningSettings("hard")  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"seed is -1; it must be at least 0"):
        MiningSettings(seed=-1)
    with pytest.raises(InputError, match="depth must be at least 1"):
        MiningSettings(depth=0)
    with pytest.raises(InputError, match="negatives from a model need one; give --model"):
        mine(collection, tmp_path / "t.tsv", "model")
    with pytest.raises(InputError, match="too few documents"):
        mine(collection, tmp_path / "t.tsv", per_triplet=60)
    collection.qrels = {"q0": {"d0": 0}}
    with pytest.raises(InputError, match="no relevant documents"):
        mine(collection, tmp_path / "t.tsv")


def test_a_query_is_not_its_own_negative(tmp_path: Path) -> None:
    documents = {f"d{i}": f"duplicate question number {i % 3}" for i in range(6)}
    qrels = {f"d{i}": {f"d{(i + 3) % 6}": 1} for i in range(6)}
    collection = Collection("quora", "train", documents, dict(documents), qrels)
    mine(collection, tmp_path / "t.tsv", depth=6, triplets=10)
    assert all(query not in negatives for query, _, negatives in triplets_in(tmp_path / "t.tsv"))


def test_names_of_a_collection_and_a_model_are_enough(tiny_encoder: Any, tmp_path: Path) -> None:
    data, model = "docstrings:json,csv", tiny_encoder("bert")
    mined = mine(data, tmp_path / "t.tsv", "model", model, depth=5, split="test")
    same = mine(
        Collection.load(data, "test"), tmp_path / "same.tsv", "model", BiEncoder.from_pretrained(model), depth=5
    )
    assert mined == same
    assert (tmp_path / "t.tsv").read_bytes() == (tmp_path / "same.tsv").read_bytes()
    with pytest.raises(InputError, match="no split 'nights'"):
        mine(data, tmp_path / "other.tsv", split="nights")


@pytest.mark.parametrize("negatives", ["bm25", "random"])
def test_documents_without_text_are_neither_positives_nor_negatives(
    negatives: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    texts = {"a": "dogs bark", "b": "cats purr", "c": "dogs and cats", "e": "", "f": " "}
    qrels = {"q": {"a": 1, "e": 1}, "r": {"f": 1}}
    collection = Collection("x", "train", texts, {"q": "dogs and cats", "r": "empty"}, qrels)
    mined = mine(collection, tmp_path / "t.tsv", negatives, triplets=20)
    rows = {tuple(line.split("\t")) for line in (tmp_path / "t.tsv").read_text().splitlines()[1:]}
    assert rows == {("q", "a", "b"), ("q", "a", "c")}
    assert mined.queries == 1
    assert "no triplets for relevant documents without text: 2" in caplog.messages
