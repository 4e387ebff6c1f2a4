"""Draws two scores of each query against each other."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING

from remargin.reports.svg.axes import value_axis
from remargin.reports.svg.elements import colour, document, element, legend, mark, pixels, shorten, text, width_of

if TYPE_CHECKING:
    from remargin.reports.figures import Point, Scatter

_WIDTH, _PLOT = 600.0, 500.0  # at most
_EDGE = 16.0  # around the scores, for large marks
_NAMED = 8  # queries in the tooltip of one place
_LARGEST = 13.0
_STYLES = {"above": (0, colour(0)), "on": (3, "grey"), "below": (1, colour(1))}  # shape and colour


def draw_scatter(figure: Scatter, standalone: bool, width: float) -> str:
    """A Scatter as SVG, at most so many pixels wide."""
    width = min(width, _WIDTH)
    counts = figure.counts()
    entries = [
        (element("g", mark(shape, 15, 0, 5, "dot"), class_=of_side), f"{counts[side]:,} {side} the diagonal")
        for side, (shape, of_side) in _STYLES.items()
    ]
    body, top = legend(entries, width)
    top += 10
    values = [value for point in figure.points for value in (point.x, point.y)]
    left = 32 + max(width_of(label, 11) for _, label in value_axis(values, 0, 0).labels())
    plot = min(width - left - _EDGE, _PLOT)
    x = value_axis(values, left + _EDGE, left + plot - _EDGE).parts[0]
    y = value_axis(values, top + plot - _EDGE, top + _EDGE).parts[0]
    bottom, right = top + plot, left + plot
    for at, label in value_axis(values, x.start, x.end).labels():
        body += element("path", d=f"M{pixels(at)} {pixels(bottom)}V{pixels(top)}", class_="grid")
        body += text(label, at, bottom + 18, "tick x", "middle")
    for at, label in value_axis(values, y.start, y.end).labels():
        body += element("path", d=f"M{pixels(left)} {pixels(at)}H{pixels(right)}", class_="grid")
        body += text(label, left - 8, at + 4, "tick y", "end")
    corners = [pixels(value) for value in (left, bottom, right, top)]
    body += element("path", d=f"M{corners[0]} {corners[1]}L{corners[2]} {corners[3]}", class_="axis diagonal")
    body += element("path", d=f"M{corners[0]} {corners[3]}V{corners[1]}H{corners[2]}", class_="axis")
    body += text(shorten(figure.x_label, plot), (left + right) / 2, bottom + 38, "soft", "middle")
    label = text(shorten(figure.y_label, plot), 0, 0, "soft", "middle")
    body += element("g", label, transform=f"translate(12 {pixels((bottom + top) / 2)}) rotate(-90)")
    together: dict[tuple[str, str, str], list[Point]] = defaultdict(list)
    for point in figure.points:
        together[figure.side(point), pixels(x.at(point.x)), pixels(y.at(point.y))].append(point)
    for (side, at_x, at_y), points in sorted(together.items(), key=lambda item: -len(item[1])):  # small ones on top
        shape, of_side = _STYLES[side]
        size = min(_LARGEST, 4 * math.sqrt(len(points)) ** 0.8)
        drawn = mark(shape, float(at_x), float(at_y), size, "dot", _words(figure, points))
        body += element("g", drawn, class_=of_side)
    return document(width, bottom + 46, figure.title, describe(figure), body, standalone)


def describe(figure: Scatter) -> str:
    """What is to be seen, for those who cannot see it.

    >>> from remargin.reports.figures import Point, Scatter
    >>> describe(Scatter("s", "", "", "before", "after", [Point(0.5, 1.0, "q1", "how do margins adapt")]))
    'Scatter plot of after against before, 1 point: 1 above the diagonal, 0 on it, 0 below it.'
    """
    counts = figure.counts()
    many = f"{len(figure.points):,} point{'' if len(figure.points) == 1 else 's'}"
    where = f"{counts['above']:,} above the diagonal, {counts['on']:,} on it, {counts['below']:,} below it"
    return f"Scatter plot of {figure.y_label} against {figure.x_label}, {many}: {where}."


def _words(figure: Scatter, points: list[Point]) -> str:
    """The queries at one place, and their scores."""
    first = points[0]
    lines = [f"{figure.x_label} {first.x:.4g}, {figure.y_label} {first.y:.4g}"]
    lines += [f"{point.label}: {point.text}" if point.text else point.label for point in points[:_NAMED]]
    lines += [f"and {len(points) - _NAMED:,} more"] if len(points) > _NAMED else []
    return "\n".join(lines)
