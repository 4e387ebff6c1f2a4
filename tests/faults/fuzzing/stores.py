"""Prepared data, vectors, indexes, and what a stopped preparation, encoding, mining or teaching leaves behind."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from remargin import BiEncoder, Collection, Run
from remargin.cli import main
from remargin.data import preparation as preparing
from remargin.data.preparation import prepare
from remargin.data.source import Text
from remargin.data.tokens import TokenStore
from remargin.data.triplets import Triplets
from remargin.errors import InputError
from remargin.files.checksums import Sums
from remargin.files.headers import read_header, write_header
from remargin.mining import negatives as mining
from remargin.mining.negatives import mine
from remargin.retrieval import bm25, encoding, index_folder, vectors
from remargin.retrieval.bm25 import BM25
from remargin.retrieval.building import build_index
from remargin.retrieval.encoding import encode_texts
from remargin.retrieval.fusion import weighted
from remargin.retrieval.hybrid import FILE as FUSION
from remargin.retrieval.hybrid import Fusion, HybridSettings, chosen_hybrid, read_fusion, save_fusion
from remargin.retrieval.index_folder import open_index, open_parts
from remargin.retrieval.searching import load_index
from remargin.retrieval.settings import BackendSettings
from remargin.retrieval.updating import add_documents, delete_documents, synchronise
from remargin.retrieval.vectors import Vectors
from remargin.teacher import scoring as teaching
from remargin.teacher.scoring import score_triplets, taught_before

from .models import TEXTS
from .mutations import HEADER, JOURNAL, JSON, JSON_LINES, YAML, Format
from .running import Case, require_finite
from .world import WORDS, World, killed_at

QUERIES = {"q": "the value", "r": "a file"}
DOCUMENTS = {f"d{i}": f"the {word} of a file" for i, word in enumerate(WORDS)}


def only(folder: Path, pattern: str) -> str:
    """The one file that a pattern finds, below the folder."""
    (path,) = folder.glob(pattern)
    return str(path.relative_to(folder))


def token_store(world: World) -> Case:
    tokenizer = world.encoder.tokenizer
    TokenStore.write(world.root / "tokens", list(DOCUMENTS), list(DOCUMENTS.values()), tokenizer, 12, "text: ")

    def read(folder: Path) -> None:
        store = TokenStore(folder)
        rows = range(len(store))
        assert store.take(rows).lengths.sum() == store.lengths(rows).sum()
        assert store.ids.rows(list(store.ids)).tolist() == list(rows)

    def verify(folder: Path) -> None:
        store = TokenStore(folder)
        store.verify()
        store.require(tokenizer, 12, "text: ")

    return Case(world.root / "tokens", {"header.json": HEADER}, (read, verify), count=600)


def triplets(world: World) -> Case:
    Triplets.write(world.root / "rows", [[0, 5, 3], [1, 2, 4]], [[9.0, 1.5], [7.0, 2.0]])

    def read(folder: Path) -> None:
        found = Triplets(folder)
        found.take(range(len(found)))
        found.large_margin()
        assert len(found.queries) == len(found)

    def verify(folder: Path) -> None:
        Triplets(folder).verify()

    return Case(world.root / "rows", {"header.json": HEADER}, (read, verify), count=400)


def _vectors(model: BiEncoder, out: Path) -> Vectors:
    return encode_texts(model, [Text(id, text) for id, text in DOCUMENTS.items()], out)


def saved_vectors(world: World) -> Case:
    _vectors(world.encoder, world.root / "vectors")

    def load(folder: Path) -> None:
        found = Vectors.load(folder)
        assert len(list(found.ids)) == len(found.hashes)
        require_finite(found.matrix)

    def build(folder: Path) -> None:
        build_index(Vectors.load(folder), folder / "index")

    return Case(world.root / "vectors", {vectors.HEADER: HEADER}, (load, build), count=400)


def _index(
    world: World,
    name: str,
    settings: BackendSettings,
    model: BiEncoder | None = None,
    hybrid: HybridSettings | None = None,
) -> Case:
    model = model or world.encoder
    made = _vectors(model, world.root / f"{name}-vectors")
    encoded = [Text(*item) for item in DOCUMENTS.items()]
    build_index(made, world.root / name, settings, hybrid=hybrid, texts=encoded)
    texts = [*encoded, Text("new", "another text")]

    def search(folder: Path) -> None:
        for opened in (open_index(folder, model), load_index(folder, model)):
            for ranking in opened.search(QUERIES, 3).rankings.values():
                require_finite(np.array(list(ranking.values())))

    def show(folder: Path) -> None:
        texts = open_parts(folder, model).texts
        assert texts is None or texts.of(list(DOCUMENTS)) == DOCUMENTS  # None if the header says that there are none

    def with_its_own_model(folder: Path) -> None:
        load_index(folder).search(QUERIES, 3)

    def delete(folder: Path) -> None:
        delete_documents(folder, ["d1"])

    def add(folder: Path) -> None:
        add_documents(folder, made, replacing=True)

    def follow(folder: Path) -> None:
        synchronise(folder, texts, model)

    def overwrite(folder: Path) -> None:
        build_index(made, folder, settings, overwrite=True, hybrid=hybrid, texts=encoded)

    readers = (search, show, with_its_own_model, delete, *([add] if hybrid is None else []), follow, overwrite)
    return Case(world.root / name, {index_folder.HEADER: HEADER}, readers, count=180)


def index_exact(world: World) -> Case:
    return _index(world, "exact", BackendSettings())


def index_int8(world: World) -> Case:
    return _index(world, "int8", BackendSettings(coding="int8"))


def index_binary(world: World) -> Case:
    return _index(world, "binary", BackendSettings(coding="binary"))


def index_hybrid(world: World) -> Case:
    return _index(world, "hybrid", BackendSettings(), hybrid=HybridSettings(0.5))


def fusion_of_a_model(world: World) -> Case:
    world.encoder.save(world.root / "fused")
    save_fusion(world.root / "fused", Fusion(0.4, "nDCG@10", 0.61, 0.57, 0.65, data="docstrings:json"))

    def read(folder: Path) -> None:
        fusion = read_fusion(folder)
        if fusion is not None:  # else the file is gone
            require_finite(np.array([fusion.weight, fusion.bm25, fusion.dense, fusion.fused], float))

    def fuse(folder: Path) -> None:
        for choice in ("auto", "on"):
            fused = chosen_hybrid(choice, folder)  # type: ignore[arg-type]
            words, dense = (Run.of({"q": {"a": 2.0, "b": 1.0}}), Run.of({"q": {"b": 2.0}}))
            if fused is not None:
                weighted(words, dense, fused.weight, fused.depth)

    return Case(world.root / "fused", {FUSION: HEADER}, (read, fuse), count=300)


def index_faiss(world: World) -> Case:
    pytest.importorskip("faiss")
    BiEncoder.from_pretrained(world.model, similarity="dot").save(world.root / "dot")
    model = BiEncoder.from_pretrained(world.root / "dot", device="cpu")
    return _index(world, "faiss", BackendSettings("faiss", factory="Flat"), model)


def bm25_header(world: World) -> Case:
    BM25(DOCUMENTS).save(world.root / "bm25", data="docstrings:json", texts=DOCUMENTS.values())
    return Case(world.root / "bm25", {bm25.HEADER: HEADER}, (_search_words,), count=500)


def _search_words(folder: Path) -> None:
    found = BM25.load(folder)
    found.search(QUERIES, 3)
    assert found.lacking(list(DOCUMENTS)) == 0
    assert found.texts is None or found.texts.of(list(DOCUMENTS)) == DOCUMENTS


def bm25_files(world: World) -> Case:
    """The files of bm25s, which the header has checksums of: here they match."""
    BM25(DOCUMENTS).save(world.root / "bm25-files")

    def write(path: Path, value: object) -> None:
        JSON.write(path, value)
        folder = path.parent.parent
        header = read_header(folder / bm25.HEADER, dict, bm25.FORMAT, "")
        header["sums"][str(path.relative_to(folder))] = Sums.of(path)
        write_header(folder / bm25.HEADER, header)

    files = {f"bm25s/{name}.index.json": Format(JSON.read, write) for name in ("params", "vocab")}
    return Case(world.root / "bm25-files", files, (_search_words,), count=300)


def stopped_preparation(world: World) -> Case:
    folder = world.folder("preparation")

    def again(folder: Path) -> None:
        prepare(world.beir, world.model, folder / "data", **asdict(world.encoder.text_settings))

    with killed_at(preparing, "_write_summary"):
        again(folder)
    files = {only(folder, f".data.unfinished/{kind}/*.jsonl"): JOURNAL for kind in ("documents", "queries")}
    return Case(folder, files, (again,), count=200, heals=True)


def stopped_encoding(world: World) -> Case:
    folder = world.folder("encoding")
    texts = [Text(id, text) for id, text in DOCUMENTS.items()]

    def again(folder: Path) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(encoding, "TEXTS_AT_ONCE", 3)
            require_finite(encode_texts(world.encoder, texts, folder / "out").matrix)

    with killed_at(encoding._Work, "close"):
        again(folder)
    return Case(folder, {only(folder, ".out.*/*.jsonl"): JOURNAL}, (again,), count=300, heals=True)


def stopped_mining(world: World) -> Case:
    folder = world.folder("mining")

    def again(folder: Path) -> None:
        mine(world.train, folder / "mined.tsv")

    with killed_at(mining, "_join"):
        again(folder)
    return Case(folder, {only(folder, ".mined.tsv.*/0.json"): HEADER}, (again,), count=400, heals=True)


def stopped_teaching(world: World) -> Case:
    folder = world.folder("teaching")

    def again(folder: Path) -> None:
        score_triplets(world.triplets, folder / "scored.tsv", world.cross_encoder, world.train)

    with killed_at(teaching, "_with_scores"):
        again(folder)
    return Case(folder, {only(folder, ".scored.tsv.*/0.json"): HEADER}, (again,), count=400, heals=True)


def report_of_teaching(world: World) -> Case:
    folder = world.folder("taught")
    score_triplets(world.triplets, folder / "scored.tsv", world.cross_encoder, world.train)

    def before(folder: Path) -> None:
        taught_before(world.triplets, folder / "scored.tsv", world.cross_encoder, world.train)

    def again(folder: Path) -> None:
        score_triplets(world.triplets, folder / "scored.tsv", world.cross_encoder, world.train, overwrite=True)

    return Case(folder, {"scored.tsv.json": HEADER}, (before, again), count=300)


def collection(world: World) -> Case:
    def load(folder: Path) -> None:
        Collection.load(folder, "test")

    def prepared(folder: Path) -> None:
        prepare(folder, world.model, folder / "out", **asdict(world.encoder.text_settings))

    files = {"corpus.jsonl": JSON_LINES, "queries.jsonl": JSON_LINES}
    return Case(world.beir, files, (load, prepared), count=150)


def table_of_triplets(world: World) -> Case:
    folder = world.folder("table")
    rows = [
        {"query": TEXTS[0], "positive": TEXTS[1], "negatives": [f"text {i}", "other"], "scores": [3.5, i, -1]}
        for i in range(3)
    ]
    (folder / "triplets.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def prepared(folder: Path) -> None:
        prepare(None, world.model, folder / "out", folder / "triplets.jsonl", **asdict(world.encoder.text_settings))

    return Case(folder, {"triplets.jsonl": JSON_LINES}, (prepared,), count=200)


def configuration(world: World) -> Case:
    """Of verbs of the command line: what is wrong in it is one line and exit code 2."""
    folder = world.folder("configuration")
    search = {"data": str(world.beir), "index": "bm25", "k": 3, "split": "test", "skip-bad": False, "overwrite": True}
    index = {"data": str(world.beir), "index": "bm25", "k1": 0.9, "b": 0.4, "language": "english", "overwrite": False}
    evaluate = {"data": str(world.beir), "run": str(folder / "run.tsv"), "measures": ["nDCG@10", "R@5"]}
    (folder / "run.tsv").write_text("q6 Q0 d6 1 2.5 x\nq7 Q0 d1 1 1.5 x\n")
    for name, settings in {"search": search, "index": index, "evaluate": evaluate}.items():
        YAML.write(folder / f"{name}.yaml", settings)

    def command_line(folder: Path) -> None:
        outputs: dict[str, list[str]] = {"evaluate": [], "search": ["--out", str(folder / "o")]}
        for verb in ("search", "index", "evaluate"):
            out = outputs.get(verb, ["--out", str(folder / "index")])
            sys.argv = ["remargin", verb, "--config", str(folder / f"{verb}.yaml"), *out]
            try:
                main()
            except SystemExit as end:
                if end.code == 2:
                    raise InputError("exit code 2") from None
                if end.code:
                    raise

    files = {f"{name}.yaml": YAML for name in ("search", "index", "evaluate")}
    return Case(folder, files, (command_line,), count=90)


TARGETS = [
    token_store,
    triplets,
    saved_vectors,
    index_exact,
    index_int8,
    index_binary,
    index_faiss,
    index_hybrid,
    fusion_of_a_model,
    bm25_header,
    bm25_files,
    stopped_preparation,
    stopped_encoding,
    stopped_mining,
    stopped_teaching,
    report_of_teaching,
    collection,
    table_of_triplets,
    configuration,
]
