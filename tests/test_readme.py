"""The README says what the scripts printed, and its examples run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def test_every_figure_in_the_table_stands_in_results() -> None:
    machines = {"2 CPU cores": "losses-cpu.md", "H200": "losses-h200.md"}
    rows = re.findall(r"^\| (2 CPU cores|H200) (\|.*)$", README, re.MULTILINE)
    assert len(rows) >= 4
    for machine, row in rows:
        assert f"| distributed {row}" in (ROOT / "results" / machines[machine]).read_text()
    [(direct, moments)] = re.findall(r"takes ([\d,]+) MB beyond inputs and gradients, the moments ([\d,]+) MB", README)
    assert f"| distributed | {direct} | {moments} |" in (ROOT / "results" / "losses-h200.md").read_text()


def test_the_files_it_links_to_are_there() -> None:
    links = [link for link in re.findall(r"\]\(([^)]+)\)", README) if not link.startswith("http")]
    assert len(links) >= 5
    assert not [link for link in links if not (ROOT / link).exists()]


def test_the_python_examples_run(tiny_model: object, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import torch

    from remargin import BiEncoder

    folder = tiny_model()  # type: ignore[operator]
    load = BiEncoder.from_pretrained
    monkeypatch.setattr(BiEncoder, "from_pretrained", lambda name: load(folder))
    monkeypatch.chdir(tmp_path)
    batch = torch.randn(3, 4, 8)
    names: dict[str, object] = dict(zip(("queries", "positives", "negatives"), batch, strict=True))
    examples = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(examples) == 2
    for example in examples:
        exec(example, names)
    assert (tmp_path / "my-retriever" / "modules.json").is_file()
