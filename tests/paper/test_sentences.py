"""The page with the paper's sentences: what it names is there, and no experiment or group of claims is left out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer

import remargin
from remargin.cli import app
from remargin.paper.claims.table import CLAIMS
from remargin.paper.experiments import EVERY, EXPERIMENTS

ROOT = Path(__file__).parents[2]
SOURCE = Path(remargin.__file__).parent
STATES = ("done", "claim", "differs", "theirs")
COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (ROOT / "docs" / "paper-sentences.md").read_text().splitlines()
    if line.startswith("| ") and not line.startswith("| the paper |")
]
NAMED = [name for row in ROWS for name in re.findall(r"`([^`]+)`", f"{row[1]} {row[2]}")]


def test_every_row_has_a_place_and_a_state() -> None:
    assert len(ROWS) > 100
    for row in ROWS:
        assert len(row) == 3, row
        assert row[2].startswith(STATES), row
        assert row[1] == "–" or "`" in row[1], row
        assert row[1] != "–" or not row[2].startswith(("done", "claim")), row


@pytest.mark.parametrize("name", sorted({name for name in NAMED if "/" in name and not name.startswith("-")}))
def test_every_file_is_there(name: str) -> None:
    elsewhere = name.startswith(("configs/", "examples/"))
    assert ((ROOT if elsewhere else SOURCE) / name).is_file()


def test_every_command_and_option_is_there() -> None:
    options = {option for command in COMMANDS.values() for p in command.params for option in p.opts}
    commands = [name.split() for name in NAMED if name.startswith("remargin ")]
    for _, verb, *rest in commands:
        own = {option for p in COMMANDS[verb].params for option in p.opts}
        assert {word for word in rest if word.startswith("--")} <= own
        assert verb != "reproduce" or not rest or rest[0] in EVERY
    given = [name.split()[0] for name in NAMED if name.startswith("--")]
    assert {*given} <= options
    assert len(commands) > 8
    assert len(given) > 12


def test_no_experiment_and_no_group_of_claims_is_left_out() -> None:
    reproduced = {name.split()[2] for name in NAMED if name.startswith("remargin reproduce ")}
    assert reproduced == {*EXPERIMENTS}
    claims = {f"paper/claims/{claim.check.__module__.rpartition('.')[2]}.py" for claim in CLAIMS}
    assert {name for name in NAMED if name.startswith("paper/claims/")} == claims
