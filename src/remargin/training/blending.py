"""Blending: how far to go from the starting weights to the trained ones, chosen on dev.

Training moves the weights along a path whose end need not be its best point, and the further it goes, the more the
encoder forgets of other texts. So points on the straight line from start to end are measured, and the nearest one to
the start is taken that keeps nearly all of the gain.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from remargin.data.collection import Collection, open_collection
from remargin.errors import InputError, refuse_idle
from remargin.evaluation.significance import ROUNDING
from remargin.files.atomic import refuse_existing
from remargin.model.blend import blended, require_alike, similarity_trained
from remargin.model.encoder import BiEncoder
from remargin.model.parts import OURS
from remargin.progress import track
from remargin.reports.blend_file import AwayValues, BlendPath
from remargin.retrieval.encoders import as_encoder, given_texts
from remargin.training.settings import FitSettings
from remargin.training.validation import Validator

KEEP = 0.9  # the share of the best gain over the start that the chosen weight keeps at least
POINTS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
COARSE_POINTS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
MANY_TEXTS = 1_500  # on a CPU, with more texts than this to encode for each point, the coarse points do


@dataclass(frozen=True)
class Elsewhere:
    """What to measure beside dev at every point: a collection that the model was not trained on.

    Attributes:
        data: its name, for people.
        measure: the name of the measure.
        of: the mean of the measure for an encoder.
    """

    data: str
    measure: str
    of: Callable[[BiEncoder], float]


def blend_path(
    start: BiEncoder,
    trained: BiEncoder,
    validator: Validator,
    points: Sequence[float] | None = None,
    away: Elsewhere | None = None,
    weight: float | None = None,
) -> BlendPath:
    """Measure points between the starting and the trained weights, and choose one by the validator's measure.

    The same models and the same validator give the same path: one that was interrupted is measured again.

    Args:
        start: the encoder before training.
        trained: the same encoder after training.
        validator: for texts that are tokenised as `trained` does it.
        points: weights of the trained model, ascending from 0 to 1; without them, `POINTS`, or `COARSE_POINTS` where
            one point takes long.
        away: measured at each point too. It chooses nothing.
        weight: of the trained model, if it is given; then only it and both ends are measured, and nothing is chosen.

    Raises:
        InputError: if the two models, or models and validator, do not belong together.

    Example:
        >>> start, trained = (BiEncoder.from_pretrained(model_folder) for _ in range(2))
        >>> dev = Collection.load("docstrings:json,csv", "dev")
        >>> path = blend_path(start, trained, Validator.of(dev, trained, FitSettings(validation_depth=None)))
        >>> path.points == list(POINTS), path.weight  # both models are the same, so there is no gain
        (True, 0.0)
    """
    if weight is not None:
        points = sorted({0.0, weight, 1.0})
    points = points_for(validator, trained) if points is None else points
    if not (points[0] == 0 and points[-1] == 1 and sorted(set(points)) == list(points)):
        raise InputError(f"the points {', '.join(map(str, points))}", do="give ascending ones from 0 to 1")
    require_alike(start, trained)
    walker = copy.deepcopy(trained)
    values: dict[str, list[float]] = {}
    elsewhere: list[float] = []
    for point in track(points, "blending", total=len(points)):
        model = blended(start, trained, point, into=walker)
        for measure, value in validator.evaluate(model).means.items():
            values.setdefault(measure, []).append(value)
        if away is not None:
            elsewhere.append(away.of(model))
    return BlendPath(
        measure=validator.measure,
        points=list(points),
        values=values,
        weight=choose_weight(points, values[validator.measure]) if weight is None else weight,
        split=validator.split,
        queries=len(validator.queries),
        ranked=validator.describe(),
        away=None if away is None else AwayValues(away.data, away.measure, elsewhere),
        given=weight is not None,
    )


def points_for(validator: Validator, model: BiEncoder) -> tuple[float, ...]:
    """The points to measure: fewer where one of them takes long."""
    return COARSE_POINTS if model.device.type == "cpu" and validator.texts > MANY_TEXTS else POINTS


def choose_weight(points: Sequence[float], values: Sequence[float], keep: float = KEEP) -> float:
    """The smallest point that keeps a share of the best gain over the first point, on the smoothed curve.

    The first point only if no point is above it. A point that is not itself above the first is not chosen: if the
    smoothed curve has no other, the curve as it was measured decides.

    Args:
        points: weights of the trained model, ascending from 0, evenly spaced.
        values: a measure at each of them, higher is better.
        keep: the share, 0 to 1.

    Example:
        >>> choose_weight([0, 0.25, 0.5, 0.75, 1], [0.50, 0.60, 0.62, 0.62, 0.60])
        0.5
        >>> choose_weight([0, 0.25, 0.5, 0.75, 1], [0.50, 0.49, 0.45, 0.40, 0.30])
        0
    """
    above = [value - values[0] > ROUNDING for value in values]
    if not any(above):
        return points[0]
    for curve in (smoothed(values), list(values)):
        enough = keep * max(value - curve[0] for value in curve) - ROUNDING
        for point, value, is_above in zip(points, curve, above, strict=True):
            if is_above and value - curve[0] > ROUNDING and value - curve[0] >= enough:
                return point
    raise AssertionError("the highest value is above the first")


def smoothed(values: Sequence[float]) -> list[float]:
    """Half of each value and a quarter of either neighbour; both ends as they are.

    A few hundred queries leave noise in a measure, but neighbouring points are nearly the same encoder.

    >>> smoothed([0, 4, 0, 0])
    [0, 2.0, 1.0, 0]
    """
    inner = zip(values, values[1:], values[2:], strict=False)
    return [*values[:1], *(before / 4 + value / 2 + after / 4 for before, value, after in inner), *values[1:][-1:]]


class Blended(NamedTuple):
    """A model between two.

    Attributes:
        model: the encoder.
        weight: of the trained weights.
        path: what was measured to choose it, if it was.
    """

    model: BiEncoder
    weight: float
    path: BlendPath | None = None


def blend(
    start: str | Path | BiEncoder,
    trained: str | Path | BiEncoder,
    weight: float | str | None = None,
    out: str | Path | None = None,
    data: str | Path | Collection | None = None,
    split: str | None = None,
    measure: str | None = None,
    skip_bad: bool = False,
    overwrite: bool = False,
    query_length: int | None = None,
    document_length: int | None = None,
    query_prefix: str | None = None,
    document_prefix: str | None = None,
    pooling: str | None = None,
    similarity: str | None = None,
) -> Blended:
    """Blend a trained encoder with the encoder that it was trained from, as `remargin blend` does.

    The weights are `weight` x trained + (1 - `weight`) x start. With a collection, the weight is chosen on its dev
    split: the smallest that keeps 90% of the best gain over the start. A raw backbone, which was never trained to
    encode texts, is no start to go back to: the weight is then 1.

    Args:
        start: the encoder before training, its folder, or its Hugging Face name.
        trained: the encoder after training, likewise. Maximum lengths and prefixes are its own, if not given.
        weight: of the trained weights, 0 to 1; or "auto", which chooses it on `data`.
        out: the model folder to write.
        data: the collection to choose the weight on, or what `Collection.load` takes.
        split: to choose the weight on; "dev" if not given.
        measure: to choose the weight by; "nDCG@10" if not given.
        skip_bad: skip bad input in `data`, and count it in a warning.
        overwrite: replace `out` if it is there.
        query_length, document_length, query_prefix, document_prefix, pooling, similarity: of both models, instead of
            their own.

    Raises:
        InputError: for bad input, models that do not belong together, and options that have no effect.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> BiEncoder.from_pretrained(model_folder).save(folder / "start")
        >>> blend(folder / "start", folder / "start", 0.5, folder / "half").weight
        0.5
        >>> blend(folder / "start", folder / "start", data="docstrings:json,csv").path.measure
        'nDCG@10'
    """
    if out is not None:
        refuse_existing(Path(out), overwrite, OURS)
    given = _given_weight(weight, has_data=data is not None)
    idle = {"data": data, "split": split, "measure": measure, "skip_bad": skip_bad or None}
    if given is not None:
        refuse_idle("a weight that is given", [name for name, value in idle.items() if value is not None])
    texts = given_texts(query_length, document_length, query_prefix, document_prefix, pooling, similarity)
    after = as_encoder(trained, **texts)
    raw = isinstance(start, str | Path) and not similarity_trained(start)
    if raw and isinstance(start, str | Path):  # it says neither pooling nor similarity
        before = BiEncoder.from_pretrained(start, **{"pooling": after.pooling, "similarity": after.similarity, **texts})
    else:
        before = as_encoder(start, **texts)
    require_alike(before, after)
    path = None
    if given is None and data is not None and not raw:
        settings = FitSettings(validation_measure=measure or "nDCG@10", validation_depth=None)
        collection = open_collection(data, split or "dev", skip_bad)
        path = blend_path(before, after, Validator.of(collection, after, settings, passages=True))
    chosen = given if given is not None else 1.0 if path is None else path.weight
    model = blended(before, after, chosen)
    if out is not None:
        model.save(out, overwrite)
    return Blended(model, chosen, path)


def _given_weight(weight: float | str | None, has_data: bool) -> float | None:
    """The weight, if it is a number; None if it is to be chosen."""
    if weight is None and not has_data:
        raise InputError("no weight is given", do="give --weight 0.5, or --data to choose it on dev")
    if weight is None or weight == "auto":
        if not has_data:
            raise InputError("a weight is chosen on the dev split of a collection", do="give --data too")
        return None
    try:
        number = float(weight)
    except ValueError:
        number = -1.0
    if not 0 <= number <= 1:
        raise InputError(f"a weight of {weight}", do="use auto, or 0 (only the start) to 1 (only the trained model)")
    return number
