"""Draws the SVG of a figure as a vector PDF or as a PNG, with Matplotlib.

Matplotlib knows nothing of axes and lines here: it draws shapes and texts where the SVG has them, with its own font
embedded, so that a figure looks the same everywhere. What an SVG of ours has is drawn, not any SVG.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from remargin.errors import InputError
from remargin.reports.svg.style import TEXT, declared

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas
    from matplotlib.path import Path as Outline
    from matplotlib.transforms import Affine2D

FORMATS = ("pdf", "png")
POINT = 8 / TEXT  # points in a pixel: text is set in 8 points
DPI = 300
MARGIN = 3.0  # pixels around: letters may be a little wider than the SVG expects
_INITIAL = {"color": "#000000", "fill": "#000000", "stroke": "none", "stroke-width": "1", "font-size": f"{TEXT}px"}
_FONT = "DejaVu Sans"  # comes with Matplotlib
_ANCHORS = {"start": "left", "middle": "center", "end": "right"}
_ARGUMENTS = {"M": 2, "L": 2, "l": 2, "H": 1, "h": 1, "V": 1, "v": 1, "A": 7, "z": 0}

Style = dict[str, str]
Place = tuple[float, float]


def require_matplotlib() -> None:
    """Raise an InputError if Matplotlib is not installed."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise InputError("PDF and PNG need Matplotlib", do="pip install 'remargin[figures]'") from None


def printed(svg: str, format: str) -> bytes:
    """The file: of the size of the SVG, and a margin. The same SVG always gives the same bytes.

    Args:
        svg: of a figure, to stand inside a page.
        format: one of `FORMATS`.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure as Canvas
    from matplotlib.transforms import Affine2D

    root = ElementTree.fromstring(svg)
    inch = POINT / 72  # of a pixel
    width, height = (inch * (float(root.get(side, "")) + 2 * MARGIN) for side in ("width", "height"))
    canvas = Canvas(figsize=(width, height), dpi=DPI)
    # In an SVG, y points down.
    inches = Affine2D().translate(MARGIN, MARGIN).scale(inch, -inch).translate(0, height)
    _draw(root, _INITIAL, inches, canvas)
    about = {"Title": root.findtext("title")} | ({"CreationDate": None} if format == "pdf" else {})
    content = io.BytesIO()
    with rc_context({"pdf.fonttype": 42}):  # TrueType; some publishers refuse Matplotlib's usual fonts
        canvas.savefig(content, format=format, metadata=about)
    return content.getvalue()


def _draw(element: Element, inherited: Style, inches: Affine2D, canvas: Canvas) -> None:
    """Draw an element and those in it, in the order of the document."""
    if element.tag in ("title", "desc"):
        return
    style = inherited | _style(element)
    inches = _moved(element) + inches
    if element.tag == "text":
        _write(element, style, inches, canvas)
        return
    for outline in _outlines(element):
        _paint(outline, style, inches, canvas)
    for inner in element:
        _draw(inner, style, inches, canvas)


def _style(element: Element) -> Style:
    """Its own style: that of its attributes, then of its classes."""
    attributes = {name: value for name, value in element.attrib.items() if name not in ("class", "transform", "d")}
    return attributes | declared(element.tag, element.get("class", "").split())


def _moved(element: Element) -> Affine2D:
    from matplotlib.transforms import Affine2D

    moved = Affine2D()
    for name, numbers in reversed(re.findall(r"(\w+)\(([^)]*)\)", element.get("transform", ""))):
        values = [float(number) for number in numbers.split()]
        moved = moved.translate(*values) if name == "translate" else moved.rotate_deg(*values)
    return moved


def _colour(paint: str, style: Style, opacity: str) -> Any:
    if paint == "none":
        return "none"
    return style["color"] if paint == "currentColor" else paint, float(style.get(opacity, 1))


def _paint(outline: Outline, style: Style, inches: Affine2D, canvas: Canvas) -> None:
    from matplotlib.patches import PathPatch

    points = float(style["stroke-width"]) * POINT
    dashes = [float(length) * POINT / points for length in style.get("stroke-dasharray", "").split()]
    patch = PathPatch(
        outline,
        facecolor=_colour(style["fill"], style, "fill-opacity"),
        edgecolor=_colour(style["stroke"], style, "stroke-opacity"),
        linewidth=points if style["stroke"] != "none" else 0,
        linestyle=(0, dashes) if dashes else "solid",
        capstyle="round" if style.get("stroke-linecap") == "round" else "butt",
        joinstyle="round" if style.get("stroke-linejoin") == "round" else "miter",
        transform=inches + canvas.dpi_scale_trans,
        zorder=len(canvas.get_children()),
    )
    canvas.add_artist(patch)


def _write(element: Element, style: Style, inches: Affine2D, canvas: Canvas) -> None:
    """A text and its parts, one after another: those of a document's name stand higher or lower, and are smaller."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextPath

    x, y = (float(element.get(name, 0)) for name in ("x", "y"))
    usual = float(style["font-size"].removesuffix("px"))
    font = FontProperties(family=_FONT, weight="bold" if style.get("font-weight") == "600" else "normal")
    parts = [(element.text or "", usual, y)]
    for part in element:
        size = usual * float(part.get("font-size", "100%").removesuffix("%")) / 100
        parts.append((part.text or "", size, parts[-1][2] + size * float(part.get("dy", "0em").removesuffix("em"))))
    anchor = _ANCHORS[style.get("text-anchor", "start")]
    lengths = [0.0]
    if len(parts) > 1:  # set one by one, so anchored here
        lengths = [TextPath((0, 0), text, size, font).get_extents().x1 for text, size, _ in parts]
        x -= {"left": 0.0, "center": 0.5, "right": 1.0}[anchor] * sum(lengths)
        anchor = "left"
    origin, along = inches.transform([(0, 0), (1, 0)])
    turned = math.degrees(math.atan2(along[1] - origin[1], along[0] - origin[0]))
    for (content, size, baseline), length in zip(parts, lengths, strict=True):
        canvas.text(
            x,
            baseline,
            content,
            fontproperties=font,
            fontsize=size * POINT,
            color=style["fill"],
            horizontalalignment=anchor,
            verticalalignment="baseline",
            rotation=turned,
            rotation_mode="anchor",
            parse_math=False,
            transform=inches + canvas.dpi_scale_trans,
            zorder=len(canvas.get_children()),
        )
        x += length


