"""What a training run of a study is: a name for everything that decides its outcome."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from remargin.model.optimisation import Schedule
from remargin.training.settings import LossSettings


@dataclass(frozen=True)
class RunSpec:
    """One training run. Equal specs are one run, whichever table asks for it.

    Attributes:
        model: the name of the backbone in the study.
        target: as for `LossSettings`; `in_batch`, `stop_gradient` and `temperature` too.
        batch_size: triplets in a batch; `triplets` in all.
        rate: the peak learning rate.
        released: another loss than the settings of `fit` have; the study is told how to build it.
        sampler: how batches are drawn, with `drop_bins`.
        early_stopping: with the plan's patience; else all triplets are seen.
        teacher_scale: what a teacher's margins are multiplied with beside their natural scale, see `natural_scale`.
        margin_weight, spread: of the softmax loss, as for `LossSettings`.
        unstopped: whether gradients go through the targets of the softmax loss, which stops them.
        learned_temperature: whether the contrastive loss learns its temperature.
        warm_up: the share of the steps for linear warm-up; None for the preset's.
        negatives: how many negatives of a triplet are in a step.
        second_round: whether its negatives were mined by the model of the same run without it, see `first_round`.
        schedule: of the learning rate; None for the preset's.
        validate_every: triplets between validations; None for the plan's.
        in_batch_teacher: the system whose model scores the pairs of a batch, for a run with two teachers.
        mask_known: whether the contrastive loss leaves out the documents that the batch shows to be relevant.
    """

    model: str
    target: str
    batch_size: int
    triplets: int
    rate: float
    seed: int = 0
    in_batch: bool = False
    stop_gradient: bool = False
    temperature: float = 0.05
    released: bool = False
    sampler: str = "random"
    drop_bins: int = 0
    early_stopping: bool = False
    teacher_scale: float = 1.0
    margin_weight: float = 0.5
    spread: str = "row"
    unstopped: bool = False
    learned_temperature: bool = False
    warm_up: float | None = None
    negatives: int = 1
    second_round: bool = False
    schedule: Schedule | None = None
    validate_every: int | None = None
    in_batch_teacher: str = "contrastive"
    mask_known: bool = True

    @property
    def first_round(self) -> RunSpec | None:
        """The run whose model, half-way from its start, mines the negatives of this one; None for BM25's negatives.

        >>> first = RunSpec("minilm", "softmax", 128, 100_000, 2e-4)
        >>> replace(first, second_round=True).first_round == first
        True
        """
        return replace(self, second_round=False) if self.second_round else None

    @property
    def taught(self) -> bool:
        """Whether it needs a teacher's scores."""
        return self.target == "teacher" or self.sampler == "tas-balanced"

    @property
    def two_teachers(self) -> bool:
        """Whether a second one scores the pairs of a batch, as for TAS-B's dual supervision."""
        return self.target == "teacher" and self.in_batch

    @property
    def key(self) -> str:
        """A name for its folder, different for different runs. Fields at their default are left out of the hash, so
        that new ones keep old names.

        >>> RunSpec("minilm", "0.3", 128, 100_000, 1e-4, in_batch=True).key
        'minilm-0.3-in-batch-d3d63295'
        """
        given = {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != f.default}
        content = json.dumps(given, sort_keys=True).encode()
        words = [self.model, self.target, *(["in-batch"] if self.in_batch else [])]
        slug = re.sub(r"[^\w.-]+", "-", "-".join(words))
        return f"{slug}-{hashlib.blake2b(content, digest_size=4).hexdigest()}"

    def settings(self) -> dict[str, Any]:
        """Its part of `FitSettings`."""
        given = {
            "stop_gradient": True if self.stop_gradient else False if self.unstopped else None,
            "margin_weight": None if self.margin_weight == 0.5 else self.margin_weight,
            "spread": None if self.spread == "row" else self.spread,
            "temperature": "learned" if self.learned_temperature else self.temperature,
        }
        loss: dict[str, Any] = {
            name: value for name, value in given.items() if value is not None
        }  # else the loss's own
        settings = {
            **asdict(LossSettings(target=self.target, in_batch=self.in_batch, error="l2", **loss)),
            "batch_size": self.batch_size,
            "learning_rate": self.rate,
            "seed": self.seed,
            "sampler": self.sampler,
            "drop_bins": self.drop_bins,
        }
        further = {
            "warm_up": self.warm_up,
            "schedule": self.schedule,
            "per_triplet": None if self.negatives == 1 else self.negatives,
        }
        return settings | {name: value for name, value in further.items() if value is not None}
