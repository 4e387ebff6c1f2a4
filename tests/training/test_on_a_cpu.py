"""Options that are meant for a GPU, where there is none: our own words, or nothing at all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from remargin import BiEncoder, InputError, fit, train

from .conftest import settings

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")


def test_float16_is_refused_before_anything_is_written(
    prepared: Path, beir: Path, model: BiEncoder, encoder: Path, tmp_path: Path
) -> None:
    line = r"^precision 16 needs a GPU, and there is none; use bf16, 32, or auto$"
    with pytest.raises(InputError, match=line):
        fit(str(beir), encoder, tmp_path / "run", steps=2, precision="16")
    with pytest.raises(InputError, match=line):
        train(model, prepared, tmp_path / "run", settings=settings(precision="16"))
    assert not (tmp_path / "run").exists()


def test_eight_bit_states_run_without_other_peoples_lines() -> None:
    """In a process of its own, because the line comes when the package is imported for the first time."""
    pytest.importorskip("bitsandbytes")
    code = """
import torch
from torch import nn
from remargin.training.optimiser import make_optimiser
from remargin.training.settings import FitSettings
model = nn.Linear(100, 100)
optimiser = make_optimiser([model], FitSettings(eight_bit=True))
before = model.weight.detach().clone()
model(torch.ones(1, 100)).square().sum().backward()
optimiser.step()
print({value.dtype for value in optimiser.state[model.weight].values() if torch.is_tensor(value)} & {torch.uint8})
print(bool((model.weight != before).any()))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "{torch.uint8}\nTrue\n"
    assert done.stderr == ""
