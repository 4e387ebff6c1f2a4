"""Training that has gone wrong is stopped, and the message says why."""

from __future__ import annotations

import math

from torch import Tensor, nn

from remargin.errors import InputError
from remargin.model.checkpoint import Progress
from remargin.training.settings import FitSettings

# Mean cosine among a batch's positives: above the first, an encoder has collapsed in training; above the second, its
# vectors are all the same, which is too much even for one that began collapsed.
COLLAPSED = 0.9999
ALL_THE_SAME = 1 - 1e-7


class Watch:
    """Stops training that has gone wrong, and says why."""

    def __init__(self, settings: FitSettings, progress: Progress) -> None:
        self._do = f"use a lower learning rate than {settings.peak_rate:g}, or a longer warm-up"
        self._progress = progress

    def check(self, loss: Tensor, positives: Tensor) -> None:
        """Raise an InputError if a step's loss is not a number, or its vectors are all alike."""
        step = self._progress.step
        if not math.isfinite(loss.item()):
            raise InputError(f"the loss is {loss.item()} at step {step}", do=self._do)
        unit = nn.functional.normalize(positives.detach().double(), dim=1)
        pairs = len(unit) * (len(unit) - 1)
        alike = float((unit.sum(0).square().sum() - len(unit)) / max(1, pairs))
        if step == 1 and alike > COLLAPSED:
            self._progress.began_alike = True  # an encoder without any training is like that, and may yet learn
        if pairs and alike > (ALL_THE_SAME if self._progress.began_alike else COLLAPSED):
            raise InputError(f"the encoder has collapsed at step {step}: it maps all texts to one vector", do=self._do)
