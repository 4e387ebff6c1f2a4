"""The scheduler: declared runs are counted before they are trained, and several at once give the same results."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from remargin.cli import app
from remargin.paper.experiments import EXPERIMENTS
from remargin.study.experiment import declared_by
from remargin.study.results import Results
from remargin.study.scheduler import schedule, work_through
from remargin.study.tasks import Train

from ..small_study import DATA, PLAN, Open

SMALL = replace(PLAN, margins=(0.2, 1.0), temperatures=(0.05,), teacher_scales=(1.0,), seeds=(0,))
FIGURES = declared_by([EXPERIMENTS["static-margins"], EXPERIMENTS["target-evolution"]])


def plain(folder: Path) -> dict[str, Any]:
    """The results of a study without what differs from time to time."""
    return {
        result.spec.key: (result.curve, result.steps, result.best_step)
        for result in Results.open(folder).all_runs()
        if result.spec
    }


def test_all_runs_are_known_in_number_before_any_is_trained(open_study: Open, tmp_path: Path) -> None:
    said: list[str] = []
    study = open_study(tmp_path / "out", plan=SMALL, zero_shot=[], also_test=[], say=said.append)
    before = schedule(study.results, FIGURES)
    # Two learning rates and two margins, without and with in-batch negatives; two learning rates, distributed.
    assert (len(before.done), len(before.ready), len(before.later), before.total) == (0, 6, 4, 10)
    assert before.seconds is None  # nothing was trained yet
    assert all(isinstance(task, Train) and task.settled for task in before.ready)
    assert not (study.out / "runs").exists()
    work_through(study, FIGURES)
    after = schedule(study.results, FIGURES)
    assert (len(after.done), after.ready, after.later, after.seconds) == (before.total, (), (), 0)
    begun = [line for line in said if line.startswith("run ")]
    assert [line.split(":")[0].split(",")[0] for line in begun] == [f"run {i} of 10" for i in range(1, 11)]
    assert "left" not in begun[0]
    assert all(", about 1 minute left: tiny-" in line for line in begun[1:])


def test_several_runs_at_once_give_the_same_results(open_study: Open, tmp_path: Path) -> None:
    for jobs in (1, 2):
        study = open_study(tmp_path / str(jobs), plan=SMALL, zero_shot=[], also_test=[], jobs=jobs)
        with study.lock():
            work_through(study, FIGURES)
    assert len(plain(tmp_path / "1")) == 10
    assert plain(tmp_path / "1") == plain(tmp_path / "2")


def test_a_task_that_fails_ends_the_work_and_keeps_what_is_done(
    open_study: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = open_study(tmp_path / "out", plan=SMALL, zero_shot=[], also_test=[])
    done: list[str] = []

    def fail_second(task: Train, of: Any) -> None:
        if done:
            raise RuntimeError("out of memory")
        done.append(task.key)
        of.run(task.spec)

    monkeypatch.setattr(Train, "do", fail_second)
    with pytest.raises(RuntimeError, match="out of memory"):
        work_through(study, FIGURES)
    assert [task.key for task in schedule(study.results, FIGURES).done] == done


def test_a_run_without_its_backbone_is_not_waited_for(study_folder: Path, open_study: Open, tmp_path: Path) -> None:
    shutil.copytree(study_folder, tmp_path / "s", ignore=shutil.ignore_patterns("work"))
    study = open_study(tmp_path / "s")
    study.backbones.clear()
    for run in sorted((tmp_path / "s" / "runs").glob("tiny-distributed-*"))[:1]:
        shutil.rmtree(run)
    now = schedule(study.results, declared_by(list(EXPERIMENTS.values())))
    assert now.impossible
    assert not now.ready
    work_through(study, declared_by(list(EXPERIMENTS.values())))  # does nothing, and ends


def test_the_plan_is_shown_and_nothing_is_trained(tiny_model: Any, tmp_path: Path) -> None:
    given = ["reproduce", "variants", "--data", DATA, "--model", f"tiny={tiny_model()}", "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(app, [*given, "--budget", "64", "--plan"], catch_exceptions=False)
    assert result.exit_code == 0
    assert "to do  bm25" in result.output
    assert "after dev has chosen  tiny-0-" in result.output
    assert " runs and measurements: " in result.output
    assert not (tmp_path / "out").exists()
