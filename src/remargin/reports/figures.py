"""Figures as plain data: what is drawn, as SVG, as a table of numbers, and as JSON."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from remargin.errors import InputError
from remargin.evaluation.significance import ROUNDING
from remargin.reports.circles import Arrow, Circle, CirclePanel, Sector
from remargin.reports.stages import Stage, StagePanel, Stages
from remargin.reports.svg.elements import WIDTH
from remargin.reports.svg.lines import draw_lines
from remargin.reports.svg.scatter import draw_scatter
from remargin.reports.tables import csv_text

Values = Sequence[float | None]
SIDES = ("above", "on", "below")


@dataclass
class Series:
    """A line: y against x, perhaps with a band from `low` to `high`. None and NaN leave a gap.

    >>> Series("loss", [1, 2, 3], [0.5, float("nan"), 0.25]).y
    [0.5, None, 0.25]
    """

    name: str
    x: Sequence[float]
    y: Values
    low: Values | None = None
    high: Values | None = None

    def __post_init__(self) -> None:
        for name in ("x", "y", "low", "high"):
            values = getattr(self, name)
            if values is None:
                continue
            if len(values) != len(self.x):
                raise ValueError(f"{self.name}: {len(values)} values of {name} for {len(self.x)} of x")
            setattr(self, name, [_plain(value) for value in values])
        if None in self.x:
            raise ValueError(f"{self.name}: an x that is not a number")
        if (self.low is None) != (self.high is None):
            raise ValueError(f"{self.name}: a band needs both low and high")

    def rows(self) -> Iterator[tuple[float, float | None, float | None, float | None]]:
        """x, y, low and high of each point. Where one side of the band is missing, so is the other."""
        low, high = (values or [None] * len(self.x) for values in (self.low, self.high))
        for x, y, bottom, top in zip(self.x, self.y, low, high, strict=True):
            whole = bottom is not None and top is not None
            yield x, y, bottom if whole else None, top if whole else None

    def highest(self, gap: tuple[float, float] | None = None) -> tuple[float, float] | None:
        """The x and y of the highest point, the first if there are several. Points inside `gap` do not count.

        None if there are no points.

        >>> Series("nDCG@10", [0, 100, 200], [0.1, 0.4, 0.4]).highest()
        (100, 0.4)
        """
        a, b = gap or (0.0, 0.0)
        points = [(x, y) for x, y, _, _ in self.rows() if y is not None and not a < x < b]
        return max(points, key=lambda place: place[1], default=None)


@dataclass
class Panel:
    """A coordinate system with lines in it.

    Attributes:
        title: above it; may be empty.
        x_label: under it.
        y_label: beside it.
        series: the lines.
        mark_maxima: put a dot on the highest point of each line.
        gap: leave out what lies between these two values of x, for long runs whose beginning and end matter.
        floor: values below it stand at the lower edge with their numbers, so that a few do not flatten all others.
        interval: half the width of a confidence interval of a value. The y axis then spans at least two intervals, with
            one drawn as a bar, so that noise does not fill the panel. Means of values between 0 and 1.

    Example:
        >>> panel = Panel("", "step", "loss", [Series("ours", [1, 2], [0.5, 0.25])], gap=(500, 9500))
        >>> panel.series[0].name
        'ours'
    """

    title: str
    x_label: str
    y_label: str
    series: list[Series]
    mark_maxima: bool = False
    gap: tuple[float, float] | None = None
    floor: float | None = None
    interval: float | None = None

    def __post_init__(self) -> None:
        if self.interval is not None and not 0 < self.interval <= 0.5:
            raise ValueError(f"an interval of ±{self.interval}")
        if self.gap is not None:
            self.gap = (self.gap[0], self.gap[1])
            if not self.gap[0] < self.gap[1]:
                raise ValueError(f"a gap from {self.gap[0]} to {self.gap[1]}")


@dataclass
class LineFigure:
    """Small multiples: rows of panels, under one legend. The panels of a row share their y axis.

    >>> panel = Panel("", "step", "loss", [Series("ours", [1, 2, 4], [0.5, 0.25, 0.125])])
    >>> figure = LineFigure("loss", "Loss", "It falls.", [[panel]])
    >>> figure.svg()[:22]
    '<svg viewBox="0 0 760 '
    >>> print(figure.csv())
    panel,series,x,y,low,high
    loss,ours,1,0.5,,
    loss,ours,2,0.25,,
    loss,ours,4,0.125,,
    <BLANKLINE>
    """

    name: str
    title: str
    caption: str
    rows: list[list[Panel]]

    def __post_init__(self) -> None:
        if not self.rows or not all(self.rows):
            raise ValueError(f"{self.name}: a row without panels")
        for row in self.rows:
            if len({panel.y_label for panel in row}) > 1:
                raise ValueError(f"{self.name}: the panels of a row share their y axis, and so its label")

    @property
    def panels(self) -> list[Panel]:
        """All panels, row by row."""
        return [panel for row in self.rows for panel in row]

    def svg(self, standalone: bool = False, width: float = WIDTH) -> str:
        """To stand inside a page, or alone as a file of its own with its style; so many pixels wide."""
        return draw_lines(self, standalone, width)

    def csv(self) -> str:
        """Every number, a line for each point. A panel is named by its title or y label; by both if titles repeat."""
        titles = [panel.title or panel.y_label for panel in self.panels]
        full = [f"{panel.title}, {panel.y_label}" if panel.title else panel.y_label for panel in self.panels]
        names = titles if len(set(titles)) == len(titles) else full
        rows = [
            [name, series.name, *values]
            for name, panel in zip(names, self.panels, strict=True)
            for series in panel.series
            for values in series.rows()
        ]
        return csv_text(["panel", "series", "x", "y", "low", "high"], rows)


@dataclass(frozen=True)
class Point:
    """A query in a scatter plot: two scores, its id, and its text.

    >>> Point(0.5, 1.0, "q1", "how do margins adapt").label
    'q1'
    """

    x: float
    y: float
    label: str
    text: str = ""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.x) and math.isfinite(self.y)):
            raise ValueError(f"{self.label}: a score that is not a number")


@dataclass
class Scatter:
    """The scores of two runs, query by query: above the diagonal are those for which the run of the y axis is better.

    >>> points = [Point(0.5, 1.0, "q1", "how do margins adapt"), Point(0.5, 0.5, "q2", "what is a margin")]
    >>> figure = Scatter("queries", "Query by query", "", "before", "after", points)
    >>> figure.counts()
    {'above': 1, 'on': 1, 'below': 0}
    >>> print(figure.csv())
    label,x,y,text
    q1,0.5,1.0,how do margins adapt
    q2,0.5,0.5,what is a margin
    <BLANKLINE>
    """

    name: str
    title: str
    caption: str
    x_label: str
    y_label: str
    points: list[Point]

    def side(self, point: Point) -> str:
        """Where a point is: above the diagonal, on it, or below it. What differs by rounding alone is on it."""
        difference = point.y - point.x
        return "on" if abs(difference) <= ROUNDING else "above" if difference > 0 else "below"

    def counts(self) -> dict[str, int]:
        """How many points there are on either side of the diagonal, and on it."""
        sides = [self.side(point) for point in self.points]
        return {side: sides.count(side) for side in SIDES}

    def svg(self, standalone: bool = False, width: float = WIDTH) -> str:
        """To stand inside a page, or alone as a file of its own with its style; so many pixels wide."""
        return draw_scatter(self, standalone, width)

    def csv(self) -> str:
        """A line for each query."""
        rows = [[point.label, point.x, point.y, point.text] for point in self.points]
        return csv_text(["label", "x", "y", "text"], rows)


def scatter_of(
    scores: Mapping[str, Mapping[str, float]],
    queries: Mapping[str, str],
    measure: str = "",
    name: str = "queries",
    title: str = "",
    caption: str = "",
) -> Scatter:
    """A scatter plot of the scores of two runs: a point for each query, the first run on the x axis.

    Args:
        scores: two runs by name, each with a score for every query: `evaluate(...).per_query["nDCG@10"]`.
        queries: the texts of queries, for tooltips; some may be missing.
        measure: the name of the measure, for the axes.
        name: the name of the figure, for its file.
        title: its title; without one, the names of the runs.
        caption: text to put before the sentence that explains the marks.

    Raises:
        InputError: if there are not two runs, or if they were measured on different queries.

    Example:
        >>> scores = {"before": {"q1": 0.5}, "after": {"q1": 1.0}}
        >>> scatter = scatter_of(scores, {"q1": "how do margins adapt"}, "RR")
        >>> scatter.y_label, scatter.counts(), scatter.points[0].text
        ('after, RR', {'above': 1, 'on': 0, 'below': 0}, 'how do margins adapt')
    """
    if len(scores) != 2:
        raise InputError(f"a scatter plot of {len(scores)} runs", do="give two")
    (a, of_a), (b, of_b) = scores.items()
    different = of_a.keys() ^ of_b.keys()
    if different:
        problem = f"{a} and {b} were measured on different queries, such as {min(different)!r}"
        raise InputError(problem, do="measure both on the same ones")
    points = [Point(float(x), float(of_b[query]), query, queries.get(query, "")) for query, x in of_a.items()]
    marks = f"Above the diagonal {b} is better, below it {a}. Larger marks are several queries with the same scores."
    labels = [f"{run}, {measure}" if measure else run for run in (a, b)]
    words = " ".join(part for part in (caption, marks) if part)
    return Scatter(name, title or f"{a} and {b}, query by query", words, labels[0], labels[1], points)


Figure = LineFigure | Scatter | Circle | Stages
KINDS: dict[str, type[Figure]] = {"lines": LineFigure, "scatter": Scatter, "circle": Circle, "stages": Stages}


def figure_json(figure: Figure) -> dict[str, Any]:
    """A figure as plain values for JSON.

    >>> figure_json(Scatter("s", "Scores", "", "before", "after", [Point(0.5, 1.0, "q1")]))["kind"]
    'scatter'
    """
    kind = next(name for name, of_kind in KINDS.items() if isinstance(figure, of_kind))
    return {"kind": kind, **asdict(figure)}


def figure_from_json(values: dict[str, Any]) -> Figure:
    """The figure that `figure_json` made these values of.

    >>> figure = Scatter("s", "Scores", "", "before", "after", [Point(0.5, 1.0, "q1")])
    >>> figure_from_json(figure_json(figure)) == figure
    True
    """
    values = dict(values)
    kind = values.pop("kind")
    if kind == "lines":
        return LineFigure(**values | {"rows": [[_panel(panel) for panel in row] for row in values["rows"]]})
    if kind == "scatter":
        return Scatter(**values | {"points": [Point(**point) for point in values["points"]]})
    if kind == "circle":
        return Circle(**values | {"panels": [_circle_panel(panel) for panel in values["panels"]]})
    if kind == "stages":
        panels = [StagePanel(p["title"], [Stage(**stage) for stage in p["stages"]]) for p in values["panels"]]
        return Stages(**values | {"panels": panels})
    raise ValueError(f"no figure is of kind {kind!r}")


def _panel(values: dict[str, Any]) -> Panel:
    return Panel(**values | {"series": [Series(**series) for series in values["series"]]})


def _circle_panel(values: dict[str, Any]) -> CirclePanel:
    arrows, sectors = [Arrow(**arrow) for arrow in values["arrows"]], [Sector(**sector) for sector in values["sectors"]]
    return CirclePanel(**values | {"arrows": arrows, "sectors": sectors})


def _plain(value: float | None) -> float | None:
    """A value as an int or float of Python, not NumPy; None if it is missing or not finite."""
    if value is None or not math.isfinite(value):
        return None
    return int(value) if isinstance(value, numbers.Integral) else float(value)
