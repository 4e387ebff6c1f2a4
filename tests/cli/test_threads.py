"""CPU threads: how many, and how they wait for each other."""

from __future__ import annotations

import csv
import itertools
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import pytest
import torch
from typer.main import get_command

from remargin.cli import app

THREADS = ("OMP_NUM_THREADS", "RAYON_NUM_THREADS", "OMP_WAIT_POLICY")


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Brings back what the command line changes."""
    before = torch.get_num_threads()
    for name in THREADS:
        monkeypatch.setenv(name, os.environ.get(name, ""))
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("environment")
def test_threads_are_set_where_they_are_read(remargin: Any, tmp_path: Path) -> None:
    for threads in ("2", "1"):
        out = tmp_path / f"{threads}.tsv"
        assert remargin("mine", "--data", "docstrings:json", "--out", out, "--threads", threads).returncode == 0
        assert torch.get_num_threads() == int(os.environ["OMP_NUM_THREADS"]) == int(threads)
    refused = remargin("mine", "--data", "docstrings:json", "--out", tmp_path / "none", "--threads", "0")
    assert refused.returncode == 2


def test_every_verb_that_computes_has_the_option() -> None:
    verbs = get_command(app).commands  # type: ignore[attr-defined]
    having = {name for name, verb in verbs.items() if any("--threads" in p.opts for p in verb.params)}
    computing = "demo prepare mine teach fit encode index update search rerank sweep blend"
    assert having >= {*computing.split()}


def test_threads_that_wait_do_not_spin_unless_that_is_asked_for() -> None:
    """OpenMP reads its environment when it is loaded with PyTorch, which the command line has not imported yet."""
    program = (
        "import os, sys; from remargin.cli import main; assert 'torch' not in sys.modules\n"
        "sys.argv = ['remargin', '--version']\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "assert 'torch' not in sys.modules; print(os.environ['OMP_WAIT_POLICY'])"
    )
    for given, expected in ((None, "PASSIVE"), ("ACTIVE", "ACTIVE")):
        inherited = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
        environment = inherited if given is None else {**inherited, "OMP_WAIT_POLICY": given}
        found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
        assert found.stdout.split()[-1] == expected, found.stderr


@contextmanager
def busy_neighbour() -> Iterator[None]:
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="needs two cores")
def test_two_threads_beside_a_busy_neighbour_are_not_slower_than_one(minilm: Path, tmp_path: Path) -> None:
    """With threads that spin while they wait, two of them took up to eight times as long as one."""
    rng, words = random.Random(0), ["margin", "query", "value", "token", "list", "of", "the", "a", "document", "text"]
    texts = [" ".join(rng.choices(words, k=60)) for _ in range(400)]
    pairs = itertools.pairwise(texts)
    rows = [{"query": " ".join(rng.choices(words, k=8)), "positive": one, "negative": other} for one, other in pairs]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    here = [sys.executable, "-m", "remargin"]
    clean = {name: value for name, value in os.environ.items() if name not in THREADS}
    prepare = ["prepare", "--triplets", tmp_path / "t.jsonl", "--model", minilm, "--out", tmp_path / "data"]
    subprocess.run([*here, *map(str, prepare)], check=True, capture_output=True, env=clean)

    def speed(threads: int, turn: int) -> float:
        out = tmp_path / f"{threads}-{turn}"
        fit = ["fit", "--data", tmp_path / "data", "--model", minilm, "--out", out, "--threads", threads]
        fit += ["--steps", 8, "--batch-size", 16, "--log-every", 1, "--save-every", 100]
        subprocess.run([*here, *map(str, fit)], check=True, capture_output=True, env=clean)
        with open(out / "metrics.csv", newline="") as file:
            return median([float(row["triplets_per_second"]) for row in csv.DictReader(file)][1:])

    with busy_neighbour():
        best = {threads: max(speed(threads, turn) for turn in range(2)) for threads in (1, 2)}
    print(f"two threads beside a busy neighbour: {best[2] / best[1]:.2f} times as fast as one")
    assert best[2] > 0.8 * best[1]