def _outlines(element: Element) -> Iterator[Outline]:
    """The outline of a shape; none of a group."""
    from matplotlib.path import Path as Outline

    number = {name: float(value) for name, value in element.attrib.items() if name in ("cx", "cy", "r")}
    if element.tag == "circle":
        yield Outline.circle((number.get("cx", 0), number.get("cy", 0)), number["r"])
    elif element.tag == "polygon":
        corners = [tuple(map(float, corner.split(","))) for corner in element.get("points", "").split()]
        yield Outline([*corners, corners[0]], closed=True)
    elif element.tag == "path":
        yield _path(element.get("d", ""))


def _path(d: str) -> Outline:
    """The outline that the data of a path describe."""
    from matplotlib.path import Path as Outline

    places: list[Place] = []
    codes: list[int] = []
    x, y, first = 0.0, 0.0, (0.0, 0.0)
    for command, numbers in _commands(d):
        if command == "A":
            arc = _arc((x, y), numbers)
            places += arc.vertices[1:].tolist()
            codes += arc.codes[1:].tolist()
            x, y = numbers[-2:]
            continue
        if command in "HVML":
            x = x if command == "V" else numbers[0]
            y = y if command == "H" else numbers[-1]
        elif command in "hvl":
            x += 0 if command == "v" else numbers[0]
            y += 0 if command == "h" else numbers[-1]
        else:  # back to where this outline began
            x, y = first
        first = (x, y) if command == "M" else first
        places.append((x, y))
        codes.append({"M": Outline.MOVETO, "z": Outline.CLOSEPOLY}.get(command, Outline.LINETO))
    return Outline(places, codes)


def _commands(d: str) -> Iterator[tuple[str, list[float]]]:
    """Each command with its numbers. More numbers than it takes repeat it, after M as L."""
    for command, rest in re.findall(r"([A-Za-z])([^A-Za-z]*)", d.replace("Z", "z")):
        numbers = [float(number) for number in re.findall(r"-?[\d.]+", rest)]
        count = _ARGUMENTS[command]
        yield command, numbers[:count]
        for i in range(count, len(numbers), count or 1):
            yield "L" if command == "M" else command, numbers[i : i + count]


def _arc(start: Place, numbers: list[float]) -> Outline:
    """An arc of a circle, as the SVG has it: its radius, which of the two arcs, which way, and where it ends."""
    from matplotlib.path import Path as Outline
    from matplotlib.transforms import Affine2D

    radius, _, _, large, sweep, x, y = numbers
    (x0, y0), (dx, dy) = start, (x - start[0], y - start[1])
    chord = math.hypot(dx, dy)
    away = math.sqrt(max(0.0, radius**2 - chord**2 / 4)) * (1 if large != sweep else -1) / chord
    centre = x0 + dx / 2 - away * dy, y0 + dy / 2 + away * dx
    angles = [math.degrees(math.atan2(b - centre[1], a - centre[0])) for a, b in (start, (x, y))]
    if not sweep:
        angles.reverse()
    unit = Outline.arc(*angles)
    arc = Affine2D().scale(radius).translate(*centre).transform_path(unit)
    return arc if sweep else Outline(arc.vertices[::-1], arc.codes)
