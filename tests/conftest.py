"""The command line in this process, and one small study of everything."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from remargin.cli import main

from .small_study import DATA, OTHER, PLAN, Open, leave_out_rows, silent


class Result(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def remargin(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Result]:
    """Runs the command line in this process, which spares the import of torch each time."""

    def run(*arguments: Any) -> Result:
        monkeypatch.setattr(sys, "argv", ["remargin", *map(str, arguments)])
        capsys.readouterr()
        try:
            main()
        except SystemExit as end:
            return Result(int(end.code or 0), *capsys.readouterr())
        return Result(0, *capsys.readouterr())

    return run


@pytest.fixture(scope="session")
def open_study(tiny_model: Any) -> Open:
    from remargin.paper.losses import other_loss
    from remargin.study.study import Study

    def get(out: Path, **changed: Any) -> Study:
        given: dict[str, Any] = {
            "data": DATA,
            "models": {"tiny": str(tiny_model())},
            "plan": PLAN,
            "zero_shot": [OTHER],
            "also_test": [OTHER],
            "say": silent,
            "make_loss": other_loss,
        }
        return Study(out, **(given | changed))

    return get


@pytest.fixture(scope="session")
def study_folder(tmp_path_factory: pytest.TempPathFactory, open_study: Open) -> Path:
    """Every experiment, on a backbone that knows next to nothing; see `leave_out_rows`."""
    from remargin.paper.experiments import EXPERIMENTS
    from remargin.paper.running import run_experiments

    out = tmp_path_factory.mktemp("study") / "out"
    with pytest.MonkeyPatch.context() as patch:
        leave_out_rows(patch)
        run_experiments(open_study(out), list(EXPERIMENTS))
    return out
