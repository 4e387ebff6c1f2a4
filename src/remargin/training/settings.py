"""Everything that a training run can be told, and the presets."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args

from torch import nn

from remargin.errors import InputError
from remargin.losses.contrastive import ContrastiveLoss
from remargin.losses.inputs import Similarity
from remargin.losses.margin import Error, MarginLoss, NamedTarget
from remargin.losses.matryoshka import MatryoshkaLoss
from remargin.losses.softmax_margin import MARGIN_WEIGHT, SoftmaxMarginLoss, Spread
from remargin.losses.teacher import DualTeacherLoss
from remargin.model.compute import EngineName
from remargin.model.optimisation import RateSchedule, Schedule

Precision = Literal["auto", "32", "bf16", "16"]
Compile = Literal["auto", "on", "off"]
SamplerName = Literal["random", "tas", "tas-balanced"]
LEARNED = "learned"


def idle_settings(target: str, in_batch: bool) -> dict[str, tuple[str, ...]]:
    """The settings that have no effect with a loss; each key says in words why, as in "error does nothing for KEY".

    >>> idle_settings("contrastive", in_batch=False)["the contrastive loss"]
    ('in_batch', 'error', 'stop_gradient')
    """
    idle: dict[str, tuple[str, ...]] = {}
    for name, loss in LOSSES.items():
        if target == name:
            idle[f"the {name} loss"] = loss.ignored
        else:
            idle[f"other losses than {name}"] = loss.own
    if target == "teacher" and in_batch:
        idle["two teachers"] = ("error", "stop_gradient")
    elif target == "teacher" or isinstance(_number(target), float):
        idle["targets that are constant anyway"] = ("stop_gradient",)
    if target != "teacher":
        idle["other targets than teacher"] = ("teacher_scale",)
    return idle


@dataclass
class LossSettings:
    """Which loss: `target` is a number, adaptive, distributed, mean, teacher, or a name of `LOSSES`.

    A teacher's margins are multiplied with `teacher_scale`. Without it they are taken as they are for dot products; for
    cosines, which cannot differ by more than 2, they are divided by their 99th percentile.

    `temperature` is a number or "learned". Without `stop_gradient`, the loss's own default holds. `dims` are dimensions
    that vectors can be truncated to after training, such as "384,256,128"; the whole dimension is always one of them.

    >>> LossSettings("softmax").stop_gradient, LossSettings("distributed").stop_gradient
    (True, False)
    """

    target: str = "softmax"
    in_batch: bool = False
    error: str = "l2"
    stop_gradient: bool | None = None
    temperature: float | str = 0.05
    teacher_scale: float | None = None
    margin_weight: float = MARGIN_WEIGHT
    spread: str = "row"
    dims: str | None = None

    def __post_init__(self) -> None:
        if self.dims is not None:
            self.dims = ",".join(map(str, parse_dims(self.dims)))
        stops = self.target in LOSSES and LOSSES[self.target].stop_gradient
        if self.stop_gradient is None:
            self.stop_gradient = stops
        usual = {**{f.name: f.default for f in fields(self)}, "stop_gradient": stops}
        if isinstance(self.temperature, str):  # as a flag or a file has it
            self.temperature = _number(self.temperature)
        if isinstance(self.temperature, str) and self.temperature != LEARNED:
            raise InputError(f"temperature is {self.temperature!r}", do=f"it must be a number above 0, or {LEARNED}")
        if isinstance(self.temperature, int | float) and not 0 < self.temperature < math.inf:
            raise InputError(f"temperature is {self.temperature}", do=f"it must be a number above 0, or {LEARNED}")
        if not math.isfinite(self.margin_weight):
            raise InputError(f"margin_weight is {self.margin_weight}", do="it must be a finite number")
        if self.spread not in get_args(Spread):
            raise InputError(f"unknown spread {self.spread!r}", do=f"use {', '.join(get_args(Spread))}")
        if self.teacher_scale is not None and not (math.isfinite(self.teacher_scale) and self.teacher_scale > 0):
            raise InputError(f"teacher_scale is {self.teacher_scale}", do="it must be a number above 0")
        if self.error not in get_args(Error):
            raise InputError(f"unknown error {self.error!r}", do=f"use {', '.join(get_args(Error))}")
        for case, names in idle_settings(self.target, self.in_batch).items():
            for name in names:
                if getattr(self, name) != usual[name]:
                    raise InputError(f"{name} does nothing for {case}", do="leave it out")

    def build(self, similarity: Similarity, dimension: int) -> nn.Module:
        """The loss for an encoder's similarity and dimension.

        >>> LossSettings("0.3", in_batch=True).build("cosine", 384)
        MarginLoss(target=0.3, in_batch=True, error='l2', similarity='cosine', stop_gradient=False)
        >>> LossSettings("contrastive", dims="128,64").build("cosine", 384).dims
        (384, 128, 64)
        """
        dims = parse_dims(self.dims or "")
        if dims and dims[0] > dimension:
            problem = f"dims has {dims[0]}, but the model's vectors have {dimension} numbers"
            raise InputError(problem, do=f"use {dimension} or less")
        loss = self._of_whole_vectors(similarity)
        return MatryoshkaLoss(loss, sorted({dimension, *dims})) if dims else loss

    def _of_whole_vectors(self, similarity: Similarity) -> nn.Module:
        try:
            if self.target in LOSSES:
                return LOSSES[self.target].build(self, similarity)
            if self.target == "teacher" and self.in_batch:
                return DualTeacherLoss(similarity=similarity)
            target: Any = _number(self.target)
            if isinstance(target, str) and target not in get_args(NamedTarget):
                do = f"use {', '.join([*get_args(NamedTarget), *LOSSES])}, or a number"
                raise InputError(f"unknown target {target!r}", do=do)
            error: Any = self.error
            return MarginLoss(target, self.in_batch, error, similarity, bool(self.stop_gradient))
        except ValueError as error:
            raise InputError(str(error), do="see `remargin fit --help` for the losses") from None


@dataclass(frozen=True)
class NamedLoss:
    """A loss beside `MarginLoss` that `target` names.

    Attributes:
        build: makes the loss from the settings, for an encoder's similarity.
        own: the settings that only this loss reads.
        ignored: the settings of other losses that this loss does not read.
        stop_gradient: whether it holds its target constant unless it is told otherwise.
    """

    build: Callable[[LossSettings, Similarity], nn.Module]
    own: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ("in_batch", "error", "stop_gradient")
    stop_gradient: bool = False


def _contrastive(settings: LossSettings, similarity: Similarity) -> nn.Module:
    if isinstance(settings.temperature, str):
        return ContrastiveLoss(learned=True, similarity=similarity)
    return ContrastiveLoss(settings.temperature, similarity=similarity)


def _softmax(settings: LossSettings, similarity: Similarity) -> nn.Module:
    spread: Any = settings.spread
    cosine: Any = similarity  # another one is refused
    return SoftmaxMarginLoss(settings.margin_weight, spread, bool(settings.stop_gradient), cosine)


# To add a loss, add it here: the message about unknown targets and the check of settings without effect follow.
LOSSES: dict[str, NamedLoss] = {
    "softmax": NamedLoss(_softmax, own=("margin_weight", "spread"), ignored=("in_batch", "error"), stop_gradient=True),
    "contrastive": NamedLoss(_contrastive, own=("temperature",)),
}


@dataclass
class FitSettings:
    """How to train. docs/training.md says what `fit` makes of the defaults, and where they are from.

    Attributes:
        loss: which loss, and its own settings.
        steps, batch_size, accumulate: optimiser steps, triplets in a batch, batches in a step.
        per_triplet: how many of the negatives of each triplet are in a batch; several that are stored take turns.
        sampler, clusters, drop_bins: which triplets make a batch; see `remargin.training.samplers`.
        in_batch_teacher: an encoder that scores every pair of a batch.
        learning_rate, warm_up, schedule, gamma: the peak learning rate, where None follows from the length of the
            training run (`rate_for`); the share of the steps for linear warm-up, the schedule, and the decay factor per
            step of the exponential schedule.
        weight_decay, clip: weight decay of matrices, and the maximum gradient norm; None does not clip.
        precision, eight_bit: the numeric precision of computing, and 8-bit optimiser states.
        engine, compile, graphs, token_budget: batch layout, torch.compile, CUDA graphs, and the maximum tokens in
            memory at once.
        lora: the rank of low-rank changes that are trained instead of the backbone's weights; see `Lora`.
        attention_dropout: keep the model's dropout on attention weights.
        seed: the random seed.
        validate_every, validation_measure, patience: steps between validations, the measure that chooses, and after
            how many validations without gain training ends.
        validation_queries, validation_depth, validation_documents: the maximum number of queries; how many of a first
            stage's documents to re-rank for each, where None ranks all documents, or a pool of them if there are many;
            and how many are many, where None is 3,000 on a CPU and 300,000 on a GPU.
        log_every, save_every: steps between log lines, and between checkpoints.

    Raises:
        InputError: for a value that makes no sense, alone or beside others.

    Example:
        >>> FitSettings(steps=10, loss=LossSettings("adaptive")) == FitSettings.preset(steps=10, target="adaptive")
        True
    """

    loss: LossSettings = field(default_factory=LossSettings)
    steps: int = 400
    batch_size: int = 128
    accumulate: int = 1
    per_triplet: int = 1
    sampler: SamplerName = "random"
    clusters: int | None = None
    drop_bins: int = 0
    in_batch_teacher: str | None = None
    learning_rate: float | None = None
    warm_up: float = 0.1
    schedule: Schedule = "linear"
    gamma: float = 0.99999
    weight_decay: float = 1e-6
    clip: float | None = 1.0
    precision: Precision = "auto"
    eight_bit: bool = False
    engine: EngineName = "auto"
    compile: Compile = "auto"
    graphs: bool = True
    token_budget: int | None = None
    lora: int | None = None
    attention_dropout: bool = False
    seed: int = 0
    validate_every: int = 100
    validation_measure: str = "nDCG@10"
    validation_depth: int | None = None
    validation_queries: int = 500
    validation_documents: int | None = None
    patience: int | None = None
    log_every: int = 10
    save_every: int = 100

    def __post_init__(self) -> None:
        for setting in fields(self):
            if getattr(self, setting.name) is None and "None" not in str(setting.type):
                raise InputError(f"{setting.name} is None", do="give a value, or leave it out")
        positive = (
            "steps",
            "batch_size",
            "accumulate",
            "per_triplet",
            "validate_every",
            "validation_depth",
            "validation_queries",
            "validation_documents",
            "log_every",
            "save_every",
        )
        for name in positive:
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}", do="it must be at least 1")
        if (self.loss.target == "teacher" and self.loss.in_batch) != (self.in_batch_teacher is not None):
            problem = "a teacher's in-batch targets and an in-batch teacher go together"
            raise InputError(problem, do="give both --in-batch and --in-batch-teacher with target teacher, or neither")
        if self.patience is not None and self.patience < 1:
            raise InputError(f"patience is {self.patience}", do="it must be at least 1")
        self.rates()  # an InputError for values that make no schedule
        if self.clip is not None and not self.clip > 0:
            raise InputError(f"clip is {self.clip}", do="it must be above 0")
        if not 0 <= self.weight_decay < math.inf:
            raise InputError(f"weight_decay is {self.weight_decay}", do="it must be a number, 0 or above")
        if not 0 <= self.seed < 2**63:
            raise InputError(f"seed is {self.seed}", do="it must be at least 0 and below 2**63")
        if self.token_budget is not None and self.token_budget < 1:
            raise InputError(f"token_budget is {self.token_budget}", do="it must be at least 1")
        if self.lora is not None and self.lora < 1:
            raise InputError(f"lora is {self.lora}", do="it is a rank of at least 1, such as 16")
        if self.sampler not in get_args(SamplerName):
            raise InputError(f"unknown sampler {self.sampler!r}", do=f"use {', '.join(get_args(SamplerName))}")
        if self.clusters is not None and self.clusters < 1:
            raise InputError(f"clusters is {self.clusters}", do="it must be at least 1")
        if self.clusters is not None and self.sampler == "random":
            raise InputError("clusters without a sampler that has them", do="use the sampler tas or tas-balanced")
        if not 0 <= self.drop_bins <= 9:
            raise InputError(f"drop_bins is {self.drop_bins}", do="there are 10 bins: leave out 0 to 9 of them")
        if self.drop_bins and self.sampler != "tas-balanced":
            raise InputError("drop_bins without a sampler that has bins", do="use the sampler tas-balanced")
        if self.per_triplet > 1 and self.sampler == "tas-balanced":
            do = "use the sampler random or tas, or one negative"
            raise InputError(f"per_triplet is {self.per_triplet}, but tas-balanced draws pairs of one negative", do=do)
        if self.engine not in get_args(EngineName):
            raise InputError(f"unknown engine {self.engine!r}", do=f"use {', '.join(get_args(EngineName))}")
        if self.compile not in get_args(Compile):
            raise InputError(f"unknown compile {self.compile!r}", do=f"use {', '.join(get_args(Compile))}")
        if self.precision not in ("auto", "32", "bf16", "16"):
            raise InputError(f"unknown precision {self.precision!r}", do="use auto, 32, bf16 or 16")

    @classmethod
    def preset(cls, preset: str = "default", **changes: Any) -> FitSettings:
        """The settings of a preset, with some of them changed; those of the loss go by their own names.

        A None is a value like any other: `clip=None` trains without gradient clipping, `patience=None` without early
        stopping.

        Args:
            preset: default, paper, or released: what the paper says, and what its released code does.
            **changes: values for fields of `FitSettings` and of `LossSettings`.

        Raises:
            InputError: for an unknown preset, and for a value that makes no sense or has no effect.

        Example:
            >>> settings = FitSettings.preset("paper", steps=10, target="adaptive")
            >>> settings.steps, settings.batch_size, settings.loss.target
            (10, 128, 'adaptive')
            >>> FitSettings.preset("paper", batch_size=64).peak_rate == 5e-6 / 64
            True
        """
        if preset not in PRESETS:
            raise InputError(f"unknown preset {preset!r}", do=f"use {', '.join(PRESETS)}")
        values = {**PRESETS[preset], **changes}
        if preset == "paper":
            values.setdefault("learning_rate", PAPERS_RATE / (values["batch_size"] or 1))
        loss = {field.name for field in fields(LossSettings)} & values.keys()
        return cls(loss=LossSettings(**{name: values.pop(name) for name in loss}), **values)

    @property
    def peak_rate(self) -> float:
        """The peak learning rate: as given, or as follows from how many triplets there are in all steps.

        >>> FitSettings(steps=800, batch_size=128).peak_rate, FitSettings(learning_rate=0.1).peak_rate
        (0.0001, 0.1)
        """
        if self.learning_rate is not None:
            return self.learning_rate
        return rate_for(self.steps * self.batch_size * self.accumulate)

    def rates(self) -> RateSchedule:
        """The learning rate of each step."""
        return RateSchedule(self.peak_rate, self.steps, self.warm_up, self.schedule, self.gamma)


# The rule of `rate_for`, which the study of the recipe's rates and lengths bears out (`reproduce beyond-lengths`).
HIGHEST_RATE = 2e-4
AT_HIGHEST_RATE = 25_600  # triplets


def rate_for(triplets: int) -> float:
    """The peak learning rate for a training run of so many triplets.

    High for short training runs, as blending goes back a part of the way. Longer ones go too far with it: their rate
    falls with the square root of their length.

    >>> [rate_for(triplets) for triplets in (6_400, 25_600, 102_400)]
    [0.0002, 0.0002, 0.0001]
    """
    return HIGHEST_RATE * min(1.0, math.sqrt(AT_HIGHEST_RATE / triplets))


# What the paper and its released code have in common, and the learning rate in which they differ.
_PAPER: dict[str, Any] = {
    "target": "distributed",
    "validation_depth": 1000,
    "batch_size": 128,
    "eight_bit": True,  # left out where bitsandbytes does not run, see `states_here`
    "attention_dropout": True,  # dropout as the backbone has it
    "warm_up": 0.0,
    "schedule": "exponential",
    "gamma": 0.99999,
    "weight_decay": 1e-6,
    "clip": None,
    "validate_every": 500,
    "patience": 16,
}
PAPERS_RATE = 5e-6  # divided by the batch size
PRESETS: dict[str, dict[str, Any]] = {
    "default": {},
    "paper": _PAPER,  # its learning rate depends on the batch size, see `FitSettings.preset`
    "released": {**_PAPER, "learning_rate": 5e-7},
}


def parse_dims(dims: str | int | Iterable[int]) -> tuple[int, ...]:
    """Dimensions as they are given, the largest first, each once.

    >>> parse_dims("128, 384,128"), parse_dims([64]), parse_dims("")
    ((384, 128), (64,), ())
    """
    parts = dims.split(",") if isinstance(dims, str) else [dims] if isinstance(dims, int) else list(dims)
    try:
        numbers = {int(part) for part in parts if str(part).strip()}
    except ValueError:
        numbers = {0}
    if min(numbers, default=1) < 1:
        raise InputError(f"dims is {dims!r}", do="write whole numbers above 0 with commas between: 384,256,128")
    return tuple(sorted(numbers, reverse=True))


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text
