"""Blending in a study: points between the starting and the trained weights of a run, and what dev chooses of them.

A measurement `test@0.5` is that of the model half-way, `test@blended` that at the point which dev chooses. The end of
the path is the last model of the run, not the best on dev: going back is what blending does. The path on dev is kept in
blend.json beside run.json.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypedDict

from remargin.errors import InputError
from remargin.files.headers import write_header
from remargin.files.shapes import Finite
from remargin.model.blend import blended
from remargin.model.encoder import BiEncoder
from remargin.study.results import Result
from remargin.training.blending import blend_path
from remargin.training.validation import Validator

FILE, FORMAT = "blend.json", "remargin-run-blend-1"
CHOSEN = "blended"  # the point that dev chooses


class BlendHeader(TypedDict):
    """blend.json."""

    format: str
    points: list[Finite]
    values: list[Finite]
    chosen: Finite
    seconds: Finite


@dataclass(frozen=True)
class Blend:
    """The path from the start to the trained weights, on dev.

    Attributes:
        points: weights of the trained model, from 0 to 1.
        values: the validation at each point.
        chosen: the point that dev chooses.
        seconds: what measuring the path took.
    """

    points: tuple[float, ...]
    values: tuple[float, ...]
    chosen: float
    seconds: float

    @property
    def value(self) -> float:
        """The validation at the chosen point.

        >>> Blend((0.0, 0.5, 1.0), (0.25, 0.75, 0.5), 0.5, 1.0).value
        0.75
        """
        return self.values[self.points.index(self.chosen)]

    def save(self, folder: Path) -> None:
        """Write blend.json."""
        write_header(folder / FILE, {"format": FORMAT, **asdict(self)})


def blended_at(what: str, point: float | str) -> str:
    """The name of a measurement at a point between the start and the trained weights.

    >>> blended_at("test", 0.5), blended_at("zero-shot", CHOSEN)
    ('test@0.5', 'zero-shot@blended')
    """
    return f"{what}@{point if isinstance(point, str) else format(point, 'g')}"


def kind_of(what: str) -> str:
    """What is measured, at whatever point.

    >>> kind_of("test@0.5"), kind_of("test")
    ('test', 'test')
    """
    return what.partition("@")[0]


def point_of(what: str) -> str | None:
    """The point of a measurement: a number, or `CHOSEN`; None for the trained model itself.

    >>> point_of("test@0.5"), point_of("test")
    ('0.5', None)
    """
    return what.partition("@")[2] or None


def find_blend(start: BiEncoder, trained: BiEncoder, validator: Validator, raw: bool = False) -> Blend:
    """Measure the path on dev, and choose. A raw backbone is no start to go back to: all of its training is kept."""
    began = time.perf_counter()
    path = blend_path(start, trained, validator)
    seconds = round(time.perf_counter() - began, 2)
    return Blend(tuple(path.points), tuple(path.values[path.measure]), 1.0 if raw else path.weight, seconds)


def blend_of(result: Result) -> Blend:
    """The path of a run on dev.

    Raises:
        InputError: if it is not there, or damaged.
    """
    path = result.folder / FILE
    do = f"delete {result.folder}, and give the same command again"
    header = result.files.header(path, BlendHeader, FORMAT, do)
    points, values, chosen = tuple(header["points"]), tuple(header["values"]), header["chosen"]
    if len(points) != len(values) or chosen not in points:
        raise InputError("has points without values, or no value at the chosen point", file=path, do=do)
    return Blend(points, values, chosen, header["seconds"])


def model_at(start: BiEncoder, trained: BiEncoder, point: str, result: Result) -> BiEncoder:
    """The model at a point of a run: a number, or the point that dev chose."""
    return blended(start, trained, blend_of(result).chosen if point == CHOSEN else float(point))
