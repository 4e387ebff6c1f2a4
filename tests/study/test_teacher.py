"""The teacher of a study: it is trained and scores once, and only the study is told of it."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from remargin.paper.running import run_experiments
from remargin.paper.systems import MARGIN_MSE, TEACHERS
from remargin.reports.sections import Section
from remargin.study import teacher, teacher_trials
from remargin.study.results import Results
from remargin.study.systems import CONTRASTIVE, choose
from remargin.teacher import scoring as teaching
from remargin.teacher.scored_pairs import ByModel

from ..small_study import PLAN, Open, silent


def test_killed_after_the_scores_they_are_not_made_again(
    open_study: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said: list[str] = []
    with monkeypatch.context() as killed:

        def stop(*_: Any) -> None:
            raise KeyboardInterrupt

        killed.setattr(teacher, "write_header", stop)
        with pytest.raises(KeyboardInterrupt):
            open_study(tmp_path / "out", say=said.append).training.triplets(taught=True)
    study = open_study(tmp_path / "out", say=said.append)
    before = (study.work / "taught.tsv").stat().st_ino

    def never(*_: Any) -> None:
        raise AssertionError("scored again")

    monkeypatch.setattr(ByModel, "_score", never)
    assert study.training.triplets(taught=True).stat().st_ino == before
    report = teacher.teacher_report(study.out)
    assert report["pairs"] > 0
    assert report["seconds"]["scoring"] > 0
    assert any("used as it is" in line for line in said)
    assert sum("the teacher scores" in line for line in said) == 1
    assert not capsys.readouterr().out


@pytest.mark.parametrize("known", [True, False])
def test_scores_that_come_with_the_triplets_are_the_teachers(
    known: bool, study_folder: Path, open_study: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what they cost, if `teach` made them."""
    scored = study_folder / "work" / "taught.tsv"
    given = Path(shutil.copy(scored, tmp_path / "given.tsv"))
    if known:
        shutil.copy(teaching.report_of(scored), teaching.report_of(given))

    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("a teacher was trained")

    monkeypatch.setattr(teacher_trials, "train_cross_encoder", never)
    plan = replace(PLAN, seeds=(0,), teacher_scales=(1.0,), rates=(1e-3,), margins=(1.0,), temperatures=(0.05,))
    study = open_study(tmp_path / "out", triplets=given, plan=plan, zero_shot=[], also_test=[])
    run_experiments(study, ["baselines"])
    table, *_ = Section.load(tmp_path / "out" / "baselines").tables
    rows = {row[0].text: row for block in table.blocks for row in block.rows}
    assert "the teacher itself" not in rows
    assert any("The teacher's scores are those in given.tsv." in note for note in table.notes)
    assert ("whose cost is not known" in table.notes[0]) != known
    cost = json.loads(teaching.report_of(scored).read_text())
    least = (cost["seconds"] + cost["teacher_seconds"]) * known
    assert float(rows["MarginMSE"][6].value or 0) >= least


def test_the_second_teacher_is_the_model_of_its_own_row(study_folder: Path, open_study: Open, tmp_path: Path) -> None:
    """The contrastive row's or MarginMSE's; the runs of the one are not those of the other."""
    shutil.copytree(study_folder, tmp_path / "out")
    run_experiments(open_study(tmp_path / "out"), ["baselines"])
    results = Results.open(tmp_path / "out", say=silent)
    assert not any("Not trained" in note for note in Section.load(results.out / "baselines").tables[0].notes)
    two = [system for system in TEACHERS if system.second_teacher is not None]
    assert [system.second_teacher for system in two] == [CONTRASTIVE, MARGIN_MSE, CONTRASTIVE, MARGIN_MSE]
    runs = {}
    for system in two:
        assert system.second_teacher is not None
        choice, second = choose(results, "tiny", system), choose(results, "tiny", system.second_teacher)
        own = [run for run in choice.runs() if run.spec.in_batch]
        assert len(own) == len(choice.trials) + 1
        assert {run.second_teacher for run in own} == {second.spec}
        assert {run.key for run in second.runs()} < {run.key for run in choice.runs()}
        runs[system] = {run.key for run in own}
    assert sum(map(len, runs.values())) == len(set.union(*runs.values()))
