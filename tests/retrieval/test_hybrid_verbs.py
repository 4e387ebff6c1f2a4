"""Hybrid retrieval by the verbs: dev chooses, a model folder carries the choice, index, search and ask follow it."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import remargin
from remargin import BiEncoder, Collection, InputError, Run
from remargin.model.folder import verify_model
from remargin.retrieval.bm25 import BM25
from remargin.retrieval.fusion import fuse, weighted
from remargin.retrieval.hybrid import (
    DEPTH,
    FILE,
    WORTHWHILE,
    Fusion,
    HybridSettings,
    choose_fusion,
    read_choice,
    read_fusion,
    save_fusion,
)
from remargin.retrieval.searching import fusion_of

from .hybrids import DOCUMENTS, write_beir
from .indexes import same

pytest.importorskip("faiss")
pytest.importorskip("pymilvus")

GOOD = Run.of({"q1": {"a": 9.0, "b": 2.0}, "q2": {"b": 4.0, "c": 3.0, "a": 1.0}})
BAD = Run.of({"q1": {"b": 0.8, "a": 0.7, "c": 0.1}, "q2": {"c": 0.9, "a": 0.8, "b": 0.1}})
QRELS = {"q1": {"a": 1}, "q2": {"c": 1}}


def test_dev_chooses_as_fuse_does(tmp_path: Path) -> None:
    documents = {id: f"text {id}" for id in "abc"}
    collection = Collection("", "dev", documents, {"q1": "x", "q2": "y"}, QRELS)
    tuned = fuse([GOOD, BAD], tune=[GOOD, BAD], data=collection, measure="RR")
    fusion = choose_fusion(GOOD, BAD, QRELS, "RR", data="faq")
    assert (fusion.weight, fusion.fused) == (tuned.weight, tuned.mean)
    assert (fusion.bm25, fusion.dense, fusion.data, fusion.split, fusion.depth) == (0.75, 0.75, "faq", "dev", DEPTH)
    assert weighted(GOOD, BAD, fusion.weight).top("q1", 1) == ["a"]
    with pytest.raises(InputError, match="none of the queries of the runs to tune with is judged"):
        choose_fusion(GOOD, BAD, {"other": {"a": 1}}, "RR")
    with pytest.raises(InputError, match="a fusion of 0 documents"):
        choose_fusion(GOOD, BAD, QRELS, "RR", depth=0)


def test_the_depth_of_a_choice_is_that_of_a_search() -> None:
    deep = Run.of({"q1": {"x": 9.0, "a": 8.0, "b": 1.0}, "q2": {"c": 2.0}})
    other = Run.of({"q1": {"b": 0.9, "a": 0.89, "x": 0.1}, "q2": {"c": 1.0}})
    cut = [Run.of(run.rankings, 2) for run in (deep, other)]
    shallow = choose_fusion(deep, other, QRELS, "RR", depth=2)
    assert shallow == choose_fusion(*cut, QRELS, "RR", depth=2)
    assert shallow.fused < choose_fusion(deep, other, QRELS, "RR").fused


@pytest.mark.parametrize(("gain", "pays"), [(-0.1, False), (0.0, False), (WORTHWHILE / 2, False), (0.01, True)])
def test_a_fusion_pays_if_it_is_better_by_more_than_a_trifle(gain: float, pays: bool) -> None:
    assert Fusion(0.4, "nDCG@10", 0.3, 0.5, 0.5 + gain).pays == pays


def test_a_model_without_a_folder_is_indexed_alone(
    model: BiEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not with the fusion of the folder that one happens to be in, nor with an error for one that is gone."""
    data, own = write_beir(tmp_path / "data"), copy.copy(model)
    save_fusion(tmp_path, Fusion(0.35, "nDCG@10", 0.61, 0.57, 0.65))
    monkeypatch.chdir(tmp_path)
    for number, name in enumerate(("", str(tmp_path / "gone"))):
        own.name = name
        built = remargin.index(tmp_path / str(number), data=data, model=own)
        assert built.documents == len(DOCUMENTS)
        assert fusion_of(tmp_path / str(number)) is None


