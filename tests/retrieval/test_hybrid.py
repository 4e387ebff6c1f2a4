"""Hybrid retrieval: against formulas written out in loops, against `fuse`, and against an index built anew."""

from __future__ import annotations

import math
import shutil
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import remargin
from remargin import BiEncoder, InputError, Run
from remargin.data.source import Text
from remargin.retrieval import index_folder as module
from remargin.retrieval.bm25 import BM25, terms_of
from remargin.retrieval.building import build_index
from remargin.retrieval.fusion import fuse
from remargin.retrieval.hybrid import (
    DEPTH,
    HybridIndex,
    HybridSettings,
)
from remargin.retrieval.index_folder import open_index, open_parts, read_index_header
from remargin.retrieval.searching import load_index
from remargin.retrieval.updating import add_documents, delete_documents, synchronise
from remargin.retrieval.vectors import Vectors

from .hybrids import DOCUMENTS, QUERIES, write_beir
from .indexes import APPROXIMATE, SETTINGS, same, texts

pytest.importorskip("faiss")
pytest.importorskip("pymilvus")

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


def test_passages_and_whole_documents_are_fused(tiny_encoder: Any, tmp_path: Path) -> None:
    data = write_beir(tmp_path / "data")
    given = {"data": data, "model": tiny_encoder("bert"), "passage_length": 3}
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


def test_an_open_index_does_not_change_under_its_reader(model: BiEncoder, tmp_path: Path) -> None:
    folder = build(model, DOCUMENTS, tmp_path / "index")
    reader = load_index(folder, model)
    before = reader.search(QUERIES)
    synchronise(folder, texts({"d1": "margin", "d2": "query"}), model)
    assert not (folder / "bm25.1").exists()
    assert reader.search(QUERIES).rankings == before.rankings
    assert len(load_index(folder, model)) == 2


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


def test_an_index_without_bm25_is_not_hybrid(model: BiEncoder, tmp_path: Path) -> None:
    folder = build(model, DOCUMENTS, tmp_path / "index", hybrid=None, texts=None)
    header = read_index_header(folder)
    assert header["format"] == "remargin-index-4"
    fields = "documents format ids_folder ids_size made rows settings state sums texts version"
    assert sorted(header) == fields.split()
    assert not {"terms.bin", "bm25.1"} & {path.name for path in folder.iterdir()}
    dense = load_index(folder, model)
    assert not isinstance(dense, HybridIndex)
    for hybrid in ("on", 0.5):
        with pytest.raises(InputError, match=r"index: holds the encoder's vectors alone, and no BM25 to fuse"):
            load_index(folder, model, hybrid)
    assert load_index(folder, model, "off").search(QUERIES).rankings == dense.search(QUERIES).rankings
    both = build(model, DOCUMENTS, tmp_path / "both")
    assert sorted(read_index_header(both)) == sorted([*fields.split(), "hybrid", "terms"])
    assert load_index(both, model, "off").search(QUERIES).rankings == dense.search(QUERIES).rankings
