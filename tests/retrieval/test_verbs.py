"""encode, index, update, search, ask, rerank and fuse from Python, with files or with what was loaded from them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import remargin
from remargin import BiEncoder, Collection, InputError, Run
from remargin.retrieval.updating import Changes
from remargin.retrieval.vectors import Vectors


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    (folder / "qrels").mkdir(parents=True)
    documents = [{"_id": f"d{i}", "text": f"number {i} of {'cats' if i % 2 else 'dogs'}"} for i in range(20)]
    queries = [{"_id": "q1", "text": "cats"}, {"_id": "q2", "text": "dogs number 2"}]
    for name, records in (("corpus", documents), ("queries", queries)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    for split in ("dev", "test"):
        (folder / "qrels" / f"{split}.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td1\t1\nq2\td2\t1\n")
    return folder


@pytest.fixture
def folder(tiny_encoder: Any) -> Path:
    path: Path = tiny_encoder("bert")
    return path


def test_a_model_is_a_name_or_loaded(folder: Path, data: Path, tmp_path: Path) -> None:
    loaded = BiEncoder.from_pretrained(folder)
    named = remargin.encode(data, folder, tmp_path / "one")
    same = remargin.encode(data, loaded, tmp_path / "two")
    np.testing.assert_array_equal(named.matrix, same.matrix)
    assert remargin.search(data, model=str(folder)).rankings == remargin.search(data, model=loaded).rankings
    with pytest.raises(InputError, match="a loaded model has its precision, lengths and prefixes"):
        remargin.encode(data, loaded, tmp_path / "three", document_length=9)
    with pytest.raises(InputError, match="a loaded model has its precision, lengths and prefixes"):
        remargin.rerank(data, loaded, Run.of({"q1": {"d1": 1.0}}), precision="bf16")


def test_an_index_from_python(folder: Path, data: Path, tmp_path: Path) -> None:
    vectors = remargin.encode(data, folder, tmp_path / "vectors")
    built = remargin.index(tmp_path / "index", vectors=vectors, coding="int8", over_fetch=20)
    assert (built.documents, built.rows) == (20, 20)
    same = remargin.index(tmp_path / "same", vectors=tmp_path / "vectors")
    assert same.made == built.made
    collection = Collection.load(data)
    run = remargin.search(data, tmp_path / "index", k=5, out=tmp_path / "run.trec")
    assert run.rankings == remargin.search(collection, tmp_path / "index", folder, 5).rankings
    assert Run.load(tmp_path / "run.trec").rankings.keys() == run.rankings.keys()
    with pytest.raises(InputError, match="already exists"):
        remargin.search(data, tmp_path / "index", out=tmp_path / "run.trec")
    assert remargin.update(tmp_path / "index", delete=["d1", "d2"]) == Changes(deleted=2)
    (tmp_path / "ids.txt").write_text("d3\n")
    assert remargin.update(tmp_path / "index", delete=tmp_path / "ids.txt") == Changes(deleted=1)
    assert remargin.update(tmp_path / "index", data=data) == Changes(added=3)
    again = Vectors.load(tmp_path / "vectors")
    assert remargin.update(tmp_path / "index", vectors=again, replace=True) == Changes(replaced=20)
    with pytest.raises(InputError, match="--keep-others does nothing for --delete"):
        remargin.update(tmp_path / "index", delete=["d1"], keep_others=True)
    for options, problem in (
        ({"vectors": vectors, "k1": 1.2}, "--k1 does nothing for index exact"),
        ({"vectors": vectors, "links": 8}, "--links does nothing for index exact"),
        ({"vectors": vectors, "skip_bad": True}, "--skip-bad does nothing for vectors that are encoded already"),
        ({"vectors": vectors, "index": "faiss", "factory": "Flat", "links": 8}, "--links does nothing for a --factory"),
        ({"data": data, "index": "bm25", "model": folder}, "--model does nothing for a BM25 index"),
    ):
        with pytest.raises(InputError, match=problem):
            remargin.index(tmp_path / "other", **options)  # type: ignore[arg-type]


def test_answers_have_their_texts(data: Path, tmp_path: Path) -> None:
    remargin.index(tmp_path / "index", data=data, index="bm25", texts=False)
    first, *_ = remargin.ask("dogs number 12", tmp_path / "index", k=2)
    assert (first.id, first.text) == ("d12", "number 12 of dogs")
    data.rename(tmp_path / "moved")
    assert [answer.text for answer in remargin.ask("cats", tmp_path / "index", k=2)] == [None, None]
    assert remargin.ask("cats", tmp_path / "index", k=1, data=tmp_path / "moved")[0].text is not None


def test_runs_are_files_or_loaded(folder: Path, data: Path, tmp_path: Path) -> None:
    first = remargin.search(data, "bm25", out=tmp_path / "bm25.trec")
    second = remargin.rerank(data, folder, tmp_path / "bm25.trec", depth=3, out=tmp_path / "dense.trec")
    assert (
        second.rankings == remargin.rerank(Collection.load(data), BiEncoder.from_pretrained(folder), first, 3).rankings
    )
    paths = [tmp_path / "bm25.trec", tmp_path / "dense.trec"]
    fused = remargin.fuse(paths, out=tmp_path / "fused.trec")
    assert fused.run.rankings.keys() == first.rankings.keys()
    assert fused.weight is None
    tuned = remargin.fuse([first, second], tune=paths, data=data, measure="RR")
    assert tuned.weight is not None
    assert tuned.mean is not None
    with pytest.raises(InputError, match="--measure does nothing for a fusion without --tune"):
        remargin.fuse(paths, measure="RR")
    with pytest.raises(InputError, match="--k does nothing for a weighted sum"):
        remargin.fuse(paths, weight=0.5, k=20)
