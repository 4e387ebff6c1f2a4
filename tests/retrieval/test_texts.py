"""From a collection's texts straight to vectors and indexes, in one call each."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from remargin import BiEncoder, InputError
from remargin.data.tables import Rejects
from remargin.retrieval import building as module
from remargin.retrieval.bm25 import BM25
from remargin.retrieval.building import build_index
from remargin.retrieval.collection_vectors import encode
from remargin.retrieval.index_folder import open_index
from remargin.retrieval.indexing import index
from remargin.retrieval.searching import search
from remargin.retrieval.settings import BackendSettings
from remargin.retrieval.texts import collection_texts
from remargin.retrieval.vectors import Vectors

QUERIES = {"q1": "text number 3", "q2": "words"}


@pytest.fixture(scope="module")
def model(tiny_encoder: Any) -> BiEncoder:
    return BiEncoder.from_pretrained(tiny_encoder("bert"), pooling="mean")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A collection of twenty documents and two queries, with a document whose id is bad."""
    folder = tmp_path / "data"
    folder.mkdir()
    documents = [{"_id": f"d{i}", "text": f"text number {i} " + "words " * i} for i in range(20)]
    for name, records in {"corpus": [*documents, {"_id": "d 99", "text": "x"}], "queries": []}.items():
        records = records or [{"_id": id, "text": text} for id, text in QUERIES.items()]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return folder


def test_bad_texts_are_errors_or_counted(data: Path) -> None:
    with pytest.raises(InputError, match="'d 99': document id is empty or has white"):
        list(collection_texts(data))
    rejects = Rejects(skip=True)
    assert [text.id for text in collection_texts(data, rejects=rejects)] == [f"d{i}" for i in range(20)]
    assert rejects.count == 1
    assert {text.id: text.text for text in collection_texts(data, "queries")} == QUERIES


def test_vectors_of_a_collection(
    model: BiEncoder, data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    vectors = encode(data, model, tmp_path / "q", "queries", dtype="float16")
    assert (vectors.made.kind, vectors.made.dtype, vectors.made.data) == ("queries", "float16", str(data))
    np.testing.assert_allclose(vectors.matrix, model.encode_queries(list(QUERIES.values())), atol=1e-3)
    vectors = encode(data, model, tmp_path / "d", passage_length=8, skip_bad=True)
    assert (len(vectors.ids), vectors.made.passage_length, vectors.made.passage_overlap) == (20, 8, 2)
    assert caplog.messages[0].startswith("skipped bad input: 1, the first is ")
    assert len(vectors.matrix) > 20


@pytest.mark.parametrize("coding", [None, "int8"])
def test_an_index_of_a_collection_is_that_of_its_vectors(
    coding: Any, model: BiEncoder, data: Path, tmp_path: Path
) -> None:
    settings = BackendSettings(coding=coding)
    built = index(tmp_path / "one", data=data, model=model, coding=coding, passage_length=8, skip_bad=True)
    vectors = encode(data, model, tmp_path / "v", passage_length=8, skip_bad=True)
    same = build_index(vectors, tmp_path / "two", settings)
    assert (built.documents, built.rows, built.made) == (same.documents, same.rows, same.made)
    assert built.documents == 20
    assert built.vector_bytes == vectors.matrix.nbytes
    whole = sum(path.stat().st_size for path in (tmp_path / "one").rglob("*") if path.is_file())
    assert built.vector_bytes + built.text_bytes + built.other_bytes == whole
    one, two = (open_index(tmp_path / name, model).search(QUERIES, 5).rankings for name in ("one", "two"))
    assert one == two
    assert not (tmp_path / "one.vectors").exists()


def test_vectors_of_an_index_that_could_not_be_built_are_kept(
    model: BiEncoder, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: Any) -> None:
        raise OSError("no space left")

    place = tmp_path / "index.vectors"
    with monkeypatch.context() as broken:
        broken.setattr(module, "build_index", fail)
        advice = f"{tmp_path / 'index'}: no space left; the vectors stay: to continue with them, give --vectors {place}"
        with pytest.raises(InputError, match=re.escape(advice)):
            index(tmp_path / "index", data=data, model=model, skip_bad=True)
    with pytest.raises(InputError, match="is there already, perhaps from a build that was stopped"):
        index(tmp_path / "index", data=data, model=model, skip_bad=True)
    assert build_index(Vectors.load(place), tmp_path / "index").documents == 20


def test_bm25_of_a_collection(data: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="'d 99': document id is empty or has white"):
        index(tmp_path / "index", data=data, index="bm25")
    assert not (tmp_path / "index").exists()
    built = index(tmp_path / "index", data=data, index="bm25", k1=1.2, b=0.75, skip_bad=True)
    opened = BM25.load(tmp_path / "index")
    assert (len(opened), opened.data) == (built.documents, str(data)) == (20, str(data))
    texts = collection_texts(data, rejects=Rejects(skip=True))
    made = BM25({text.id: text.text for text in texts}, k1=1.2, b=0.75)
    assert opened.search(QUERIES).rankings == made.search(QUERIES).rankings
    with pytest.raises(InputError, match="already exists"):
        index(tmp_path / "index", data=data, index="bm25", skip_bad=True)


def test_a_document_without_text_has_its_place_in_every_index(
    model: BiEncoder, data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    records = [{"_id": "empty", "text": ""}, *({"_id": f"d{i}", "text": f"text number {i}"} for i in range(8))]
    (data / "corpus.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    (data / "qrels").mkdir()
    (data / "qrels" / "test.tsv").write_text("q1\tempty\t1\n")
    for kind in ("exact", "bm25"):
        encoder = None if kind == "bm25" else model
        caplog.clear()
        built = index(tmp_path / kind, data=data, model=encoder, index=kind)
        assert built.documents == 9
        assert caplog.messages.count("documents without text, which are kept: 1") == 1
        run = search(data, model=encoder, index=tmp_path / kind, k=9)
        assert ("empty" in run.rankings["q1"]) == (kind == "exact")
    assert len(encode(data, model, tmp_path / "v", passage_length=8).ids) == 9
    with pytest.raises(InputError, match="the documents have no words but stop words"):
        BM25({"a": "", "b": " "})
