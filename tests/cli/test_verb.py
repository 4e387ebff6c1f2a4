"""--quiet and --json, which every verb has."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer

from remargin.cli import app
from remargin.cli.verb import plain
from remargin.evaluation.runs import Run

VERBS: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Pairs, of which some are for test."""
    file = tmp_path_factory.mktemp("data") / "faq.csv"
    rows = [f"how is number {i} made,number {i} is made of {i} ones" for i in range(60)]
    file.write_text("\n".join(["question,answer", *rows]))
    return f"pairs:{file}"


def test_every_verb_has_both() -> None:
    assert len(VERBS) >= 20
    for verb in VERBS.values():
        names = {option for param in verb.params for option in param.opts}
        assert {"--quiet", "-q", "--json"} <= names


@pytest.fixture
def commands(data: str, tiny_encoder: Any, tmp_path: Path) -> dict[str, list[Any]]:
    """A command of each verb that works in a moment, in an order in which they need each other."""
    model, base = tiny_encoder(positions=256), ["--data", data]
    runs = [tmp_path / "bm25.trec", tmp_path / "dense.trec"]
    small = ["--steps", 1, "--batch-size", 16]
    return {
        "prepare": ["prepare", *base, "--model", model, "--out", tmp_path / "prepared"],
        "mine": ["mine", *base, "--out", tmp_path / "mined.tsv"],
        "fit": ["fit", *base, "--model", model, *small, "--also", data, "--out", tmp_path / "run"],
        "blend": ["blend", model, tmp_path / "run" / "last", "--weight", 0.5, "--out", tmp_path / "half"],
        "encode": ["encode", *base, "--model", model, "--out", tmp_path / "vectors"],
        "index": ["index", *base, "--model", model, "--out", tmp_path / "index"],
        "update": ["update", *base, "--index", tmp_path / "index"],
        "search": ["search", *base, "--index", "bm25", "--out", runs[0]],
        "rerank": ["rerank", *base, "--model", model, "--run", runs[0], "--out", runs[1]],
        "fuse": ["fuse", "--runs", *runs, "--out", tmp_path / "fused.trec"],
        "ask": ["ask", "how is number 3 made", "--index", tmp_path / "index", "--k", 2],
        "evaluate": ["evaluate", *base, "--run", runs[0]],
        "compare": ["compare", *base, "--runs", *runs],
        "inspect": ["inspect", "--data", tmp_path / "run" / "data", "--model", model, "--batch-size", 16],
        "report": ["report", tmp_path / "run", "--out", tmp_path / "page.html"],
        "info": ["info"],
    }


RESULTS = {"ask", "evaluate", "compare", "inspect", "info"}  # are asked for a result on the screen


def test_quiet_prints_the_result_that_was_asked_for_and_nothing_else(
    commands: dict[str, list[Any]], remargin: Callable[..., Any]
) -> None:
    for verb, words in commands.items():
        result = remargin(*words, "--quiet")
        assert (result.returncode, result.stderr) == (0, ""), verb
        assert bool(result.stdout) == (verb in {"fit", *RESULTS}), verb
        if verb == "fit":  # for scripts: MODEL=$(remargin fit --quiet ...)
            assert result.stdout == f"{words[-1] / 'model'}\n"
        assert "wrote" not in result.stdout


def test_json_is_one_object_and_nothing_else(commands: dict[str, list[Any]], remargin: Callable[..., Any]) -> None:
    told: dict[str, Any] = {}
    for verb, words in commands.items():
        result = remargin(*words, "--json")
        assert result.returncode == 0, result.stderr
        told[verb] = json.loads(result.stdout)
        assert isinstance(told[verb], dict)
        assert result.stdout.count("\n") == 1
        assert result.stderr, verb  # what people read
    assert told["prepare"]["documents"] == 60
    assert told["mine"]["triplets"] == told["mine"]["queries"] > 30
    assert Path(told["fit"]["model"]).is_dir()
    assert told["fit"]["steps"] == 1
    assert {"before", "after", "gain"} <= told["fit"]["outcome"]["systems"].keys()
    assert told["blend"]["weight"] == 0.5
    assert told["encode"]["documents"] == told["index"]["documents"] == 60
    assert told["update"]["added"] == 0
    assert told["search"]["queries"] == told["rerank"]["queries"] == len(Run.load(told["search"]["out"]))
    assert [set(answer) for answer in told["ask"]["answers"]] == [{"id", "score", "text"}] * 2
    assert 0 < told["evaluate"]["means"]["nDCG@10"] <= 1
    assert {row["run"] for row in told["compare"]["rows"]} == {"bm25", "dense"}
    assert told["inspect"]["positive"]["text"]
    assert told["report"]["sections"] == 1
    assert told["info"]["versions"]["remargin"]


def test_quiet_and_json_leave_standard_error_to_warnings(remargin: Callable[..., Any]) -> None:
    result = remargin("info", "--json", "-q")
    assert (bool(json.loads(result.stdout)), result.stderr) == (True, "")


def test_errors_stay(remargin: Callable[..., Any]) -> None:
    result = remargin("evaluate", "--data", "nothing", "--run", "none", "--quiet", "--json")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("error: ")


def test_values_become_plain() -> None:
    import numpy as np

    given = {"a": np.float32(0.5), "b": (np.int64(3), float("inf")), "c": {Path("x")}, 4: None}
    assert plain(given) == {"a": 0.5, "b": [3, None], "c": ["x"], "4": None}
