"""blend.json of a training run: what the points between the starting and the trained weights measured, and a figure."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, TypedDict

from remargin.errors import InputError
from remargin.files.headers import read_header, write_header
from remargin.files.shapes import Check, Count, Finite
from remargin.reports.figures import LineFigure, Panel, Series
from remargin.reports.run_files import GIVE
from remargin.reports.tables import Block, Cell, Table, number

BLEND, FORMAT = "blend.json", "remargin-blend-1"
Share = Annotated[float, Check("between 0 and 1", lambda value: 0 <= value <= 1)]


@dataclass
class AwayValues:
    """What the same points measured on a collection that the model was not trained on. It never chooses.

    >>> AwayValues("cranfield", "nDCG@10", [0.40, 0.41, 0.37]).values[0]
    0.4
    """

    data: str
    measure: str
    values: list[Finite]


@dataclass
class BlendPath:
    """Measurements along the line from the starting weights (0) to the trained ones (1), and the weight chosen.

    Attributes:
        measure: the one that chose.
        points: weights of the trained model, ascending, the first of them 0.
        values: by measure, one value for each point.
        weight: the chosen point.
        split: whose queries were measured, and `queries` how many.
        ranked: what they ranked, in words; see `Validator.describe`.
        away: what was measured elsewhere, if it was.
        given: whether the weight was given, and not chosen.

    Raises:
        ValueError: for points and values that do not go together.

    Example:
        >>> path = BlendPath("nDCG@10", [0.0, 0.5, 1.0], {"nDCG@10": [0.5, 0.7, 0.6]}, 0.5, "dev", 100, "in full")
        >>> path.at(0.5), path.gain
        (0.7, 0.19999999999999996)
    """

    measure: str
    points: list[Share]
    values: dict[str, list[Finite]]
    weight: Share
    split: str
    queries: Count
    ranked: str
    away: AwayValues | None = None
    given: bool = False

    def __post_init__(self) -> None:
        lists = [*self.values.values(), *([self.away.values] if self.away else [])]
        if self.points[:1] != [0] or sorted(set(self.points)) != self.points:
            raise ValueError(f"points {self.points} do not ascend from 0")
        if self.measure not in self.values or any(len(values) != len(self.points) for values in lists):
            raise ValueError(f"not a value of {self.measure} and the other measures for each of the points")
        if self.weight not in self.points:
            raise ValueError(f"weight {self.weight} is none of the points")

    def at(self, weight: float, away: bool = False) -> float:
        """The value that chose at a point; or the one that was measured elsewhere."""
        values = self.away.values if away and self.away is not None else self.values[self.measure]
        return values[self.points.index(weight)]

    @property
    def gain(self) -> float:
        """The value at the chosen point less the value of the start."""
        return self.at(self.weight) - self.at(0)


class AwayFields(TypedDict):
    """The fields of `AwayValues`."""

    data: str
    measure: str
    values: list[Finite]


class BlendHeader(TypedDict):
    """The fields of `BlendPath`."""

    format: str
    measure: str
    points: list[Share]
    values: dict[str, list[Finite]]
    weight: Share
    split: str
    queries: Count
    ranked: str
    away: AwayFields | None
    given: bool


def save_path(folder: str | Path, path: BlendPath) -> None:
    """Write blend.json into the folder of a training run, or replace it.

    >>> import tempfile
    >>> path = BlendPath("RR", [0, 1], {"RR": [0.5, 0.7]}, 1, "dev", 9, "ranked in full (60 documents)")
    >>> save_path(folder := tempfile.mkdtemp(), path)
    >>> read_path(folder) == path
    True
    """
    write_header(Path(folder) / BLEND, {"format": FORMAT, **asdict(path)})


def read_path(folder: str | Path) -> BlendPath | None:
    """What `save_path` wrote; None if the training run has none.

    Raises:
        InputError: if it is damaged.

    Example:
        >>> read_path("nowhere")
    """
    file = Path(folder) / BLEND
    if not file.is_file():
        return None
    header = read_header(file, BlendHeader, FORMAT, GIVE)
    fields = {name: value for name, value in header.items() if name not in ("format", "away")}
    away = None if header["away"] is None else AwayValues(**header["away"])
    try:
        return BlendPath(**fields, away=away)  # type: ignore[arg-type]
    except ValueError as error:
        raise InputError(f"not a header of format {FORMAT}: {error}", file=file, do=GIVE) from None


def path_words(path: BlendPath) -> str:
    """What blending did, in a sentence or two.

    >>> path = BlendPath("RR", [0, 0.5, 1], {"RR": [0.5, 0.7, 0.6]}, 0.5, "dev", 9, "ranked in full (60 documents)")
    >>> path_words(path)[:86]
    'Blended: 0.5 x trained + 0.5 x starting weights, chosen on 9 dev queries, ranked in fu'
    """
    ends = f"{path.at(0):.3f} at the start, {path.at(path.weight):.3f} blended"
    ends += f", {path.at(1):.3f} trained" if path.points[-1] == 1 else ""
    how = "measured" if path.given else "chosen"
    chosen = f"{how} on {path.queries:,} {path.split} queries, {path.ranked}"
    rest = round(1 - path.weight, 6)
    words = f"Blended: {path.weight:g} x trained + {rest:g} x starting weights, {chosen}: {path.measure} {ends}."
    if path.away is None:
        return words
    away = ", ".join(f"{path.at(point, away=True):.3f}" for point in dict.fromkeys((0, path.weight, path.points[-1])))
    return f"{words} The same on {path.away.data}, which chose nothing: {path.away.measure} {away}."


def path_table(path: BlendPath) -> Table:
    """A row for each point, the chosen one bold.

    >>> path = BlendPath("RR", [0, 0.5, 1], {"RR": [0.5, 0.7, 0.6]}, 0.5, "dev", 9, "ranked in full (60 documents)")
    >>> [[cell.text for cell in row] for row in path_table(path).blocks[0].rows]
    [['0', '0.500'], ['0.5', '0.700'], ['1', '0.600']]
    """
    columns = {
        **path.values,
        **({} if path.away is None else {f"{path.away.data}, {path.away.measure}": path.away.values}),
    }
    rows = [
        [
            Cell(f"{point:g}", value=point),
            *(number(column[i], bold=point == path.weight) for column in columns.values()),
        ]
        for i, point in enumerate(path.points)
    ]
    return Table("", ["weight", *columns], [Block("", rows)])


def path_figure(path: BlendPath) -> LineFigure:
    """The measure over the weight of the trained model, with the chosen weight marked; home against away.

    >>> path = BlendPath("RR", [0, 0.5, 1], {"RR": [0.5, 0.7, 0.6]}, 0.5, "dev", 9, "ranked in full (60 documents)")
    >>> [series.name for series in path_figure(path).panels[0].series]
    ['home (dev)', 'chosen: 0.5']
    """
    lines = [Series(f"home ({path.split})", path.points, path.values[path.measure])]
    chosen = [path.at(path.weight)]
    caption = (
        f"{path.measure} on {path.queries:,} {path.split} queries, {path.ranked}, of the weights on the line from "
    )
    caption += "the start (0) to the trained model (1). "
    caption += (
        "These queries did not choose the weight."
        if path.given
        else "The chosen weight is the smallest that keeps nearly all of the best gain."
    )
    if path.away is not None:
        other = "" if path.away.measure == path.measure else f"{path.away.measure}, "
        lines.append(Series(f"away ({other}{path.away.data})", path.points, path.away.values))
        chosen.append(path.at(path.weight, away=True))
        caption += " What was measured away, on a collection that was not trained on, chose nothing."
    lines.append(Series(f"{'given' if path.given else 'chosen'}: {path.weight:g}", [path.weight] * len(chosen), chosen))
    panel = Panel("", "weight of the trained model", path.measure, lines)
    return LineFigure("blend", "Between start and trained model", caption, [[panel]])
