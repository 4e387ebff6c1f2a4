"""Dev chooses the teacher's learning rate and length; what was tried is kept, counted and said."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from remargin import InputError
from remargin.reports.sections import Section
from remargin.study import teacher_trials
from remargin.study.plan import Plan
from remargin.study.teacher import OTHER_TRIALS, teacher_report
from remargin.study.teacher_trials import Trial, Trials, best_teacher
from remargin.teacher.training import Diverged, TeacherSettings

from ..small_study import PLAN

RATES, EPOCHS = (3e-5, 1e-4, 3e-4), (1, 2, 4)


def chosen(dev: Callable[[float, int], float | None]) -> tuple[tuple[float, int], list[tuple[float, int]]]:
    """The rate and length that are chosen, and all that were tried, in order."""
    tried = []

    def trial(settings: TeacherSettings) -> Trial:
        tried.append((settings.learning_rate, settings.epochs))
        return Trial(settings, Path("nowhere"), dev(*tried[-1]), seconds=1.0)

    best, others = best_teacher(RATES, EPOCHS, trial)
    assert len(others) == len(tried) - 1
    assert best not in others
    return (best.settings.learning_rate, best.settings.epochs), tried


def test_first_the_rate_then_the_length() -> None:
    best, tried = chosen(lambda rate, epochs: -abs(rate - 1e-4) - abs(epochs - 2))
    assert best == (1e-4, 2)
    assert tried == [(3e-5, 1), (1e-4, 1), (3e-4, 1), (1e-4, 2), (1e-4, 4)]
    assert chosen(lambda rate, epochs: 0.5)[0] == (3e-5, 1)  # of several alike, the first: the least work


def test_a_rate_that_diverges_is_not_chosen() -> None:
    best, tried = chosen(lambda rate, epochs: None if rate > 1e-4 or epochs > 2 else rate * epochs)
    assert best == (1e-4, 2)
    assert len(tried) == 5
    with pytest.raises(InputError, match=r"no teacher learned at a rate of 3e-05, 0\.0001, 0\.0003; .*--teacher-rates"):
        chosen(lambda rate, epochs: None)


def test_a_loss_that_is_no_number_ends_a_trial_alone(
    tiny_model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def diverge(*_: Any, **__: Any) -> None:
        raise Diverged("the loss is nan at step 3", do="")

    monkeypatch.setattr(teacher_trials, "train_cross_encoder", diverge)
    said: list[str] = []
    given: Any = None
    trial = Trials(str(tiny_model()), given, given, tmp_path, given, tmp_path, said.append)(TeacherSettings())
    assert (trial.dev, trial.record()["dev"]) == (None, None)
    assert said == ["the teacher's learning rate of 0.0001 is too high: the loss is nan at step 3"]


def test_the_choice_of_a_study_is_counted_and_said(study_folder: Path) -> None:
    report = teacher_report(study_folder)
    [other] = report["others"]
    rates = {report["settings"]["learning_rate"], other["learning_rate"]}
    assert (rates, report["settings"]["epochs"]) == (set(PLAN.teacher_rates), 1)
    assert report["dev"] >= other["dev"]
    assert report["seconds"][OTHER_TRIALS] == pytest.approx(other["seconds"])
    notes = " ".join(Section.load(study_folder / "baselines").tables[0].notes)
    assert f"The teacher's learning rate is {report['settings']['learning_rate']:g}, its length 1 epoch: " in notes
    assert f"Also tried: rate {other['learning_rate']:g} and 1 epoch ({other['dev']:.3f})." in notes
    assert f"{OTHER_TRIALS} ({other['seconds']:.0f} s)" in notes


def test_grids_that_make_no_sense_are_refused() -> None:
    for given, problem in (
        ({"teacher_rates": ()}, "teacher_rates is empty"),
        ({"teacher_rates": (0.0,)}, "teacher_rates has 0"),
        ({"teacher_epochs": (0, 1)}, "teacher_epochs has 0"),
    ):
        with pytest.raises(InputError, match=problem):
            Plan(**given)  # type: ignore[arg-type]
