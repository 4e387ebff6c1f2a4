"""`--dims`: vectors that are truncated, in every verb, and queries that are truncated alike."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import remargin
from remargin import BiEncoder, Collection, InputError, Run
from remargin.model.folder import OURS
from remargin.retrieval.hybrid import Fusion, save_fusion
from remargin.retrieval.index_folder import IndexFolder
from remargin.retrieval.searching import index_encoder
from remargin.retrieval.vectors import Vectors

WORDS = ["cats", "dogs", "red", "old", "house", "tree", "river", "stone", "bird", "fish"]
DIMS = 5


@pytest.fixture(scope="module")
def folder(tiny_encoder: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "model"
    BiEncoder.from_pretrained(tiny_encoder("bert"), pooling="mean").save(path)
    return path


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rng, folder = np.random.default_rng(0), tmp_path / "data"
    (folder / "qrels").mkdir(parents=True)
    texts = [" ".join(rng.choice(WORDS, 6)) for _ in range(60)]
    documents = [{"_id": f"d{i}", "text": text} for i, text in enumerate(texts)]
    queries = [{"_id": f"q{i}", "text": " ".join(rng.choice(WORDS, 3))} for i in range(8)]
    for name, records in (("corpus", documents), ("queries", queries)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    for split in ("dev", "test"):
        lines = "".join(f"q{i}\td{i}\t1\n" for i in range(8))
        (folder / "qrels" / f"{split}.tsv").write_text(f"query-id\tcorpus-id\tscore\n{lines}")
    return folder


@pytest.fixture
def expected(folder: Path, data: Path) -> Run:
    """By vectors that are sliced and brought to unit length here."""
    model, collection = BiEncoder.from_pretrained(folder, device="cpu"), Collection.load(data)
    queries, documents = (
        cut(encode(list(texts.values())), DIMS)
        for encode, texts in (
            (model.encode_queries, collection.queries),
            (model.encode_documents, collection.documents),
        )
    )
    scores = (queries @ documents.T).astype(float)
    return Run.of(
        {
            query: dict(zip(collection.documents, row, strict=True))
            for query, row in zip(collection.queries, scores, strict=True)
        }
    )


def cut(matrix: Any, dims: int) -> Any:
    return matrix[:, :dims] / np.linalg.norm(matrix[:, :dims], axis=1, keepdims=True)


def assert_same(run: Run, expected: Run, k: int = 10, atol: float = 1e-4) -> None:
    for query, ranking in run.rankings.items():
        best = list(expected.top(query, k))
        np.testing.assert_allclose(list(ranking.values())[:k], [expected.rankings[query][d] for d in best], atol=atol)


def test_a_search_without_an_index_truncates(folder: Path, data: Path, expected: Run) -> None:
    whole = remargin.search(data, model=folder, k=10)
    assert_same(remargin.search(data, model=folder, k=10, dims=DIMS), expected)
    assert any(list(whole.rankings[q])[:3] != list(expected.top(q, 3)) for q in whole.rankings)


@pytest.mark.parametrize("kind", ["exact", "faiss"])
@pytest.mark.parametrize("way", ["index", "vectors", "vectors and texts", "whole vectors", "float16"])
def test_every_way_to_truncated_vectors_finds_the_same(
    way: str, kind: str, folder: Path, data: Path, expected: Run, tmp_path: Path
) -> None:
    if kind == "faiss":
        pytest.importorskip("faiss")
    out, how = tmp_path / "index", {"index": kind, **({"factory": "Flat"} if kind == "faiss" else {})}
    if way in ("index", "float16"):
        options: Any = {"dtype": "float16"} if way == "float16" else {}
        built = remargin.index(out, data=data, model=folder, dims=DIMS, **how, **options)
    else:
        cut_before = None if way == "whole vectors" else DIMS
        vectors = remargin.encode(data, folder, tmp_path / "vectors", dims=cut_before)
        assert vectors.matrix.shape == (60, cut_before or 32)
        beside: Any = {"data": data} if way == "vectors and texts" else {}
        built = remargin.index(out, vectors=vectors, dims=DIMS, **beside, **how)
    assert built.made is not None
    assert built.made.dimension == DIMS
    assert built.vector_bytes == 60 * DIMS * (2 if way == "float16" else 4)
    assert_same(remargin.search(data, out, k=10), expected, atol=1e-2 if way == "float16" else 1e-4)
    assert_same(remargin.search(data, out, folder, 10), expected, atol=1e-2 if way == "float16" else 1e-4)


def test_an_index_keeps_its_dims(folder: Path, data: Path, expected: Run, tmp_path: Path) -> None:
    """In `search` and `ask`, with the model that it names or one that is given, and in `update`."""
    index = tmp_path / "index"
    remargin.index(index, data=data, model=BiEncoder.from_pretrained(folder, dims=DIMS))
    moved = shutil.copytree(folder, tmp_path / "moved")
    for model in (None, str(moved), BiEncoder.from_pretrained(moved, dims=DIMS)):
        assert_same(remargin.search(data, index, model, 10), expected)
        question = Collection.load(data).queries["q3"]
        best = [answer.id for answer in remargin.ask(question, index, 3, model)]
        assert best == list(expected.top("q3", 3))
    with pytest.raises(InputError, match=r"have 5 numbers.*32; truncate its vectors, too \(dims=5\)"):
        remargin.search(data, index, BiEncoder.from_pretrained(folder))
    with pytest.raises(InputError, match=r"made with dims of 5, not 6; leave out --dims"):
        remargin.search(data, index, dims=6)
    assert_same(remargin.search(data, index, dims=DIMS, k=10), expected)
    encoder = index_encoder(index, str(moved))
    assert encoder.dimension == DIMS


@pytest.mark.parametrize("by_name", [True, False])
def test_an_update_truncates_alike(by_name: bool, folder: Path, data: Path, expected: Run, tmp_path: Path) -> None:
    index, corpus = tmp_path / "index", data / "corpus.jsonl"
    lines = corpus.read_text().splitlines(keepends=True)
    corpus.write_text("".join(lines[:40]))
    remargin.index(index, data=data, model=folder, dims=DIMS, passage_length="off")
    corpus.write_text("".join(lines))
    assert remargin.update(index, data=data, model=folder if by_name else None).added == 20
    assert_same(remargin.search(data, index, k=10), expected)
    remargin.update(index, delete=[f"d{i}" for i in range(40)])
    corpus.write_text("".join(lines[:40]))
    whole = remargin.encode(data, folder, tmp_path / "vectors", passage_length="off")
    assert remargin.update(index, vectors=whole).added == 40
    corpus.write_text("".join(lines))
    assert_same(remargin.search(data, index, k=10), expected)


def test_a_hybrid_index_of_truncated_vectors(folder: Path, data: Path, expected: Run, tmp_path: Path) -> None:
    model = shutil.copytree(folder, tmp_path / "model")
    save_fusion(model, Fusion(1.0, "RR", 0.1, 0.2, 0.9, depth=60))
    remargin.index(tmp_path / "index", data=data, model=model, hybrid="on", dims=DIMS)
    run = remargin.search(data, tmp_path / "index", k=10)
    for query, ranking in run.rankings.items():
        assert next(iter(ranking)) == next(iter(expected.top(query, 1)))


def test_reranking_by_truncated_vectors(folder: Path, data: Path, expected: Run) -> None:
    first = remargin.search(data, "bm25")
    for query, ranking in remargin.rerank(data, folder, first, 10, dims=DIMS).rankings.items():
        for document, score in ranking.items():
            assert score == pytest.approx(expected.rankings[query][document], abs=1e-4)


def test_vectors_for_dot_products_are_sliced_alone(folder: Path, data: Path, tmp_path: Path) -> None:
    vectors = remargin.encode(data, folder, tmp_path / "vectors", similarity="dot")
    remargin.index(tmp_path / "index", vectors=vectors, dims=DIMS)
    kept = IndexFolder.read(tmp_path / "index").vectors().matrix
    np.testing.assert_array_equal(kept, vectors.matrix[:, :DIMS])
    same = remargin.encode(data, folder, tmp_path / "again", similarity="dot", dims=DIMS)
    np.testing.assert_allclose(kept, same.matrix, atol=1e-5)


def test_two_encoders_are_truncated_alike(folder: Path, data: Path, expected: Run, tmp_path: Path) -> None:
    remargin.index(tmp_path / "index", data=data, model=f"{folder}+{folder}", dims=DIMS)
    assert_same(remargin.search(data, tmp_path / "index", k=10), expected)


def test_encoding_that_was_stopped_does_not_mix_dimensions(folder: Path, data: Path, tmp_path: Path) -> None:
    whole = remargin.encode(data, folder, tmp_path / "vectors")
    cut_down = remargin.encode(data, folder, tmp_path / "vectors", dims=DIMS, overwrite=True)
    np.testing.assert_allclose(cut_down.matrix, cut(Vectors.load(tmp_path / "vectors").matrix, DIMS), atol=1e-6)
    assert whole.made.dimension == 32


def test_a_line_says_that_a_model_was_not_trained_for_it(
    folder: Path, data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trained = shutil.copytree(folder, tmp_path / "trained")
    header = json.loads((trained / OURS).read_text())
    (trained / OURS).write_text(json.dumps(header | {"dims": [32, 8, 4]}))
    vectors = remargin.encode(data, trained, tmp_path / "vectors")
    with caplog.at_level(logging.WARNING):
        remargin.search(data, model=trained, dims=8)
        remargin.search(data, model=trained, dims=32)
        remargin.index(tmp_path / "eight", vectors=vectors, dims=8)
        assert "truncated" not in caplog.text
        remargin.search(data, model=trained, dims=DIMS)
        assert f"truncated to 5 numbers; model {trained} was trained for 8, 4 (`remargin fit --dims`)" in caplog.text
        caplog.clear()
        remargin.index(tmp_path / "five", vectors=vectors, dims=DIMS)
        assert f"model {trained} was trained for 8, 4" in caplog.text
        caplog.clear()
        remargin.search(data, model=folder, dims=DIMS)
        assert f"model {folder} was not trained for that" in caplog.text
        caplog.clear()
        remargin.search(data, tmp_path / "five")  # it was said when the index was made
        assert "truncated" not in caplog.text


def test_benchmark_measures_truncated_vectors(folder: Path, data: Path, tmp_path: Path) -> None:
    means = {}
    for dims in (None, 1):
        tables = remargin.benchmark({"m": folder}, [str(data)], tmp_path / str(dims), bm25=False, dims=dims, say=len)
        means[dims] = tables["table"].blocks[-1].rows[-1][1].value
    assert means[None] != means[1]
    with pytest.raises(InputError, match="was measured with another dims"):
        remargin.benchmark({"m": folder}, [str(data)], tmp_path / "1", bm25=False, say=len)


def test_dimensions_that_are_not_there(folder: Path, data: Path, tmp_path: Path) -> None:
    vectors = remargin.encode(data, folder, tmp_path / "vectors")
    with pytest.raises(InputError, match="dims is 33: the vectors have 32 numbers; use 1 to 32"):
        remargin.index(tmp_path / "index", vectors=vectors, dims=33)
    with pytest.raises(InputError, match="dims is 0: the model's vectors have 32 numbers; use 1 to 32"):
        remargin.search(data, model=folder, dims=0)
    with pytest.raises(InputError, match="--dims does nothing for BM25"):
        remargin.search(data, "bm25", dims=4)
    with pytest.raises(InputError, match="--dims does nothing for a BM25 index"):
        remargin.index(tmp_path / "index", data=data, index="bm25", dims=4)


def test_from_the_command_line(
    remargin: Callable[..., Any], folder: Path, data: Path, expected: Run, tmp_path: Path
) -> None:
    found = remargin("encode", "--data", data, "--model", folder, "--out", tmp_path / "vectors", "--dims", DIMS)
    assert f"60 documents, 60 vectors of {DIMS} numbers" in found.stdout, found.stderr
    assert "was not trained for that" in found.stderr
    assert remargin("index", "--data", data, "--model", folder, "--dims", DIMS, "--out", tmp_path / "i").returncode == 0
    found = remargin("search", "--data", data, "--index", tmp_path / "i", "--out", tmp_path / "run.trec", "--k", 10)
    assert found.returncode == 0
    assert "truncated" not in found.stderr
    assert_same(Run.load(tmp_path / "run.trec"), expected)
    found = remargin("search", "--data", data, "--model", folder, "--dims", 33, "--out", tmp_path / "no.trec")
    assert found.returncode == 2
    assert "dims is 33: the model's vectors have 32 numbers" in found.stderr
