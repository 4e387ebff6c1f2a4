"""The paper's tables and figures, in the paper's order, and after them the study beyond the paper.

To add one, write its file, with tasks, findings and draw, and add a line here.
"""

from __future__ import annotations

from typing import Any

from remargin.paper import (
    baselines,
    curves,
    instance,
    loss_geometry,
    memory,
    static_margins,
    target_evolution,
    variants,
    zero_shot,
)
from remargin.paper.beyond.experiments import BEYOND
from remargin.study.experiment import Experiment

ALL, CLAIMS = "all", "claims"  # names beside those of experiments: all of the paper's, and only the verdicts
EXPERIMENTS: dict[str, Experiment[Any]] = {
    experiment.name: experiment
    for experiment in (
        loss_geometry.EXPERIMENT,
        static_margins.EXPERIMENT,
        curves.ADAPTIVE_MARGINS,
        curves.DISTRIBUTED_MARGINS,
        target_evolution.EXPERIMENT,
        instance.EXPERIMENT,
        variants.EXPERIMENT,
        baselines.EXPERIMENT,
        zero_shot.EXPERIMENT,
        memory.EXPERIMENT,
    )
}
# What `reproduce all` leaves out: it is not the paper's.
EVERY: dict[str, Experiment[Any]] = {**EXPERIMENTS, **BEYOND}
