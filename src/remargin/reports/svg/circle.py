"""Draws points on the unit circle, sectors of it, and arrows along it: targets, and where a loss moves negatives."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from remargin.reports.svg.elements import colour, document, element, escape, legend, pixels, text, tooltip, wrapped

if TYPE_CHECKING:
    from remargin.reports.circles import Arrow, Circle, CirclePanel, Sector

_RADIUS = 82.0  # at most
_NAMES = 32.0  # room for the names of points, left and right of a circle
_ABOVE = 92.0  # and for them and a title, above and below it
_SECTOR = 2 / 3  # of the radius of the circle, as in the paper
_TITLE = 16.0  # height of a line of a title
_NARROWEST, _WIDEST = 160.0, 380.0  # panel
_LEVEL = 13.0  # between arrows that would cover each other
_HEAD = 11.0
_POINT = 4.5  # radius
_REST, _ARROW = colour(2), colour(1)


def draw_circle(figure: Circle, standalone: bool, width: float) -> str:
    """A Circle as SVG, at most so many pixels wide: three panels in a row, or two if there are four or no room."""
    columns = 2 if len(figure.panels) == 4 else min(3, len(figure.panels))
    columns = min(columns, max(1, int(width / _NARROWEST)))
    of_panel = min(width / columns, _WIDEST)
    radius = min(_RADIUS, of_panel / 2 - _NAMES)
    titles = [wrapped(panel.title, of_panel) for panel in figure.panels]
    further = _TITLE * (max(map(len, titles)) - 1 if any(titles) else 0)
    tall = 2 * radius + _ABOVE + further
    body = ""
    for i, panel in enumerate(figure.panels):
        column, row = i % columns, i // columns
        place = f"translate({pixels((column + 0.5) * of_panel)} {pixels((row + 0.5) * tall + 10 + further / 2)})"
        lines = enumerate(reversed(titles[i]))
        title = [text(line, 0, -radius - 44 - _TITLE * above, "strong", "middle") for above, line in lines]
        body += element("g", *title, _panel(panel, radius), transform=place, class_="panel")
    height, whole = tall * math.ceil(len(figure.panels) / columns), columns * of_panel
    keys, needed = legend(_keys(figure), whole)
    body += element("g", keys or " ", transform=f"translate(0 {pixels(height + 6)})")
    return document(whole, height + needed + 6, figure.title, describe(figure), body, standalone)


def describe(figure: Circle) -> str:
    """What is to be seen, for those who cannot see it.

    >>> from remargin.reports.circles import Arrow, Circle, CirclePanel, Sector
    >>> arrows, sectors = [Arrow("d-1", -15, end=-45)], [Sector("target", 225, 315)]
    >>> describe(Circle("targets", "", "", [CirclePanel("static", {"q": 90, "d-1": -15}, arrows, {}, sectors)]))
    'Points on the unit circle, static: q at 90°, d-1 at -15°. target: from 225° to 315°. d-1 moves 30° clockwise.'
    """
    sentences = []
    for panel in figure.panels:
        points = ", ".join(f"{label} at {angle:.4g}°" for label, angle in panel.points.items())
        sentences.append(f"Points on the unit circle, {panel.title}: {points}.")
        sentences += [f"{_extent(sector)}." for sector in panel.sectors]
        sentences += [f"{_words(arrow)}." for arrow in panel.arrows]
    return " ".join(sentences)


def _words(arrow: Arrow) -> str:
    if not arrow.turn:
        return f"{arrow.label} does not move"
    return f"{arrow.label} moves {abs(arrow.turn):.3g}° {'anticlockwise' if arrow.turn > 0 else 'clockwise'}"


def _extent(sector: Sector) -> str:
    return f"{sector.label}: from {sector.start:.4g}° to {sector.end:.4g}°"


def _panel(panel: CirclePanel, radius: float) -> str:
    drawn = [
        element("path", tooltip(_extent(sector)), d=_wedge(sector.start, sector.end, _SECTOR * radius), class_="sector")
        for sector in panel.sectors
    ]
    drawn = [element("g", *drawn, class_=_REST)] if drawn else []
    drawn.append(element("circle", r=radius, class_="axis", stroke_dasharray="1 3"))
    for label, angle in panel.rests.items():
        x, y = _place(angle, radius)
        disc = element("circle", tooltip(f"{label} rests at {angle:.4g}°"), cx=x, cy=y, r=9, class_="dot rest")
        drawn.append(element("g", disc, class_=_REST))
    taken: list[tuple[int, float, float]] = []
    for arrow in panel.arrows:
        low, high = sorted((arrow.start, arrow.end))
        level = next(i for i in range(99) if not any(i == j and _overlap(low, high, a, b) for j, a, b in taken))
        taken.append((level, low, high))
        inner = _arrow(arrow, radius - _LEVEL * level)
        drawn.append(element("g", tooltip(_words(arrow)), inner, class_=f"arrow {_ARROW}"))
    for label, angle in panel.points.items():
        x, y = _place(angle, radius)
        drawn.append(element("circle", tooltip(f"{label}: {angle:.4g}°"), cx=x, cy=y, r=_POINT, class_="mark point"))
        drawn.append(_label(label, angle, radius))
    return element("g", *drawn, class_="ink")


def _place(angle: float, radius: float) -> tuple[float, float]:
    """Where an angle is: anticlockwise from the right, as in geometry, though y points down here."""
    return radius * math.cos(math.radians(angle)), -radius * math.sin(math.radians(angle))


def _overlap(low: float, high: float, a: float, b: float) -> bool:
    """Whether two arcs cover a common stretch, wherever their angles were counted from."""
    return any(low < b + turn and a + turn < high for turn in (-360, 0, 360))


def _arc(start: float, end: float, radius: float) -> str:
    """From a place on the circle, where the pen is, to another."""
    large, sweep = int(abs(end - start) > 180), int(end < start)
    x, y = _place(end, radius)
    return f"A{pixels(radius)} {pixels(radius)} 0 {large} {sweep} {pixels(x)} {pixels(y)}"


def _wedge(start: float, end: float, radius: float) -> str:
    x, y = _place(start, radius)
    return f"M0 0L{pixels(x)} {pixels(y)}{_arc(start, end, radius)}Z"


def _arrow(arrow: Arrow, radius: float) -> str:
    """An arc and its head. A short one has a smaller head, and one that does not move has none."""
    if not arrow.turn:
        return " "
    sign, end = math.copysign(1.0, arrow.turn), arrow.end
    head = min(_HEAD, math.radians(abs(arrow.turn)) * radius)
    back = math.degrees(head / radius)
    x, y = _place(arrow.start, radius)
    path = f"M{pixels(x)} {pixels(y)}{_arc(arrow.start, end - 0.7 * sign * back, radius)}"
    corners = [
        _place(end, radius),
        _place(end - sign * back, radius + head / 2),
        _place(end - sign * back, radius - head / 2),
    ]
    points = " ".join(f"{pixels(x)},{pixels(y)}" for x, y in corners)
    return element("path", d=path, class_="line") + element("polygon", points=points, fill="currentColor")


def _label(label: str, angle: float, radius: float) -> str:
    """A name outside the circle. Those of documents, d+ and d-1, are set as the paper sets them."""
    x, y = _place(angle, radius + 20)
    parts = re.fullmatch(r"(\w+?)([+-])(\w*)", label)
    if parts is None:
        return text(label, x, y + 4, "strong", "middle")
    name, sign, number = parts.groups()
    sign = element("tspan", "−" if sign == "-" else "+", dy="-0.45em", font_size="75%")
    number = element("tspan", escape(number), dy="0.8em", font_size="75%") if number else ""
    return element("text", escape(name), sign, number, x=x, y=y + 4, class_="strong", text_anchor="middle")


def _keys(figure: Circle) -> list[tuple[str, str]]:
    """The legend: only of what is there."""
    keys = []
    if any(panel.sectors for panel in figure.panels):
        wedge = element("path", d="M15 9L4 -7A19 19 0 0 1 26 -7Z", class_="sector")
        keys.append((element("g", wedge, class_=_REST), "where a target is met"))
    if any(panel.rests for panel in figure.panels):
        keys.append((element("g", element("circle", cx=15, r=7, class_="dot"), class_=_REST), "where a negative rests"))
    if any(panel.arrows for panel in figure.panels):
        line = element("path", d="M2 0H20", class_="line")
        head = element("polygon", points="29,0 18,-5 18,5", fill="currentColor")
        keys.append((element("g", line, head, class_=_ARROW), "how it gets there"))
    return keys
