"""reproduce, sweep and inspect from the command line; and the configurations."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from typer.testing import CliRunner

from remargin.cli import app
from remargin.errors import InputError
from remargin.paper.claims.table import CLAIMS
from remargin.paper.experiments import EVERY, EXPERIMENTS
from remargin.paper.variants import findings as variants
from remargin.reports.sections import Section
from remargin.study.results import Results

from ..small_study import DATA

CONFIGS = sorted((Path(__file__).parents[2] / "configs" / "paper").glob("*.yaml"))
SMALL = [
    *("--data", DATA, "--preset", "default", "--batch-size", "16", "--other-batch-size", "8", "--rates", "0.001"),
    *("0.01", "--seeds", "0", "1", "--margins", "0", "1", "--temperatures", "0.05", "0.2", "--epoch", "64"),
    *("--sweep-triplets", "32", "--validate-every", "32", "--validation-queries", "20", "--patience", "99"),
]


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_every_configuration_is_for_a_verb_and_knows_its_options(path: Path) -> None:
    first = path.read_text().splitlines()[0]
    verb = first.split()[3]
    assert first.startswith(f"# remargin reproduce {verb} --config configs/paper/{path.name}")
    command = typer.main.get_command(app).commands["reproduce"]  # type: ignore[attr-defined]
    assert verb in (*EVERY, "all")
    known = {option.name for option in command.params}
    assert {name.replace("-", "_") for name in yaml.safe_load(path.read_text())} <= known
    if path.stem not in ("all", "small", "regime"):
        assert path.stem.removesuffix("-small") == verb


def test_there_is_a_configuration_for_every_experiment() -> None:
    assert {*EXPERIMENTS, "all"} - {"loss-geometry"} <= {path.stem for path in CONFIGS}


def test_the_help_names_every_experiment() -> None:
    help = " ".join(run("reproduce", "--help").replace("│", " ").split())
    assert all(name in help for name in (*EVERY, "claims", "all"))


def test_loss_geometry_needs_no_data(tmp_path: Path) -> None:
    assert "wrote" in run("reproduce", "loss-geometry", "--out", str(tmp_path))
    assert Section.load(tmp_path / "loss-geometry").figures
    assert "<svg" in (tmp_path / "report.html").read_text()


def test_an_experiment_and_its_budget(tiny_model: Any, tmp_path: Path) -> None:
    arguments = ["reproduce", "target-evolution", *SMALL, "--model", f"tiny={tiny_model()}", "--out", str(tmp_path)]
    output = run(*arguments, "--budget", "32")
    assert "triplets: 32 instead of 64" in output
    assert "patience" not in output  # it was typed
    assert f"Of {len(CLAIMS)} claims of the paper" in output
    assert output.count("cannot be told") == 1  # in the summary, and not for each claim
    assert "cannot be told" in (tmp_path / "report.html").read_text()
    assert (tmp_path / "report.html").exists()
    assert run(*arguments, "--budget", "32")  # goes on where it was: all is there
    short = ("reproduce", "target-evolution", "--data", DATA, "--model", f"tiny={tiny_model()}", "--out", str(tmp_path))
    assert "goes on as it was planned" in run(*short)
    assert "At the end" in run("reproduce", "target-evolution", "--out", str(tmp_path))  # from its files alone
    with pytest.raises(InputError, match="run `remargin reproduce` with --data again"):
        CliRunner().invoke(app, ["reproduce", "variants", "--out", str(tmp_path)], catch_exceptions=False)
    run("reproduce", "loss-geometry", "--out", str(tmp_path))
    page = (tmp_path / "report.html").read_text()  # has both
    assert page.index("Loss geometry") < page.index("Target evolution")
    with pytest.raises(InputError, match="is of another study: triplets was 32, is 64 now"):
        CliRunner().invoke(app, arguments, catch_exceptions=False)


def test_a_budget_scales_what_a_configuration_says_and_keeps_what_is_typed(tiny_model: Any, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("patience: 7\nmargins: [0, 0.2, 0.4, 0.6, 1]\n")
    output = run(
        *("reproduce", "memory", "--config", str(tmp_path / "c.yaml"), "--data", DATA, "--preset", "default"),
        *("--model", f"tiny={tiny_model()}", "--out", str(tmp_path / "out"), "--budget", "64", "--patience", "3"),
    )
    assert "margins: 0 0.4 1 instead of 0 0.2 0.4 0.6 1" in output
    assert "patience" not in output


def test_table_5_of_a_study_is_made_again_from_its_files(study_folder: Path, tmp_path: Path) -> None:
    shutil.copytree(study_folder, tmp_path / "study", ignore=shutil.ignore_patterns("work"))
    shutil.rmtree(tmp_path / "study" / "zero-shot")
    assert "distributed, early stopping" in run("reproduce", "zero-shot", "--out", str(tmp_path / "study"))
    assert Section.load(tmp_path / "study" / "zero-shot") == Section.load(study_folder / "zero-shot")


def test_verdicts_alone_are_made_from_the_numbers_of_a_study(study_folder: Path, tmp_path: Path) -> None:
    shutil.copytree(study_folder, tmp_path / "study", ignore=shutil.ignore_patterns("work"))
    shutil.rmtree(tmp_path / "study" / "claims")
    assert f"Of {len(CLAIMS)} claims of the paper" in run("reproduce", "claims", "--out", str(tmp_path / "study"))
    assert Section.load(tmp_path / "study" / "claims") == Section.load(study_folder / "claims")


def test_table_5_is_trained_as_the_others_are(tiny_model: Any, tmp_path: Path) -> None:
    arguments = ("--model", f"tiny={tiny_model()}", "--zero-shot", "other=docstrings:email", "--out", str(tmp_path))
    least = ("--rates", "0.01", "--margins", "1", "--temperatures", "0.05", "--epoch", "32", "--sweep-triplets", "16")
    usual = ("--data", DATA, "--preset", "default", "--batch-size", "16", "--validate-every", "32", *least)
    output = run("reproduce", "zero-shot", *usual, *arguments)
    assert "tiny, trained on json,csv,string,textwrap" in output
    table, *_ = Section.load(tmp_path / "zero-shot").tables
    assert table.header == ["system", "other", "in-domain", "mean"]
    assert "distributed, early stopping" in [row[0].text for row in table.blocks[-1].rows]


def test_bad_input(tiny_model: Any, tmp_path: Path) -> None:
    for arguments, problem in (
        (["reproduce", "memory", "--data", DATA, "--out", str(tmp_path)], "no encoder to start from"),
        (["reproduce", "variants", "--out", str(tmp_path), "--seeds", "3"], "there is no study; begin one"),
        (["reproduce", "zero-shot", "--out", str(tmp_path)], "there is no study; begin one"),
        (["reproduce", "claims", "--out", str(tmp_path)], "there is no study; begin one"),
        (["reproduce", "zero-shot", "--data", DATA, "--model", "x", "--out", str(tmp_path)], "no other collections"),
        (
            ["reproduce", "zero-shot", "--model", str(tiny_model()), "--out", str(tmp_path), "--budget", "5"],
            "there is no study; begin one",
        ),
        (["reproduce", "nothing", "--out", str(tmp_path)], "unknown experiment 'nothing'; use loss-geometry, "),
        (["sweep", "--data", DATA, "--model", "x", "--out", str(tmp_path), "--parameter", "size"], "no sweep over"),
        (["sweep", "--data", DATA, "--model", "x", "--out", str(tmp_path), "--run-triplets", "0"], "triplets is 0"),
    ):
        with pytest.raises(InputError, match=problem):
            CliRunner().invoke(app, arguments, catch_exceptions=False)


def test_bad_input_for_a_study_that_is_there(study_folder: Path, tiny_model: Any, tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    begun.mkdir()
    shutil.copy(study_folder / "study.json", begun)
    for arguments, problem in (
        (["variants", "--out", str(study_folder), "--seeds", "3"], "--seeds does nothing for a study that is"),
        (["variants", "--out", str(study_folder), "--model", "x"], "--model does nothing for a study that is"),
        (["zero-shot", "--out", str(study_folder), "--zero-shot", "x"], "--zero-shot does nothing for a study that is"),
        (["claims", "--out", str(begun)], "has no experiments yet; make some"),
    ):
        with pytest.raises(InputError, match=problem):
            CliRunner().invoke(app, ["reproduce", *arguments], catch_exceptions=False)
    with pytest.raises(InputError, match="is a study; choose another place"):
        CliRunner().invoke(app, ["benchmark", "--data", "x", "--out", str(study_folder)], catch_exceptions=False)


def test_a_small_budget_takes_a_learning_rate_for_it(tiny_model: Any, tmp_path: Path) -> None:
    arguments = ("--data", DATA, "--model", f"tiny={tiny_model()}", "--budget", "64")
    output = run("reproduce", "memory", *arguments, "--out", str(tmp_path / "usual"))
    assert "preset: default instead of paper" in output
    assert "the learning rate is for" not in output
    output = run("reproduce", "memory", *arguments, "--preset", "paper", "--out", str(tmp_path / "paper"))
    assert "preset" not in output.partition("the learning rate is for")[0]
    assert "for a small budget take --preset default, or --rates" in output


def test_nothing_is_written_among_other_files(tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text("mine")
    with pytest.raises(InputError, match="has other files in it; choose another place"):
        CliRunner().invoke(app, ["reproduce", "loss-geometry", "--out", str(tmp_path)], catch_exceptions=False)
    assert (tmp_path / "report.html").read_text() == "mine"


def test_sweep(tiny_model: Any, tmp_path: Path) -> None:
    output = run(
        *("sweep", "--data", DATA, "--model", str(tiny_model()), "--out", str(tmp_path), "--values", "0.2", "0.8"),
        *("--run-triplets", "32", "--batch-size", "16"),
    )
    assert "The best margin is 0." in output
    assert "before training" in output
    (folder,) = tmp_path.glob("sweep-*")
    assert folder.name.endswith("-margin")
    (table,) = Section.load(folder).tables
    assert [row[0].value for row in table.blocks[0].rows] == [0.2, 0.8]
    more = ("sweep", "--data", DATA, "--out", str(tmp_path), "--values", "0.2", "0.8", "--run-triplets", "32")
    run(*more, "--batch-size", "16", "--model", str(tiny_model()), "--in-batch")
    run(*more, "--batch-size", "16", "--model", str(tiny_model("distilbert")))
    assert len(list(tmp_path.glob("sweep-*"))) == 3  # nothing took the place of another
    trained = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").glob("*/run.json")}
    run(*more, "--values", "0.5", "--batch-size", "16", "--model", str(tiny_model()))
    assert [row[0].value for row in Section.load(folder).tables[0].blocks[0].rows] == [0.2, 0.8, 0.5]
    assert {path: path.stat().st_mtime_ns for path in trained} == trained  # one more value is one more run
    assert len(list((tmp_path / "runs").glob("*/run.json"))) == len(trained) + 1


@pytest.mark.slow
def test_killed_again_and_again_it_ends_with_the_same_numbers(tiny_model: Any, tmp_path: Path) -> None:
    """kill -9 at any moment: while mining, preparing, training, measuring or writing."""
    arguments = ["reproduce", "variants", *SMALL, "--model", f"tiny={tiny_model()}", "--out"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}

    def start(out: Path) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "remargin", *arguments, str(out)]
        return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    undisturbed = start(tmp_path / "undisturbed")
    rng, kills = random.Random(time.time_ns()), 0
    for _ in range(4):
        process = start(tmp_path / "killed")
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(rng.uniform(5, 12))
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
            kills += 1
        process.wait()
    assert kills >= 2
    assert start(tmp_path / "killed").wait() == 0
    assert undisturbed.wait() == 0
    made = []
    for name in ("killed", "undisturbed"):
        table = variants(Results.open(tmp_path / name)).own["tiny"]
        untimed = {s: {k: v for k, v in vars(row).items() if "seconds" not in k} for s, row in table.rows.items()}
        made.append((untimed, table.no_training, table.bm25))
    assert made[0] == made[1]
