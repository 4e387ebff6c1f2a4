"""Twenty steps of several processes lead to the weights of one, with every variant of the losses, and with masks."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from remargin.training.devices.ranks import ALONE, Ranks
from remargin.training.settings import FitSettings

from .conftest import together
from .on_ranks import differences, train_exactly

pytestmark = pytest.mark.slow
STEADY: dict[str, Any] = {"batch_size": 7, "precision": "32", "learning_rate": 1e-3}
# Targets, whether they are in-batch, and whether their gradient can be stopped. Those of two teachers, and the other
# losses, are in test_exactness.py.
TARGETS = [
    ("0.3", False, False), ("0.3", True, False), ("teacher", False, False), ("adaptive", False, True),
    ("adaptive", True, True), ("distributed", False, True), ("mean", False, True),
]  # fmt: skip
VARIANTS = [
    (target, in_batch, error, similarity, stop, masked)
    for target, in_batch, stops in TARGETS
    for error, similarity, stop, masked in itertools.product(
        ("l2", "l1", "softplus"), ("cosine", "dot"), (False, True) if stops else (False,), (False, True)
    )
    if not (masked and target == "teacher")  # which the test's loss with a mask has no margins of
]


@pytest.fixture(scope="module", params=(2, 3))
def ranks(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    with together(request.param, tmp_path_factory.mktemp("together")) as ranks:
        yield ranks


@pytest.mark.parametrize(("target", "in_batch", "error", "similarity", "stop", "masked"), VARIANTS)
def test_a_variant_leads_to_the_weights_of_one_process(
    target: str, in_batch: bool, error: str, similarity: Any, stop: bool, masked: bool,
    ranks: Ranks, scored: Path, tiny_model: Any, tmp_path: Path,
) -> None:  # fmt: skip
    loss = {"target": target, "in_batch": in_batch, "error": error}
    loss |= {"stop_gradient": True} if stop else {}
    # Without lines of a log, the moments of a loss that has them are exchanged, and no vectors.
    settings = FitSettings.preset(steps=20, log_every=100, **STEADY, **loss)
    arguments = (tiny_model("bert"), scored)
    for out, several in (("one", False), ("all", True)):
        more = (*arguments, tmp_path / out, settings, None, None, similarity, masked)
        if several:
            ranks.send(train_exactly, *more)
        train_exactly(ranks if several else ALONE, *more)
    worst = differences(tmp_path / "one", tmp_path / "all")
    assert max(worst.values()) < 1e-9, max(worst.items(), key=lambda item: item[1])
    assert any(name.endswith("exp_avg") for name in worst)
