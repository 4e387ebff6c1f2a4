"""What `stream` is asked for, and what a training run on a stream was asked for before."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, get_args

from remargin.errors import InputError, refuse_idle
from remargin.files.shapes import mismatch
from remargin.losses.inputs import Similarity
from remargin.reports.run_files import CONFIG, read_config
from remargin.retrieval.languages import AUTO, check_language
from remargin.training.request import parse_weight
from remargin.training.settings import FitSettings
from remargin.training.streaming.batches import NegativesOf

WARM_UP = 20  # steps; then the learning rate is constant
# Votes come slowly, and there is no end to decay towards: the mean of the default rate, which decays to 0.
DEFAULTS: dict[str, Any] = {"batch_size": 32, "learning_rate": 1e-4}
CONSTANT: dict[str, Any] = {"schedule": "constant", "steps": 1000, "warm_up": WARM_UP / 1000}
# Settings of `fit` that need to know all triplets beforehand, or the end of training.
WITHOUT_EFFECT = (
    "steps", "accumulate", "sampler", "clusters", "drop_bins", "in_batch_teacher", "warm_up", "schedule", "gamma",
    "patience", "teacher_scale", "graphs", "lora",
)  # fmt: skip


@dataclass
class StreamRequest:
    """The arguments of `stream` that stay the same when it is resumed; see there."""

    stream: str
    data: str | None
    model: str
    out: Path
    negatives: NegativesOf = "bm25"
    shuffle: int = 1
    blend: str = "auto"
    pooling: str = "auto"
    query_length: int | None = None
    document_length: int | None = None
    training_length: int | None = None
    query_prefix: str | None = None
    document_prefix: str | None = None
    validation_split: str | None = None
    also: str | None = None
    skip_bad: bool = False
    language: str = AUTO
    similarity: Similarity | None = None

    def __post_init__(self) -> None:
        _ = self.weight  # an InputError if it makes no sense
        if self.language != AUTO:
            check_language(self.language)
        if self.negatives not in get_args(NegativesOf):
            raise InputError(f"unknown negatives {self.negatives!r}", do=f"use {' or '.join(get_args(NegativesOf))}")
        if self.shuffle < 1:
            raise InputError(f"shuffle is {self.shuffle}", do="it must be at least 1, which keeps the order")
        if self.data is None:
            idle = {"negatives": self.negatives != "bm25", "validation_split": self.validation_split, "blend": False}
            refuse_idle("a stream without a collection", [name for name, given in idle.items() if given])

    @property
    def weight(self) -> float | None:
        """The weight of the trained model in each accepted one; None if dev chooses it."""
        return parse_weight(self.blend)

    def plain(self) -> dict[str, Any]:
        """All of it as JSON has it."""
        return {name: str(value) if isinstance(value, Path) else value for name, value in asdict(self).items()}


FIELDS = tuple(field.name for field in fields(StreamRequest))


def stream_settings(changes: dict[str, Any]) -> FitSettings:
    """The settings of training on a stream.

    Raises:
        InputError: for a setting that has no effect there, or makes no sense.

    Example:
        >>> rates = stream_settings({"learning_rate": 1e-4}).rates()
        >>> rates(0) < rates(100) == rates(10**9) == 1e-4
        True
    """
    refuse_idle("a stream", [name for name in WITHOUT_EFFECT if changes.get(name) is not None])
    if changes.get("target") == "teacher":
        raise InputError("a teacher's margins need scores, which a stream does not have", do="choose another --target")
    settings = FitSettings.preset(**{**DEFAULTS, "graphs": False, **changes, **CONSTANT})
    if settings.precision == "16":
        raise InputError("a stream is not trained on in precision 16", do="use auto, 32 or bf16")
    if settings.compile == "auto":
        settings.compile = "off"  # batches are of many sizes
    return settings


def require_share(most_rejects: float, wait: float | None) -> None:
    """Refuse numbers that make no sense."""
    if not 0 <= most_rejects <= 1:
        raise InputError(f"most_rejects is {most_rejects}", do="it is a share of the lines, from 0 to 1")
    if wait is not None and not 0 <= wait < math.inf:
        raise InputError(f"wait is {wait}", do="it is a number of seconds, or left out to wait for ever")


def is_stream(folder: str | Path | None) -> bool:
    """Whether a folder is of a training run on a stream."""
    if folder is None or not (Path(folder) / CONFIG).is_file():
        return False
    return "stream" in read_config(Path(folder), "start another training run")["asked"]


def recorded_stream(folder: Path, given: Mapping[str, Any]) -> tuple[StreamRequest, FitSettings]:
    """What a training run on a stream was asked for.

    Args:
        folder: that of the training run.
        given: what is asked for now as well, by the names of the arguments of `stream`; it must be the same.

    Raises:
        InputError: if there is none in the folder, or it was asked for something else.
    """
    do = "name the folder of a training run on a stream (--out of `remargin fit --stream`)"
    if not is_stream(folder):
        raise InputError("no training run on a stream to resume", file=folder, do=do)
    asked = dict(read_config(folder, do)["asked"])
    plain = asked.pop("settings", None)
    placed = {**asked, "out": folder}
    if problem := mismatch(placed, StreamRequest) or mismatch(plain, FitSettings, "settings"):
        raise InputError(f"not of this version of remargin: {problem}", file=folder / CONFIG, do=do)
    flat = {name: value for name, value in plain.items() if name != "loss"} | plain["loss"]
    before = {**asked, **flat, "out": str(folder)}
    for name, value in given.items():
        if value is not None and str(before.get(name)) != str(value):
            problem = f"the training run was started with other settings: {name} is {before.get(name)}, not {value}"
            do = f"leave out --{name.replace('_', '-')}, or start another training run (--out)"
            raise InputError(problem, file=folder / CONFIG, do=do)
    return StreamRequest(**placed), FitSettings.preset(**flat)
