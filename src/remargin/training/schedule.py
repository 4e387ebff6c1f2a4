"""How long to train: steps that follow from the data and from the time there is, and how long they will take."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from remargin.data.training_data import TrainingData
from remargin.errors import InputError
from remargin.files.headers import read_record, write_header
from remargin.files.shapes import Finite, Size
from remargin.model.checkpoint import own_random_state
from remargin.model.compute import fast_precision
from remargin.model.encoder import BiEncoder
from remargin.model.lora import Lora
from remargin.training.batches import Batches
from remargin.training.engine import Engine, MicroBatches
from remargin.training.log import duration
from remargin.training.samplers import RandomSampler
from remargin.training.settings import FitSettings

# The rule of `steps_for`. Triplets count, not steps: a larger batch takes fewer steps.
AIM = 25_600  # triplets: 200 steps of 128
CPU_AIM = 6_400  # a quarter: some minutes for a small encoder on two cores
LARGEST_EPOCH = 102_400  # triplets: one epoch is gone through, but at most 800 steps of 128
MOST_EPOCHS = 10
FEWEST_STEPS = 20

# A rehearsal goes through this many batches, two parts of each, and stops early when it takes too long.
REHEARSED_BATCHES = 5
REHEARSED_PARTS = 2
LONGEST_REHEARSAL = 5.0  # seconds

# What encoding costs of a forward and backward pass: the backward pass costs twice as much as the forward pass.
FORWARD = 1 / 3

FILE = "schedule.json"
FORMAT = "remargin-schedule-1"
REMEDY = "start the training run anew in another folder"


def steps_for(pairs: int, batch_size: int, epochs: float | None = None, on_cpu: bool = False) -> int:
    """How many steps to train on so many training pairs.

    Without `epochs`: as many as take in 25,600 triplets, or a whole epoch where that is more, up to 102,400 triplets;
    on a CPU, 6,400 triplets. But never more than 10 epochs, and at least 20 steps.

    Args:
        pairs: queries with a relevant document.
        batch_size: triplets of a step.
        epochs: how often to go through all pairs; the rule then does not apply.
        on_cpu: whether there is no GPU.

    Raises:
        InputError: for no pairs, and for epochs that are no positive number.

    Example:
        >>> [steps_for(pairs, 128) for pairs in (10, 300, 3_000, 30_000, 300_000)]
        [20, 24, 200, 235, 800]
        >>> [steps_for(pairs, 128, on_cpu=True) for pairs in (10, 300, 3_000, 30_000)]
        [20, 24, 50, 50]
        >>> steps_for(3_000, 128, epochs=2)
        47
    """
    if pairs < 1 or batch_size < 1:
        raise InputError(f"{pairs} training pairs in batches of {batch_size}", do="both must be at least 1")
    if epochs is not None:
        if not 0 < epochs < math.inf:
            raise InputError(f"epochs is {epochs}", do="it must be a number above 0")
        return max(1, math.ceil(epochs * pairs / batch_size))
    triplets = CPU_AIM if on_cpu else max(AIM, min(pairs, LARGEST_EPOCH))
    return max(FEWEST_STEPS, math.ceil(min(triplets, MOST_EPOCHS * pairs) / batch_size))


@dataclass(frozen=True)
class Rehearsal:
    """What a few passes took, without a single step.

    Attributes:
        seconds_per_step: of a whole step, all its batches included.
        triplets_per_step, tokens_per_step: how many it has.

    Example:
        >>> rehearsal = Rehearsal(seconds_per_step=6.0, triplets_per_step=128, tokens_per_step=30_000)
        >>> rehearsal.encoding_seconds(300_000)
        20.0
        >>> print(rehearsal.estimate(steps=100, overhead_seconds=120))
        about 12 min (100 steps of 128 at 21 triplets/s, then ranking)
    """

    seconds_per_step: float
    triplets_per_step: int
    tokens_per_step: int

    def encoding_seconds(self, tokens: int) -> float:
        """How long it takes to encode texts of that many tokens, as validation and ranking do."""
        return FORWARD * tokens * self.seconds_per_step / max(1, self.tokens_per_step)

    def shared_by(self, devices: int) -> Rehearsal:
        """The same steps on several devices like this one.

        >>> Rehearsal(seconds_per_step=6.0, triplets_per_step=128, tokens_per_step=30_000).shared_by(4).seconds_per_step
        1.5
        """
        return replace(self, seconds_per_step=self.seconds_per_step / devices)

    def estimate(self, steps: int, overhead_seconds: float = 0.0) -> str:
        """How long training will take, in words; the overhead is for validations and the rankings in the end."""
        speed = self.triplets_per_step / max(self.seconds_per_step, 1e-9)
        size = f"{steps:,} steps of {self.triplets_per_step:,} at {speed:,.{0 if speed >= 10 else 1}f} triplets/s"
        total = duration(steps * self.seconds_per_step + overhead_seconds)
        return f"about {total} ({size}{', then ranking' if overhead_seconds else ''})"


def rehearse(model: BiEncoder, data: str | Path, settings: FitSettings) -> Rehearsal:
    """Time a few forward and backward passes over real batches, and leave everything as it was.

    Weights, gradients and random numbers do not change, and so neither does the training run that follows. Nothing is
    written. The loss and the optimiser, which take little, are left out; batches are drawn at random even if training
    will draw them by topic.

    Args:
        model: the encoder that will be trained.
        data: the prepared folder, with triplets.
        settings: of the training run: batch size, precision, engine.

    Raises:
        InputError: if data and model do not fit.

    Example:
        >>> import tempfile
        >>> from remargin import Collection, mine, prepare
        >>> folder, model = Path(tempfile.mkdtemp()), BiEncoder.from_pretrained(model_folder)
        >>> _ = mine(Collection.load("docstrings:json,csv", "train"), folder / "triplets.tsv")
        >>> _ = prepare("docstrings:json,csv", model_folder, folder / "data", folder / "triplets.tsv",
        ...             document_length=model.document_length)
        >>> rehearsal = rehearse(model, folder / "data", FitSettings(batch_size=4))
        >>> rehearsal.triplets_per_step, rehearsal.seconds_per_step > 0
        (4, True)
    """
    training = TrainingData(data)
    training.require(model)
    sampler = RandomSampler.of(training.triplets, settings.batch_size, settings.seed, settings.per_triplet)
    batches = Batches(training, sampler)
    precision = fast_precision() if settings.precision == "auto" else settings.precision
    dtype = {"32": torch.float32, "bf16": torch.bfloat16, "16": torch.float16}[precision]
    plain = replace(settings, steps=1, compile="off")  # compiling takes a minute, and few training runs are compiled
    with (
        _untouched(model),
        _changed(model, settings),
        Engine(model, plain, model.device, dtype, batches.typical_lengths()) as engine,
    ):
        return time_batches(engine, batches, settings.accumulate)


def time_batches(engine: Engine, batches: Batches, accumulate: int = 1) -> Rehearsal:
    """Time passes of an engine over the first batches. The weights' gradients are those of the last pass afterwards."""
    seconds, timed, triplets, tokens = 0.0, 0, [], []
    for number in range(min(REHEARSED_BATCHES, batches.steps_per_epoch)):
        batch = batches.batch(number)
        whole = engine.split(batch.texts)
        triplets.append(len(batch.queries))
        tokens.append(whole.tokens)
        if seconds > LONGEST_REHEARSAL:
            continue
        some = _some_parts(whole)
        if engine.device.type != "cpu" or number == 0:
            _pass(engine, some)  # kernels are chosen, and graphs recorded, for a shape that is new
        began = time.perf_counter()
        _pass(engine, some)
        seconds += time.perf_counter() - began
        timed += some.tokens
    per_step = accumulate * sum(tokens) / len(tokens)
    return Rehearsal(
        seconds_per_step=seconds / timed * per_step,
        triplets_per_step=round(accumulate * sum(triplets) / len(triplets)),
        tokens_per_step=round(per_step),
    )


