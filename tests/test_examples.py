"""Every script of examples/ runs, on a tiny model and few texts, and is as short as promised."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent / "examples"
SCRIPTS = sorted(FOLDER.glob("*.py"))
# A dozen models to measure; four training runs; another process.
SLOW = ("blend_two_models", "learning_curve", "search_client")
# What each script leaves behind, or prints.
LEAVES = {
    "a_loss_of_your_own": "runs/hinge/last/modules.json",
    "blend_two_models": "runs/blended/modules.json",
    "evaluate_and_compare": "encoder.trec",
    "fit_on_a_csv": "faq.index",
    "fit_on_a_folder": "handbook.index",
    "hard_negatives": "runs/hard/model/modules.json",
    "hybrid_search": "both.index",
    "learning_curve": "runs/curve/curve.json",
    "loss_in_a_pytorch_loop": "",
    "projection_over_vectors": "projection.npy",
    "search_client": "served.index",
    "sentence_transformers_trainer": "runs/theirs/model/modules.json",
    "vectors_in_numpy": "my-retriever/modules.json",
}
WITHOUT_MODEL = ("projection_over_vectors",)
SMALL = {
    "STEPS": "3",
    "DATA": "'docstrings:json,csv,string'",
    "FOLDER": repr(str(FOLDER.parent / "docs" / "how-to")),
    "HOME, ELSEWHERE": "'docstrings:json,csv,string', 'docstrings:csv,string,json'",
    "MODULES": "['json', 'csv', 'string', 'textwrap', 'heapq', 'shutil']",
}


def small(source: str, model: Path) -> str:
    """The script with other constants."""
    for name, value in {**SMALL, "MODEL": repr(str(model))}.items():
        source = re.sub(rf"^{name} = .*$", f"{name} = {value}", source, count=1, flags=re.MULTILINE)
    return source


@pytest.mark.parametrize(
    "path", [pytest.param(p, id=p.stem, marks=[pytest.mark.slow] * (p.stem in SLOW)) for p in SCRIPTS]
)
@pytest.mark.filterwarnings("default")  # those of other libraries are not what is tested here
def test_an_example_runs(
    path: Path,
    tiny_encoder: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("remargin.training.away.STDLIB", "docstrings:json,csv,string")
    monkeypatch.setattr("remargin.training.away.PARAGRAPHS", 40)
    assert path.read_text().count('MODEL = "minilm"') == (path.stem not in WITHOUT_MODEL)
    source = small(path.read_text(), tiny_encoder(positions=256))
    exec(compile(source, str(path), "exec"), {"__name__": "__main__"})
    assert (tmp_path / LEAVES[path.stem]).exists()
    assert capsys.readouterr().out.strip()


def test_examples_are_ten_short_scripts_that_say_what_they_do() -> None:
    assert len(SCRIPTS) >= 10
    readme = (FOLDER / "README.md").read_text()
    for path in SCRIPTS:
        source = path.read_text()
        assert len(source.splitlines()) < 60, path.name
        docstring = ast.get_docstring(ast.parse(source)) or ""
        assert len(docstring.split("\n\n")) <= 2, path.name  # a line, and a paragraph
        assert f"({path.name})" in readme


def test_a_projection_over_vectors_brings_pairs_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    source = (FOLDER / "projection_over_vectors.py").read_text()
    exec(compile(source.replace("STEPS = 300", "STEPS = 100"), "projection", "exec"), {"__name__": "__main__"})
    before, after = (float(value) for value in re.findall(r"R@10 .*: (0\.\d+)", capsys.readouterr().out))
    assert after > 3 * before > 0
    assert (tmp_path / "pairs.npy").exists()  # another run takes the same vectors
