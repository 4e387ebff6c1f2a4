"""Adam as the paper uses it."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

from remargin.errors import InputError
from remargin.model.optimisation import parameter_groups
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
