"""What the verbs of retrieval and blending do are functions of remargin, with the same names and the same words."""

from __future__ import annotations

import inspect

import pytest
import typer

import remargin
from remargin.cli import app

COMMAND_LINE_ONLY = {"config", "threads", "quiet", "json", "engine", "ray_address", "workers"}
PYTHON_ONLY = {"say", "executor"}  # which these three choose
VERBS = ("blend", "encode", "index", "update", "search", "ask", "serve", "rerank", "fuse")


@pytest.mark.parametrize("verb", VERBS)
def test_flags_are_parameters(verb: str) -> None:
    command = typer.main.get_command(app).commands[verb]  # type: ignore[attr-defined]
    flags = {option.name for option in command.params} - COMMAND_LINE_ONLY - {"help"}
    parameters = inspect.signature(getattr(remargin, verb)).parameters
    assert flags == set(parameters) - PYTHON_ONLY


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_is_small_and_its_module_does_not_hide_a_function(verb: str) -> None:
    module = inspect.getmodule(getattr(remargin, verb))
    assert module is not None
    assert module.__name__.rpartition(".")[2] != verb
    doc = inspect.getdoc(getattr(remargin, verb)) or ""
    assert all(f"\n{section}:" in doc for section in ("Args", "Raises", "Example"))