def test_a_model_folder_carries_its_fusion(model: BiEncoder, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    model.save(folder)
    assert read_fusion(folder) is None
    fusion = Fusion(0.35, "nDCG@10", 0.61, 0.57, 0.65, 100, "pairs:faq.csv")
    save_fusion(folder, fusion)
    assert read_fusion(folder) == fusion
    save_fusion(folder, Fusion(0.4, "nDCG@10", 0.61, 0.57, 0.65))  # replaces it
    verify_model(folder, "")
    loaded = BiEncoder.from_pretrained(folder)
    np.testing.assert_array_equal(loaded.encode_queries(["a text"]), model.encode_queries(["a text"]))
    assert loaded.fingerprint() == model.fingerprint()
    loaded.save(tmp_path / "again")
    assert read_fusion(tmp_path / "again") is None  # other weights would need another choice
    content = (folder / FILE).read_text()
    for damaged in ("", "[]", content.replace("0.57", "0.56"), content.replace("min-max", "z-score")):
        assert damaged != content
        (folder / FILE).write_text(damaged)
        with pytest.raises(InputError, match=r"fusion\.json: .*; delete it to search with the encoder alone") as found:
            read_fusion(folder)
        assert len(str(found.value).splitlines()) == 1


def test_sentence_transformers_loads_a_folder_with_a_fusion(model: BiEncoder, tmp_path: Path) -> None:
    rival = pytest.importorskip("sentence_transformers")
    model.save(tmp_path / "model")
    save_fusion(tmp_path / "model", Fusion(0.4, "nDCG@10", 0.61, 0.57, 0.65))
    theirs = rival.SentenceTransformer(str(tmp_path / "model"), device="cpu").encode(["a text", "the value"])
    np.testing.assert_allclose(theirs, model.encode_documents(["a text", "the value"]), atol=1e-5)


# The verbs


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_beir(tmp_path / "data")


@pytest.fixture
def fused_model(model: BiEncoder, tmp_path: Path) -> Path:
    model.save(tmp_path / "model")
    save_fusion(tmp_path / "model", Fusion(0.4, "nDCG@10", 0.61, 0.57, 0.65))
    return tmp_path / "model"


@pytest.mark.parametrize("kind", ["exact", "faiss", "milvus"])
def test_a_run_by_a_hybrid_index_is_the_two_runs_fused(
    kind: str, data: Path, fused_model: Path, tmp_path: Path
) -> None:
    factory = {"exact": {}, "faiss": {"factory": "Flat"}, "milvus": {"factory": "FLAT"}}[kind]
    built = remargin.index(tmp_path / "index", data=data, model=fused_model, index=kind, **factory)
    assert built.hybrid == HybridSettings(0.4, from_dev=True)
    assert str(built.hybrid) == "BM25 and the encoder fused, weight 0.4 from dev"
    words = remargin.search(data, "bm25", out=tmp_path / "bm25.trec")
    dense = remargin.search(data, tmp_path / "index", hybrid="off", out=tmp_path / "dense.trec")
    same(dense, remargin.search(data, "exact", fused_model))
    for weight, hybrid in ((0.4, None), (0.4, "auto"), (0.4, "on"), (0.9, 0.9), (0.9, "0.9")):
        found = remargin.search(data, tmp_path / "index", hybrid=hybrid)
        assert found.rankings == fuse([words, dense], weight).run.rankings
        assert "d5" not in found.rankings["d5"]
    assert words.rankings["d5"]  # so that its being left out, before scores are scaled, was tried
    files = fuse([tmp_path / "bm25.trec", tmp_path / "dense.trec"], 0.4).run
    same(remargin.search(data, tmp_path / "index"), files)


def test_without_an_index_folder_the_encoder_is_alone_unless_asked(data: Path, fused_model: Path) -> None:
    dense = remargin.search(data, "exact", fused_model)
    same(remargin.search(data, "exact", fused_model, hybrid="off"), dense)
    words = remargin.search(data, "bm25")
    assert dense.rankings != fuse([words, dense], 0.4).run.rankings
    for hybrid, weight in (("auto", 0.4), ("on", 0.4), (0.7, 0.7)):
        found = remargin.search(data, "exact", fused_model, hybrid=hybrid)
        assert found.rankings == fuse([words, dense], weight).run.rankings
    save_fusion(fused_model, Fusion(0.4, "nDCG@10", 0.61, 0.65, 0.65))  # which does not pay
    same(remargin.search(data, "exact", fused_model, hybrid="auto"), dense)
    assert fusion_of("exact", fused_model, "auto") is None
    assert fusion_of("exact", fused_model, "on") == HybridSettings(0.4, from_dev=True)


def test_a_fusion_that_does_not_pay_is_not_carried_along(data: Path, fused_model: Path, tmp_path: Path) -> None:
    save_fusion(fused_model, Fusion(0.9, "nDCG@10", 0.3, 0.65, 0.651))
    given = {"data": data, "model": fused_model}
    assert remargin.index(tmp_path / "auto", **given).hybrid is None
    assert remargin.index(tmp_path / "on", **given, hybrid="on").hybrid == HybridSettings(0.9, from_dev=True)
    assert remargin.index(tmp_path / "0.2", **given, hybrid=0.2, k1=1.5).hybrid == HybridSettings(0.2, k1=1.5)
    assert fusion_of(tmp_path / "auto") is None
    assert fusion_of(tmp_path / "0.2", hybrid=0.3) == HybridSettings(0.3, k1=1.5)
    (fused_model / FILE).unlink()
    with pytest.raises(InputError, match=r"model: no fusion\.json in it, .*; give the encoder's weight: --hybrid 0\.5"):
        remargin.index(tmp_path / "other", **given, hybrid="on")


def test_encoded_vectors_and_texts_make_a_hybrid_index(
    data: Path, fused_model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    vectors = remargin.encode(data, fused_model, tmp_path / "vectors")
    assert remargin.index(tmp_path / "alone", vectors=vectors).hybrid is None
    assert "is better fused with BM25, which takes the texts: give --data, too" in caplog.text
    built = remargin.index(tmp_path / "index", vectors=vectors, data=data)
    assert built.hybrid == HybridSettings(0.4, from_dev=True)
    remargin.index(tmp_path / "same", data=data, model=fused_model)
    same(remargin.search(data, tmp_path / "index"), remargin.search(data, tmp_path / "same"))
    for options, problem in (
        ({"vectors": vectors, "hybrid": 0.5}, "BM25 takes the texts, and vectors have none; give --data beside"),
        (
            {"vectors": vectors, "data": data, "hybrid": "off", "texts": False},
            "an index is made of vectors, or of texts and a model",
        ),
        ({"data": data, "model": fused_model, "hybrid": "off", "k1": 1.2}, "--k1 does nothing for index exact without"),
        ({"data": data, "index": "bm25", "hybrid": "on"}, "--hybrid does nothing for a BM25 index"),
    ):
        with pytest.raises(InputError, match=problem):
            remargin.index(tmp_path / "other", **options)  # type: ignore[arg-type]
    write = (data / "corpus.jsonl").read_text().replace("number7", "number77")
    (data / "corpus.jsonl").write_text(write)
    with pytest.raises(InputError, match="id 'd7': not the text that was encoded; encode the documents again"):
        remargin.index(tmp_path / "other", vectors=vectors, data=data)


def test_more_documents_than_were_fused_are_not_promised(
    data: Path, fused_model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    save_fusion(fused_model, Fusion(0.4, "nDCG@10", 0.61, 0.57, 0.65, depth=5))
    remargin.index(tmp_path / "index", data=data, model=fused_model)
    assert remargin.search(data, tmp_path / "index", k=5).rankings
    assert remargin.ask("margin", tmp_path / "index", k=5)
    assert "deep" not in caplog.text
    found = remargin.search(data, tmp_path / "index", k=6)
    assert all(5 <= len(ranking) <= 10 for ranking in found.rankings.values())
    assert "are fused 5 documents deep: there may be fewer than 6 a query" in caplog.text


@pytest.mark.parametrize("hybrid", ["maybe", "1.5", "nan", "-0.1", True, ""])
def test_what_hybrid_cannot_be_is_said(hybrid: Any) -> None:
    with pytest.raises(InputError, match=r"--hybrid .*; use auto, on, off, or the encoder's weight"):
        read_choice(hybrid)


def test_words_of_a_bm25_index_are_not_fused(data: Path, tmp_path: Path) -> None:
    remargin.index(tmp_path / "bm25", data=data, index="bm25")
    with pytest.raises(InputError, match="--hybrid does nothing for a BM25 index"):
        remargin.ask("margin", tmp_path / "bm25", hybrid="on")
    with pytest.raises(InputError, match="--hybrid does nothing for index 'bm25'"):
        remargin.search(data, "bm25", hybrid=0.4)
    with pytest.raises(InputError, match="--hybrid does nothing for an index that is open"):
        remargin.search(data, BM25(DOCUMENTS), hybrid=0.4)
    for settings in ({"weight": 2}, {"weight": 0.5, "language": "latin"}, {"weight": 0.5, "b": 2}):
        with pytest.raises(InputError):
            HybridSettings(**settings)
