"""On a real Ray cluster of two nodes on this machine, of which one is killed half-way."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from remargin import BiEncoder, encode, mine, teach
from remargin.integrations.ray import RayExecutor
from remargin.mining import negatives
from remargin.model.cross_encoder import CrossEncoder
from remargin.retrieval import encoding
from remargin.teacher import scored_pairs

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'remargin[ray]'")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
STORE = 80 << 20
DOCUMENTS, QUERIES = 1500, 400


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many parts of few texts, so that there is always one under way."""
    monkeypatch.setattr(encoding, "TEXTS_AT_ONCE", 16)
    monkeypatch.setattr(scored_pairs, "PAIRS_AT_ONCE", 10)
    monkeypatch.setattr(negatives, "QUERIES_AT_ONCE", 10)
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture(scope="module")
def collection(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("collection")
    documents = [{"_id": f"d{i}", "title": "", "text": f"text {i} " + "of " * (i % 30)} for i in range(DOCUMENTS)]
    queries = [{"_id": f"q{i}", "text": f"how do margins {i}"} for i in range(QUERIES)]
    for name, rows in (("corpus", documents), ("queries", queries)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "qrels").mkdir()
    lines = "".join(f"q{i}\td{i}\t1\n" for i in range(QUERIES))
    (folder / "qrels" / "train.tsv").write_text("query-id\tcorpus-id\tscore\n" + lines)
    return folder


@pytest.fixture
def cluster() -> Iterator[Any]:
    """A cluster of two nodes with a CPU each."""
    from ray.cluster_utils import Cluster

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    cluster = Cluster()
    try:
        cluster.add_node(num_cpus=1, object_store_memory=STORE, include_dashboard=False)
        cluster.add_node(num_cpus=1, object_store_memory=STORE)
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()


def connect(cluster: Any) -> None:
    ray.init(address=cluster.address, log_to_driver=False, logging_level=logging.ERROR)


@pytest.fixture
def second_node(cluster: Any) -> Callable[[], None]:
    """Kills the second node of a cluster that this process is connected to."""
    connect(cluster)
    return lambda: cluster.remove_node(cluster.list_all_nodes()[1], allow_graceful=False)


class Watched(RayExecutor):
    """Kills a node when some results are there.

    It takes its time, so that both workers have begun by then, and neither is done with everything before the kill.
    """

    def __init__(self, kill: Callable[[], None], after: int) -> None:
        super().__init__(threads=1)
        self.kill, self.after, self.results = kill, after, 0

    def run(self, start: Any, items: Any) -> Iterator[Any]:
        killer = threading.Thread(target=self.kill)
        for result in super().run(start, items):
            self.results += 1
            time.sleep(0.5 if self.results < self.after else 0.1)
            if self.results == self.after:
                killer.start()
            yield result
        if self.results >= self.after:
            killer.join()


def cross_encoder(folder: Path) -> CrossEncoder:
    """One whose scores differ."""
    model, generator = CrossEncoder.from_pretrained(folder), torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in model.model.parameters():
            weight.normal_(0, 0.3, generator=generator)
    return model


def same(one: Path, other: Path) -> bool:
    files = [[(path.name, path.read_bytes()) for path in sorted(folder.iterdir())] for folder in (one, other)]
    return files[0] == files[1]


def test_encoding_gives_the_bytes_of_one_process_when_a_node_is_killed(
    second_node: Callable[[], None],
    collection: Path,
    tiny_encoder: Any,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    model = BiEncoder.from_pretrained(tiny_encoder("bert"), pooling="mean")
    encode(collection, model, tmp_path / "one")
    with Watched(second_node, after=20) as executor:
        encode(collection, model, tmp_path / "two", executor=executor, shard_size=32)
    assert executor.results == -(-DOCUMENTS // 32)
    assert "a worker was lost; others do what it had" in capfd.readouterr().err
    assert same(tmp_path / "one", tmp_path / "two")
    assert {path.name for path in tmp_path.iterdir()} == {"one", "two"}


def test_mining_and_teaching_give_the_same_tables_when_a_node_is_killed(
    second_node: Callable[[], None],
    collection: Path,
    tiny_encoder: Any,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    model = BiEncoder.from_pretrained(tiny_encoder("bert"), pooling="mean")
    how: dict[str, Any] = {"negatives": "model", "model": model, "depth": 30, "bound": 0.99}
    expected = mine(collection, tmp_path / "one.tsv", suspicious=tmp_path / "one.json", **how)
    with RayExecutor(threads=1) as executor:
        mined = mine(collection, tmp_path / "two.tsv", suspicious=tmp_path / "two.json", executor=executor, **how)
    assert mined == expected
    assert (tmp_path / "one.tsv").read_bytes() == (tmp_path / "two.tsv").read_bytes()
    assert (tmp_path / "one.json").read_bytes() == (tmp_path / "two.json").read_bytes()
    teacher = tmp_path / "teacher"
    cross_encoder(tiny_encoder("bert")).save(teacher)
    teach(tmp_path / "one.tsv", tmp_path / "a.tsv", data=collection, model=teacher)
    with Watched(second_node, after=15) as executor:
        taught = teach(tmp_path / "one.tsv", tmp_path / "b.tsv", data=collection, model=teacher, executor=executor)
    assert executor.results == -(-taught.pairs // 10)
    assert "a worker was lost; others do what it had" in capfd.readouterr().err
    assert (tmp_path / "a.tsv").read_bytes() == (tmp_path / "b.tsv").read_bytes()


def test_a_second_run_does_what_the_killed_one_did_not(collection: Path, tiny_encoder: Any, tmp_path: Path) -> None:
    """The command, with a cluster of its own; kill -9 of the driver, after which its workers end by themselves."""
    folder, out = tmp_path / "model", tmp_path / "two"
    BiEncoder.from_pretrained(tiny_encoder("bert"), pooling="mean").save(folder)
    arguments = ["encode", "--data", str(collection), "--model", str(folder), "--out", str(out), "--engine", "ray"]
    program = (
        "from remargin.retrieval import encoding; encoding.TEXTS_AT_ONCE = 16; from remargin.cli import main; main()"
    )
    command = [sys.executable, "-c", program, *arguments, "--threads", "1", "--workers", "2", "--shard-size", "16"]
    process = subprocess.Popen(command, start_new_session=True)
    manifest: list[Path] = []
    for _ in range(3000):
        manifest = list(tmp_path.glob(".two.*/manifest.jsonl"))
        if manifest and len(manifest[0].read_text().splitlines()) >= 10:
            break
        assert process.poll() is None
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    there = len(manifest[0].read_text().splitlines())
    assert 10 <= there < 90
    before = {path: path.stat().st_mtime_ns for path in manifest[0].parent.glob("0*/remargin_vectors.json")}
    second = subprocess.Popen(command, start_new_session=True)
    kept: set[Path] = set()
    while second.poll() is None:
        kept |= {path for path, time_ns in before.items() if path.exists() and path.stat().st_mtime_ns == time_ns}
        time.sleep(0.02)
    assert second.returncode == 0
    assert len(kept) >= there
    encode(collection, folder, tmp_path / "one")
    assert same(tmp_path / "one", out)


def test_a_cluster_that_is_running_is_used_by_its_address_and_left_as_it_was(
    cluster: Any, collection: Path, tiny_encoder: Any, tmp_path: Path
) -> None:
    model = tmp_path / "model"
    BiEncoder.from_pretrained(tiny_encoder("bert"), pooling="mean").save(model)
    for engine, more in (("local", ()), ("ray", ("--ray-address", cluster.address))):
        verb = ("encode", "--data", collection, "--model", model, "--out", tmp_path / engine)
        words = (sys.executable, "-m", "remargin", *verb, "--threads", "1", "--engine", engine, *more)
        done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    assert same(tmp_path / "local", tmp_path / "ray")
    connect(cluster)  # which counts who connects to it: the command, and now this process
    assert int.from_bytes(bytes.fromhex(ray.get_runtime_context().get_job_id()), "little") == 2
    assert sum(node["Alive"] for node in ray.nodes()) == 2
