"""Indexes that are built: every back end finds what the exact one does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from remargin import BiEncoder, Collection, InputError, Run
from remargin.retrieval.building import build_index
from remargin.retrieval.dense import DenseIndex
from remargin.retrieval.encoding import encode_texts
from remargin.retrieval.faiss import Faiss
from remargin.retrieval.index_folder import open_index
from remargin.retrieval.searching import search
from remargin.retrieval.settings import BackendSettings
from remargin.retrieval.vectors import Made, Vectors

from .indexes import APPROXIMATE, DOCUMENTS, QUERIES, SETTINGS, random_vectors, same, texts

pytest.importorskip("faiss")
pytest.importorskip("pymilvus")


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
@pytest.mark.parametrize("name", SETTINGS)
def test_every_back_end_finds_what_comparing_everything_finds(
    name: str, similarity: Any, tiny_encoder: Any, tmp_path: Path
) -> None:
    model = BiEncoder.from_pretrained(tiny_encoder("bert"), similarity=similarity)
    vectors = random_vectors(model, 500)
    queries = np.random.default_rng(1).normal(size=(20, model.dimension)).astype("f4")
    build_index(vectors, tmp_path / "index", SETTINGS[name])
    found = open_index(tmp_path / "index", model).search_vectors(queries, k=10)
    whole = queries @ vectors.matrix.T
    agreement = []
    for row, (documents, scores) in zip(whole, found, strict=True):
        np.testing.assert_allclose(scores, row[documents], rtol=1e-5)  # whatever is found has its exact score
        assert (np.diff(scores) <= 0).all()
        agreement.append(len(set(documents.tolist()) & set(np.argsort(-row)[:10].tolist())) / 10)
    assert np.mean(agreement) > 0.95 if name in APPROXIMATE else np.mean(agreement) == 1


def test_flat_back_ends_agree_on_a_real_collection(minilm: Path, tmp_path: Path) -> None:
    collection = Collection.load("docstrings:json,csv,argparse,logging,email,http", split="train")
    model = BiEncoder.from_pretrained(minilm)
    vectors = Vectors.of(model, collection.documents)
    exact = search(collection, DenseIndex(model, vectors), k=50)
    for name in ("flat", "milvus"):
        build_index(vectors, tmp_path / name, SETTINGS[name])
        same(search(collection, tmp_path / name, model, k=50), exact)
    build_index(vectors, tmp_path / "exact", BackendSettings())
    same(search(collection, tmp_path / "exact", k=50), exact)  # the model that the index remembers


def test_the_paper_preset_is_hnsw_over_opq(tmp_path: Path) -> None:
    from remargin.retrieval.faiss import Faiss, paper_factory

    assert paper_factory(768) == "OPQ32_768,HNSW32_PQ32"
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(600, 8)).astype("f4")
    matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
    index = Faiss.build(matrix, paper_factory(8, links=8, code_bytes=4), unit=True)
    index.save(tmp_path / "faiss.bin")
    again = Faiss.load(tmp_path / "faiss.bin")
    np.testing.assert_array_equal(again.search(matrix[:5], 20)[1], index.search(matrix[:5], 20)[1])
    truth = np.argsort(-(matrix[:50] @ matrix.T), axis=1)[:, :10]
    found = again.search(matrix[:50], 80)[1]
    overlap = np.mean([len(set(f) & set(t)) / 10 for f, t in zip(found.tolist(), truth.tolist(), strict=True)])
    assert overlap > 0.95


def test_a_document_scores_as_its_best_passage(model: BiEncoder, tmp_path: Path) -> None:
    long = {f"d{i}": " ".join(f"word{j}" for j in range(i, 3 * i + 1)) for i in range(1, 12)}
    vectors = encode_texts(model, texts(long), tmp_path / "v", Made.by(model, passage_length=6, passage_overlap=2))
    assert vectors.owners is not None
    assert len(vectors.matrix) > 3 * len(long)
    scores = model.encode_queries(list(QUERIES.values())) @ vectors.matrix.T
    found = DenseIndex(model, vectors).search(QUERIES, k=4)
    for row, query in enumerate(QUERIES):
        best = {id: float(scores[row][vectors.owners == i].max()) for i, id in enumerate(long)}
        same(Run({query: found.rankings[query]}), Run.of({query: best}, depth=4))


def test_opq_needs_as_many_vectors_as_numbers_in_one(tmp_path: Path) -> None:
    """FAISS would write beyond its memory, and take the process with it."""
    rng = np.random.default_rng(0)
    for count in (256, 383):
        with pytest.raises(InputError, match=rf"{count} vectors are too few to train OPQ, which takes 384; use a sm"):
            Faiss.build(rng.normal(size=(count, 384)), "OPQ32_384,HNSW8_PQ32", unit=True)
    assert len(Faiss.build(rng.normal(size=(300, 16)), "OPQ4_16,HNSW8_PQ4", unit=True)) == 300


def test_a_model_that_makes_no_numbers_is_refused(tiny_encoder: Any, tmp_path: Path) -> None:
    broken = BiEncoder.from_pretrained(tiny_encoder("bert"), similarity="dot")
    broken.backbone.embeddings.word_embeddings.weight.data.fill_(float("nan"))  # type: ignore[union-attr]
    with pytest.raises(InputError, match="gives vectors with numbers that are not finite"):
        encode_texts(broken, texts(DOCUMENTS), tmp_path / "out")


def test_an_approximate_index_that_has_no_more_is_not_asked_again(
    model: BiEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vectors = random_vectors(model, 4000)
    build_index(
        vectors, tmp_path / "index", BackendSettings("faiss", factory="IVF64,Flat")
    )  # looks into one list of 64
    index = open_index(tmp_path / "index", model)
    asked, original = [], index._backend.search

    def spy(queries: Any, k: int) -> Any:
        asked.append(k)
        return original(queries, k)

    monkeypatch.setattr(index._backend, "search", spy)
    found = index.search_vectors(vectors.matrix[:5], 300)
    assert asked == [2400]
    assert all(0 < len(one.documents) < 300 for one in found)


def test_bad_back_ends_are_named(model: BiEncoder, tmp_path: Path) -> None:
    vectors = Vectors.of(model, DOCUMENTS)
    for given_settings, problem in [
        ({"backend": "lucene"}, "unknown index 'lucene'"),
        ({"coding": "int4"}, "unknown coding 'int4'"),
        ({"backend": "faiss", "coding": "int8"}, "a coding does not go with faiss"),
        ({"factory": "Flat"}, "a factory does not go with exact"),
        ({"over_fetch": 0}, "over_fetch must be at least 1"),
    ]:
        with pytest.raises(InputError, match=problem):
            BackendSettings(**given_settings)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"Milvus at .*milvus\.db: "):
        build_index(vectors, tmp_path / "index", BackendSettings("milvus", factory="NONSENSE"))
    for factory, problem in [
        ("Nonsense", "FAISS cannot make an index 'Nonsense'"),
        ("IVF512,Flat", "cannot train"),
        ("IDMap,Flat", r"FAISS cannot fill 'IDMap,Flat' \(add does not make sense with IndexIDMap"),
    ]:
        with pytest.raises(InputError, match=problem):
            build_index(vectors, tmp_path / "index", BackendSettings("faiss", factory=factory))
    with pytest.raises(InputError, match="codes of 64 bytes for vectors of 32 numbers"):
        build_index(vectors, tmp_path / "index", BackendSettings("faiss", code_bytes=64))
    with pytest.raises(InputError, match=r"FAISS does not take 'nprobe=4' for this index \(ParameterSpace"):
        build_index(vectors, tmp_path / "index", replace(SETTINGS["flat"], search_parameters="nprobe=4"))
    assert list(tmp_path.iterdir()) == []
    build_index(vectors, tmp_path / "index", SETTINGS["flat"])
    (file,) = (tmp_path / "index").glob("faiss.*")
    file.write_bytes(b"garbage")
    with pytest.raises(InputError, match="FAISS cannot read it"):
        Faiss.load(file, None)


def test_a_replaced_index_leaves_no_collection_on_the_server(model: BiEncoder, tmp_path: Path) -> None:
    from pymilvus import MilvusClient

    vectors, uri = random_vectors(model, 20), str(tmp_path / "server.db")
    for _ in range(2):
        build_index(vectors, tmp_path / "index", BackendSettings("milvus", factory="FLAT", uri=uri), overwrite=True)
    client = MilvusClient(uri)
    kept = client.list_collections()
    client.close()
    assert len(kept) == 1
    assert open_index(tmp_path / "index", model).search(QUERIES, 3).rankings
