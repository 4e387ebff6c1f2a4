"""Hybrid retrieval: against formulas written out in loops, against `fuse`, and against an index built anew."""

from __future__ import annotations

import json
import math
import shutil
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import remargin
from remargin import BiEncoder, Collection, InputError, Run
from remargin.data.source import Text
from remargin.model.folder import verify_model
from remargin.retrieval import index_folder as module
from remargin.retrieval.bm25 import BM25, terms_of
from remargin.retrieval.building import build_index
from remargin.retrieval.fusion import fuse, weighted
from remargin.retrieval.hybrid import (
    DEPTH,
    FILE,
    WORTHWHILE,
    Fusion,
    HybridIndex,
    HybridSettings,
    choose_fusion,
    read_choice,
    read_fusion,
    save_fusion,
)
from remargin.retrieval.index_folder import HYBRID_FORMAT, open_index, open_parts, read_index_header
from remargin.retrieval.searching import fusion_of, load_index
from remargin.retrieval.updating import add_documents, delete_documents, synchronise
from remargin.retrieval.vectors import Vectors

from .indexes import APPROXIMATE, SETTINGS, same, texts

pytest.importorskip("faiss")
pytest.importorskip("pymilvus")

WORDS = ["margin", "query", "value", "token", "list", "file", "text", "model"]
DOCUMENTS = {f"d{i}": " ".join(WORDS[(i * j) % 8] for j in range(1, 3 + i % 5)) + f" number{i}" for i in range(40)}
QUERIES = {f"q{i}": f"{WORDS[i % 8]} {WORDS[(3 * i) % 8]} number{i}" for i in range(6)}
HALF = HybridSettings(0.5)


def build(model: BiEncoder, documents: Mapping[str, str], folder: Path, name: str = "exact", **options: Any) -> Path:
    """An index folder of documents, hybrid unless told otherwise."""
    given = {"hybrid": HALF, "texts": texts(documents), **options}
    build_index(Vectors.of(model, documents), folder, SETTINGS[name], overwrite=True, **given)
    return folder


# The formula, from raw texts and vectors


def bm25_by_hand(documents: Mapping[str, str], query: str, k1: float = 0.9, b: float = 0.4) -> dict[str, float]:
    """Lucene's BM25 in plain Python; only the words are those of the library."""

    def words(text: str) -> list[str]:
        terms = terms_of([text])
        names = {number: term for term, number in terms.vocab.items()}
        return [names[number] for number in terms.ids[0]]

    counts = {id: Counter(words(text)) for id, text in documents.items()}
    mean = sum(count.total() for count in counts.values()) / len(counts)
    scores = {}
    for id, count in counts.items():
        score = 0.0
        for term in words(query):
            having = sum(term in other for other in counts.values())
            if count[term]:
                idf = math.log(1 + (len(counts) - having + 0.5) / (having + 0.5))
                score += idf * count[term] / (count[term] + k1 * (1 - b + b * count.total() / mean))
        if score > 0:
            scores[id] = score
    return scores


def fused_by_hand(words: dict[str, float], dense: dict[str, float], weight: float, depth: int) -> dict[str, float]:
    """The first `depth` of each, scaled to 0..1, and added up."""
    total: dict[str, float] = {}
    for scores, share in ((words, 1 - weight), (dense, weight)):
        first = sorted(scores, key=lambda id: (scores[id], id), reverse=True)[:depth]
        low, high = (min(scores[id] for id in first), max(scores[id] for id in first)) if first else (0, 0)
        for id in first:
            scaled = (scores[id] - low) / (high - low) if high > low else 1.0
            total[id] = total.get(id, 0.0) + share * scaled
    return total


@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("depth", [5, 1000])
def test_the_fused_ranking_is_its_formula(model: BiEncoder, tmp_path: Path, weight: float, depth: int) -> None:
    folder = build(model, DOCUMENTS, tmp_path / "index", hybrid=HybridSettings(weight, depth))
    index = load_index(folder, model)
    assert isinstance(index, HybridIndex)
    found = index.search(QUERIES, 7)
    matrix = model.encode_documents(list(DOCUMENTS.values())).astype(float)
    for query, text in QUERIES.items():
        cosine = matrix @ model.encode_queries([text])[0].astype(float)
        dense = dict(zip(DOCUMENTS, cosine.tolist(), strict=True))
        expected = fused_by_hand(bm25_by_hand(DOCUMENTS, text), dense, weight, depth)
        assert len(expected) > 7 or depth < 1000
        scores = [expected[id] for id in found.rankings[query]]
        # Cosines of a tiny model lie close together, and scaling them to 0..1 scales their rounding, too.
        np.testing.assert_allclose(list(found.rankings[query].values()), scores, atol=2e-4)
        np.testing.assert_allclose(scores, sorted(expected.values(), reverse=True)[:7], atol=2e-4)
        assert all(0 <= score <= 1 + 1e-9 for score in scores)


