"""The teacher of a study: it is trained and scores once, and only the study is told of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from remargin import teaching
from remargin.experiments import teacher

from .conftest import Open


def test_killed_after_the_scores_they_are_not_made_again(
    open_study: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said: list[str] = []
    with monkeypatch.context() as killed:

        def stop(*_: Any) -> None:
            raise KeyboardInterrupt

        killed.setattr(teacher, "write_header", stop)
        with pytest.raises(KeyboardInterrupt):
            open_study(tmp_path / "out", say=said.append).triplets(taught=True)
    study = open_study(tmp_path / "out", say=said.append)
    before = (study.work / "taught.tsv").stat().st_ino

    def never(*_: Any) -> None:
        raise AssertionError("scored again")

    monkeypatch.setattr(teaching, "_score", never)
    assert study.triplets(taught=True).stat().st_ino == before
    report = teacher.teacher_report(study)
    assert report["pairs"] > 0
    assert report["seconds"]["scoring"] > 0
    assert any("used as it is" in line for line in said)
    assert sum("the teacher scores" in line for line in said) == 1
    assert not capsys.readouterr().out
