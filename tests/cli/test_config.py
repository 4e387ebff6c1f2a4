"""YAML settings, and what is wrong with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from remargin.cli import app
from remargin.cli.config import read_config
from remargin.cli.options import _load
from remargin.errors import InputError

KNOWN = ["data", "out", "document_length"]


def test_dashes_and_underscores_are_the_same(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("document-length: 100\ndata: x\n")
    assert read_config(path, KNOWN) == {"document_length": 100, "data": "x"}
    path.write_text("")
    assert read_config(path, KNOWN) == {}


def test_settings_with_several_values(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("data: [a, b]\nout: x\ndocument-length: 5\n")
    assert read_config(path, KNOWN, ["data", "document_length"]) == {
        "data": ["a", "b"],
        "out": "x",
        "document_length": [5],
    }
    path.write_text("data:\n")
    assert read_config(path, KNOWN, ["data"]) == {"data": None}
    for text in ("data: [[a], b]", "data: {a: b}", "data: [a, null]"):
        path.write_text(text)
        with pytest.raises(InputError, match="data must be plain values"):
            read_config(path, KNOWN, ["data"])


@pytest.mark.parametrize(
    ("verb", "text", "expected"),
    [
        ("reproduce", "model: [a, b=c]\nzero-shot: [x, y]", {"model": ["a", "b=c"], "zero_shot": ["x", "y"]}),
        ("benchmark", "data: x\nbound: 0.1", {"data": ["x"], "bound": 0.1}),
        ("fuse", "runs: [a, b]\ntune: [c, d]\ndata: x", {"runs": ["a", "b"], "tune": ["c", "d"], "data": "x"}),
        ("fit", "loggers: a.B name=x\nsteps: 3", {"loggers": ["a.B name=x"], "steps": 3}),
    ],
)
def test_the_verb_says_which_settings_are_lists(
    verb: str, text: str, expected: dict[str, object], tmp_path: Path
) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(text)
    context = typer.Context(command(verb))
    _load(context, path)
    assert context.default_map == expected


def command(verb: str) -> Any:
    found: Any = typer.main.get_command(app)
    for name in verb.split():
        found = found.commands[name]
    return found


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"dokument-length: 100", "unknown setting 'dokument_length'; did you mean document-length\\? "),
        (b"- 1\n- 2", "name: value"),
        (b"data: [1,\nout: }", "c.yaml:2: not valid YAML"),
        (b"data: \xff", "not UTF-8"),
        (b"data: [a, b]", "data must be one value"),
        (b"[" * 5000, "nested too deeply|not valid YAML"),
        (b"data: !!python/object/apply:os.system [true]", "not valid YAML"),
        (b"data: a\nout: b\ndata: c", "c.yaml:3: data is given twice; line 1 has it too"),
        (b"document-length: 1\n\ndocument_length: 2", "c.yaml:3: document_length is given twice; line 1 has it too"),
    ],
)
def test_wrong_settings_are_one_clear_line(text: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_bytes(text)
    with pytest.raises(InputError, match=message) as error:
        read_config(path, KNOWN)
    assert "\n" not in str(error.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nothing\.yaml: cannot be read"):
        read_config(tmp_path / "nothing.yaml", KNOWN)


def test_the_example_configs_are_valid() -> None:
    examples = sorted((Path(__file__).parents[2] / "configs").glob("*.yaml"))
    assert examples
    for example in examples:
        verb = example.read_text().partition("# remargin ")[2].partition(" --config")[0]
        settings = read_config(example, [parameter.name for parameter in command(verb).params])
        assert settings == {k.replace("-", "_"): v for k, v in yaml.safe_load(example.read_text()).items()}


def test_an_impossible_date_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("seed: 2024-13-45\n")
    with pytest.raises(InputError, match=r"c\.yaml: not valid YAML \(month must be in 1\.\.12\)"):
        read_config(tmp_path / "c.yaml", known=["seed"])


def test_only_flags_are_true_or_false(tmp_path: Path) -> None:
    path, context = tmp_path / "c.yaml", typer.Context(command("fit"))
    path.write_text("stop-gradient: yes\nin-batch: false\n")
    _load(context, path)
    assert context.default_map == {"stop_gradient": True, "in_batch": False}
    for text, name in (("steps: true", "steps"), ("compile: on", "compile"), ("loggers: [no]", "loggers")):
        path.write_text(text)
        with pytest.raises(InputError, match=f"c.yaml: {name} cannot be true or false; write another value"):
            _load(context, path)