# An index folder


@pytest.mark.parametrize("name", SETTINGS)
def test_an_index_folder_fuses_as_fuse_does(name: str, model: BiEncoder, tmp_path: Path) -> None:
    folder = build(model, DOCUMENTS, tmp_path / "index", name)
    words, dense = BM25(DOCUMENTS).search(QUERIES, DEPTH), open_index(folder, model).search(QUERIES, DEPTH)
    assert any(ranking for ranking in words.rankings.values())
    expected = fuse([words, dense], weight=0.5).run
    assert load_index(folder, model).search(QUERIES).rankings == expected.rankings
    ten = load_index(folder, model).search(QUERIES, 10).rankings
    assert ten == Run.of(expected.rankings, 10).rankings  # the first ten, whatever k is


@pytest.mark.parametrize("name", SETTINGS)
def test_a_changed_index_is_one_built_anew(name: str, model: BiEncoder, tmp_path: Path) -> None:
    ids = list(DOCUMENTS)
    folder = build(model, {id: DOCUMENTS[id] for id in ids[:25]}, tmp_path / "index", name)
    after = {id: DOCUMENTS[id] for id in ids[5:]} | {"d7": "something altogether new", "d8": "the of and"}
    changes = synchronise(folder, texts(after), model)
    assert (changes.added, changes.replaced, changes.deleted) == (15, 2, 5)
    delete_documents(folder, ["d9", "d30"])
    left = {id: text for id, text in after.items() if id not in ("d9", "d30")}
    anew = build(model, left, tmp_path / "anew", name)
    changed, fresh = open_parts(folder, model), open_parts(anew, model)
    assert changed.bm25 is not None
    assert fresh.bm25 is not None
    assert changed.bm25.search(QUERIES).rankings == fresh.bm25.search(QUERIES).rankings
    assert fresh.bm25.search(QUERIES).rankings == BM25(left).search(QUERIES).rankings
    if name not in APPROXIMATE:
        same(load_index(folder, model).search(QUERIES), load_index(anew, model).search(QUERIES))
    kinds = Counter(path.name.partition(".")[0] for path in folder.iterdir())
    assert kinds["bm25"] == kinds["vocabulary"] == kinds["ids"] == 1


def test_documents_that_stay_keep_their_words(model: BiEncoder, tmp_path: Path) -> None:
    folder = build(model, DOCUMENTS, tmp_path / "index")
    synchronise(folder, [Text("new", "a margin of text")], model, keep_others=True)
    anew = build(model, DOCUMENTS | {"new": "a margin of text"}, tmp_path / "anew")
    same(load_index(folder, model).search(QUERIES), load_index(anew, model).search(QUERIES))


def test_passages_and_whole_documents_are_fused(tiny_model: Any, tmp_path: Path) -> None:
    data = write_beir(tmp_path / "data")
    given = {"data": data, "model": tiny_model("bert"), "passage_length": 3}
    built = remargin.index(tmp_path / "index", **given, hybrid=0.5)
    assert built.rows > built.documents == len(DOCUMENTS)
    assert built.hybrid == HALF
    remargin.index(tmp_path / "dense", **given)
    runs = [remargin.search(data, "bm25"), remargin.search(data, tmp_path / "dense")]
    found = remargin.search(data, tmp_path / "index")
    assert found.rankings == fuse(runs, weight=0.5).run.rankings


