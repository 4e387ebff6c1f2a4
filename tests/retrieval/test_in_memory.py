"""Indexes that are searched once: without a folder, and with the rankings of those that have one."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest

from remargin import BiEncoder, Collection, search
from remargin.files import arrays, atomic
from remargin.retrieval.building import build_index
from remargin.retrieval.dense import DenseIndex
from remargin.retrieval.index_folder import open_index
from remargin.retrieval.settings import BackendSettings

from .indexes import QUERIES, SETTINGS, random_vectors

faiss = pytest.importorskip("faiss")
pytest.importorskip("pymilvus")
TEXTS = {f"d{i}": f"text number {i} of {i % 17} words and {i % 5} margins" for i in range(400)}
QUANTISED = BackendSettings("faiss", factory="HNSW8_SQ8")  # which is trained


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
@pytest.mark.parametrize("name", [*SETTINGS, "quantised"])
def test_rankings_are_those_of_an_index_on_disk(name: str, similarity: Any, tiny_encoder: Any, tmp_path: Path) -> None:
    model = BiEncoder.from_pretrained(tiny_encoder("bert"), similarity=similarity, pooling="mean")
    settings, vectors = {**SETTINGS, "quantised": QUANTISED}[name], random_vectors(model, 400)
    build_index(vectors, tmp_path / "index", settings)
    written = open_index(tmp_path / "index", model).search(QUERIES, 10).rankings
    in_memory = DenseIndex.in_memory(model, vectors, settings).search(QUERIES, 10).rankings
    assert {query: list(ranking) for query, ranking in in_memory.items()} == {
        query: list(ranking) for query, ranking in written.items()
    }
    assert in_memory == written
    assert all(len(ranking) == 10 for ranking in written.values())


def test_searching_with_faiss_writes_no_file(model: BiEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    collection = Collection("texts", "test", TEXTS, QUERIES, {query: {"d1": 1} for query in QUERIES})

    def refused(*arguments: Any, **options: Any) -> None:
        raise AssertionError("a file is written")

    for module, name in (
        (faiss, "write_index"),
        (faiss, "read_index"),
        (tempfile, "mkdtemp"),
        (tempfile, "mkstemp"),
        (tempfile, "NamedTemporaryFile"),
        (arrays, "append_array"),
        (atomic, "new_folder"),
        (atomic, "_scratch"),
    ):
        monkeypatch.setattr(module, name, refused)
    opened: list[str] = []
    with monkeypatch.context() as patch:
        original = open
        patch.setattr("builtins.open", lambda *given, **more: opened.append(given) or original(*given, **more))
        patch.setattr("remargin.retrieval.faiss.paper_factory", lambda *given: "HNSW8")  # OPQ is slow to train
        run = search(collection, "faiss", model, k=10)
    assert not [given for given in opened if len(given) > 1 and set("wax+") & set(str(given[1]))]
    assert {len(ranking) for ranking in run.rankings.values()} == {10}


def test_a_temporary_milvus_leaves_nothing(model: BiEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    index = DenseIndex.in_memory(model, random_vectors(model, 50), SETTINGS["milvus"])
    (folder,) = tmp_path.iterdir()
    assert {path.name.partition(".")[0] for path in folder.iterdir()} <= {"milvus", ""}  # the database and its lock
    assert len(index.search(QUERIES, 3).rankings) == len(QUERIES)
    del index
    assert not list(tmp_path.iterdir())

    def stopped(*arguments: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("remargin.retrieval.milvus._upsert", stopped)
    with pytest.raises(KeyboardInterrupt):
        DenseIndex.in_memory(model, random_vectors(model, 50), SETTINGS["milvus"])
    assert not list(tmp_path.iterdir())


def test_training_an_index_is_shown(model: BiEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []

    def track(items: Any, description: str, **options: Any) -> Any:
        shown.append(description)
        return items

    monkeypatch.setattr("remargin.retrieval.faiss.track", track)
    for settings in (QUANTISED, BackendSettings("faiss", factory="Flat")):
        DenseIndex.in_memory(model, random_vectors(model, 400), settings)
    assert shown == ["training on 400 vectors", "indexing", "indexing"]  # a flat index is not trained
