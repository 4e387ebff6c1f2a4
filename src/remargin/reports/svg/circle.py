"""Draws points on the unit circle and arrows along it: where a loss pulls them."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from remargin.reports.svg.elements import (
    WIDTH,
    colour,
    document,
    element,
    escape,
    legend,
    pixels,
    shorten,
    text,
    tooltip,
)

if TYPE_CHECKING:
    from remargin.reports.figures import Arrow, Circle, CirclePanel

_RADIUS = 82.0
_HEIGHT = 2 * _RADIUS + 92
_LEVEL = 13.0  # between arrows that would cover each other
_HEAD = 11.0
_POINT = 4.5  # radius
_LONGEST = 50.0  # degrees, of the strongest pull
_TARGET, _ARROW = colour(2), colour(1)


def draw_circle(figure: Circle, standalone: bool) -> str:
    """A Circle as SVG, up to three panels in a row, and four in two rows."""
    columns = 2 if len(figure.panels) == 4 else min(3, len(figure.panels))
    width = WIDTH / max(columns, 2)
    strongest = max((abs(arrow.pull or 0) for panel in figure.panels for arrow in panel.arrows), default=0.0)
    body = ""
    for i, panel in enumerate(figure.panels):
        column, row = i % columns, i // columns
        place = f"translate({pixels((column + 0.5) * width)} {pixels((row + 0.5) * _HEIGHT + 10)})"
        title = text(shorten(panel.title, width - 20), 0, -_RADIUS - 44, "strong", "middle")
        body += element("g", title, _panel(panel, strongest), transform=place, class_="panel")
    height = _HEIGHT * math.ceil(len(figure.panels) / columns)
    keys, needed = legend(_keys(figure), WIDTH)
    body += element("g", keys or " ", transform=f"translate(0 {pixels(height + 6)})")
    return document(columns * width, height + needed + 6, figure.title, describe(figure), body, standalone)


def describe(figure: Circle) -> str:
    """What is to be seen, for those who cannot see it.

    >>> from remargin.reports.figures import Arrow, Circle, CirclePanel
    >>> panel = CirclePanel("static", {"q": 90, "d-1": -15}, [Arrow("d-1", -15, end=-45)])
    >>> describe(Circle("pull", "", "", [panel]))
    'Points on the unit circle, static: q at 90°, d-1 at -15°. d-1 is pulled 30° clockwise.'
    """
    sentences = []
    for panel in figure.panels:
        points = ", ".join(f"{label} at {angle:.4g}°" for label, angle in panel.points.items())
        sentences.append(f"Points on the unit circle, {panel.title}: {points}.")
        sentences += [f"{_words(arrow)}." for arrow in panel.arrows]
    return " ".join(sentences)


def degrees(arrow: Arrow, strongest: float) -> float:
    """How many degrees an arrow covers, anticlockwise: up to its end, or in proportion to the strongest pull.

    >>> from remargin.reports.figures import Arrow
    >>> degrees(Arrow("d-1", 143, end=193), 0), degrees(Arrow("d-1", 143, pull=-0.2), 0.4)
    (50, -25.0)
    """
    if arrow.end is not None:
        return arrow.end - arrow.start
    return _LONGEST * (arrow.pull or 0) / strongest if strongest else 0.0


def _from(arrow: Arrow) -> float:
    """Where an arrow begins: a pull at the edge of its point, so that a weak one is not hidden under it."""
    edge = math.degrees((_POINT + 2) / _RADIUS)
    return arrow.start + (math.copysign(edge, arrow.pull) if arrow.pull else 0.0)


def _words(arrow: Arrow) -> str:
    turn = arrow.pull if arrow.end is None else arrow.end - arrow.start
    if not turn:
        return f"{arrow.label} is not pulled"
    way = "anticlockwise" if turn > 0 else "clockwise"
    how_far = f"{abs(turn):.3g}°" if arrow.end is not None else f"with {abs(turn):.3g}"
    return f"{arrow.label} is pulled {how_far} {way}"


def _panel(panel: CirclePanel, strongest: float) -> str:
    drawn = [element("circle", r=_RADIUS, class_="axis", stroke_dasharray="1 3")]
    for label, angle in panel.targets.items():
        x, y = _place(angle, _RADIUS)
        disc = element("circle", tooltip(f"{label}: {angle:.4g}°"), cx=x, cy=y, r=9, class_="dot target")
        drawn.append(element("g", disc, class_=_TARGET))
    taken: list[tuple[int, float, float]] = []
    for arrow in panel.arrows:
        start, turn = _from(arrow), degrees(arrow, strongest)
        low, high = sorted((start, start + turn))
        level = next(i for i in range(99) if not any(i == j and _overlap(low, high, a, b) for j, a, b in taken))
        taken.append((level, low, high))
        inner = _arrow(arrow, turn, _RADIUS - _LEVEL * level, strongest)
        drawn.append(element("g", tooltip(_words(arrow)), inner, class_=f"arrow {_ARROW}"))
    for label, angle in panel.points.items():
        x, y = _place(angle, _RADIUS)
        drawn.append(element("circle", tooltip(f"{label}: {angle:.4g}°"), cx=x, cy=y, r=_POINT, class_="mark point"))
        drawn.append(_label(label, angle))
    return element("g", *drawn, class_="ink")


def _place(angle: float, radius: float) -> tuple[float, float]:
    """Where an angle is: anticlockwise from the right, as in geometry, though y points down here."""
    return radius * math.cos(math.radians(angle)), -radius * math.sin(math.radians(angle))


def _overlap(low: float, high: float, a: float, b: float) -> bool:
    """Whether two arcs cover a common stretch, wherever their angles were counted from."""
    return any(low < b + turn and a + turn < high for turn in (-360, 0, 360))


def _arrow(arrow: Arrow, turn: float, radius: float, strongest: float) -> str:
    """An arc and its head. A short one has a smaller head, and no pull has none."""
    if not turn:
        return " "
    strength = abs(arrow.pull) / strongest if arrow.pull is not None and strongest else 0.5
    stroke = 1.5 + 2 * strength
    start, sign = _from(arrow), math.copysign(1.0, turn)
    end = start + turn
    head = min(_HEAD * (0.8 + 0.4 * strength), math.radians(abs(turn)) * radius)
    back = math.degrees(head / radius)
    x0, y0 = _place(start, radius)
    x1, y1 = _place(end - 0.7 * sign * back, radius)
    large, sweep = int(abs(turn) > 180), int(turn < 0)
    r = pixels(radius)
    path = f"M{pixels(x0)} {pixels(y0)}A{r} {r} 0 {large} {sweep} {pixels(x1)} {pixels(y1)}"
    corners = [
        _place(end, radius),
        _place(end - sign * back, radius + head / 2),
        _place(end - sign * back, radius - head / 2),
    ]
    points = " ".join(f"{pixels(x)},{pixels(y)}" for x, y in corners)
    arc = element("path", d=path, class_="line", stroke_width=stroke, style=f"stroke-width:{pixels(stroke)}")
    return arc + element("polygon", points=points, fill="currentColor")


def _label(label: str, angle: float) -> str:
    """A name outside the circle. Those of documents, d+ and d-1, are set as the paper sets them."""
    x, y = _place(angle, _RADIUS + 20)
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
    if any(panel.targets for panel in figure.panels):
        keys.append((element("g", element("circle", cx=15, r=7, class_="dot"), class_=_TARGET), "target"))
    arrows = [arrow for panel in figure.panels for arrow in panel.arrows]
    if arrows:
        line = element("path", d="M2 0H20", class_="line")
        sample = element("g", line, element("polygon", points="29,0 18,-5 18,5", fill="currentColor"), class_=_ARROW)
        longer = "; the longer, the stronger" if any(arrow.pull is not None for arrow in arrows) else ""
        keys.append((sample, f"where the loss pulls it{longer}"))
    return keys
