"""Adam as the paper uses it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import Any

import torch
from torch import nn

from remargin.errors import InputError
from remargin.model.optimisation import parameter_groups
from remargin.training.settings import FitSettings

# Says on import that a package for 4-bit matrix products is missing, which are not ours. Its 8-bit states do run there.
BITSANDBYTES_ON_CPU = "bitsandbytes.backends.cpu.ops"
SMALLEST_IN_8_BITS = 4096  # numbers: bitsandbytes keeps the states of smaller parameters in 32 bits


@contextmanager
def _quiet(name: str) -> Iterator[None]:
    """Without the warnings of another library's logger."""
    log = logging.getLogger(name)
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)


def make_optimiser(modules: Iterable[nn.Module], settings: FitSettings) -> torch.optim.Optimizer:
    """Adam with weight decay on matrices only, not on biases and LayerNorm; in 8 bits if asked for.

    A module with an attribute `rate_factor` learns at so many times the learning rate, without weight decay: see
    `set_rate`.
    """
    modules = list(modules)
    factors = {module: float(getattr(module, "rate_factor", 1.0)) for module in modules}
    groups = parameter_groups([module for module in modules if factors[module] == 1], settings.weight_decay)
    for module in modules:
        if factors[module] != 1:
            own = parameter_groups([module], weight_decay=0.0)
            groups += [{**group, "rate_factor": factors[module]} for group in own]
    if settings.eight_bit:
        return _eight_bit(groups, settings.peak_rate)
    return torch.optim.Adam(groups, lr=settings.peak_rate, fused=True)


def require_eight_bit() -> Any:
    """The package of 8-bit optimiser states, or how to install it."""
    try:
        with _quiet(BITSANDBYTES_ON_CPU):
            import bitsandbytes
    except ImportError:
        do = "pip install 'remargin[eight-bit]'"
        raise InputError("8-bit optimiser states need bitsandbytes", do=do) from None
    return bitsandbytes


@cache
def eight_bit_runs() -> bool:
    """Whether 8-bit optimiser states run on this machine: seen by a step with some."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    weights = nn.Parameter(torch.zeros(SMALLEST_IN_8_BITS, device=device))
    weights.grad = torch.ones_like(weights)
    try:
        _eight_bit([{"params": [weights]}], 1e-3).step()
    except Exception:  # bitsandbytes raises whatever the part of it that is missing raises
        return False
    return True


def states_here(settings: FitSettings, say: Callable[[str], None]) -> FitSettings:
    """The settings of a preset without its 8-bit optimiser states if they do not run here, which a line then says.

    >>> states_here(FitSettings(), print) == FitSettings()
    True
    """
    if not settings.eight_bit or eight_bit_runs():
        return settings
    say("left out: 8-bit optimiser states, as bitsandbytes does not run here; they are kept in 32 bits")
    return replace(settings, eight_bit=False)


def _eight_bit(groups: list[dict[str, Any]], rate: float) -> torch.optim.Optimizer:
    """Adam with states of 8 bits."""
    optimiser: torch.optim.Optimizer = require_eight_bit().optim.Adam8bit(groups, lr=rate)
    return optimiser


def set_rate(optimiser: torch.optim.Optimizer, rate: float) -> None:
    """Set the learning rate of every parameter: this one, or so many times as much as its module asks for.

    >>> from remargin.losses.contrastive import ContrastiveLoss
    >>> optimiser = make_optimiser([nn.Linear(2, 2), ContrastiveLoss(learned=True)], FitSettings())
    >>> set_rate(optimiser, 1e-4)
    >>> [group["lr"] for group in optimiser.param_groups]
    [0.0001, 0.0001, 0.01]
    """
    for group in optimiser.param_groups:
        group["lr"] = rate * group.get("rate_factor", 1.0)
