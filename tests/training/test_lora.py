"""Training by LoRA: stopped and resumed to the same bits, blended by a factor, and nothing else is changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from remargin import BiEncoder, InputError
from remargin.model.lora import FOLDER, SCALE, WEIGHTS
from remargin.training.fitting import fit
from remargin.training.loop import train
from remargin.training.schedule import rehearse

from .conftest import settings, silent


def tensors(file: Path) -> dict[str, torch.Tensor]:
    return safetensors.torch.load_file(file)


def test_resumed_it_ends_with_the_same_weights(tiny_model: Any, prepared: Path, tmp_path: Path) -> None:
    chosen = settings(steps=6, save_every=2, lora=4, learning_rate=1e-2)

    def stop(number: int, *_: Any) -> None:
        if number == 4:
            raise KeyboardInterrupt

    def start() -> BiEncoder:
        return BiEncoder.from_pretrained(tiny_model("bert"), pooling="mean+linear", device="cpu")

    model, lines = start(), list[str]()
    rehearse(model, prepared, chosen)
    train(model, prepared, tmp_path / "whole", settings=chosen, say=lines.append)
    with pytest.raises(KeyboardInterrupt):
        train(start(), prepared, tmp_path / "broken", settings=chosen, say=silent, observe=stop)
    state = tensors(tmp_path / "broken" / "checkpoint" / "state.safetensors")
    learned = {name for name in state if name.startswith("model.")}
    assert all("lora_" in name or "projection" in name for name in learned)  # a checkpoint has no more
    assert len(learned) == 2 * 12 + 2
    other = settings(steps=6, save_every=2, lora=8, learning_rate=1e-2)
    with pytest.raises(InputError, match="started with another lora"):
        train(start(), prepared, tmp_path / "broken", settings=other, say=silent, resume=True)
    train(start(), prepared, tmp_path / "broken", settings=chosen, say=silent, resume=True)
    for name in ("model.safetensors", f"{FOLDER}/{WEIGHTS}", "2_Dense/model.safetensors"):
        whole, broken = (tensors(tmp_path / run / "last" / name) for run in ("whole", "broken"))
        assert whole.keys() == broken.keys()
        assert all(torch.equal(weight, broken[key]) for key, weight in whole.items())
    assert any(line.startswith("LoRA of rank 4 trains") and "MB with all" in line for line in lines)
    before, after = start().state_dict(), BiEncoder.from_pretrained(tmp_path / "whole" / "last").state_dict()
    for name, weight in after.items():
        adapted = name.startswith("projection") or (".layer." in name and weight.ndim == 2)
        assert torch.equal(weight, before[name]) != adapted
    assert all(torch.equal(weight, after[name]) for name, weight in model.state_dict().items())


@pytest.mark.parametrize("blend", ["0.25", "off"])
def test_blending_is_a_factor_on_the_adapter(blend: str, beir: Path, tiny_encoder: Any, tmp_path: Path) -> None:
    folder = tiny_encoder("bert")
    fitted = fit(
        beir, folder, tmp_path / "run", steps=4, lora=4, learning_rate=1e-2, blend=blend, validate_every=2, say=silent
    )
    adapter = tensors(fitted.model / FOLDER / WEIGHTS)
    start, kept = (tensors(path / "model.safetensors") for path in (folder, fitted.model))
    for name, weight in start.items():
        names = [f"base_model.model.{name.removesuffix('.weight')}.lora_{letter}.weight" for letter in "AB"]
        if names[0] in adapter:
            change = SCALE * adapter[names[1]] @ adapter[names[0]]
            assert change.abs().max() > 0
            torch.testing.assert_close(kept[name], weight + change, atol=1e-6, rtol=1e-5)
        else:
            assert torch.equal(kept[name], weight)