def _pass(engine: Engine, batch: MicroBatches) -> None:
    """Forward and backward, with some gradient for every vector, to the end of the device's work."""
    with engine.embed(batch) as vectors:
        vectors.square().sum().backward()
    if engine.device.type == "cuda":
        torch.cuda.synchronize(engine.device)


def _some_parts(batch: MicroBatches) -> MicroBatches:
    """A few parts of a batch, from short texts to long ones, to be computed as in the whole batch."""
    if len(batch.parts) <= REHEARSED_PARTS:
        return batch
    places = np.linspace(0, len(batch.parts) - 1, REHEARSED_PARTS).round().astype(int)
    parts = [batch.parts[place] for place in places]
    texts = sum(len(part.bounds) - 1 - part.fillers for part in parts)
    tokens = sum(len(part.ids) for part in parts)
    return MicroBatches(parts, np.arange(texts), tokens, batch.computed)  # by which it knows if all fits into memory


@contextmanager
def _changed(model: BiEncoder, settings: FitSettings) -> Iterator[None]:
    """The model as it will be trained: with low-rank changes, if it is by them."""
    lora = None if settings.lora is None else Lora(model, settings.lora, settings.seed)
    try:
        yield
    finally:
        if lora is not None:
            lora.detach()


@contextmanager
def _untouched(model: BiEncoder) -> Iterator[None]:
    """The gradients of a model and the random state are afterwards what they were before."""
    gradients = [(weight, weight.grad) for weight in model.parameters()]
    kept = [None if gradient is None else gradient.clone() for _, gradient in gradients]
    with own_random_state():
        try:
            yield
        finally:
            for (weight, gradient), before in zip(gradients, kept, strict=True):
                weight.grad = gradient
                if gradient is not None and before is not None:
                    gradient.copy_(before)  # it may have been added to in place


