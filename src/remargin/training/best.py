"""The best model of a training run: selected by validation, and kept."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from remargin.errors import InputError
from remargin.evaluation.comparison import Scores
from remargin.files.atomic import replace_folder
from remargin.model.checkpoint import Progress
from remargin.model.encoder import BiEncoder
from remargin.model.folder import verify_model
from remargin.model.parts import OURS
from remargin.training.engine import Encodes
from remargin.training.log import Log, Meter
from remargin.training.validation import Validator


class Best:
    """Validates, keeps the best model so far in `out/best`, and knows when to stop early.

    Without a validator it does nothing.
    """

    def __init__(
        self,
        out: Path,
        validator: Validator | None,
        patience: int | None,
        progress: Progress,
        validated: Callable[[int, Scores], None] | None = None,
    ) -> None:
        self._folder, self._checkpoint = out / "best", out / "checkpoint"
        self._validator, self._patience = validator, patience
        self._progress, self._validated = progress, validated

    @property
    def out_of_patience(self) -> bool:
        """Whether the last `patience` validations all brought no gain, so that training ends (early stopping)."""
        return self._patience is not None and self._progress.without_gain >= self._patience

    def validate(self, engine: Encodes, model: BiEncoder, log: Log, meter: Meter) -> None:
        """Measure the model as it is now, and keep it if it is the best so far. The meter leaves out the time."""
        if self._validator is None:
            return
        began, progress = time.perf_counter(), self._progress
        values = self._validator(engine, model.similarity)
        value = values[self._validator.measure]
        progress.validations.append((progress.step, values))
        log.validation(progress.step, values)
        if self._validated is not None:
            self._validated(progress.step, self._validator.per_query)
        if progress.best is None or value > progress.best:
            progress.best, progress.best_step, progress.best_triplets = value, progress.step, progress.triplets
            progress.without_gain = 0
            self._keep(model)
        else:
            progress.without_gain += 1
        meter.pause(time.perf_counter() - began)

    def _keep(self, model: BiEncoder) -> None:
        """Save the model as the best.

        The checkpoint on disk still goes with the best model before this one. So that one is moved into it, where
        `restore` finds it if training is resumed from that checkpoint; the next checkpoint goes with the new one.
        """
        kept = self._checkpoint / "best"
        if self._folder.exists() and self._checkpoint.exists() and not kept.exists():
            self._folder.rename(kept)
        model.save(self._folder, overwrite=True)

    def restore(self) -> None:
        """When a training run is resumed, make `out/best` the best model as of the checkpoint.

        A better model from after the checkpoint is dropped: the resumed training run may not reach it again.

        Raises:
            InputError: if it is missing or damaged, or is the best by another measure.
        """
        kept, progress = self._checkpoint / "best", self._progress
        if kept.exists():
            replace_folder(self._folder, kept)
        do = "start the training run anew in another folder"
        if progress.best_step is not None and not (self._folder / OURS).is_file():
            raise InputError("the best model of the training run is missing", file=self._folder, do=do)
        if progress.best_step is not None:
            verify_model(self._folder, do)
        measure = None if self._validator is None else self._validator.measure
        if measure is not None and any(measure not in values for _, values in progress.validations):
            problem = f"the training run was not validated by {measure} before"
            do = "resume with the same measure, or start another training run"
            raise InputError(problem, file=self._folder.parent, do=do)
