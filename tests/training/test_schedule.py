"""Steps from data and time, and a rehearsal that leaves no trace."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from remargin import BiEncoder, train
from remargin.data.training_data import TrainingData
from remargin.errors import InputError
from remargin.training import schedule
from remargin.training.batches import Batches
from remargin.training.engine import Engine
from remargin.training.samplers import RandomSampler
from remargin.training.schedule import Rehearsal, StepPlan, rehearse, steps_for, steps_within
from remargin.training.settings import FitSettings
from remargin.training.validation import Validator

from .conftest import random_batches, settings, silent


@pytest.mark.parametrize(
    ("pairs", "batch_size", "steps"),
    [
        (1, 128, 20),
        (10, 128, 20),
        (300, 128, 24),  # ten epochs
        (3_000, 128, 200),
        (30_000, 128, 235),  # one epoch
        (300_000, 128, 800),
        (300, 64, 47),
        (3_000, 64, 400),
        (30_000, 32, 938),
        (10**7, 1_024, 100),
        (1, 1, 20),
    ],
)
def test_the_rule(pairs: int, batch_size: int, steps: int) -> None:
    assert steps_for(pairs, batch_size) == steps


def test_the_rule_keeps_its_bounds() -> None:
    for pairs in [*range(1, 400, 13), *range(400, 200_000, 7_001)]:
        for batch_size in (1, 8, 64, 128, 1024):
            steps, one_epoch = steps_for(pairs, batch_size), math.ceil(pairs / batch_size)
            assert steps >= 20
            assert steps == 20 or (steps - 1) * batch_size < 10 * pairs
            assert (steps - 1) * batch_size < 102_400 or steps == 20
            assert steps >= min(one_epoch, math.ceil(102_400 / batch_size))
            assert steps_for(pairs, batch_size, epochs=1) == one_epoch


def test_epochs_are_taken_as_they_are() -> None:
    assert steps_for(1_000, 128, epochs=3) == 24
    assert steps_for(10, 128, epochs=0.1) == 1
    for wrong in (0, -1, math.inf, math.nan):
        with pytest.raises(InputError, match="epochs"):
            steps_for(1_000, 128, epochs=wrong)
    with pytest.raises(InputError, match="0 training pairs"):
        steps_for(0, 128)


@pytest.mark.parametrize("minutes", [0.1, 1, 2, 3.5, 10, 1000])
def test_steps_within_are_the_most_that_fit(minutes: float) -> None:
    within = steps_within(minutes, 1.5, 60, 200)
    slow = max((steps for steps in range(20, 201) if 60 + 1.5 * steps <= 60 * minutes), default=20)
    assert within.steps == slow
    assert (within.note is None) == (slow == 200)
    assert ("longer than" in (within.note or "")) == (60 + 1.5 * within.steps > 60 * minutes)


def test_fewer_than_the_fewest_steps_stay_as_they_are() -> None:
    assert steps_within(0.01, 1.0, 0.0, steps=5).steps == 5
    for wrong in (0, -2, math.nan, math.inf):
        with pytest.raises(InputError, match="minutes"):
            steps_within(wrong, 1.0, 0.0, 5)


def test_the_estimate_in_words() -> None:
    rehearsal = Rehearsal(seconds_per_step=128 / 21, triplets_per_step=128, tokens_per_step=30_000)
    assert rehearsal.estimate(200) == "about 20 min (200 steps of 128 at 21 triplets/s)"
    assert rehearsal.estimate(1_000, 600).endswith("(1,000 steps of 128 at 21 triplets/s, then ranking)")
    assert "at 2.5 triplets/s" in Rehearsal(4.0, 10, 100).estimate(1)


def weights(model: BiEncoder) -> dict[str, torch.Tensor]:
    return {name: weight.clone() for name, weight in model.state_dict().items()}


def equal(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("with_gradients", [False, True])
def test_a_rehearsal_leaves_no_trace(with_gradients: bool, prepared: Path, model: BiEncoder) -> None:
    model.train()
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    if with_gradients:
        for number, weight in enumerate(trained):
            weight.grad = torch.full_like(weight, float(number))
    before, state, numbers = weights(model), torch.get_rng_state(), np.random.get_state()[1].tolist()  # type: ignore[index]
    gradients = [None if weight.grad is None else (weight.grad, weight.grad.clone()) for weight in model.parameters()]
    files = {path: path.stat().st_mtime_ns for path in prepared.rglob("*")}
    rehearsal = rehearse(model, prepared, settings(attention_dropout=True))
    assert rehearsal.seconds_per_step > 0
    assert rehearsal.triplets_per_step == 8
    assert equal(weights(model), before)
    assert torch.equal(torch.get_rng_state(), state)
    assert np.random.get_state()[1].tolist() == numbers  # type: ignore[index]
    assert model.training
    for weight, gradient in zip(model.parameters(), gradients, strict=True):
        if gradient is None:
            assert weight.grad is None
        else:
            assert weight.grad is gradient[0]
            assert torch.equal(weight.grad, gradient[1])
    assert {path: path.stat().st_mtime_ns for path in prepared.rglob("*")} == files


def test_a_rehearsal_does_compute_gradients(prepared: Path, model: BiEncoder) -> None:
    chosen, batches = settings(), random_batches(prepared, 8)
    with Engine(model, chosen, model.device, torch.float32, batches.typical_lengths()) as engine:
        schedule.time_batches(engine, batches)
    assert any(weight.grad is not None and weight.grad.abs().sum() > 0 for weight in model.parameters())


@pytest.mark.parametrize("options", [{}, {"target": "contrastive", "accumulate": 2}])
def test_training_after_a_rehearsal_is_training_without_it(
    options: dict[str, Any], prepared: Path, tiny_model: Any, tmp_path: Path
) -> None:
    trained = []
    for rehearsed in (False, True):
        model, chosen = BiEncoder.from_pretrained(tiny_model("bert")), settings(attention_dropout=True, **options)
        start, validator = weights(model), Validator(prepared, "dev", chosen)
        if rehearsed:
            rehearse(model, prepared, chosen)
        train(model, prepared, tmp_path / str(rehearsed), None, chosen, validator, say=silent)
        trained.append(weights(model))
        assert not equal(trained[-1], start)
    assert equal(*trained)


def test_a_rehearsal_counts_what_a_step_computes(prepared: Path, model: BiEncoder) -> None:
    batches = random_batches(prepared, 16)
    one, two = (rehearse(model, prepared, settings(batch_size=16, accumulate=n)) for n in (1, 2))
    tokens = [int(batches.batch(number).texts.lengths.sum()) for number in range(2)]  # an epoch
    assert one.tokens_per_step == round(sum(tokens) / 2)
    assert (one.triplets_per_step, two.triplets_per_step) == (16, 32)
    assert two.tokens_per_step == sum(tokens)


def test_a_rehearsal_has_all_negatives_of_a_step(scored: Path, model: BiEncoder) -> None:
    data = TrainingData(scored)
    for take in (1, 2):
        batches = Batches(data, RandomSampler.of(data.triplets, 36, 0, take))
        tokens = [int(batches.batch(number).texts.lengths.sum()) for number in range(3)]  # an epoch
        rehearsal = rehearse(model, scored, settings(batch_size=36, per_triplet=take))
        assert rehearsal.tokens_per_step == round(sum(tokens) / 3)


def test_a_few_parts_stand_for_a_large_batch(prepared: Path, model: BiEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    """The seconds of the parts that were timed are scaled to the tokens of the whole batch."""
    chosen, batches = settings(batch_size=100, token_budget=60), random_batches(prepared, 100)
    timed: list[int] = []
    clock = [0.0]

    def passed(engine: Engine, batch: Any) -> None:
        with engine.embed(batch) as vectors:  # as in earnest, so that what is cut out of a batch can be computed
            assert len(vectors) == len(batch.order)
            vectors.sum().backward()
        timed.append(batch.tokens)
        clock[0] += 0.01 * batch.tokens

    monkeypatch.setattr(schedule, "_pass", passed)
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    with Engine(model, chosen, model.device, torch.float32, batches.typical_lengths()) as engine:
        whole = engine.split(batches.batch(0).texts)
        assert len(whole.parts) > 2 * schedule.REHEARSED_PARTS
        rehearsal = schedule.time_batches(engine, batches)
    assert 0 < timed[0] < whole.tokens / 2
    assert rehearsal.seconds_per_step == pytest.approx(0.01 * rehearsal.tokens_per_step, rel=0.01)


def test_a_long_rehearsal_ends_early(prepared: Path, model: BiEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    passes: list[int] = []
    real = schedule._pass

    def counted(engine: Engine, batch: Any) -> None:
        passes.append(1)
        real(engine, batch)

    monkeypatch.setattr(schedule, "_pass", counted)
    rehearse(model, prepared, settings())
    assert len(passes) == 6  # one to warm up
    passes.clear()
    monkeypatch.setattr(schedule, "LONGEST_REHEARSAL", 0.0)
    rehearse(model, prepared, settings())
    assert len(passes) == 2


def test_a_rehearsal_wants_the_data_of_its_model(prepared: Path, tiny_model: Any) -> None:
    with pytest.raises(InputError):
        rehearse(BiEncoder.from_pretrained(tiny_model("bert"), document_length=20), prepared, settings())


def test_a_plan_is_kept_with_the_run(tmp_path: Path) -> None:
    assert StepPlan.load(tmp_path) is None
    for plan in (StepPlan(200, 8.5), StepPlan(20, 0.5, 10, 1.25)):
        plan.save(tmp_path)
        assert StepPlan.load(tmp_path) == plan
    damaged = (tmp_path / "schedule.json").read_text().replace("20", "21")
    (tmp_path / "schedule.json").write_text(damaged)
    with pytest.raises(InputError, match="checksum"):
        StepPlan.load(tmp_path)
    StepPlan(0, 1.0).save(tmp_path)
    with pytest.raises(InputError, match="1 or more"):
        StepPlan.load(tmp_path)


def test_the_learning_rate_falls_with_the_square_root_of_a_long_training_run() -> None:
    rates = [FitSettings(steps=steps).peak_rate for steps in (1, 50, 200, 400, 800)]  # of 128
    assert rates == pytest.approx([2e-4, 2e-4, 2e-4, 2e-4 / math.sqrt(2), 1e-4])
    assert FitSettings(steps=200, batch_size=64, accumulate=8).peak_rate == 1e-4  # triplets count, not steps
    assert FitSettings(steps=800, learning_rate=3e-4).peak_rate == 3e-4
    assert FitSettings(steps=800).rates()(80) == 1e-4
