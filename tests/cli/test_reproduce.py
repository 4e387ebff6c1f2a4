"""benchmark, reproduce and sweep as a user runs them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from remargin.cli import app
from remargin.study.plan import Plan


@pytest.fixture
def beir(tmp_path: Path) -> Path:
    folder = tmp_path / "scifact"
    (folder / "qrels").mkdir(parents=True)
    for name, letter in (("corpus", "d"), ("queries", "q")):
        lines = [json.dumps({"_id": f"{letter}{i}", "text": f"text {i} of value{i}"}) + "\n" for i in range(6)]
        (folder / f"{name}.jsonl").write_text("".join(lines))
    (folder / "qrels" / "test.tsv").write_text("".join(f"q{i}\td{i}\t1\n" for i in range(6)))
    return folder


def test_benchmark_prints_the_table_and_writes_it(remargin: Any, tiny_encoder: Any, beir: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = ["benchmark", "--model", f"before={tiny_encoder()}", f"after={tiny_encoder('distilbert')}"]
    result = remargin(*command, "--data", beir, f"same={beir}", "--out", out, "--no-bm25")
    assert result.returncode == 0, result.stderr
    lines = [line.split() for line in result.stdout.splitlines()]
    assert lines[2] == ["system", "SCF", "same", "in-domain", "mean"]
    assert any(line[:2] == ["TAS-B", "0.643"] for line in lines)
    assert [line[0] for line in lines if line and line[0] in ("before", "after", "BM25")][:3] == [
        "BM25",
        "before",
        "after",
    ]
    assert result.stdout.endswith(f"wrote {out}\n")
    assert result.stderr.count("nDCG@10") == 4
    assert "published (BEIR leaderboard)" in (out / "tables.md").read_text()
    again = remargin(*command, "--data", beir, f"same={beir}", "--out", out, "--no-bm25")
    assert (again.stdout, again.stderr) == (result.stdout, "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "./nowhere", "--data", "BEIR"], "nowhere: no such folder"),
        (["--model", "a=x", "a=y", "--data", "BEIR"], "two models are called 'a'"),
        (["--model", "x/m", "y/m", "--data", "BEIR"], "two models are called 'm'"),
        (["--model", "BM25=x", "--data", "BEIR"], "two systems are called 'BM25'"),
        (["--model", "best=x", "--data", "BEIR"], "a system cannot be called 'best'"),
        (["--model", "a=", "--data", "BEIR"], "nothing after the ="),
        (["--data", "BEIR", "nowhere"], "nowhere: no such folder"),
        (["--data", "BEIR", "BEIR"], "two collections are called 'SCF'"),
        (["--data", "BEIR", "--in-domain", "BEIR"], "two collections are called 'SCF'"),
        (["--data", "BEIR", "--no-bm25"], "no system to measure"),
        (["--data", "BEIR", "--reference", "ColBERT"], "1 columns in common with ColBERT"),
        (["--data", "BEIR", "--reference", "GPT"], "no published row 'GPT'"),
        (["--data", "BEIR", "--measure", "nDCG@ten"], "unknown measure"),
        (["--data", "BEIR", "--bound", "-1"], "a bound of -1"),
    ],
)
def test_bad_input_is_one_line(remargin: Any, beir: Path, tmp_path: Path, arguments: list[str], message: str) -> None:
    given = [str(beir) if argument == "BEIR" else argument for argument in arguments]
    result = remargin("benchmark", *given, "--out", tmp_path / "out")
    assert result.returncode == 2
    assert result.stdout == ""
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_only_options_that_the_verb_has_are_advised(remargin: Any, tiny_model: Any, beir: Path, tmp_path: Path) -> None:
    queries = (beir / "queries.jsonl").read_text()
    (beir / "queries.jsonl").write_text(queries + queries)
    for split in ("train", "dev"):
        (beir / "qrels" / f"{split}.tsv").write_text((beir / "qrels" / "test.tsv").read_text())
    given = ("--data", beir, "--model", tiny_model(), "--out")
    for verb in (["reproduce", "target-evolution", "--epoch", "8", "--batch-size", "4"], ["sweep"]):
        result = remargin(*verb, *given, tmp_path / "study")
        assert result.returncode == 2
        assert result.stderr.endswith("query id appears a second time; correct it\n"), result.stderr
    result = remargin("fit", *given, tmp_path / "run", "--steps", "1")
    assert result.stderr.endswith("correct it, or skip bad input (--skip-bad)\n")


def test_help_of_reproduce_shows_the_defaults_of_the_plan() -> None:
    command = get_command(app).commands["reproduce"]  # type: ignore[attr-defined]
    shown = {option.name: getattr(option, "show_default", None) for option in command.params}
    plan = Plan()
    for name in (
        "sweep_triplets",
        "batch_size",
        "other_batch_size",
        "validate_every",
        "validation_queries",
        "relevant",
    ):
        assert shown[name] == f"{getattr(plan, name):,}"
    assert shown["epoch"] == f"{plan.triplets:,}, an epoch of MS MARCO"
    assert shown["patience"] == f"{plan.patience}; no early stopping with --budget"
    assert shown["preset"] == f"{plan.preset}; default with --budget"
    for name in ("seeds", "temperatures", "teacher_scales"):
        assert shown[name] == ", ".join(f"{value:g}" for value in getattr(plan, name))
    assert (shown["margins"], plan.margins) == ("0, 0.1, ... 1", tuple(i / 10 for i in range(11)))
    assert plan.scaled(1000).patience is None