def test_a_change_that_is_cut_off_changes_nothing(
    model: BiEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = build(model, DOCUMENTS, tmp_path / "index")
    before = load_index(folder, model).search(QUERIES)
    more = texts(DOCUMENTS | {"new": "margin query value", "other": "token"})
    for stop in ("append_terms", "build_words", "flush_to_disk", "write_header"):
        with monkeypatch.context() as patch:
            original = getattr(module, stop)

            def fails(*arguments: Any, original: Any = original) -> None:
                original(*arguments) if original.__name__ in ("append_terms", "build_words") else None
                raise KeyboardInterrupt

            patch.setattr(module, stop, fails)
            with pytest.raises(KeyboardInterrupt):
                synchronise(folder, more, model)
        assert load_index(folder, model).search(QUERIES).rankings == before.rankings
    synchronise(folder, more, model)  # what was left behind is no obstacle
    assert len(load_index(folder, model)) == len(DOCUMENTS) + 2
    assert len(open_parts(folder, model).bm25 or ()) == len(DOCUMENTS) + 2
    delete_documents(folder, ["new", "other"])
    same(load_index(folder, model).search(QUERIES), before)


def test_no_document_and_no_words(model: BiEncoder, tmp_path: Path) -> None:
    folder = build(model, DOCUMENTS, tmp_path / "index")
    synchronise(folder, [Text("d1", "the of and")], model)  # stop words alone
    assert open_parts(folder, model).bm25 is None
    assert load_index(folder, model).search(QUERIES).rankings == {query: {"d1": 0.5} for query in QUERIES}
    delete_documents(folder, ["d1"])
    assert load_index(folder, model).search(QUERIES).rankings == {query: {} for query in QUERIES}
    synchronise(folder, texts(DOCUMENTS), model, keep_others=True)
    same(
        load_index(folder, model).search(QUERIES),
        load_index(build(model, DOCUMENTS, tmp_path / "a"), model).search(QUERIES),
    )
    assert load_index(folder, model).search({}).rankings == {}
    with pytest.raises(InputError, match="the documents have no words but stop words"):
        build(model, {"d1": "the of and"}, tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_vectors_without_texts_are_refused(model: BiEncoder, tmp_path: Path) -> None:
    folder = build(model, DOCUMENTS, tmp_path / "index")
    with pytest.raises(InputError, match="has BM25, too, which takes the texts, and vectors have none; give the coll"):
        add_documents(folder, Vectors.of(model, {"new": "text"}))
    with pytest.raises(InputError, match="0 texts for the vectors of 40; encode the documents again"):
        build(model, DOCUMENTS, tmp_path / "other", texts=())
    other = texts(DOCUMENTS | {"d3": "another"})
    with pytest.raises(InputError, match="id 'd3': not the text that was encoded"):
        build(model, DOCUMENTS, tmp_path / "other", texts=other)
    with pytest.raises(InputError, match="id 'more': not the text that was encoded"):
        build(model, DOCUMENTS, tmp_path / "other", texts=texts(DOCUMENTS | {"more": "text"}))


def test_damage_to_either_part_is_named(model: BiEncoder, tmp_path: Path) -> None:
    folder = build(model, DOCUMENTS, tmp_path / "index")
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.stat().st_size]
    assert any("bm25.1/bm25s" in str(path) for path in files)
    assert {"terms.bin", "term_ends.bin", "remargin_bm25.json"} <= {path.name for path in files}
    for path in files:
        whole = path.read_bytes()
        path.write_bytes(whole[:-3] + bytes([whole[-3] ^ 1]) + whole[-2:])
        with pytest.raises(InputError, match=rf"{path}: .*(damaged|not a header)") as found:
            load_index(folder, model)
        assert len(str(found.value).splitlines()) == 1
        path.unlink()
        with pytest.raises(InputError, match=rf"{path}: .*(missing|not found)"):
            load_index(folder, model)
        path.write_bytes(whole)
    shutil.rmtree(folder / "bm25.1")
    with pytest.raises(InputError, match=r"remargin_bm25\.json: missing"):
        load_index(folder, model)


def test_an_index_of_another_time_is_not_hybrid_and_is_as_before(model: BiEncoder, tmp_path: Path) -> None:
    folder = build(model, DOCUMENTS, tmp_path / "index", hybrid=None, texts=())
    assert read_index_header(folder)["format"] == "remargin-index-2"
    assert not {"terms.bin", "bm25.1"} & {path.name for path in folder.iterdir()}
    dense = load_index(folder, model)
    assert not isinstance(dense, HybridIndex)
    for hybrid in ("on", 0.5):
        with pytest.raises(InputError, match=r"index: holds the encoder's vectors alone, and no BM25 to fuse"):
            load_index(folder, model, hybrid)
    assert load_index(folder, model, "off").search(QUERIES).rankings == dense.search(QUERIES).rankings
    both = build(model, DOCUMENTS, tmp_path / "both")
    assert read_index_header(both)["format"] == HYBRID_FORMAT
    assert load_index(both, model, "off").search(QUERIES).rankings == dense.search(QUERIES).rankings


# What dev chooses

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


def write_beir(folder: Path) -> Path:
    """A collection of DOCUMENTS and QUERIES. One query is itself a document."""
    (folder / "qrels").mkdir(parents=True)
    for name, records in (("corpus", DOCUMENTS), ("queries", QUERIES | {"d5": DOCUMENTS["d5"]})):
        lines = [json.dumps({"_id": id, "text": text}) + "\n" for id, text in records.items()]
        (folder / f"{name}.jsonl").write_text("".join(lines))
    for split in ("dev", "test"):
        judged = "".join(f"{query}\td{10 + i}\t1\n" for i, query in enumerate([*QUERIES, "d5"]))
        (folder / "qrels" / f"{split}.tsv").write_text(f"query-id\tcorpus-id\tscore\n{judged}")
    return folder


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
        ({"vectors": vectors, "data": data, "hybrid": "off"}, "an index is made of vectors, or of texts and a model"),
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
