"""Help: every name whole at any width, defaults, headings, and examples that parse; completion in a shell."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from remargin.cli import app
from remargin.cli.help import split_examples
from remargin.cli.verb import fill_in, repeat_flags

VERBS: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]


@pytest.mark.parametrize("width", [60, 80, 200])
@pytest.mark.parametrize("verb", VERBS)
def test_no_name_is_cut_and_no_line_is_too_long(verb: str, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    result = CliRunner().invoke(app, [verb, "--help"], prog_name="remargin")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    names = [line.split("  ")[1] for line in lines if line.startswith(("  --", "  -q", "  -h"))]
    for param in VERBS[verb].params:
        if param.param_type_name == "option":
            options = [*param.opts, *param.secondary_opts]
            assert any(all(option in name for option in options) for name in names), options
    options = lines[: lines.index("Examples:")]
    assert max(map(len, options)) <= min(width, 100)
    assert "\x1b" not in result.stdout


def test_headings_and_defaults_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = CliRunner().invoke(app, ["fit", "--help"], prog_name="remargin").stdout
    headings = [line for line in shown.splitlines() if line.endswith(":") and not line.startswith(" ")]
    panels = ["Schedule:", "Data:", "Loss:", "Speed:", "Validation:", "Stream:", "Output:"]
    assert headings == ["Options:", *panels, "For every command:", "Examples:"]
    assert "  --learning-rate <float>     Peak learning rate. [default: 0.0002, less for\n" in shown
    assert "  --loggers <str>...          Further Lightning logger" in shown
    assert "[required, but for --resume]" in shown


@pytest.mark.parametrize("verb", VERBS)
def test_examples_parse(verb: str) -> None:
    _, examples = split_examples(VERBS[verb].help)
    assert examples
    for example in examples:
        assert len(example) <= 78
        program, name, *words = shlex.split(example)
        assert (program, name) == ("remargin", verb)
        context = VERBS[verb].make_context(verb, words)
        assert not context.args, example


def complete(words: str, place: int) -> list[str]:
    environment = {
        **os.environ, "_REMARGIN_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(place),
    }  # fmt: skip
    ended = subprocess.run([sys.executable, "-m", "remargin"], capture_output=True, text=True, env=environment)
    return ended.stdout.split()


def test_a_shell_completes_verbs_and_options() -> None:
    assert complete("remargin sea", 1) == ["search"]
    assert complete("remargin fit --learn", 2) == ["--learning-rate"]
    assert set(complete("remargin re", 1)) == {"report", "reproduce", "rerank"}


def test_the_completion_script_is_shown() -> None:
    environment = {**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "true"}
    command = [sys.executable, "-m", "remargin", "--show-completion", "bash"]
    ended = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert "_REMARGIN_COMPLETE=complete_bash" in ended.stdout


def test_flags_are_filled_in_and_repeated() -> None:
    flags = {"--resume"}
    assert fill_in([], flags) == []
    assert fill_in(["--resume"], flags) == ["--resume="]
    assert fill_in(["--resume", "--out", "x"], flags) == ["--resume=", "--out", "x"]
    assert fill_in(["--resume", "x", "--out", "--resume"], flags) == ["--resume", "x", "--out", "--resume="]
    assert repeat_flags(["--runs", "a", "b"], {"--runs"}) == ["--runs", "a", "--runs", "b"]
