"""The time left, as the log of a training run shows it."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from remargin import BiEncoder, train
from remargin.training.log import Meter, TimeLeft
from remargin.training.validation import Validator

from .conftest import settings


def test_the_time_left_is_that_of_a_simulated_run() -> None:
    """A run of 40 steps: a slow first one, 2 s each, 4 s each from step 20 on; validations of 30 s every 10 steps."""
    seconds = {step: 20.0 if step == 1 else 2.0 if step <= 20 else 4.0 for step in range(1, 41)}
    left, clock, shown = TimeLeft(0, 40, validate_every=10), 0.0, {}
    for step in range(1, 41):
        clock += seconds[step]
        left.trained(step, clock)
        shown[step] = left.seconds([30.0] * (1 + (step - 1) // 10))
    assert shown[2] == 2 * 38 + 4 * 30  # the slow first step is forgotten at once
    assert shown[10] == 2 * 30 + 4 * 30  # the validation at step 10 itself is still to come
    assert shown[11] == 2 * 29 + 3 * 30
    truth = {step: sum(seconds[later] for later in range(step + 1, 41)) for step in shown}
    assert shown[40] == 30
    assert shown[38] == pytest.approx(truth[38] + 30, rel=0.1)  # it has noticed that the machine became busy


@pytest.mark.parametrize(("steps", "every", "at"), [(40, 10, 3), (45, 10, 41), (45, 10, 45), (5, 10, 1), (40, 10, 30)])
def test_validations_to_come_are_counted(steps: int, every: int, at: int) -> None:
    left = TimeLeft(at - 1, steps, every)
    left.trained(at, 0.0)
    validated = [step for step in range(at, steps + 1) if step % every == 0 or step == steps]
    assert left.seconds([7.0]) == 7.0 * len(validated)


def test_a_resumed_run_counts_only_its_own_steps() -> None:
    left = TimeLeft(100, 200)
    left.trained(101, 3.0)
    assert left.seconds() == 3.0 * 99
    left.trained(110, 12.0)
    assert left.seconds() == 1.0 * 90


def test_the_log_shows_the_time_left(prepared: Path, model: BiEncoder, tmp_path: Path) -> None:
    said: list[str] = []
    chosen = settings(log_every=1)
    train(model, prepared, tmp_path, None, chosen, Validator(prepared, "dev", chosen), say=said.append)
    lines = [line for line in said if line.startswith("step ") and "triplets/s" in line]
    assert len(lines) == 6
    assert all(line.endswith(" s left") for line in lines)
    with open(tmp_path / "metrics.csv") as file:
        assert [row["step"] for row in csv.DictReader(file) if row["loss"]] == list("123456")


def test_utilisation_is_never_more_than_all_of_it() -> None:
    """It is left out where the peak is not known, as on a CPU; a peak that was measured too low does not count."""
    for rate, expected in ((None, None), (1.0, 1.0), (1e30, 0.0)):
        meter = Meter(1e9, rate)
        meter.count(1, 10, 10, 0.0)
        assert meter.read().get("utilisation") == (None if expected is None else pytest.approx(expected))


def test_a_cpu_has_no_utilisation(prepared: Path, model: BiEncoder, tmp_path: Path) -> None:
    said: list[str] = []
    train(model.cpu(), prepared, tmp_path, None, settings(log_every=1), say=said.append)
    if model.device.type == "cpu":
        assert not any("utilised" in line for line in said)
        with open(tmp_path / "metrics.csv") as file:
            assert {row["utilisation"] for row in csv.DictReader(file)} == {""}
