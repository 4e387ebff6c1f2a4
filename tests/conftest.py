"""Runs the command line in this process."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from remargin.cli import main


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
