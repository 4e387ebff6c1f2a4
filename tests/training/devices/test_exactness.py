"""Several processes compute what one does: losses, gradients, and weights after many steps."""

from __future__ import annotations

import copy
import csv
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor

from remargin.losses.contrastive import ContrastiveLoss
from remargin.losses.margin import MarginLoss
from remargin.losses.softmax_margin import SoftmaxMarginLoss
from remargin.losses.teacher import DualTeacherLoss
from remargin.training.devices.global_loss import moments_are_less
from remargin.training.devices.ranks import ALONE, Ranks
from remargin.training.settings import FitSettings
from remargin.training.validation import Validator

from .conftest import together
from .on_ranks import (
    Case,
    batch_of,
    bytes_sent,
    differences,
    exchange,
    losses,
    losses_alone,
    state,
    train_exactly,
    train_plainly,
)

SIZES = [pytest.param(size, marks=[] if size == 2 else pytest.mark.slow) for size in (2, 3)]
Run = Callable[..., None]


@pytest.fixture(scope="module", params=SIZES)
def ranks(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    with together(request.param, tmp_path_factory.mktemp("together")) as ranks:
        yield ranks


def test_what_processes_exchange_arrives(ranks: Ranks, tmp_path: Path) -> None:
    ranks.send(exchange, tmp_path)
    exchange(ranks, tmp_path)
    (tmp_path / "once").unlink()
    exchange(ALONE, tmp_path)


SIZE, DIMENSION = 26, 4
MASK = torch.tensor([(0, 1), (2, 2), (3, 5), (0, 4), (25, 0), (13, 25), (12, 12)])
MARGINS = [
    (target, in_batch, error, similarity, stop)
    for target, in_batch, error, similarity, stop in itertools.product(
        (0.3, "adaptive", "distributed", "mean", "teacher"), (False, True), ("l2", "l1", "softplus"),
        ("cosine", "dot"), (False, True),
    )
    if not (in_batch and target in ("distributed", "mean"))
]  # fmt: skip


def drawn(size: int = SIZE, dimension: int = DIMENSION, k: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = [(size, dimension), (size, dimension), (size, k, dimension) if k else (size, dimension)]
    return [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]


def ids(k: int = 0) -> tuple[Tensor, ...]:
    """Few enough that many pairs are known."""
    generator = torch.Generator().manual_seed(1)
    return tuple(
        torch.randint(9, shape, generator=generator) for shape in ((SIZE,), (SIZE,), (SIZE, k) if k else (SIZE,))
    )


def every_variant() -> list[Case]:
    cases: list[Case] = []
    teacher = torch.randn(SIZE, SIZE, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    for variant, masked, gather in itertools.product(MARGINS, (False, True), (False, True)):
        arguments: dict[str, Any] = {"mask": MASK} if masked else {}
        if variant[0] == "teacher":
            arguments["teacher_margin"] = teacher if variant[1] else teacher[0]
        cases.append((MarginLoss(*variant), drawn(), arguments, gather))
    for loss in (ContrastiveLoss(), ContrastiveLoss(similarity="dot"), *map(SoftmaxMarginLoss, (0.5, -1.0))):
        cases += [(loss, drawn(), {"mask": MASK}, False), (loss, drawn(), {"ids": ids()}, False)]
        cases.append((loss, drawn(k=3), {"ids": ids(3)}, False))
    for spread, stop in itertools.product(("row", "batch", "running"), (False, True)):
        cases.append((SoftmaxMarginLoss(spread=spread, stop_gradient=stop), drawn(), {"ids": ids()}, False))  # type: ignore[arg-type]
    for target, in_batch in (("distributed", False), ("adaptive", True), (0.3, True)):
        cases.append((MarginLoss(target, in_batch), drawn(k=3), {}, False))  # type: ignore[arg-type]
    pairs = torch.randn(SIZE, 2 * SIZE, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    cases.append((DualTeacherLoss(), drawn(), {"teacher_margin": teacher[0], "in_batch_margin": pairs}, False))
    return cases


def test_every_loss_and_its_gradients_are_those_of_one_process(ranks: Ranks) -> None:
    cases = every_variant()
    through_moments = 0
    ranks.send(losses, cases)
    of_all = losses(ranks, cases)
    for number, (loss, batch, arguments, gather) in enumerate(copy.deepcopy(cases)):
        whole = [part.clone().requires_grad_() for part in batch]
        if isinstance(loss, SoftmaxMarginLoss) and loss.spread == "running":
            loss.running_spread.zero_()
        value = loss(*whole, **arguments)
        gradients, expected = torch.autograd.grad(value, whole), value.detach()
        results = [of_rank[number] for of_rank in of_all]
        k = batch[2].shape[1] if batch[2].ndim == 3 else 1
        moments = not (gather or arguments) and moments_are_less(loss, batch_of(SIZE, k), DIMENSION, ranks)
        through_moments += moments
        values = torch.stack([value for value, _ in results])
        if moments:
            assert float(values.sum()) == pytest.approx(float(expected), abs=1e-12)
        else:
            assert float((values - expected).abs().max()) < 1e-12
        for place, gradient in enumerate(gradients):
            made = torch.cat([own[place] for _, own in results])
            torch.testing.assert_close(made, gradient.flatten(0, -2), rtol=0, atol=1e-12)
    assert len(cases) > 200
    assert through_moments >= 12


@pytest.mark.slow  # and it waits for what a busy machine sends late
def test_bytes_are_those_of_the_shorter_way(ranks: Ranks) -> None:
    """As the kernel counts them: moments go around twice, in both passes; gathered vectors once, and back never."""
    d, most = 128, 5 * 128
    cases: list[Case] = [
        (MarginLoss("distributed"), [part.float() for part in drawn(size, d)], {}, gather)
        for size, gather in ((most, True), (most, False), (60, False))
    ]
    bytes_of = {}
    for case in cases:  # the first exchange also sets up connections
        ranks.send(losses_alone, case)
        losses_alone(ranks, case)
    ranks.send(bytes_sent, cases)
    bytes_of = bytes_sent(ranks, cases)
    others = ranks.size - 1
    gathering = [others * 4 * d * 3 * -(-size // ranks.size) for size in (most, 60)]
    moments = 4 * (2 * others / ranks.size) * 2 * (d * d + d)
    for sent, expected in zip(bytes_of, [gathering[0], moments, gathering[1]], strict=True):
        assert sent == pytest.approx(expected, rel=0.1)
    assert bytes_of[1] < 0.6 * bytes_of[0]


# Settings that `fit` has, on the triplets of the fixture `scored`: 108 of two negatives, and a teacher's scores.
TRAINING: dict[str, dict[str, Any]] = {
    "softmax": {},
    "moments": {"target": "distributed", "batch_size": 50, "log_every": 100, "save_every": 100},
    "learned": {"target": "contrastive", "temperature": "learned", "accumulate": 2},
    "topics": {"sampler": "tas", "clusters": 9, "batch_size": 4},  # with batches of fewer triplets than processes
    "budget": {"token_budget": 60, "per_triplet": 2, "spread": "running"},
    "tas-balanced": {"sampler": "tas-balanced", "clusters": 3, "target": "teacher"},
    "batch": {"spread": "batch"},
    "contrastive": {"target": "contrastive"},
    "adaptive": {"target": "adaptive"},
    "adaptive in batch": {"target": "adaptive", "in_batch": True, "per_triplet": 2, "batch_size": 30, "log_every": 100},
    "static l1": {"target": "0.3", "in_batch": True, "error": "l1"},
    "mean softplus": {"target": "mean", "error": "softplus"},
    "distributed, stopped": {"target": "distributed", "stop_gradient": True, "clip": None},
    "two teachers": {"target": "teacher", "in_batch": True},
    "dimensions": {"dims": "32,16,8"},
    "padded": {"engine": "padded", "schedule": "constant", "attention_dropout": False},
}
FAST = ("moments", "learned", "topics")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in FAST else pytest.mark.slow) for name in TRAINING]
)
def test_twenty_steps_lead_to_the_weights_of_one_process(
    name: str, ranks: Ranks, scored: Path, tiny_model: Any, tmp_path: Path
) -> None:
    options = {"steps": 20, "batch_size": 7, "learning_rate": 1e-3, "precision": "32", **TRAINING[name]}
    if name == "two teachers":
        options["in_batch_teacher"] = str(tiny_model("bert"))
    settings = FitSettings.preset(**options)
    arguments = (tiny_model("bert"), scored)
    train_exactly(ALONE, *arguments, tmp_path / "one", settings)
    ranks.send(train_exactly, *arguments, tmp_path / "all", settings)
    train_exactly(ranks, *arguments, tmp_path / "all", settings)
    begun = state(tmp_path / "one")
    assert any(float(tensor.abs().max()) > 0 for key, tensor in begun.items() if key.endswith("exp_avg"))
    worst = differences(tmp_path / "one", tmp_path / "all")
    assert max(worst.values()) < 1e-9, max(worst.items(), key=lambda item: item[1])


def test_any_number_of_processes_goes_on_where_another_number_stopped(
    ranks: Ranks, scored: Path, tiny_model: Any, tmp_path: Path
) -> None:
    """The position in the data included: one process, several, one, several, against one without a stop."""
    steady = {"batch_size": 7, "precision": "32", "schedule": "constant", "warm_up": 0.0, "target": "contrastive"}
    arguments = (tiny_model("bert"), scored)
    train_exactly(ALONE, *arguments, tmp_path / "straight", FitSettings.preset(steps=20, **steady))
    for steps in (4, 9, 13, 20):
        settings, several = FitSettings.preset(steps=steps, **steady), steps in (9, 20)
        if several:
            ranks.send(train_exactly, *arguments, tmp_path / "stopped", settings)
        train_exactly(ranks if several else ALONE, *arguments, tmp_path / "stopped", settings)
    worst = differences(tmp_path / "straight", tmp_path / "stopped")
    assert max(worst.values()) < 1e-9, max(worst.items(), key=lambda item: item[1])


def test_each_process_has_a_dropout_of_its_own_and_goes_on_with_it(
    ranks: Ranks, scored: Path, tiny_model: Any, tmp_path: Path
) -> None:
    steady = {"batch_size": 7, "precision": "32", "schedule": "constant", "warm_up": 0.0}
    for out, stops in (("straight", (6,)), ("stopped", (3, 6))):
        for steps in stops:
            arguments = (tiny_model("bert"), scored, tmp_path / out, FitSettings.preset(steps=steps, **steady))
            ranks.send(train_plainly, *arguments)
            train_plainly(ranks, *arguments)
    assert set(differences(tmp_path / "straight", tmp_path / "stopped").values()) == {0.0}
    tensors = safetensors.torch.load_file(tmp_path / "stopped" / "checkpoint" / "state.safetensors")
    states = [tensors["rng.cpu"], *(tensors[f"rng.{rank}.cpu"] for rank in range(1, ranks.size))]
    assert len({tuple(state.tolist()) for state in states}) == ranks.size


def test_validation_by_all_processes_measures_what_one_measures(
    ranks: Ranks, prepared: Path, tiny_model: Any, tmp_path: Path
) -> None:
    options = {"steps": 4, "batch_size": 7, "precision": "32", "validate_every": 2, "validation_depth": None}
    settings = FitSettings.preset(learning_rate=1e-3, **options)
    measured = []
    for out, several in (("one", False), ("all", True)):
        validator = Validator(prepared, "dev", settings, also=["RR"])
        arguments = (tiny_model("bert"), prepared, tmp_path / out, settings)
        if several:
            ranks.send(train_exactly, *arguments)
        train_exactly(ranks if several else ALONE, *arguments, validator)
        with open(tmp_path / out / "metrics.csv", newline="") as file:
            measured.append([row["validation"] for row in csv.DictReader(file) if row["validation"]])
    assert measured[0] == measured[1]
    assert len(measured[0]) == 3 > len(set(measured[0])) - 1 > 0  # it changes
    best = [load_weights(tmp_path / out / "best") for out in ("one", "all")]
    assert all(torch.allclose(best[0][name], best[1][name], rtol=0, atol=1e-6) for name in best[0])


def load_weights(folder: Path) -> dict[str, Tensor]:
    return safetensors.torch.load_file(folder / "model.safetensors")
