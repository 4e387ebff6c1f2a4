"""Reads figures back from their SVG: where ticks, lines and marks are, in the units of the data."""

from __future__ import annotations

from collections.abc import Callable
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from remargin.reports.circles import Arrow, Circle, CirclePanel, Sector
from remargin.reports.figures import (
    Figure,
    LineFigure,
    Panel,
    Series,
)

Place = tuple[float, float]


def one_panel(*series: Series, **options: object) -> LineFigure:
    return LineFigure("name", "Title", "Caption", [[Panel("", "step", "loss", list(series), **options)]])  # type: ignore[arg-type]


def parse(figure: Figure) -> Element:
    return ElementTree.fromstring(figure.svg())


def having(root: Element, class_: str) -> list[Element]:
    return [element for element in root.iter() if class_ in element.get("class", "").split()]


def panels(figure: Figure) -> list[Element]:
    return having(parse(figure), "panel")


def tick_value(label: str) -> float:
    return float(label.removesuffix("M").replace(",", "")) * (1e6 if label.endswith("M") else 1)


def tick_places(root: Element, axis: str) -> list[tuple[float, float]]:
    """Where the ticks of an axis are, and the numbers that stand there."""
    return [
        (float(t.get(axis, "")), tick_value(t.text or "")) for t in having(root, "tick") if axis in t.get("class", "")
    ]


def reader(places: list[tuple[float, float]], shift: float = 0.0) -> Callable[[float], float]:
    """From a place to a number, as one reads a chart with a ruler: between its outermost ticks."""
    (p0, v0), (p1, v1) = places[0], places[-1]
    return lambda place: v0 + (place + shift - p0) / (p1 - p0) * (v1 - v0)


def readers(panel: Element) -> tuple[Callable[[float], float], Callable[[float], float]]:
    # The text of a y tick stands 4 pixels under its line.
    return reader(tick_places(panel, "x")), reader(tick_places(panel, "y"), shift=4)


def subpaths(path: str) -> list[list[Place]]:
    pieces = [piece.replace("Z", "") for piece in path.split("M") if piece]
    return [[(float(x), float(y)) for x, y in (p.split() for p in piece.split("L"))] for piece in pieces]


def lines(panel: Element) -> list[list[list[Place]]]:
    """The numbers of each line, in pieces."""
    x, y = readers(panel)
    return [
        [[(x(a), y(b)) for a, b in piece] for piece in subpaths(line.get("d", ""))] for line in having(panel, "line")
    ]


def resolution(panel: Element, axis: str) -> float:
    """What a hundredth of a pixel is worth, and some more."""
    (p0, v0), (p1, v1) = tick_places(panel, axis)[0], tick_places(panel, axis)[-1]
    return 0.03 * abs((v1 - v0) / (p1 - p0)) + 1e-9 * max(abs(v0), abs(v1))


def circle() -> Circle:
    points = {"q": 90.0, "d+": 45.0, "d-1": -15.0, "d-2": 143.0, "d-3": -96.0}
    moved = [Arrow("d-1", -15, end=-45), Arrow("d-2", 143, end=225), Arrow("d-3", -96, end=-350)]
    still = [Arrow("d-1", -15, end=-17), Arrow("d-2", 143, end=143)]
    sectors = [Sector("target of d-1", 182, 358), Sector("target of d-2", 164, 376)]
    panels = [CirclePanel("static", points, moved, {"d-1": -45}), CirclePanel("spread", points, still, {}, sectors)]
    return Circle("targets", "Targets", "", panels)
