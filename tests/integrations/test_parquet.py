"""Vectors as Parquet: the same rows as on disk, beside the texts that they were made of."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import remargin as package
from remargin.errors import InputError
from remargin.integrations import parquet
from remargin.model.tokenizer import Tokenizer
from remargin.retrieval.vectors import Vectors

TEXTS = {f"d{i}": f"number {i} of the {'margins' if i % 2 else 'values'}" for i in range(25)}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write(tmp_path / "data", TEXTS)
    return tmp_path / "data"


def write(folder: Path, texts: dict[str, str]) -> None:
    folder.mkdir(exist_ok=True)
    lines = (json.dumps({"_id": id, "text": text}) + "\n" for id, text in texts.items())
    (folder / "corpus.jsonl").write_text("".join(lines))
    (folder / "queries.jsonl").write_text('{"_id": "q1", "text": "margins"}\n')
    (folder / "qrels").mkdir(exist_ok=True)
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td1\t1\n")


def rows(file: Path) -> dict[tuple[str, int], dict[str, Any]]:
    return {(row["id"], row.get("passage", 0)): row for row in pq.read_table(file).to_pylist()}


def test_ids_texts_and_vectors(data: Path, tiny_encoder: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "AT_ONCE", 10)
    vectors = package.encode(data, tiny_encoder(), tmp_path / "vectors", dtype="float16")
    exported = package.export(tmp_path / "out.parquet", vectors=tmp_path / "vectors")
    assert exported.rows == 25
    file = pq.ParquetFile(tmp_path / "out.parquet")
    assert [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)] == [10, 10, 5]
    assert str(file.schema_arrow.field("vector").type) == "fixed_size_list<element: float>[32]"
    about = json.loads(file.schema_arrow.metadata[b"remargin"])
    assert about["format"] == "remargin-parquet-1"
    assert (about["model"], about["data"]) == (tiny_encoder().name, "data")
    assert (about["similarity"], about["dimension"], about["kind"]) == ("cosine", 32, "documents")
    found = rows(tmp_path / "out.parquet")
    assert {id: row["text"] for (id, _), row in found.items()} == TEXTS
    matrix = np.array([row["vector"] for row in found.values()], np.float32)
    assert np.array_equal(matrix, vectors.matrix.astype(np.float32))


def test_an_index_as_it_is_now(data: Path, tiny_encoder: Any, tmp_path: Path) -> None:
    package.index(tmp_path / "index", data=data, model=tiny_encoder())
    texts = {id: text for id, text in TEXTS.items() if id != "d3"} | {"d1": "another text", "d99": "a new value"}
    write(data, dict(reversed(texts.items())))
    package.update(tmp_path / "index", data=data)
    package.export(tmp_path / "out.parquet", index=tmp_path / "index")
    found = rows(tmp_path / "out.parquet")
    assert {id: row["text"] for (id, _), row in found.items()} == texts
    fresh = package.encode(data, tiny_encoder(), tmp_path / "vectors")
    expected = dict(zip(fresh.ids, fresh.matrix, strict=True))
    for (id, _), row in found.items():
        assert np.allclose(row["vector"], expected[id], atol=1e-6)
    package.export(tmp_path / "read.parquet", index=tmp_path / "index", data=data)  # not those that the index keeps
    assert rows(tmp_path / "read.parquet") == found
    assert list(rows(tmp_path / "read.parquet")) == [(id, 0) for id in reversed(texts)]
    package.export(tmp_path / "bare.parquet", index=tmp_path / "index", texts=False)
    bare = rows(tmp_path / "bare.parquet")
    assert bare.keys() == found.keys()
    assert all("text" not in row and row["vector"] == found[id]["vector"] for id, row in bare.items())


def test_passages_have_their_own_texts(data: Path, tiny_encoder: Any, tmp_path: Path) -> None:
    write(data, TEXTS | {"long": " ".join(TEXTS.values())})
    vectors = package.encode(data, tiny_encoder(), tmp_path / "vectors", passage_length=8, passage_overlap=2)
    package.export(tmp_path / "out.parquet", vectors=tmp_path / "vectors")
    found = rows(tmp_path / "out.parquet")
    assert len(found) == len(vectors.matrix) > 30
    texts = [row["text"] for (id, _), row in found.items() if id == "long"]
    assert texts == Tokenizer.from_pretrained(tiny_encoder()).passages(" ".join(TEXTS.values()), 8, 2)
    assert [passage for id, passage in found if id == "long"] == list(range(len(texts)))
    model = package.BiEncoder.from_pretrained(tiny_encoder())
    assert np.allclose([row["vector"] for row in found.values()], vectors.matrix)
    assert np.allclose(
        model.encode_documents(texts), [found["long", i]["vector"] for i in range(len(texts))], atol=1e-5
    )


def test_texts_that_are_others_now_are_refused(data: Path, tiny_encoder: Any, tmp_path: Path) -> None:
    package.encode(data, tiny_encoder(), tmp_path / "vectors")
    out = tmp_path / "out.parquet"
    for texts, problem in (
        (TEXTS | {"d7": "changed"}, r"id 'd7': was changed since it was encoded; .*--no-texts"),
        (
            {id: text for id, text in TEXTS.items() if id != "d7"},
            r"1 of the documents are not in it any more; .*--no-texts",
        ),
    ):
        write(data, texts)
        with pytest.raises(InputError, match=problem):
            package.export(out, vectors=tmp_path / "vectors")
        assert not out.exists()
    write(data, TEXTS | {"new": "a new one"})
    said: list[str] = []
    package.export(out, vectors=tmp_path / "vectors", say=said.append)
    assert said == ["1 texts of the collection have no vector, and are left out"]
    data.rename(tmp_path / "moved")
    with pytest.raises(InputError, match="--no-texts"):
        package.export(tmp_path / "other.parquet", vectors=tmp_path / "vectors")
    assert package.export(tmp_path / "other.parquet", vectors=tmp_path / "vectors", data=tmp_path / "moved").rows == 25


def test_a_bm25_index_has_no_vectors(data: Path, tmp_path: Path) -> None:
    package.index(tmp_path / "index", data=data, index="bm25")
    with pytest.raises(InputError, match="a BM25 index, which has no vectors; export an index of a model"):
        package.export(tmp_path / "out.parquet", index=tmp_path / "index")


def test_queries_too(tiny_encoder: Any, tmp_path: Path) -> None:
    package.encode("docstrings:json", tiny_encoder(), tmp_path / "vectors", kind="queries")
    package.export(tmp_path / "out.parquet", vectors=tmp_path / "vectors")
    assert len(rows(tmp_path / "out.parquet")) == len(Vectors.load(tmp_path / "vectors").ids)


def test_from_the_command_line(remargin: Callable[..., Any], data: Path, tiny_encoder: Any, tmp_path: Path) -> None:
    package.encode(data, tiny_encoder(), tmp_path / "vectors")
    command = ("export", "--vectors", tmp_path / "vectors", "--out", tmp_path / "out.parquet")
    found = remargin(*command)
    assert found.stdout == f"wrote {tmp_path / 'out.parquet'}: 25 vectors with their texts\n", found.stderr
    found = remargin(*command)
    assert found.returncode == 2
    assert "already exists" in found.stderr
    assert remargin(*command, "--overwrite", "--no-texts").stdout.endswith(": 25 vectors\n")
    found = remargin(*command, "--overwrite", "--onnx")
    assert found.stderr == "error: --onnx does nothing for vectors; leave it out\n"


def test_the_rows_load_into_milvus(data: Path, tiny_encoder: Any, tmp_path: Path) -> None:
    """As docs/exporting.md shows it."""
    pymilvus = pytest.importorskip("pymilvus")
    pytest.importorskip("milvus_lite")
    package.encode(data, tiny_encoder(), tmp_path / "vectors")
    package.export(tmp_path / "out.parquet", vectors=tmp_path / "vectors")
    file = pq.ParquetFile(tmp_path / "out.parquet")
    client = pymilvus.MilvusClient(str(tmp_path / "faq.db"))
    try:
        dimension = file.schema_arrow.field("vector").type.list_size
        options: dict[str, Any] = {"id_type": "string", "max_length": 512, "metric_type": "COSINE"}
        client.create_collection("faq", dimension=dimension, **options)
        for batch in file.iter_batches(1000):
            client.insert("faq", batch.to_pylist())
        query = package.BiEncoder.from_pretrained(tiny_encoder()).encode_documents([TEXTS["d7"]])
        [hits] = client.search("faq", query.tolist(), limit=3, output_fields=["text"])
        assert hits[0]["entity"]["text"] == TEXTS["d7"]
    finally:
        client.close()
