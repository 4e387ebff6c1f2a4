"""Ctrl-C: one line that is true for the verb, whenever it comes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from remargin.cli.interrupts import SAME_COMMAND, how_to_continue

# The program, to which Ctrl-C comes when it imports a module.
AT_IMPORT = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a test may run where it is ignored
import remargin.__main__ as program
class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupts())
sys.argv = ["remargin", *{arguments!r}]
program.main()
"""


@pytest.mark.parametrize("module", ["remargin.cli", "typer", "torch", "transformers", "remargin.training.fitting"])
def test_while_packages_are_loaded_it_ends_without_a_traceback(module: str, tmp_path: Path, tiny_model: Any) -> None:
    arguments = ["fit", "--data", "docstrings:json", "--model", str(tiny_model()), "--out", str(tmp_path / "run")]
    code = AT_IMPORT.format(module=module, arguments=arguments)
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    lines = ended.stderr.strip().splitlines()
    assert ended.returncode == 130
    assert lines in ([], ["interrupted"], ["interrupted; nothing was written"])
    assert not (tmp_path / "run").exists()


def test_it_says_how_to_continue(tmp_path: Path) -> None:
    run = tmp_path / "a run"
    assert how_to_continue("fit", {"out": run}) == "interrupted; nothing was written"
    run.mkdir()
    (run / "config.yaml").touch()
    command = f"interrupted; continue with: remargin fit --resume '{run}'"
    assert how_to_continue("fit", {"out": run, "resume": None}) == command
    assert how_to_continue("fit", {"out": None, "resume": str(run)}) == command
    assert how_to_continue("fit", {"out": run, "resume": ""}) == command
    assert how_to_continue("demo", {"out": run}) == command
    for verb in ("search", "evaluate", "compare", "ask", "update", "info"):
        assert how_to_continue(verb, {"out": run}) == "interrupted; nothing was written"
    assert how_to_continue("index", {"model": "m", "vectors": None}).endswith("the same command continues, or says how")
    assert how_to_continue("index", {"model": None, "index": "bm25"}).endswith("nothing was written")
    for verb in SAME_COMMAND:
        assert how_to_continue(verb, {"out": run}) == "interrupted; the same command continues"


@pytest.mark.parametrize(
    ("verb", "home", "words"),
    [("mine", "remargin.mining.negatives.mine", "the same command continues"),
     ("search", "remargin.retrieval.searching.search", "nothing was written")],
)  # fmt: skip
def test_a_verb_that_is_interrupted_says_so_in_one_line(
    remargin: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, verb: str, home: str, words: str
) -> None:
    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(home, stop)
    result = remargin(verb, "--data", "x", "--out", "y")
    assert (result.returncode, result.stdout, result.stderr) == (130, "", f"\ninterrupted; {words}\n")
