"""Training runs that go on with another number of processes."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from remargin.training.devices.ranks import ALONE
from remargin.training.settings import FitSettings

from .conftest import together
from .on_ranks import differences, train_exactly


@pytest.mark.slow
def test_one_two_and_three_processes_go_on_from_each_other(scored: Path, tiny_model: Any, tmp_path: Path) -> None:
    """From each number directly to each other one, the place in the data included, against one without a stop."""
    numbers = (1, 2, 3, 2, 1, 3, 1)
    assert set(itertools.pairwise(numbers)) == set(itertools.permutations((1, 2, 3), 2))
    steady: dict[str, Any] = {"batch_size": 7, "precision": "32", "schedule": "constant", "warm_up": 0.0}
    arguments = (tiny_model("bert"), scored)
    train_exactly(ALONE, *arguments, tmp_path / "straight", FitSettings.preset(steps=21, **steady))
    for stop, number in enumerate(numbers, start=1):
        more = (*arguments, tmp_path / "stopped", FitSettings.preset(steps=3 * stop, **steady))
        if number == 1:
            train_exactly(ALONE, *more)
            continue
        with together(number, tmp_path) as ranks:
            ranks.send(train_exactly, *more)
            train_exactly(ranks, *more)
    worst = differences(tmp_path / "straight", tmp_path / "stopped")
    assert max(worst.values()) < 1e-9, max(worst.items(), key=lambda item: item[1])