class StepsWithin(NamedTuple):
    """How many steps fit into a time, and a line for people if it is not as many as wanted."""

    steps: int
    note: str | None


def steps_within(minutes: float, seconds_per_step: float, overhead_seconds: float, steps: int) -> StepsWithin:
    """As many of the steps as fit into some minutes, beside the overhead; at least 20, or all if they are fewer.

    Args:
        minutes: the time there is.
        seconds_per_step: as rehearsed.
        overhead_seconds: for validations, and for rankings before and after.
        steps: how many there would be without a limit.

    Raises:
        InputError: if the minutes are no positive number.

    Example:
        >>> steps_within(10, seconds_per_step=2.0, overhead_seconds=100, steps=200)
        StepsWithin(steps=200, note=None)
        >>> print(steps_within(5, seconds_per_step=2.0, overhead_seconds=100, steps=200).note)
        100 steps instead of 200, to fit into 5 minutes
        >>> print(steps_within(1, seconds_per_step=2.0, overhead_seconds=100, steps=200).note)
        20 steps, the fewest, will take about 2 min: longer than the 1 minute that was asked for
    """
    if not 0 < minutes < math.inf:
        raise InputError(f"minutes is {minutes}", do="it must be a number above 0")
    fewest = min(steps, FEWEST_STEPS)
    fitting = int((60 * minutes - overhead_seconds) / max(seconds_per_step, 1e-9))
    if fitting >= steps:
        return StepsWithin(steps, None)
    asked = f"{minutes:g} minute{'' if minutes == 1 else 's'}"
    if fitting >= fewest:
        return StepsWithin(fitting, f"{fitting:,} steps instead of {steps:,}, to fit into {asked}")
    total = duration(fewest * seconds_per_step + overhead_seconds)
    note = f"{fewest} steps, the fewest, will take about {total}: longer than the {asked} that was asked for"
    return StepsWithin(fewest, note)


@dataclass(frozen=True)
class StepPlan:
    """How many steps a training run has, as it was resolved when the run began: a resumed run reads it, and times
    nothing.

    Attributes:
        steps: optimiser steps.
        epochs: of the training pairs, that these steps are.
        minutes: the limit that was asked for.
        seconds_per_step: as rehearsed, if it was.

    Example:
        >>> import tempfile
        >>> folder, plan = Path(tempfile.mkdtemp()), StepPlan(steps=200, epochs=8.5, minutes=10, seconds_per_step=2.5)
        >>> plan.save(folder)
        >>> StepPlan.load(folder) == plan, StepPlan.load(folder / "another") is None
        (True, True)
    """

    steps: Size
    epochs: Finite
    minutes: Finite | None = None
    seconds_per_step: Finite | None = None

    def save(self, folder: Path) -> None:
        """Write schedule.json into a training run's folder."""
        write_header(folder / FILE, {"format": FORMAT, **asdict(self)})

    @classmethod
    def load(cls, folder: Path) -> StepPlan | None:
        """The plan in a training run's folder, if there is one.

        Raises:
            InputError: if it is damaged.
        """
        return read_record(folder / FILE, cls, FORMAT, REMEDY) if (folder / FILE).exists() else None
