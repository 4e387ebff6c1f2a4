"""The package as a whole: what importing it costs, what it promises, and what the command line answers."""

from __future__ import annotations

import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

import pytest

import remargin


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True)


def test_importing_remargin_and_its_command_line_imports_no_torch() -> None:
    program = (
        "import sys, remargin, remargin.cli; print([m for m in ('torch', 'transformers', 'numpy') if m in sys.modules])"
    )
    assert run("-c", program).stdout.strip() == "[]"


def test_public_names_load_from_where_they_live() -> None:
    for name in remargin.__all__:
        assert getattr(remargin, name).__name__ == name
        assert name in dir(remargin)
    with pytest.raises(AttributeError, match="Nothing"):
        remargin.Nothing  # noqa: B018


def test_help_answers_in_under_half_a_second() -> None:
    times = []
    for _ in range(5):
        start = time.perf_counter()
        result = run("-m", "remargin", "--help")
        times.append(time.perf_counter() - start)
        assert result.returncode == 0
        assert "prepare" in result.stdout
    assert min(times) < 0.5


def test_version_is_the_installed_one() -> None:
    assert remargin.__version__ == version("remargin")
    assert run("-m", "remargin", "--version").stdout.strip() == f"remargin {remargin.__version__}"


def test_info_names_versions_and_devices() -> None:
    result = run("-m", "remargin", "info")
    assert result.returncode == 0
    assert f"remargin {remargin.__version__}" in result.stdout
    assert "GPUs:" in result.stdout


def test_the_package_is_typed() -> None:
    assert (Path(remargin.__file__).parent / "py.typed").is_file()


def test_imports_point_one_way() -> None:
    """cli -> demo, experiments -> training -> mining -> retrieval, evaluation -> encoder -> data -> losses, files.

    report stands beside training and mining: cli and experiments import it, and it knows evaluation and data only.
    """
    source = Path(remargin.__file__).parent
    above_encoder = ("remargin.evaluation", "remargin.retrieval", "remargin.mining", "remargin.training")
    forbidden = {
        "losses.py": ("remargin.data", "remargin.encoder", "remargin.cli", "remargin.files"),
        "numerics.py": ("remargin.",),
        "errors.py": ("remargin.",),
        "files.py": ("remargin.data", "remargin.encoder", "remargin.cli", "remargin.losses"),
        "parts.py": ("remargin.data", "remargin.encoder", "remargin.cli", "remargin.losses"),
        "data": ("remargin.encoder", "remargin.cli", "remargin.losses", "remargin.model_folder", *above_encoder),
        "encoder.py": ("remargin.cli", *above_encoder),
        "cross_encoder.py": ("remargin.cli", *above_encoder),
        "evaluation": ("remargin.cli", "remargin.retrieval", "remargin.mining", "remargin.training"),
        "retrieval": ("remargin.cli", "remargin.mining", "remargin.training", "remargin.experiments"),
        "mining.py": ("remargin.cli", "remargin.training", "remargin.experiments"),
        "teaching.py": ("remargin.cli", "remargin.training", "remargin.experiments"),
        "training": ("remargin.cli", "remargin.experiments", "remargin.demo"),
        "report": ("remargin.cli", "remargin.experiments", "remargin.training", "remargin.mining"),
        "experiments": ("remargin.cli",),
    }
    for place, names in forbidden.items():
        path = source / place
        for file in path.rglob("*.py") if path.is_dir() else [path]:
            imports = [line for line in file.read_text().splitlines() if line.strip().startswith(("from ", "import "))]
            assert not [line for line in imports for name in names if name in line], file
