"""What every optimiser is told: the learning rate of each step, and which parameters have weight decay."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from torch import nn

from remargin.errors import InputError

Schedule = Literal["constant", "linear", "exponential"]


@dataclass(frozen=True)
class RateSchedule:
    """A linear warm-up over a share of the steps; then constant, linear to zero, or multiplied with gamma each step.

    Raises:
        InputError: for a value that makes no schedule.

    Example:
        >>> rates = RateSchedule(learning_rate=1.0, steps=10, warm_up=0.2)
        >>> [round(rates(step), 3) for step in range(10)]
        [0.5, 1.0, 1.0, 0.875, 0.75, 0.625, 0.5, 0.375, 0.25, 0.125]
    """

    learning_rate: float
    steps: int
    warm_up: float = 0.0
    schedule: Schedule = "linear"
    gamma: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.learning_rate < math.inf:
            raise InputError(f"learning_rate is {self.learning_rate}", do="it must be a number above 0")
        if not 0 < self.gamma <= 1:
            raise InputError(f"gamma is {self.gamma}", do="it must be above 0 and at most 1")
        if not 0 <= self.warm_up < 1:
            raise InputError(f"warm_up is {self.warm_up}", do="it is a share of the steps, at least 0 and below 1")
        if self.schedule not in ("constant", "linear", "exponential"):
            raise InputError(f"unknown schedule {self.schedule!r}", do="use constant, linear or exponential")

    def __call__(self, step: int) -> float:
        """The learning rate of a step, from 0."""
        warm_up = round(self.warm_up * self.steps)
        if step < warm_up:
            return self.learning_rate * (step + 1) / warm_up
        since = step - warm_up
        if self.schedule == "linear":
            return self.learning_rate * (1 - since / (self.steps - warm_up))
        return self.learning_rate * (self.gamma**since if self.schedule == "exponential" else 1.0)


def parameter_groups(modules: Iterable[nn.Module], weight_decay: float) -> list[dict[str, Any]]:
    """What an optimiser is to train, with weight decay on matrices only.

    >>> [len(group["params"]) for group in parameter_groups([nn.Linear(2, 2), nn.LayerNorm(2)], 0.01)]
    [1, 3]
    """
    weights = [weight for module in modules for weight in module.parameters() if weight.requires_grad]
    groups: list[dict[str, Any]] = [
        {"params": [weight for weight in weights if weight.ndim > 1], "weight_decay": weight_decay},
        {"params": [weight for weight in weights if weight.ndim <= 1], "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]
