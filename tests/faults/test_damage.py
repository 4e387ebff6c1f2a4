"""One bit flipped anywhere, or the end cut off, in any file that remargin wrote: noticed, or without a difference.

Each artefact is read whole, and what was read becomes a text. A reader of a damaged copy must come to the same text, as
the byte does not count, or to an error that names a file. A run file without gzip and a table of triplets have no
checksum, as their formats leave no room for one: with .gz in their names they have gzip's. Without, it is seen that a
line was cut off, but not that lines are missing.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import nn

from remargin import Run
from remargin.data.collection import Collection
from remargin.data.preparation import prepare
from remargin.data.source import Text
from remargin.data.tokens import TokenStore
from remargin.data.triplets import Triplets
from remargin.errors import InputError
from remargin.files.executor import InThisProcess
from remargin.model.checkpoint import Progress, load_checkpoint, save_checkpoint
from remargin.model.encoder import BiEncoder
from remargin.model.folder import verify_model
from remargin.reports.page import page_text
from remargin.reports.sections import Section
from remargin.reports.tables import Block, Cell, Table, number
from remargin.retrieval.bm25 import BM25
from remargin.retrieval.building import build_index
from remargin.retrieval.hybrid import HybridSettings
from remargin.retrieval.index_folder import open_parts
from remargin.retrieval.searching import load_index
from remargin.retrieval.settings import BackendSettings
from remargin.retrieval.shards import encode_shards
from remargin.retrieval.vectors import Vectors
from remargin.study.results import TEST, Result
from remargin.training.streaming.journal import StreamJournal
from remargin.training.streaming.sources import open_source

from .fuzzing.layouts import sparse_index
from .fuzzing.stores import DOCUMENTS, QUERIES, _vectors
from .fuzzing.world import World, silent

FLIPS = int(os.environ.get("REMARGIN_FLIPS", "30"))  # in each file
CUTS = 5


class Artefact(NamedTuple):
    """A folder, what is read of it, and whether all that is damaged there is made again."""

    folder: Path
    read: Callable[[Path], Any]
    heals: bool = False


def store(world: World) -> Artefact:
    texts = list(DOCUMENTS.values())
    TokenStore.write(world.root / "damaged-tokens", list(DOCUMENTS), texts, world.encoder.tokenizer, 12)

    def read(folder: Path) -> Any:
        found = TokenStore(folder)
        found.verify()
        return found.take(range(len(found))), list(found.ids), found.ids.rows(list(DOCUMENTS)).tolist(), found.header

    return Artefact(world.root / "damaged-tokens", read)


def triplets(world: World) -> Artefact:
    Triplets.write(world.root / "damaged-triplets", [[0, 5, 3], [1, 2, 4]], [[9.0, 1.5], [7.0, 2.0]])

    def read(folder: Path) -> Any:
        found = Triplets(folder)
        found.verify()
        return found.take(range(len(found))), found.header

    return Artefact(world.root / "damaged-triplets", read)


def vectors(world: World) -> Artefact:
    _vectors(world.encoder, world.root / "damaged-vectors")

    def read(folder: Path) -> Any:
        found = Vectors.load(folder)
        return found.made, np.asarray(found.matrix).tolist(), list(found.ids), found.hashes.tolist()

    return Artefact(world.root / "damaged-vectors", read)


def _index(world: World, name: str, settings: BackendSettings, hybrid: HybridSettings | None = None) -> Artefact:
    folder = world.root / f"damaged-{name}"
    texts = [Text(*item) for item in DOCUMENTS.items()]
    build_index(_vectors(world.encoder, world.root / f"{name}-v"), folder, settings, hybrid=hybrid, texts=texts)

    def read(folder: Path) -> Any:
        opened = open_parts(folder, world.encoder)
        words = None if opened.bm25 is None else opened.bm25.search(QUERIES, 8).rankings
        shown = None if opened.texts is None else opened.texts.of(list(DOCUMENTS))
        return opened.dense.search(QUERIES, 8).rankings, words, shown, opened.hybrid

    return Artefact(folder, read)


def index_exact(world: World) -> Artefact:
    return _index(world, "exact", BackendSettings())


def index_int8(world: World) -> Artefact:
    return _index(world, "int8", BackendSettings(coding="int8"))


def index_binary(world: World) -> Artefact:
    return _index(world, "binary", BackendSettings(coding="binary", over_fetch=4))


def index_milvus(world: World) -> Artefact:
    """Our own files; the server keeps its own."""
    pytest.importorskip("milvus_lite")
    uri = str(world.root / "milvus.db")
    return _index(world, "milvus", BackendSettings("milvus", factory="FLAT", uri=uri, over_fetch=1))


def index_sparse(world: World) -> Artefact:
    index = sparse_index(world)
    return Artefact(index.folder, lambda folder: load_index(folder).search(QUERIES, 8).rankings)


def index_hybrid(world: World) -> Artefact:
    return _index(world, "hybrid", BackendSettings(), HybridSettings(0.5))


def index_faiss(world: World) -> Artefact:
    pytest.importorskip("faiss")
    return _index(world, "faiss", BackendSettings("faiss", factory="Flat"))


def index_bm25(world: World) -> Artefact:
    BM25(DOCUMENTS).save(world.root / "damaged-bm25", data="some", texts=DOCUMENTS.values())

    def read(folder: Path) -> Any:
        found = BM25.load(folder)
        assert found.texts is not None
        return found.search(QUERIES, 8).rankings, found.texts.of(list(DOCUMENTS))

    return Artefact(world.root / "damaged-bm25", read)


def checkpoint(world: World) -> Artefact:
    folder, model = world.folder("damaged-checkpoint"), nn.Linear(3, 2)
    optimiser = torch.optim.AdamW(model.parameters())
    model(torch.ones(3)).sum().backward()
    optimiser.step()
    fixed = {"batch_size": 4, "loss": "MarginLoss()"}
    save_checkpoint(
        folder / "checkpoint", Progress(2, 8, 0.5, 1, 4, 1, [], 1.5), {"model": model}, optimiser, {}, fixed
    )

    def read(folder: Path) -> Any:
        fresh = nn.Linear(3, 2)
        fresh_optimiser = torch.optim.AdamW(fresh.parameters())
        progress, _ = load_checkpoint(folder / "checkpoint", {"model": fresh}, fresh_optimiser, fixed)
        return progress, fresh.state_dict(), fresh_optimiser.state_dict()

    return Artefact(folder, read)


def model(world: World) -> Artefact:
    """As `verify` sees it; to load one it need not be as it was written."""
    BiEncoder.from_pretrained(world.model, "cls+linear").save(world.root / "damaged-model")

    def read(folder: Path) -> Any:
        verify_model(folder, "use another")
        return BiEncoder.from_pretrained(folder, device="cpu").encode_queries(["a text"]).tolist()

    return Artefact(world.root / "damaged-model", read)


def prepared(world: World) -> Artefact:
    out = world.root / "damaged-prepared"
    settings = world.encoder.text_settings
    prepare(world.beir, world.model, out, query_length=settings.query_length, document_length=settings.document_length)

    def read(folder: Path) -> Any:
        for kind in ("documents", "queries"):
            TokenStore(folder / "tokens" / kind).verify()
        found = Collection.load(folder, "test")
        return found.documents, found.queries, found.qrels

    return Artefact(out, read)


def run_file(world: World) -> Artefact:
    folder = world.folder("damaged-run")
    Run.of({f"q{i}": {f"d{j}": i + 0.37 * j for j in range(20)} for i in range(9)}).save(folder / "run.trec.gz")
    return Artefact(folder, lambda folder: Run.load(folder / "run.trec.gz").rankings)


def stream_journal(world: World) -> Artefact:
    """What a stream had taken when it was stopped: lines that a cut loses are taken again from where they came."""
    lines, folder = world.root / "damaged-lines.jsonl", world.folder("damaged-stream")
    rows = [{"query": f"q {i}", "positive": "a text", "negative": f"text {i}"} for i in range(9)]
    lines.write_text("".join(json.dumps(row) + "\n" for row in [*rows, {"query": "neither"}]))

    def read(folder: Path) -> Any:
        work = world.root / "damaged-stream-work"
        shutil.copytree(folder, work)
        try:
            journal = StreamJournal(work)
            journal.add(open_source(str(lines), journal.positions, journal.sums, silent, False).take(99, closing=True))
            return list(journal.read_on(0)), journal.positions, (work / "rejects.jsonl").read_text()
        finally:
            shutil.rmtree(work)

    journal = StreamJournal(folder)
    journal.add(open_source(str(lines), {}, journal.sums, silent, False).take(99, closing=True))
    (folder / "rejects.jsonl").unlink()  # for people; written again
    return Artefact(folder, read)


class Stops(InThisProcess):
    """Ends, like one who is killed, when a first piece of the work is done."""

    def run(self, start: Any, items: Any) -> Iterator[Any]:
        yield next(iter(super().run(start, items)))
        raise KeyboardInterrupt


def shards(world: World) -> Artefact:
    """Of vectors, in the hidden folder that work goes on with: those that are damaged are encoded again."""
    folder, texts = world.folder("damaged-shards"), [Text(*item) for item in DOCUMENTS.items()]

    def encoded(folder: Path, executor: InThisProcess) -> Vectors:
        return encode_shards(world.encoder, texts, folder / "vectors", executor, size=4, at_once=4)

    with pytest.raises(KeyboardInterrupt):
        encoded(folder, Stops())

    def read(folder: Path) -> Any:
        work = world.root / "damaged-shards-work"
        shutil.copytree(folder, work)
        try:
            found = encoded(work, InThisProcess())
            return np.asarray(found.matrix).tolist(), list(found.ids), found.hashes.tolist()
        finally:
            shutil.rmtree(work)

    return Artefact(folder, read, heals=True)


def section(world: World) -> Artefact:
    folder = world.folder("damaged-section")
    table = Table("Means", ["system", "a"], [Block("", [[Cell("BM25"), number(0.66)]])])
    Section("variants", "A title", ["A summary."], [table]).save(folder)
    for path in folder.iterdir():  # the others are drawn from it
        if path.name != "section.json":
            path.unlink()
    return Artefact(folder, lambda folder: page_text([Section.load(folder)], "a page"))


def result(world: World) -> Artefact:
    run = sorted(world.study.glob("runs/tiny-distributed*/zero-shot/*"))[0].parents[1]
    folder = world.folder("damaged-result")
    shutil.copytree(run, folder / "run", ignore=shutil.ignore_patterns("best", "last", "model", "checkpoint", "data"))

    def read(folder: Path) -> Any:
        found = Result.load(folder / "run", None)
        if found is None:
            raise InputError("not there", file=folder)
        return found.dev, found.spec, found.test() if found.scores.get(TEST) else None

    return Artefact(folder, read)


ARTEFACTS = [
    store, triplets, vectors, index_exact, index_int8, index_binary, index_hybrid, index_faiss, index_milvus,
    index_bm25, index_sparse, checkpoint, model, prepared, run_file, stream_journal, shards, section, result,
]  # fmt: skip


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, tiny_model: Callable[..., Path]) -> Iterator[World]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield World(tmp_path_factory.mktemp("world"), tiny_model())


def damages(content: bytes, rng: random.Random) -> Iterator[tuple[str, bytes]]:
    for bit in rng.sample(range(8 * len(content)), min(FLIPS, 8 * len(content))):
        changed = bytearray(content)
        changed[bit // 8] ^= 1 << bit % 8
        yield f"bit {bit} flipped", bytes(changed)
    for end in rng.sample(range(len(content)), min(CUTS, len(content))):
        yield f"cut at {end} of {len(content)}", content[:end]


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("make", ARTEFACTS, ids=lambda make: make.__name__)
def test_damage_is_named_or_makes_no_difference(
    make: Callable[[World], Artefact], world: World, tmp_path: Path
) -> None:
    artefact, rng = make(world), random.Random(make.__name__)
    copy = tmp_path / "copy"
    shutil.copytree(artefact.folder, copy)
    expected, wrong = str(artefact.read(copy)), []
    named = harmless = 0
    for path in sorted(path for path in artefact.folder.rglob("*") if path.is_file()):
        name = path.relative_to(artefact.folder)
        content = path.read_bytes()
        for what, damaged in damages(content, rng):
            (copy / name).write_bytes(damaged)
            try:
                if str(artefact.read(copy)) != expected:
                    wrong.append(f"{name}: {what}: used as if nothing had happened")
                harmless += 1
            except InputError as error:
                named += 1
                if error.file is None:
                    wrong.append(f"{name}: {what}: no file in {error}")
            (copy / name).write_bytes(content)
    print(f"{make.__name__}: {named:,} damages named, {harmless:,} without a difference")
    assert not wrong, "\n".join(wrong[:20])
    assert named or artefact.heals


def test_a_plain_run_file_that_is_cut_off_in_a_line_is_named(tmp_path: Path) -> None:
    """Behind the score stands the tag, whose end means nothing: no part of a score is ever taken for all of it."""
    whole, path = Run.of({f"q{i}": {f"d{j}": i + 0.37 * j for j in range(3)} for i in range(3)}), tmp_path / "run.trec"
    whole.save(path)
    content, named = path.read_bytes(), 0
    for end in range(1, len(content)):
        path.write_bytes(content[:end])
        lines = content[:end].decode().splitlines()
        fields = [line.split() for line in lines]
        if len(fields[-1]) < 6:
            named += 1
            with pytest.raises(InputError, match=rf"run\.trec:{len(lines)}: "):
                Run.load(path)
        else:
            scores = {(query, id): whole.rankings[query][id] for query, _, id, *_ in fields}
            assert {(q, id): s for q, found in Run.load(path).rankings.items() for id, s in found.items()} == scores
    assert named > len(content) / 2
