"""Losses that change while they train: a learned temperature, and a running spread."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from remargin import BiEncoder, ContrastiveLoss
from remargin.training.loop import train
from remargin.training.optimiser import make_optimiser, set_rate
from remargin.training.settings import LossSettings

from .conftest import settings, silent
from .test_resume import stop_at, weights

LEARNED = {"target": "contrastive", "temperature": "learned"}


def state(folder: Path) -> dict[str, torch.Tensor]:
    return safetensors.torch.load_file(folder / "checkpoint" / "state.safetensors")


def test_a_learned_temperature_learns_faster_and_does_not_decay() -> None:
    loss = LossSettings(**LEARNED).build("dot", 32)  # type: ignore[arg-type]
    assert isinstance(loss, ContrastiveLoss)
    assert (loss.similarity, torch.as_tensor(loss.temperature).item()) == ("dot", pytest.approx(0.05))
    optimiser = make_optimiser([torch.nn.Linear(2, 2), loss], settings(weight_decay=0.5))
    set_rate(optimiser, 1e-3)
    rates = [(group["lr"], group["weight_decay"], len(group["params"])) for group in optimiser.param_groups]
    assert rates == [(1e-3, 0.5, 1), (1e-3, 0.0, 1), (pytest.approx(0.1), 0.0, 1)]
    assert optimiser.param_groups[-1]["params"] == [loss.log_temperature]


def test_the_first_step_moves_it_by_a_hundred_times_the_rate(model: BiEncoder, prepared: Path, tmp_path: Path) -> None:
    """Adam's first step is as long as its rate, whatever the gradient is."""
    chosen = settings(steps=1, warm_up=0, learning_rate=1e-4, **LEARNED)
    train(model, prepared, tmp_path, settings=chosen, say=silent)
    moved = state(tmp_path)["loss.log_temperature"].item() - math.log(0.05)
    assert abs(moved) == pytest.approx(1e-2, rel=1e-3)


@pytest.mark.parametrize(
    ("options", "name"),
    [(LEARNED, "loss.log_temperature"), ({"target": "softmax", "spread": "running"}, "loss.running_spread")],
    ids=["learned", "running"],
)
def test_it_goes_on_after_a_stop_as_if_nothing_had_been(
    options: dict[str, Any], name: str, tiny_model: Any, prepared: Path, tmp_path: Path
) -> None:
    chosen = settings(steps=6, save_every=2, log_every=1, **options)

    def run(folder: str, **others: Any) -> None:
        train(BiEncoder.from_pretrained(tiny_model("bert")), prepared, tmp_path / folder, settings=chosen, **others)

    run("whole", say=silent)
    with pytest.raises(KeyboardInterrupt):
        run("stopped", say=silent, observe=stop_at(4))
    half = state(tmp_path / "stopped")[name]
    run("stopped", say=silent, resume=True)
    whole, stopped = state(tmp_path / "whole"), state(tmp_path / "stopped")
    assert not torch.equal(half, whole[name])
    assert whole.keys() == stopped.keys()
    assert all(torch.equal(whole[key], stopped[key]) for key in whole)
    of_whole, of_stopped = (weights(tmp_path / folder) for folder in ("whole", "stopped"))
    assert all(torch.equal(of_whole[key], of_stopped[key]) for key in of_whole)
    logged = []
    for folder in ("whole", "stopped"):
        with open(tmp_path / folder / "metrics.csv", newline="") as file:
            logged.append([row["temperature"] for row in csv.DictReader(file)])
    assert logged[0] == logged[1]
    assert len(set(logged[0])) == 6
