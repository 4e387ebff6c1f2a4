"""Which teacher a study has: dev chooses its learning rate, then its length."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from remargin.data.collection import Collection
from remargin.errors import InputError
from remargin.evaluation.runs import Run
from remargin.files.shapes import Count, Finite
from remargin.model.cross_encoder import CrossEncoder
from remargin.teacher.training import Diverged, TeacherSettings, train_cross_encoder


class TrialRecord(TypedDict):
    """A trial in teacher.json; without a measure if its loss was no number."""

    learning_rate: Finite
    epochs: Count
    dev: Finite | None
    seconds: Finite


@dataclass(frozen=True)
class Trial:
    """A cross-encoder that was trained, and how well it re-ranks the dev queries.

    Attributes:
        settings: how.
        folder: where the cross-encoder is.
        dev: the measure; None if the loss was no number.
        seconds: how long it took.
    """

    settings: TeacherSettings
    folder: Path
    dev: float | None
    seconds: float

    def record(self) -> TrialRecord:
        """As teacher.json has it."""
        return {
            "learning_rate": self.settings.learning_rate,
            "epochs": self.settings.epochs,
            "dev": self.dev,
            "seconds": self.seconds,
        }


def best_teacher(
    rates: Sequence[float], epochs: Sequence[int], tried: Callable[[TeacherSettings], Trial]
) -> tuple[Trial, list[Trial]]:
    """The trial that is best on dev, and the others: all rates with the first length, all lengths with the best rate.

    Args:
        rates: the grid of peak learning rates.
        epochs: the grid of lengths.
        tried: trains a cross-encoder, or finds the one that was trained before.

    Raises:
        InputError: if no trial has a measure.
    """
    trials = [tried(TeacherSettings(epochs=epochs[0], learning_rate=rate)) for rate in rates]
    rate = _best(trials).settings.learning_rate
    trials += [tried(TeacherSettings(epochs=length, learning_rate=rate)) for length in epochs[1:]]
    best = _best(trials)
    return best, [trial for trial in trials if trial is not best]


def _best(trials: Sequence[Trial]) -> Trial:
    """The highest on dev; of several alike, the first."""
    measured = [trial for trial in trials if trial.dev is not None]
    if not measured:
        rates = ", ".join(f"{trial.settings.learning_rate:g}" for trial in trials)
        raise InputError(f"no teacher learned at a rate of {rates}", do="give lower ones: --teacher-rates")
    return max(measured, key=lambda trial: trial.dev or 0.0)


@dataclass(frozen=True)
class Trials:
    """Trains cross-encoders on the same triplets. Each has a folder of its own, so an interrupted choice resumes.

    Attributes:
        backbone: the encoder that they are trained from.
        train, dev: the collection's splits.
        triplets: a table of ids.
        first_stage: BM25's documents for the dev queries.
        work: where they are kept.
        say: gets a line for people now and then.
    """

    backbone: str
    train: Collection
    dev: Collection
    triplets: Path
    first_stage: Run
    work: Path
    say: Callable[[str], None]

    def __call__(self, settings: TeacherSettings) -> Trial:
        """Train one, or find it."""
        folder = self.work / f"teacher-{settings.learning_rate:g}-{settings.epochs}"
        began = time.perf_counter()
        try:
            trained = train_cross_encoder(
                CrossEncoder.from_pretrained(self.backbone), self.train, self.triplets, folder, settings, self.dev,
                self.first_stage, skip_bad=True, overwrite=True, say=self.say,
            )  # fmt: skip
        except Diverged as diverged:
            self.say(f"the teacher's learning rate of {settings.learning_rate:g} is too high: {diverged.problem}")
            return Trial(settings, folder, None, round(time.perf_counter() - began, 3))
        return Trial(settings, folder, trained.best, trained.seconds)
