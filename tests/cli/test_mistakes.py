"""A wrong command line: one line that says what was meant, and exit code 2."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from remargin.model.names import what_works

FIT = ("fit", "--data", "x", "--model", "y", "--out", "z")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ("serach", "no command serach; did you mean search? (remargin --help lists all)"),
        ("train", "no command train; remargin --help lists all"),
        ("--quiet fit", "no option --quiet before the command; write remargin COMMAND --quiet"),
        ("--nothing", "no option --nothing; remargin --help lists all"),
        ("fit", "fit needs --data, --model and --out; `remargin fit --help` has an example"),
        ("fit --data x --out y", f"fit needs --model; {what_works()}"),
        ("fit --resume", "fit needs --out; `remargin fit --help` has an example"),
        ("search --out y", "search needs --data; remargin search --help has an example"),
        ("ask", "ask needs QUESTION and --index; remargin ask --help has an example"),
        ("fit --steps abc", "--steps is 'abc'; it must be a whole number"),
        ("fit --learning-rate=fast", "--learning-rate is 'fast'; it must be a number"),
        ("demo --steps 0", "--steps is '0'; it must be at least 1"),
        ("fit --out", "--out needs a value"),
        ("report --out y", "report needs FOLDERS; remargin report --help has an example"),
        ("evaluate --data x --run y --overwrite=1", "option '--overwrite' does not take a value"),
        (
            "search --data x --out y how are you",
            "search takes no argument 'how are you'; quote what has spaces (remargin search --help has examples)",
        ),
    ],
)
def test_what_is_wrong_is_one_line(remargin: Callable[..., Any], arguments: str, line: str) -> None:
    result = remargin(*arguments.split())
    assert (result.returncode, result.stdout, result.stderr) == (2, "", f"error: {line}\n")


@pytest.mark.parametrize(
    ("verb", "options"),
    [
        (
            "fit",
            {
                "--lr": "--learning-rate", "--output": "--out", "--output-dir": "--out", "--epoch": "--epochs",
                "--batch": "--batch-size", "--bs": "--batch-size", "--per-device-train-batch-size": "--batch-size",
                "--checkpoint": "--resume", "--stpes": "--steps", "--max-steps": "--steps", "--warmup": "--warm-up",
                "--validation_measure": "--validation-measure", "--dataset": "--data", "--fp16": "--precision",
                "--max-grad-norm": "--clip", "--loss": "--target",
            },
        ),
        ("search", {"--top-k": "--k", "--force": "--overwrite", "--models": "--model", "-k": "--k"}),
        ("compare", {"--run": "--runs", "--metrics": "--measures", "--output": "--out"}),
        ("curve", {"--lr": "--learning-rate", "--share": "--shares"}),
        ("index", {"--lang": "--language", "--chunk": "--passage-length", "--passage": "--passage-length"}),
    ],
)  # fmt: skip
def test_a_wrong_option_names_the_right_one(
    remargin: Callable[..., Any], verb: str, options: dict[str, str], tmp_path: Path
) -> None:
    required = {"fit": FIT[1:], "curve": FIT[1:]}.get(verb, ())
    for wrong, right in options.items():
        result = remargin(verb, *required, wrong, "3")
        line = f"no option {wrong} for {verb}; did you mean {right}? (remargin {verb} --help lists all)"
        assert (result.returncode, result.stderr) == (2, f"error: {line}\n")


def test_without_anything_alike_nothing_is_suggested(remargin: Callable[..., Any]) -> None:
    result = remargin(*FIT, "--xyzzy")
    assert result.stderr == "error: no option --xyzzy for fit; remargin fit --help lists all\n"


def test_settings_in_a_file_get_the_same_help(remargin: Callable[..., Any], tmp_path: Path) -> None:
    config = tmp_path / "fit.yaml"
    for content, words in {
        "lr: 3": "unknown setting 'lr'; did you mean learning-rate? (remargin fit --help lists all)",
        "xyzzy: 3": "unknown setting 'xyzzy'; remargin fit --help lists all",
        "lr: 3\nbatch: 4": "unknown setting 'batch', 'lr'; did you mean batch-size, learning-rate? "
        "(remargin fit --help lists all)",
    }.items():
        config.write_text(content)
        result = remargin("fit", "--config", config)
        assert (result.returncode, result.stderr) == (2, f"error: {config}: {words}\n")
    config.write_text("steps: many")
    assert remargin(*FIT, "--config", config).stderr == "error: --steps is 'many'; it must be a whole number\n"


def test_without_a_command_the_help_is_shown(remargin: Callable[..., Any]) -> None:
    result = remargin()
    assert (result.returncode, result.stderr) == (2, "")
    assert result.stdout.startswith("Usage: remargin [OPTIONS] COMMAND")
