"""remargin blend on the command line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from remargin import BiEncoder
from remargin.model.blend import blended

DATA = "docstrings:json,csv,string,email"


@pytest.fixture
def models(tiny_model: Any, tmp_path: Path) -> tuple[BiEncoder, BiEncoder]:
    """Two encoders, in the folders `start` and `trained`."""
    pair = BiEncoder.from_pretrained(tiny_model(), "mean"), BiEncoder.from_pretrained(tiny_model(), "mean")
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in pair[1].parameters():
            weight.add_(torch.randn(weight.shape, generator=generator), alpha=0.3)
    for model, name in zip(pair, ("start", "trained"), strict=True):
        model.save(tmp_path / name)
    return pair


def test_a_given_weight(remargin: Callable[..., Any], models: tuple[BiEncoder, BiEncoder], tmp_path: Path) -> None:
    start, trained, out = (tmp_path / name for name in ("start", "trained", "out"))
    result = remargin("blend", start, trained, "--weight", "0.3", "--out", out)
    assert result.returncode == 0, result.stderr
    assert result.stdout == f"wrote {out}: 0.3 x {trained} + 0.7 x {start}\n"
    assert BiEncoder.from_pretrained(out).fingerprint() == blended(*models, 0.3).fingerprint()
    again = remargin("blend", start, trained, "--weight", "0.3", "--out", out)
    assert (again.returncode, "already exists" in again.stderr) == (2, True)
    assert remargin("blend", start, trained, "--weight", "0.9", "--out", out, "--overwrite").returncode == 0
    assert BiEncoder.from_pretrained(out).fingerprint() == blended(*models, 0.9).fingerprint()


@pytest.mark.parametrize("weight", [(), ("--weight", "auto")])
def test_a_weight_that_is_chosen(
    remargin: Callable[..., Any], models: tuple[BiEncoder, BiEncoder], weight: tuple[str, ...], tmp_path: Path
) -> None:
    start, trained, out = (tmp_path / name for name in ("start", "trained", "out"))
    result = remargin("blend", start, trained, "--out", out, "--data", DATA, "--measure", "RR", *weight)
    assert result.returncode == 0, result.stderr
    table, words, wrote = result.stdout.rpartition("Blended: ")[0], *result.stdout.splitlines()[-2:]
    assert len([line for line in table.splitlines() if line.strip()[:1] in ("0", "1")]) == 11
    assert words.startswith("Blended: ")
    assert " dev queries, ranked in full (" in words
    chosen = float(words.split()[1])
    assert wrote.startswith(f"wrote {out}: {chosen:g} x {trained}")
    assert BiEncoder.from_pretrained(out).fingerprint() == blended(*models, chosen).fingerprint()


def test_a_raw_backbone(
    remargin: Callable[..., Any], models: tuple[BiEncoder, BiEncoder], tiny_model: Any, tmp_path: Path
) -> None:
    result = remargin("blend", tiny_model(), tmp_path / "trained", "--out", tmp_path / "out", "--data", DATA)
    assert result.returncode == 0, result.stderr
    assert "is a raw backbone, no start to go back to: the weight is 1" in result.stderr
    assert BiEncoder.from_pretrained(tmp_path / "out").fingerprint() == models[1].fingerprint()


def test_what_is_wrong_is_one_line(
    remargin: Callable[..., Any], models: tuple[BiEncoder, BiEncoder], tiny_model: Any, tmp_path: Path
) -> None:
    for arguments, words in (
        ((tmp_path / "start", tmp_path / "trained"), "no weight is given; give --weight 0.5, or --data"),
        ((tmp_path / "start", tmp_path / "trained", "--weight", "2"), "a weight of 2; use auto, or 0"),
        ((tmp_path / "start", tmp_path / "nowhere", "--weight", "0.5"), "nowhere: no such folder"),
        ((tiny_model("distilbert"), tmp_path / "trained", "--weight", "0.5"), "the models differ in architecture"),
    ):
        result = remargin("blend", *arguments, "--out", tmp_path / "out")
        assert (result.returncode, len(result.stderr.splitlines())) == (2, 1), result.stderr
        assert words in result.stderr
        assert not (tmp_path / "out").exists()
