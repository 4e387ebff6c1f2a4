"""Tables on a terminal and elsewhere."""

from __future__ import annotations

import sys

import pytest

from remargin.cli.screen import print_tables
from remargin.reports.tables import Block, Cell, Table, number

NOTE = "a note that is far longer than the terminal is wide, and has to be broken"
TABLE = Table("", ["run", "RR"], [Block("", [[Cell("a"), number(0.75, bold=True)]])], [NOTE])


def test_elsewhere_tables_are_plain(capsys: pytest.CaptureFixture[str]) -> None:
    print_tables([TABLE, TABLE])
    assert capsys.readouterr().out == f"{TABLE.terminal()}\n{TABLE.terminal()}"
    assert NOTE in TABLE.terminal()


def test_on_a_terminal_they_are_styled_and_of_its_width(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")
    print_tables([TABLE])
    shown = capsys.readouterr().out
    assert shown == TABLE.terminal(40, styled=True) != TABLE.terminal()
    assert NOTE not in shown
