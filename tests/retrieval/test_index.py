"""Indexes on disk: every back end finds what the exact one does, and a changed index is one built anew."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from remargin import BiEncoder, Collection, InputError, Run
from remargin.data.source import Text
from remargin.files.checksums import Sums
from remargin.retrieval import index as module
from remargin.retrieval.backends import BackendSettings
from remargin.retrieval.bm25 import BM25
from remargin.retrieval.dense import DenseIndex
from remargin.retrieval.faiss import Faiss
from remargin.retrieval.index import Changes, add_documents, build_index, delete_documents, open_index, synchronise
from remargin.retrieval.search import search
from remargin.retrieval.vectors import Made, Vectors, encode

pytest.importorskip("faiss")
pytest.importorskip("pymilvus")
DOCUMENTS = {f"d{i}": f"text number {i} " + "words and " * (i % 7) for i in range(60)}
QUERIES = {f"q{i}": f"which number {i} words" for i in range(5)}
SETTINGS = {
    "exact": BackendSettings(),
    "int8": BackendSettings(coding="int8", over_fetch=4),
    "binary": BackendSettings(coding="binary", over_fetch=20),
    "flat": BackendSettings("faiss", factory="Flat", over_fetch=1),
    "milvus": BackendSettings("milvus", factory="FLAT", over_fetch=1),
    "hnsw": BackendSettings("faiss", factory="HNSW8", over_fetch=8),
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, tiny_model: Any) -> BiEncoder:
    return BiEncoder.from_pretrained(tiny_model("bert"), pooling="mean")  # whose vectors differ, unlike those of [CLS]


def random_vectors(model: BiEncoder, count: int) -> Vectors:
    """As if the model had made them: of unit length if it makes such, else of very different lengths."""
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(count, model.dimension)).astype("f4")
    matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
    if model.similarity == "dot":
        matrix *= rng.uniform(0.1, 3, (count, 1)).astype("f4")
    return Vectors(Made.by(model), matrix, [f"d{i}" for i in range(count)], np.zeros(count, np.uint64))


def texts(documents: Mapping[str, str]) -> list[Text]:
    return [Text(id, text) for id, text in documents.items()]


def same(one: Run, other: Run) -> None:
    """The same scores at the same ranks; documents may only change places where scores are equal."""
    assert one.rankings.keys() == other.rankings.keys()
    for query in one.rankings:
        ours, theirs = one.rankings[query], other.rankings[query]
        assert len(ours) == len(theirs)
        np.testing.assert_allclose(list(ours.values()), list(theirs.values()), rtol=1e-5)
        for document in ours.keys() & theirs.keys():
            assert ours[document] == pytest.approx(theirs[document], rel=1e-5)
        last = min(ours.values(), default=0)
        assert all(ours[document] < last + 1e-5 for document in ours.keys() - theirs.keys())


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
@pytest.mark.parametrize("name", SETTINGS)
def test_every_back_end_finds_what_comparing_everything_finds(
    name: str, similarity: Any, tiny_model: Any, tmp_path: Path
) -> None:
    model = BiEncoder.from_pretrained(tiny_model("bert"), similarity=similarity)
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
    assert np.mean(agreement) == 1 if name in ("exact", "int8", "flat", "milvus") else np.mean(agreement) > 0.95


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
    model: BiEncoder, tmp_path: Path, states: list[dict[str, str]], chunk: int | None
) -> None:
    folder = tmp_path / "index"
    shutil.rmtree(folder, ignore_errors=True)
    made = Made.by(model, chunk=chunk)
    begin = {"start": "a document to begin with", **states[0]}
    build_index(encode(model, texts(begin), tmp_path / "v", made, overwrite=True), folder)
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
        build_index(encode(model, texts(state), tmp_path / "v", made, overwrite=True), tmp_path / "n", overwrite=True)
        same(found, open_index(tmp_path / "n", model).search(QUERIES, k=100))
        before = state
    assert synchronise(folder, texts(before), model) == module.Changes()


def test_a_document_scores_as_its_best_passage(model: BiEncoder, tmp_path: Path) -> None:
    long = {f"d{i}": " ".join(f"word{j}" for j in range(i, 3 * i + 1)) for i in range(1, 12)}
    vectors = encode(model, texts(long), tmp_path / "v", Made.by(model, chunk=6, overlap=2))
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


def test_an_open_index_does_not_change_under_its_reader(model: BiEncoder, tmp_path: Path) -> None:
    build_index(Vectors.of(model, DOCUMENTS), tmp_path / "index")
    reader = open_index(tmp_path / "index", model)
    before = reader.search(QUERIES)
    delete_documents(tmp_path / "index", list(DOCUMENTS)[:30])
    add_documents(tmp_path / "index", Vectors.of(model, {"new": "which number 1 words"}))
    same(reader.search(QUERIES), before)
    assert len(open_index(tmp_path / "index", model)) == 31


def test_wrong_models_and_documents_are_refused(
    model: BiEncoder, tiny_model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "index"
    vectors = Vectors.of(model, DOCUMENTS)
    build_index(vectors, folder)
    other = BiEncoder.from_pretrained(tiny_model("distilbert"))
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
    short = BiEncoder.from_pretrained(tiny_model("bert"), pooling="mean", document_length=9)
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


def test_an_index_that_changes_while_it_is_opened_is_opened_as_it_is_then(
    model: BiEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "index"
    build_index(Vectors.of(model, DOCUMENTS), folder, SETTINGS["flat"])
    read, reads = module._Folder.read.__func__, 0  # type: ignore[attr-defined]

    def changed_after_reading(cls: Any, place: Path) -> Any:
        nonlocal reads
        reads += 1
        found = read(cls, place)
        if reads == 1:
            add_documents(folder, Vectors.of(model, {"new": "text"}))
        return found

    monkeypatch.setattr(module._Folder, "read", classmethod(changed_after_reading))
    assert len(open_index(folder, model)) == len(DOCUMENTS) + 1


def test_a_model_that_makes_no_numbers_is_refused(tiny_model: Any, tmp_path: Path) -> None:
    broken = BiEncoder.from_pretrained(tiny_model("bert"), similarity="dot")
    broken.backbone.embeddings.word_embeddings.weight.data.fill_(float("nan"))  # type: ignore[union-attr]
    with pytest.raises(InputError, match="makes vectors with numbers that float32 cannot hold"):
        encode(broken, texts(DOCUMENTS), tmp_path / "out")


@pytest.mark.parametrize("name", ["flat", "int8"])
def test_longer_vectors_are_found_by_their_dot_product_when_they_come_later(
    name: str, tiny_model: Any, tmp_path: Path
) -> None:
    model = BiEncoder.from_pretrained(tiny_model("bert"), similarity="dot")
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


def test_damaged_files_are_named_and_not_built_upon(model: BiEncoder, tmp_path: Path) -> None:
    folder = tmp_path / "index"
    more = Vectors.of(model, {"new": "text"})
    for damage in ("vectors.bin", "hashes.bin", "deleted.1.bin"):
        build_index(Vectors.of(model, DOCUMENTS), folder, overwrite=True)
        os.truncate(folder / damage, 10)
        with pytest.raises(InputError, match=rf"{damage}: 10 bytes long"):
            open_index(folder, model)
        with pytest.raises(InputError, match=rf"{damage}: 10 bytes long"):
            add_documents(folder, more)
        (folder / damage).unlink()
        with pytest.raises(InputError, match=rf"{damage}: missing"):
            open_index(folder, model)


def test_an_index_may_change_while_it_is_checked(
    model: BiEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "index"
    build_index(Vectors.of(model, DOCUMENTS), folder)
    of = Sums.of

    def slow(path: Path, *arguments: Any) -> Sums:
        if path.name == "deleted.1.bin":
            monkeypatch.undo()
            delete_documents(folder, ["d1"])
        return of(path, *arguments)

    monkeypatch.setattr(Sums, "of", slow)
    assert len(open_index(folder, model)) == len(DOCUMENTS) - 1


@pytest.mark.parametrize("settings", [BackendSettings(), BackendSettings(coding="int8"), SETTINGS["flat"]])
def test_a_single_bit_is_noticed_also_of_what_was_added(
    model: BiEncoder, tmp_path: Path, settings: BackendSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("remargin.files.checksums.BLOCK", 100)  # so that there are several
    folder = tmp_path / "index"
    build_index(Vectors.of(model, DOCUMENTS), folder, settings)
    add_documents(folder, Vectors.of(model, {"new": "text"}))
    delete_documents(folder, ["d1"])
    assert open_index(folder, model).search(QUERIES).rankings
    for path in sorted(folder.rglob("*.*")):
        if path.is_dir():
            continue
        whole = path.read_bytes()
        path.write_bytes(whole[:-3] + bytes([whole[-3] ^ 1]) + whole[-2:])
        with pytest.raises(InputError, match=rf"{path}: .*(damaged|not a header)"):
            open_index(folder, model)
        with pytest.raises(InputError, match=rf"{path}: .*(damaged|not a header)"):
            delete_documents(folder, ["d2"])
        path.write_bytes(whole)
    assert open_index(folder, model).search(QUERIES).rankings


def test_an_index_is_not_replaced_while_it_changes(model: BiEncoder, tmp_path: Path) -> None:
    folder = tmp_path / "index"
    build_index(Vectors.of(model, DOCUMENTS), folder)
    with module._changing(folder) as index:
        with pytest.raises(InputError, match="another process is writing it"):
            build_index(Vectors.of(model, {"other": "text"}), folder, overwrite=True)
        index.delete(index.rows_of(["d1"]))
    assert len(open_index(folder, model)) == len(DOCUMENTS) - 1


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
    queries = encode(model, texts(QUERIES), tmp_path / "queries", Made.by(model, kind="queries"))
    with pytest.raises(InputError, match="vectors of queries, not of documents"):
        build_index(queries, tmp_path / "other")


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
