"""Indexes that change: a changed index is one built anew."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from remargin import BiEncoder, InputError
from remargin.retrieval import index_folder as module
from remargin.retrieval.bm25 import BM25
from remargin.retrieval.building import build_index
from remargin.retrieval.encoding import encode_texts
from remargin.retrieval.index_folder import open_index
from remargin.retrieval.updating import Changes, add_documents, delete_documents, synchronise
from remargin.retrieval.vectors import Made, Vectors

from .indexes import DOCUMENTS, QUERIES, SETTINGS, random_vectors, same, texts

pytest.importorskip("faiss")
pytest.importorskip("pymilvus")


@pytest.mark.parametrize("name", SETTINGS)
def test_adding_and_deleting_is_building_anew(name: str, model: BiEncoder, tmp_path: Path) -> None:
    ids = list(DOCUMENTS)
    first, second = {id: DOCUMENTS[id] for id in ids[:40]}, {id: DOCUMENTS[id] for id in ids[40:]}
    build_index(Vectors.of(model, first), tmp_path / "index", SETTINGS[name])
    add_documents(tmp_path / "index", Vectors.of(model, second))
    delete_documents(tmp_path / "index", ids[5:25])
    left = {id: text for id, text in DOCUMENTS.items() if id not in ids[5:25]}
    build_index(Vectors.of(model, left), tmp_path / "anew", SETTINGS[name])
    changed = open_index(tmp_path / "index", model)
    assert len(changed) == 40
    for k in (3, 40, 60):
        same(changed.search(QUERIES, k), open_index(tmp_path / "anew", model).search(QUERIES, k))


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.dictionaries(
            st.sampled_from("abcdefgh"),
            st.sampled_from(["one text", "another", "a third of them", "x y z"]),
            min_size=1,
        ),
        min_size=2,
        max_size=4,
    ),
    st.sampled_from([None, 3]),
)
def test_an_index_follows_a_collection(
    model: BiEncoder, tmp_path: Path, states: list[dict[str, str]], passage_length: int | None
) -> None:
    folder = tmp_path / "index"
    shutil.rmtree(folder, ignore_errors=True)
    made = Made.by(model, passage_length=passage_length)
    begin = {"start": "a document to begin with", **states[0]}
    build_index(encode_texts(model, texts(begin), tmp_path / "v", made, overwrite=True), folder)
    before = begin
    for state in states:
        if before.keys().isdisjoint(state):
            with pytest.raises(InputError, match="has none of these documents, so all of its own would be deleted"):
                synchronise(folder, texts(state), model)
            continue
        changes = synchronise(folder, texts(state), model)
        assert changes.added == len(state.keys() - before.keys())
        assert changes.deleted == len(before.keys() - state.keys())
        assert changes.replaced == sum(before.get(id, text) != text for id, text in state.items())
        found = open_index(folder, model).search(QUERIES, k=100)
        build_index(
            encode_texts(model, texts(state), tmp_path / "v", made, overwrite=True), tmp_path / "n", overwrite=True
        )
        same(found, open_index(tmp_path / "n", model).search(QUERIES, k=100))
        before = state
    assert synchronise(folder, texts(before), model) == Changes()


def test_a_change_that_is_cut_off_changes_nothing(
    model: BiEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "index"
    for name in ("int8", "flat", "milvus"):
        build_index(Vectors.of(model, DOCUMENTS), folder, SETTINGS[name], overwrite=True)
        before = open_index(folder, model).search(QUERIES)
        more = Vectors.of(model, {"new": "a new text"})
        for stop in ("append_array", "flush_to_disk", "write_header"):
            original, calls = getattr(module, stop), 0

            def fails(*arguments: Any, original: Any = original) -> Any:
                nonlocal calls
                calls += 1
                if calls > 1 or original.__name__ != "append_array":
                    raise KeyboardInterrupt
                return original(*arguments)

            with monkeypatch.context() as patch:
                patch.setattr(module, stop, fails)
                with pytest.raises(KeyboardInterrupt):
                    add_documents(folder, more)
            same(open_index(folder, model).search(QUERIES), before)
        add_documents(folder, more)  # what was left behind is no obstacle
        assert len(open_index(folder, model)) == len(DOCUMENTS) + 1
        delete_documents(folder, ["new"])
        same(open_index(folder, model).search(QUERIES), before)
        assert len([path for path in folder.iterdir() if path.name.startswith(("ids.", "deleted."))]) == 2


def test_wrong_models_and_documents_are_refused(
    model: BiEncoder, tiny_encoder: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "index"
    vectors = Vectors.of(model, DOCUMENTS)
    build_index(vectors, folder)
    other = BiEncoder.from_pretrained(tiny_encoder("distilbert"))
    with pytest.raises(InputError, match=r"index: the vectors were made by another model than .*; search with"):
        open_index(folder, other)
    monkeypatch.setattr(type(other), "dimension", 16)
    with pytest.raises(InputError, match=r"index: the vectors have 32 numbers, those of model .* 16; search with"):
        open_index(folder, other)
    monkeypatch.undo()
    with pytest.raises(InputError, match="the new vectors were made with another model"):
        add_documents(folder, Vectors.of(other, {"new": "text"}))
    with pytest.raises(InputError, match="made with another model"):
        synchronise(folder, texts(DOCUMENTS), other)
    short = BiEncoder.from_pretrained(tiny_encoder("bert"), pooling="mean", document_length=9)
    with pytest.raises(InputError, match="the new vectors were made with length 9, not"):
        add_documents(folder, Vectors.of(short, {"new": "text"}))
    with pytest.raises(InputError, match="id 'd3': document is in the index already; delete it first"):
        add_documents(folder, Vectors.of(model, {"new": "text", "d3": "text"}))
    with pytest.raises(InputError, match="id 'nobody': document is not in the index"):
        delete_documents(folder, ["d1", "nobody"])
    assert len(open_index(folder, model)) == len(DOCUMENTS)
    with pytest.raises(InputError, match="not found"):
        open_index(tmp_path, model)
    with pytest.raises(InputError, match="no such folder"):
        delete_documents(tmp_path / "nowhere", ["d1"])
    BM25(DOCUMENTS).save(tmp_path / "bm25")
    with pytest.raises(InputError, match="a BM25 index cannot be changed; build it again"):
        synchronise(tmp_path / "bm25", texts(DOCUMENTS), model)
    os.truncate(folder / "vectors.bin", 100)
    with pytest.raises(InputError, match="100 bytes long"):
        open_index(folder, model)


@pytest.mark.parametrize("name", ["flat", "int8"])
def test_longer_vectors_are_found_by_their_dot_product_when_they_come_later(
    name: str, tiny_encoder: Any, tmp_path: Path
) -> None:
    model = BiEncoder.from_pretrained(tiny_encoder("bert"), similarity="dot")
    every = random_vectors(model, 400)
    every.matrix[300:] *= 8
    first, second = (
        replace(every, matrix=every.matrix[part], ids=every.ids[part], hashes=every.hashes[part])
        for part in (slice(300), slice(300, None))
    )
    build_index(first, tmp_path / "index", SETTINGS[name])
    add_documents(tmp_path / "index", second)
    queries = np.random.default_rng(1).normal(size=(20, model.dimension)).astype("f4")
    found = open_index(tmp_path / "index", model).search_vectors(queries, 10)
    truth = np.argsort(-(queries @ every.matrix.T), axis=1)[:, :10]
    overlap = [len(set(f.documents.tolist()) & set(t)) / 10 for f, t in zip(found, truth.tolist(), strict=True)]
    assert np.mean(overlap) > 0.95


def test_nothing_to_add_and_nothing_to_index(model: BiEncoder, tmp_path: Path) -> None:
    folder = tmp_path / "index"
    with pytest.raises(InputError, match="there are no documents to index"):
        build_index(Vectors.of(model, {}), folder)
    build_index(Vectors.of(model, {"1": "one", "2": "two", "12": "twelve"}), folder)
    assert add_documents(folder, Vectors.of(model, {})) == Changes()
    with pytest.raises(TypeError, match="pass a list of ids, not one string"):
        delete_documents(folder, "12")
    assert len(open_index(folder, model)) == 3


def test_nothing_to_follow_and_nothing_left(model: BiEncoder, tmp_path: Path) -> None:
    folder = tmp_path / "index"
    build_index(Vectors.of(model, DOCUMENTS), folder)
    with pytest.raises(InputError, match="no documents to follow"):
        synchronise(folder, [], model)
    delete_documents(folder, list(DOCUMENTS))
    assert open_index(folder, model).search(QUERIES).rankings == {query: {} for query in QUERIES}
    queries = encode_texts(model, texts(QUERIES), tmp_path / "queries", Made.by(model, kind="queries"))
    with pytest.raises(InputError, match="vectors of queries, not of documents"):
        build_index(queries, tmp_path / "other")
