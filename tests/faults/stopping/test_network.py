"""No verb reaches for the network, unless it was given a name that only the network knows.

Attempts are seen, and fail, where Python asks for a connection. Libraries in other languages are not seen, so the whole
runs without a network at all where that can be had: in a network namespace of its own, as root can make.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from .harness import NETWORK, Outcome, Server
from .verbs import VERBS, make_older, make_work

# What is asked for by name: models and data sets of the Hugging Face hub, data sets of ir_datasets.
ASKED_FOR = {
    "a model": "search --data data --model somebody/something --out out/run.trec",
    "a model to train": "fit --data data --model somebody/something --out out/run",
    "a data set": "index --index bm25 --data datasets:somebody/something --out out/index",
}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    started = Server(watch_network=True)
    yield started
    started.close()


def attempts(outcome: Outcome) -> list[str]:
    return [line for line in outcome.operations if line.startswith(NETWORK)]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", VERBS)
def test_no_verb_reaches_for_the_network(name: str, inputs: Path, server: Server, tmp_path: Path) -> None:
    make_work(tmp_path / "work", inputs, VERBS[name])
    make_older(tmp_path / "work", VERBS[name], server)
    outcome = server.run(tmp_path / "work", VERBS[name].words)
    assert outcome.code == 0, outcome.stderr
    assert attempts(outcome) == []


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("what", ASKED_FOR)
def test_what_was_asked_for_by_name_does(what: str, inputs: Path, server: Server, tmp_path: Path) -> None:
    """Else the test above would see nothing whatever happened. Without a network, it is one clear line."""
    shutil.copytree(inputs / "data", tmp_path / "data")
    outcome = server.run(tmp_path, ASKED_FOR[what].split())
    assert attempts(outcome)
    assert outcome.code == 2
    assert "Traceback" not in outcome.stderr
    assert "hub" in outcome.stderr.splitlines()[-1]


WITHOUT = """
import sys
sys.argv = ["remargin", *sys.argv[1:]]
from remargin.cli import main
main()
"""


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ["fit", "index --hybrid", "search", "demo"])
def test_it_works_where_there_is_no_network(name: str, inputs: Path, server: Server, tmp_path: Path) -> None:
    if subprocess.run(["unshare", "--net", "true"], capture_output=True).returncode:
        pytest.skip("no network namespace can be made here; root can")
    verb = VERBS[name]
    make_work(tmp_path / "work", inputs, verb)
    command = ["unshare", "--net", sys.executable, "-c", WITHOUT, *verb.words]
    done = subprocess.run(command, cwd=tmp_path / "work", capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
