"""Adam as the paper uses it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from remargin.errors import InputError
from remargin.training.settings import FitSettings


def make_optimiser(modules: Iterable[nn.Module], settings: FitSettings) -> torch.optim.Optimizer:
    """Adam with weight decay on matrices only, not on biases and LayerNorm; in 8 bits if asked for."""
    groups = parameter_groups(modules, settings.weight_decay)
    if settings.eight_bit:
        try:
            import bitsandbytes
        except ImportError:
            do = "pip install 'remargin[eight-bit]'"
            raise InputError("8-bit optimiser states need bitsandbytes", do=do) from None
        optimiser: torch.optim.Optimizer = bitsandbytes.optim.Adam8bit(groups, lr=settings.learning_rate)
        return optimiser
    return torch.optim.Adam(groups, lr=settings.learning_rate, fused=True)


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
