"""Draws lines: small multiples in rows, each row on one y axis, all under one legend."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from remargin.reports.svg.axes import Axis, step_axis, value_axis
from remargin.reports.svg.elements import (
    colour,
    dash,
    document,
    element,
    legend,
    mark,
    pixels,
    shorten,
    text,
    tooltip,
    width_of,
    wrapped,
)

if TYPE_CHECKING:
    from remargin.reports.figures import LineFigure, Panel, Series

_APART = 26.0  # between the panels of a row
_EDGE = 8.0  # inside a panel, left and right of the first and the last value
_CAP = 3.0  # of the bar that shows an interval
_TITLE = 16.0  # height of a line of a title
_FEW = 25  # up to this many points have a mark each; on longer lines only some do
_SOME = 6
_MANY = 1000  # longer lines are drawn with the extremes of each pixel only


@dataclass(frozen=True)
class _Frame:
    """Where a panel is, and its axes."""

    left: float
    right: float
    x: Axis
    y: Axis

    @property
    def lowest(self) -> float:
        """Where the y axis begins: what is below it stands there."""
        return self.y.parts[0].low


def draw_lines(figure: LineFigure, standalone: bool, width: float) -> str:
    """A LineFigure as SVG, so many pixels wide."""
    names = list(dict.fromkeys(series.name for panel in figure.panels for series in panel.series))
    body, top = _legend(figure, names, width)
    top += 4
    tallest = 260.0 if len(figure.rows) == 1 else 170.0
    columns = max(map(len, figure.rows))
    y_axes = [value_axis(_y_values(row), 0, 0).labels() for row in figure.rows]
    left = 30 + max(width_of(label, 11) for labels in y_axes for _, label in labels)
    right = max(12, _widest_x_label(figure) / 2 - _EDGE)
    of_panel = (width - left - right - _APART * (columns - 1)) / columns
    for i, row in enumerate(figure.rows):
        titles = [[] if _above(figure, i, j) == p.title else wrapped(p.title, of_panel) for j, p in enumerate(row)]
        top += 8 + _TITLE * max(map(len, titles))
        y = value_axis(_y_values(row), top + tallest, top)
        for j, panel in enumerate(row):
            start = left + j * (of_panel + _APART)
            count = max(2, round(of_panel / 64))
            first = start + _EDGE + (0 if panel.interval is None else 4 * _CAP)
            x = step_axis(_x_values(panel), first, start + of_panel - _EDGE, panel.gap, count)
            frame = _Frame(start, start + of_panel, x, y)
            below = figure.rows[i + 1][j] if i + 1 < len(figure.rows) and j < len(figure.rows[i + 1]) else None
            with_label = below is None or below.x_label != panel.x_label
            inner = _axes(panel, titles[j], frame, is_first=j == 0, with_label=with_label)
            inner += "".join(_drawn(panel, frame, names))
            body += element("g", inner, class_="panel")
        top += tallest + 22
        lowest = i + 1 == len(figure.rows) or any(
            panel.x_label != below.x_label for panel, below in zip(row, figure.rows[i + 1], strict=False)
        )
        top += 18 if lowest else 8
    return document(width, top, figure.title, describe(figure), body, standalone)


def describe(figure: LineFigure) -> str:
    """What is to be seen, for those who cannot see it.

    >>> from remargin.reports.figures import LineFigure, Panel, Series
    >>> panel = Panel("", "step", "loss", [Series("ours", [1, 2, 3], [0.5, 0.25, 0.125])])
    >>> describe(LineFigure("loss", "Loss", "", [[panel]]))
    'Line chart of loss against step. ours: 3 values from 0.125 to 0.5, the highest at 1.'
    """
    sentences = []
    for panel in figure.panels:
        title = f" ({panel.title})" if panel.title else ""
        sentences.append(f"Line chart of {panel.y_label} against {panel.x_label}{title}.")
        for series in panel.series:
            highest = series.highest()
            if highest is None:
                sentences.append(f"{series.name}: no values.")
                continue
            values = [y for y in series.y if y is not None]
            extent = f"{len(values):,} values from {min(values):.4g} to {max(values):.4g}"
            sentences.append(f"{series.name}: {extent}, the highest at {highest[0]:g}.")
        if panel.floor is not None:
            below = sum(y is not None and y < panel.floor for series in panel.series for y in series.y)
            sentences.append(f"Below {panel.floor:.4g}, and so at the lower edge: {below:,} values.")
        if panel.interval is not None:
            sentences.append(f"A bar shows an interval of ±{panel.interval:.2g}.")
        if panel.gap:
            a, b = panel.gap
            hidden = sum(a < x < b for series in panel.series for x in series.x)
            sentences.append(f"Not drawn between {a:g} and {b:g}: {hidden:,} values.")
    return " ".join(sentences)


def _legend(figure: LineFigure, names: list[str], width: float) -> tuple[str, float]:
    """One for all panels. It is left out if each has a single line and says already what that is."""
    if all(len(p.series) == 1 and p.series[0].name in (p.title, p.y_label) for p in figure.panels):
        return "", 0.0
    drawn = {s.name for panel in figure.panels for s in panel.series if s.highest() is not None}
    entries = []
    for i, name in enumerate(names):
        line = element("path", d="M0 0H30", class_="line", stroke_dasharray=dash(i))
        sample = element("g", line, mark(i, 15, 0), class_=colour(i))
        entries.append((sample, name if name in drawn else f"{name} (no values)"))
    return legend(entries, width)


def _above(figure: LineFigure, i: int, j: int) -> str | None:
    """The title of the panel above another one, which says what both are."""
    return figure.rows[i - 1][j].title if i and j < len(figure.rows[i - 1]) else None


def _widest_x_label(figure: LineFigure) -> float:
    labels = [step_axis(_x_values(panel), 0, 1, panel.gap).labels() for panel in figure.panels]
    return max((width_of(label, 11) for of_panel in labels for _, label in of_panel), default=0.0)


def _x_values(panel: Panel) -> list[float]:
    """Every x with something to draw; all of them if there is nothing."""
    places = [x for s in panel.series for x, *values in s.rows() if any(v is not None for v in values)]
    return places or [x for series in panel.series for x in series.x]


def _y_values(row: Sequence[Panel]) -> list[float]:
    numbers: list[float] = []
    for panel in row:
        low, high = panel.gap or (0.0, 0.0)
        outside = [values for series in panel.series for x, *values in series.rows() if not low < x < high]
        numbers += [v for of_point in outside for v in of_point if v is not None and v >= (panel.floor or -math.inf)]
    return numbers + _resolved(numbers, max((panel.interval or 0.0 for panel in row), default=0.0))


def _resolved(values: Sequence[float], interval: float) -> list[float]:
    """The ends of an axis, between 0 and 1, that is two intervals long around some values; none if they need more room.

    >>> [round(end, 3) for end in _resolved([0.92, 0.93], 0.02)], _resolved([0.2, 0.93], 0.02)
    ([0.885, 0.965], [])
    >>> [round(end, 3) for end in _resolved([0.99, 1.0], 0.02)]
    [0.92, 1.0]
    """
    if not interval or not values or max(values) - min(values) >= 4 * interval:
        return []
    middle = (min(values) + max(values)) / 2
    middle = max(min(middle, 1 - 2 * interval), 2 * interval)
    return [middle - 2 * interval, min(1.0, middle + 2 * interval)]


def _axes(panel: Panel, title: Sequence[str], frame: _Frame, is_first: bool, with_label: bool) -> str:
    """Grid, ticks, labels and the title of a panel."""
    x, y, drawn = frame.x, frame.y, []
    stretches = _stretches(frame)
    for at, label in y.labels():
        lines = [element("path", d=f"M{pixels(a)} {pixels(at)}H{pixels(b)}", class_="grid") for a, b in stretches]
        drawn += [*lines, text(label, frame.left - 8, at + 4, "tick y", "end")] if is_first else lines
    for at, label in x.labels():
        drawn.append(element("path", d=f"M{pixels(at)} {pixels(y.start)}V{pixels(y.end)}", class_="grid"))
        drawn.append(element("path", d=f"M{pixels(at)} {pixels(y.start)}v5", class_="axis"))
        drawn.append(text(label, at, y.start + 18, "tick x", "middle"))
    for a, b in stretches:
        drawn.append(element("path", d=f"M{pixels(a)} {pixels(y.start)}H{pixels(b)}", class_="axis"))
    for at in [end for _, end in stretches[:-1]] + [start for start, _ in stretches[1:]]:
        drawn.append(element("path", d=f"M{pixels(at - 3)} {pixels(y.start + 5)}l6 -10", class_="axis break"))
    for i, line in enumerate(reversed(title)):
        drawn.append(text(line, frame.left, y.end - 9 - _TITLE * i, "strong"))
    middle = (y.start + y.end) / 2
    if is_first:
        label = text(shorten(panel.y_label, y.start - y.end + 20), 0, 0, "soft", "middle")
        drawn.append(element("g", label, transform=f"translate(12 {pixels(middle)}) rotate(-90)"))
    if panel.interval is not None:
        drawn.append(_interval_bar(panel.interval, frame))
    if with_label:
        centre = (frame.left + frame.right) / 2
        drawn.append(text(shorten(panel.x_label, frame.right - frame.left), centre, y.start + 36, "soft", "middle"))
    if all(series.highest() is None for series in panel.series):
        drawn.append(text("no values", (frame.left + frame.right) / 2, middle, "soft", "middle"))
    return "".join(drawn)


def _interval_bar(interval: float, frame: _Frame) -> str:
    """As tall as an interval, beside the y axis."""
    part, x = frame.y.parts[0], frame.left + _CAP + 1
    middle = (part.start + part.end) / 2
    half = abs(part.at(part.low + interval) - part.start)
    bar = f"M{pixels(x)} {pixels(middle - half)}V{pixels(middle + half)}"
    caps = "".join(f"M{pixels(x - _CAP)} {pixels(y)}h{pixels(2 * _CAP)}" for y in (middle - half, middle + half))
    return element("path", tooltip(f"an interval of ±{interval:.2g}"), d=bar + caps, class_="bar")


def _stretches(frame: _Frame) -> list[tuple[float, float]]:
    """From where to where the panel reaches: in two parts if its axis is broken."""
    inner = [(part.start - _EDGE, part.end + _EDGE) for part in frame.x.parts]
    inner[0] = frame.left, inner[0][1]
    return [(a, min(b, frame.right)) for a, b in inner]


def _drawn(panel: Panel, frame: _Frame, names: list[str]) -> Iterator[str]:
    """Bands below lines below maxima, so that none hides another."""
    ordered = [(names.index(series.name), series) for series in panel.series]
    for i, series in ordered:
        yield element("g", _band(series, frame) or " ", class_=f"series {colour(i)}")
    for i, series in ordered:
        inner = "".join([*_line(i, series, frame), *_marks(i, series, frame)])
        yield element("g", inner or " ", class_=f"series {colour(i)}")
    yield from _below(ordered, frame)
    for i, series in ordered if panel.mark_maxima else []:
        highest = series.highest(panel.gap)
        if highest is not None:
            x, y = highest
            words = f"{series.name}: maximum {y:.4g} at {x:g}"
            inner = element("circle", tooltip(words), cx=frame.x.at(x), cy=frame.y.at(y), r=6, class_="maximum")
            yield element("g", inner, class_=colour(i))


def _below(ordered: list[tuple[int, Series]], frame: _Frame) -> Iterator[str]:
    """The numbers of points that are below the axis; one above another where several lines have one."""
    stacked: dict[float, int] = {}
    for i, series in ordered:
        for x, y, _, _ in series.rows():
            if y is None or frame.y.part(y) is not None or (at := frame.x.at(x)) is None:
                continue
            height = stacked[x] = stacked.get(x, 0) + 1
            place = at + 12, frame.y.start + 3 - 14 * height
            yield element("g", mark(i, *place), class_=colour(i))
            yield text(f"{y:.3g} ↓", place[0] + 8, place[1] + 4, "tick")


Place = tuple[float, float]


def _pieces(series: Series, frame: _Frame, value: int) -> list[tuple[int, list[Place]]]:
    """Stretches without a gap, each with the part of the axis that it is in. `value` is 1 for y, 2 for low, 3 high."""
    pieces: list[tuple[int, list[Place]]] = []
    before: int | None = None
    for row in series.rows():
        part, y = frame.x.part(row[0]), row[value]
        if part is None:
            continue  # left out: the next part says so
        if y is None:
            before = None
            continue
        if part != before:
            pieces.append((part, []))
        pieces[-1][1].append((frame.x.parts[part].at(row[0]), frame.y.parts[0].at(max(y, frame.lowest))))
        before = part
    return [(part, _thinned(places)) for part, places in pieces]


def _thinned(places: list[Place]) -> list[Place]:
    """Of a long line the first, lowest, highest and last place in each pixel: it looks the same."""
    if len(places) <= _MANY:
        return places
    kept: list[Place] = []
    pixel: list[Place] = []
    for place in [*places, (float("inf"), 0.0)]:
        if pixel and (place[0] == float("inf") or int(place[0]) != int(pixel[0][0])):
            chosen = {0, len(pixel) - 1}
            chosen |= {choose(range(len(pixel)), key=lambda i: pixel[i][1]) for choose in (min, max)}
            kept += [pixel[i] for i in sorted(chosen)]
            pixel = []
        pixel.append(place)
    return kept


def _line(i: int, series: Series, frame: _Frame) -> Iterator[str]:
    pieces = _pieces(series, frame, 1)
    if not pieces:
        return
    yield element("path", d=" ".join(_path(places) for _, places in pieces), class_="line", stroke_dasharray=dash(i))
    for (part, places), (next_part, following) in itertools.pairwise(pieces):
        if part != next_part:
            yield element("path", d=_path([places[-1], following[0]]), class_="omitted")
    for _, places in pieces:
        if len(places) == 1:  # a line of one point is not to be seen
            yield mark(i, *places[0], size=3, class_="mark alone")


def _marks(i: int, series: Series, frame: _Frame) -> Iterator[str]:
    """A mark for each point of a short line, and for some of a long one: dashes are hard to see where it is rough."""
    points = [(x, y) for x, y, _, _ in series.rows() if y is not None and frame.x.part(x) is not None]
    if len(points) > _FEW:
        step = len(points) / _SOME
        points = [points[int(step * (k + (1 + 2 * (i % 4)) / 8))] for k in range(_SOME)]
    for x, y in points:
        place = frame.x.at(x), frame.y.at(y)
        if place[0] is not None and place[1] is not None:
            yield mark(i, place[0], place[1], title=f"{series.name}: {y:.4g} at {x:g}")


def _band(series: Series, frame: _Frame) -> str:
    lows, highs = (_pieces(series, frame, value) for value in (2, 3))
    drawn = []
    for (_, low), (_, high) in zip(lows, highs, strict=False):
        drawn.append(element("path", d=_path(high) + "L" + _path(low[::-1])[1:] + "Z", class_="band"))
        drawn += [element("path", d=_path(edge), class_="edge") for edge in (low, high)]
    return "".join(drawn)


def _path(places: list[Place]) -> str:
    return "M" + "L".join(f"{pixels(x)} {pixels(y)}" for x, y in places)
