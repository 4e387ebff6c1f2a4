"""The wheel: it has all that the package needs and nothing else, and the demo runs from it in a fresh environment."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path
from typing import Any

import pytest

import remargin

ROOT = Path(__file__).parent.parent
TRIAL = ["demo", "--data", "docstrings:json,csv,textwrap,argparse", "--steps", "2", "--batch-size", "8"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)]
    built = subprocess.run(build, cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    [path] = out.glob("*.whl")
    return path


def test_the_wheel_has_every_file_of_the_package(wheel: Path) -> None:
    source = ROOT / "src"
    files = (path for path in (source / "remargin").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    expected = {str(path.relative_to(source)) for path in files}
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert len(expected) > 200
    assert packed == expected


def test_the_wheel_says_what_pyproject_says(wheel: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    with zipfile.ZipFile(wheel) as file:
        [name] = [name for name in file.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = Parser().parsestr(file.read(name).decode())
    assert (metadata["Name"], metadata["Version"]) == ("remargin", project["version"])
    assert project["version"] == remargin.__version__
    assert f"## {project['version']} " in (ROOT / "CHANGELOG.md").read_text(), "a version that the changelog lacks"
    assert set(metadata.get_all("Provides-Extra", [])) == set(project["optional-dependencies"])


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("versions", ["locked", "newest"])
def test_the_demo_runs_from_the_wheel_in_a_fresh_environment(wheel: Path, tmp_path: Path, versions: str) -> None:
    """With the versions of the lock, and with the newest ones that a user gets; PyTorch is the same in both."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "fresh"], check=True, env=environment)
    binaries = tmp_path / "fresh" / "bin"
    pins = re.findall(r"^[\w.-]+==[^\s]+", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    pins = [pin for pin in pins if versions == "locked" or pin.startswith("torch==")]
    (tmp_path / "constraints.txt").write_text("\n".join(pins))  # hashes would have to be there for the wheel, too
    install = [binaries / "pip", "install", "--quiet", f"{wheel}[demo]", "--constraint", tmp_path / "constraints.txt"]
    subprocess.run(install, check=True, env=environment)
    options: Any = {"cwd": tmp_path, "env": environment, "capture_output": True, "text": True}
    demo = subprocess.run([binaries / "remargin", *TRIAL], **options)
    assert demo.returncode == 0, demo.stderr
    assert (tmp_path / "runs" / "demo" / "model" / "model.safetensors").is_file()
    assert "What came of it" in (tmp_path / "runs" / "demo" / "report.html").read_text()
    asked = [binaries / "remargin", "ask", "parse JSON", "--index", "docs.index"]
    index = [binaries / "remargin", "index", "--data", "docstrings:json", "--model", "runs/demo/model"]
    for command in ([*index, "--out", "docs.index"], asked):
        done = subprocess.run(command, **options)
        assert done.returncode == 0, done.stderr
    assert "json" in done.stdout
    mistaken = subprocess.run([*index[:-1], "someone/mistyped", "--out", "other.index"], **options)
    assert mistaken.returncode == 2, mistaken.stderr
    assert re.fullmatch(r"error: no model 'someone/mistyped': .* hub .*; give a folder, minilm .*\n", mistaken.stderr)
