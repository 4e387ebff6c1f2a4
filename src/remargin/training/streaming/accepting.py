"""From time to time: is the model better than the last accepted one? Then a blend of both takes its place."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from remargin.errors import InputError
from remargin.model.blend import blended
from remargin.model.encoder import BiEncoder
from remargin.training.away import Away, AwayMeasured
from remargin.training.blending import choose_weight
from remargin.training.measuring import MODEL, UNCHOSEN_WEIGHT
from remargin.training.validation import Validator

POINTS = (0.0, 0.5, 1.0)  # weights of the trained model among which dev chooses; 0 keeps the accepted one


@dataclass(frozen=True)
class Decision:
    """What became of the model at one validation.

    Attributes:
        weight: of the trained weights in the newly accepted model; 0 if the last accepted one stays.
        home: the measure of the accepted model on dev, if there is one.
        away: that of the accepted model on other texts, if it is measured; `away_by` is the measure there.
    """

    weight: float
    home: float | None = None
    away: float | None = None
    away_by: str = ""

    def line(self, measure: str, begun: bool = True) -> str:
        """The decision in words; of the encoder before training, if that has not begun.

        >>> Decision(0.5, 0.61, 0.4, "nDCG@10").line("nDCG@10")
        'accepted, blended with the last accepted model (weight 0.5): nDCG@10 0.6100 on dev; elsewhere nDCG@10 0.4000'
        """
        blended = f"accepted, blended with the last accepted model (weight {self.weight:g})"
        words = {0.0: "not accepted, the last accepted model stays", 1.0: "accepted (weight 1)"}
        home = [] if self.home is None else [f"{measure} {self.home:.4f} on dev"]
        away = [] if self.away is None else [f"elsewhere {self.away_by} {self.away:.4f}"]
        what = words.get(self.weight, blended) if begun else "before training"
        return f"{what}: {'; '.join(home + away)}" if home or away else what


class Acceptance:
    """The last accepted model, and what has to happen for another one to take its place.

    Dev chooses the weight of the trained model: 0 keeps the accepted one, unless a half or all of the way is better;
    without dev, or with a weight that is given, each validation goes that far towards the trained model. So an encoder
    that a stretch of the stream has drawn to its own topic is averaged with those from before.

    Args:
        start: loads the encoder before training, which is the first that is accepted.
        home: dev, if there is one that can choose.
        away: other texts; they choose nothing.
        weight: of the trained model, if dev does not choose it.

    Example:
        >>> def start() -> BiEncoder:
        ...     return BiEncoder.from_pretrained(model_folder)
        >>> Acceptance(start, None, None, 0.25).consider(start())
        Decision(weight=0.25, home=None, away=None, away_by='')
    """

    def __init__(
        self, start: Callable[[], BiEncoder], home: Validator | None, away: Away | None, weight: float | None = None
    ) -> None:
        self.model = start().eval()
        self._start, self._home, self._away, self._weight = start, home, away, weight
        self._before: AwayMeasured | None = None  # elsewhere, the encoder before training
        self.value: float | None = None  # of the accepted model on dev

    def begin(self) -> Decision:
        """Measure the encoder before training."""
        self.value = self._at_home()
        return Decision(0.0, self.value, *self._elsewhere())

    def consider(self, learner: BiEncoder) -> Decision:
        """Accept the trained encoder, a blend of it with the accepted one, or nothing."""
        trained = copy.deepcopy(learner).eval()
        trained.query_length, trained.document_length = self.model.query_length, self.model.document_length
        walker = copy.deepcopy(trained)
        weight = self._choose(trained, walker)
        if weight > 0:
            self.model = blended(self.model, trained, weight, into=walker)
            self.value = self._at_home()
        return Decision(weight, self.value, *(self._elsewhere() if weight > 0 else ()))

    def publish(self, out: Path) -> None:
        """Put the accepted model's folder in place, all of it at once, so that `serve` takes it over."""
        with suppress(InputError):
            if BiEncoder.from_pretrained(out / MODEL).fingerprint() == self.model.fingerprint():
                return
        self.model.save(out / MODEL, overwrite=True)

    def _choose(self, trained: BiEncoder, walker: BiEncoder) -> float:
        if self._weight is not None or self._home is None or self.value is None:
            return UNCHOSEN_WEIGHT if self._weight is None else self._weight
        home, points = self._home, POINTS[1:]
        values = [home.evaluate(blended(self.model, trained, at, into=walker)).means[home.measure] for at in points]
        return choose_weight(POINTS, [self.value, *values])

    def _at_home(self) -> float | None:
        return None if self._home is None else self._home.evaluate(self.model).means[self._home.measure]

    def _elsewhere(self) -> tuple[float, str] | tuple[()]:
        if self._away is None:
            return ()
        if self._before is None:
            self._before = self._away.measure(self._start())
        return self._away.compare(self._before, self._away.measure(self.model)).after, self._away.by
