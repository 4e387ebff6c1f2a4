"""The settings of training runs in a study, stated in full: what `fit` recommends may change, an experiment may not.

A plan that says `preset: default` was made when these were the defaults of `fit`, and it is kept in study.json. So the
name goes on to mean these values in a study, whatever it means for `fit`.
"""

from __future__ import annotations

from typing import Any

from remargin.errors import InputError
from remargin.training.settings import PRESETS, FitSettings

LABORATORY: dict[str, Any] = {
    "target": "distributed",
    "in_batch": False,
    "error": "l2",
    "temperature": 0.05,
    "teacher_scale": None,
    "steps": 400,
    "batch_size": 64,
    "per_triplet": 1,
    "accumulate": 1,
    "sampler": "random",
    "clusters": None,
    "drop_bins": 0,
    "in_batch_teacher": None,
    "learning_rate": 1e-4,
    "warm_up": 0.1,
    "schedule": "linear",
    "gamma": 0.99999,
    "weight_decay": 1e-6,
    "clip": 1.0,
    "precision": "auto",
    "eight_bit": False,
    "engine": "auto",
    "compile": "auto",
    "graphs": True,
    "token_budget": None,
    "lora": None,
    "attention_dropout": False,
    "seed": 0,
    "validate_every": 100,
    "validation_measure": "nDCG@10",
    "validation_depth": 100,
    "validation_queries": 500,
    "validation_documents": None,
    "patience": None,
    "log_every": 10,
    "save_every": 100,
}
# How triplets are mined: any document of BM25's first ones but known positives, one negative in each triplet.
MINING: dict[str, Any] = {"negatives": "bm25", "model": None, "per_triplet": 1, "seed": 0}
# The second round: the best documents of the first round's model, half-way from its start.
SECOND_ROUND: dict[str, Any] = {"negatives": "model", "depth": 50, "bound": 0.95}


def pinned(preset: str = "default", **changes: Any) -> FitSettings:
    """The settings of a preset as studies have them: as `FitSettings.preset`, and none of them is `fit`'s default.

    >>> settings = pinned(steps=10)
    >>> settings.loss.target, settings.peak_rate, settings.validation_depth
    ('distributed', 0.0001, 100)
    >>> pinned("paper", batch_size=64).peak_rate == 5e-6 / 64
    True
    """
    if preset not in PRESETS:
        raise InputError(f"unknown preset {preset!r}", do=f"use {', '.join(PRESETS)}")
    own = {} if preset == "default" else PRESETS[preset]
    values = {**LABORATORY, **own}
    if preset == "paper":
        del values["learning_rate"]  # depends on the batch size
    return FitSettings.preset(preset, **{**values, **changes})
