"""YAML settings, and what is wrong with them."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from remargin.config import read_config
from remargin.errors import InputError

KNOWN = ["data", "out", "document_length"]


def test_dashes_and_underscores_are_the_same(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("document-length: 100\ndata: x\n")
    assert read_config(path, KNOWN) == {"document_length": 100, "data": "x"}
    path.write_text("")
    assert read_config(path, KNOWN) == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"dokument-length: 100", "unknown setting 'dokument_length'; it takes data, document-length, out"),
        (b"- 1\n- 2", "name: value"),
        (b"data: [1,\nout: }", "c.yaml:2: not valid YAML"),
        (b"data: \xff", "not UTF-8"),
        (b"data: [a, b]", "data must be one value"),
        (b"[" * 5000, "nested too deeply|not valid YAML"),
        (b"data: !!python/object/apply:os.system [true]", "not valid YAML"),
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
    import inspect

    from remargin.cli import fit, prepare

    verbs = {"fit": fit.fit, "prepare": prepare.prepare}
    examples = sorted((Path(__file__).parent.parent / "configs").glob("*.yaml"))
    assert examples
    for example in examples:
        verb = example.read_text().splitlines()[0].split()[2]
        settings = read_config(example, list(inspect.signature(verbs[verb]).parameters))
        assert settings == {k.replace("-", "_"): v for k, v in yaml.safe_load(example.read_text()).items()}
