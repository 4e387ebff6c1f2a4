"""Vectors on a Milvus server: uploads that are stopped go on, counts are verified, updates disturb no search.

The server is milvus-lite's, which is named by a file.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from remargin import BiEncoder, InputError
from remargin.retrieval import milvus as module
from remargin.retrieval.building import build_index
from remargin.retrieval.index_folder import open_index
from remargin.retrieval.settings import BackendSettings
from remargin.retrieval.updating import add_documents, delete_documents
from remargin.retrieval.vectors import Vectors

from .indexes import DOCUMENTS, QUERIES, random_vectors, same

pytest.importorskip("pymilvus")
pytest.importorskip("milvus_lite")


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BackendSettings:
    monkeypatch.setattr(module, "ROWS_PER_PART", 8)
    monkeypatch.setattr(module, "ROWS_AT_ONCE", 3)
    return BackendSettings("milvus", factory="FLAT", uri=str(tmp_path / "server.db"))


def collections(settings: BackendSettings) -> dict[str, int]:
    with module._connected(str(settings.uri)) as client:
        counts = {}
        for name in client.list_collections():
            client.load_collection(name)
            counts[name] = client.query(name, filter="", output_fields=["count(*)"])[0]["count(*)"]
        return counts


def stopped(monkeypatch: pytest.MonkeyPatch, calls: int) -> list[tuple[int, int]]:
    """Interrupts an upload after so many parts, in the middle of the next; returns where the parts lie."""
    original, uploaded = module._upsert, []

    def upsert(client: Any, name: str, matrix: np.ndarray, start: int) -> None:
        if len(uploaded) == calls:
            original(client, name, matrix[: len(matrix) // 2], start)
            raise KeyboardInterrupt
        uploaded.append((start, start + len(matrix)))
        original(client, name, matrix, start)

    monkeypatch.setattr(module, "_upsert", upsert)
    return uploaded


def test_an_upload_that_is_stopped_goes_on(
    model: BiEncoder, tmp_path: Path, settings: BackendSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    vectors, out = random_vectors(model, 60), tmp_path / "index"
    with monkeypatch.context() as patch:
        assert stopped(patch, 3) == []
        with pytest.raises(KeyboardInterrupt):
            build_index(vectors, out, settings)
    assert not out.exists()
    ((name, count),) = collections(settings).items()
    assert count == 3 * 8 + 4
    with monkeypatch.context() as patch:
        uploaded = stopped(patch, 100)
        build_index(vectors, out, settings)
    assert uploaded == [(24, 32), (32, 40), (40, 48), (48, 56), (56, 60)]
    assert collections(settings) == {name: 60}
    found = open_index(out, model).search_vectors(vectors.matrix[:7], 1)
    assert [ranking.documents.tolist() for ranking in found] == [[row] for row in range(7)]
    assert {path.name for path in tmp_path.iterdir()} <= {"index", "server.db", ".server.db.lock"}


def test_other_vectors_do_not_go_on_with_an_upload(
    model: BiEncoder, tmp_path: Path, settings: BackendSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    vectors, out = random_vectors(model, 60), tmp_path / "index"
    with monkeypatch.context() as patch:
        stopped(patch, 3)
        with pytest.raises(KeyboardInterrupt):
            build_index(vectors, out, settings)
    (unfinished,) = collections(settings)
    vectors.matrix[0] *= -1
    build_index(vectors, out, settings)
    assert len(collections(settings)) == 2
    with module._connected(str(settings.uri)) as client:  # somebody tidies up on the server
        client.drop_collection(unfinished)
    vectors.matrix[0] *= -1
    build_index(vectors, out, settings, overwrite=True)
    assert [*collections(settings).values()] == [60]


def test_a_build_that_is_killed_when_it_is_done_does_not_give_its_collection_away(
    model: BiEncoder, tmp_path: Path, settings: BackendSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    vectors, out = random_vectors(model, 20), tmp_path / "index"
    with monkeypatch.context() as patch:
        patch.setattr("remargin.files.parts.shutil", SimpleNamespace(rmtree=str))  # as if killed before that
        build_index(vectors, out, settings)
    assert list(tmp_path.glob(".index.*"))
    (first,) = collections(settings)
    build_index(vectors, out, settings, overwrite=True)
    (second,) = collections(settings)
    assert first != second
    assert len(open_index(out, model).search_vectors(vectors.matrix[:1], 20)[0].documents) == 20


def test_a_server_that_loses_vectors_is_noticed(
    model: BiEncoder, tmp_path: Path, settings: BackendSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    vectors, out = random_vectors(model, 20), tmp_path / "index"
    original = module._upsert
    with monkeypatch.context() as patch:
        patch.setattr(module, "_upsert", lambda client, name, matrix, start: original(client, name, matrix[1:], start))
        with pytest.raises(InputError, match=r"collection remargin_\w+ has 17 vectors of 20; do the same again"):
            build_index(vectors, out, settings)
    assert not collections(settings)
    build_index(vectors, out, settings)
    with monkeypatch.context() as patch:
        patch.setattr(module, "_upsert", lambda client, name, matrix, start: original(client, name, matrix[1:], start))
        with pytest.raises(InputError, match="has 22 vectors of 23"):
            add_documents(out, replaced_ids(random_vectors(model, 3)))
    assert len(open_index(out, model)) == 20
    add_documents(out, replaced_ids(random_vectors(model, 3)))
    assert [*collections(settings).values()] == [23]
    assert len(open_index(out, model)) == 23


def replaced_ids(vectors: Vectors) -> Vectors:
    vectors.ids = [f"new{i}" for i in range(len(vectors.ids))]
    return vectors


def test_an_open_index_searches_what_it_was_opened_with(
    model: BiEncoder, tmp_path: Path, settings: BackendSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Documents that an update adds are on the server before the index has them, and may be nearer than all others."""
    monkeypatch.setattr(module, "_disconnect", lambda client, uri: client.close())  # milvus-lite's would stop for all
    build_index(Vectors.of(model, DOCUMENTS), tmp_path / "index", settings)
    before = open_index(tmp_path / "index", model)
    expected = before.search(QUERIES, 10)
    copies = {f"c{number}-{id}": text for number in range(20) for id, text in QUERIES.items()}
    add_documents(tmp_path / "index", Vectors.of(model, copies))
    same(before.search(QUERIES, 10), expected)
    after = open_index(tmp_path / "index", model)
    assert all(id.startswith("c") for ranking in after.search(QUERIES, 10).rankings.values() for id in ranking)
    delete_documents(tmp_path / "index", list(copies))
    same(open_index(tmp_path / "index", model).search(QUERIES, 10), expected)
