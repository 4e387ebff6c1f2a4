"""The pieces of an SVG: escaped text, colours, dashes and shapes that every figure shares, and the whole document."""

from __future__ import annotations

import html
import math
import re
import unicodedata
from collections.abc import Iterator

from remargin.errors import printable
from remargin.reports.svg.style import COLOURS, STYLE, TEXT

WIDTH = 760
_MARGIN = 12  # around a figure that stands alone
# The first six: no two of them look alike in black and white.
DASHES = (None, "7 3", "2 3", "9 3 2 3", "14 4", "4 2 1 2 1 2")
SHAPES = ("circle", "square", "triangle", "diamond", "down", "cross")
_INVALID = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # in XML, even as a reference


def escape(text: str) -> str:
    """Text as it stands in XML and HTML, between tags or in quotes, with control characters shown as escapes.

    What else XML cannot hold becomes a replacement mark.

    >>> escape('1 < 2 & "so"'), escape("bell \\a")
    ('1 &lt; 2 &amp; &quot;so&quot;', 'bell \\\\x07')
    """
    return html.escape(_INVALID.sub("\ufffd", printable(text)))


def element(name: str, *inner: str, **attributes: object) -> str:
    """An element with markup in it. Attributes are escaped, numbers rounded, and those that are None left out.

    >>> element("g", element("line", x1=0, x2=1 / 3), class_="grid")
    '<g class="grid"><line x1="0" x2="0.33"/></g>'
    """
    given = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items() if value is not None}
    texts = {key: pixels(value) if isinstance(value, int | float) else str(value) for key, value in given.items()}
    start = " ".join([name, *(f'{key}="{escape(text)}"' for key, text in texts.items())])
    return f"<{start}>{''.join(inner)}</{name}>" if inner else f"<{start}/>"


def pixels(value: float) -> str:
    """A length with two decimals at most.

    >>> pixels(2.0), pixels(1 / 3), pixels(-0.001)
    ('2', '0.33', '0')
    """
    return f"{value:z.2f}".rstrip("0").rstrip(".")


def text(content: str, x: float, y: float, class_: str | None = None, anchor: str | None = None) -> str:
    """A line of text that starts at a place, or has its middle or its end there.

    >>> text("a < b", 3, 4, anchor="end")
    '<text x="3" y="4" text-anchor="end">a &lt; b</text>'
    """
    return element("text", escape(" ".join(content.split())), x=x, y=y, class_=class_, text_anchor=anchor)


def tooltip(content: str) -> str:
    """What browsers show while the pointer is over the element that this is in.

    >>> tooltip("q1")
    '<title>q1</title>'
    """
    return element("title", escape(content))


def width_of(content: str, size: float = TEXT) -> float:
    """About how wide a text is: there is no font to ask.

    >>> width_of("loss") < width_of("損失の推移")
    True
    """
    wide = sum(unicodedata.east_asian_width(sign) in "WF" for sign in content)
    return size * (wide + 0.58 * (len(content) - wide))


def shorten(content: str, width: float, size: float = TEXT) -> str:
    """A text that fits, cut off if need be.

    >>> shorten("a long title of a panel", 80)
    'a long tit…'
    """
    content = " ".join(content.split())
    if width_of(content, size) <= width:
        return content
    while content and width_of(content + "…", size) > width:
        content = content[:-1]
    return content.rstrip() + "…"


def wrapped(content: str, width: float) -> list[str]:
    """A text in lines that fit, two of them at most; the second is cut off if need be.

    >>> wrapped("without in-batch negatives", 140), wrapped("adaptive", 140), wrapped("", 140)
    (['without in-batch', 'negatives'], ['adaptive'], [])
    """
    words = content.split()
    fitting = max((i for i in range(len(words) + 1) if width_of(" ".join(words[:i])) <= width), default=0) or 1
    lines = [" ".join(words[:fitting]), " ".join(words[fitting:])]
    return [shorten(line, width) for line in lines if line]


def colour(i: int) -> str:
    """The class with the colour of series i.

    >>> colour(0), colour(7)
    ('k0', 'k1')
    """
    return f"k{i % COLOURS}"


def dash(i: int) -> str | None:
    """The dash pattern of series i. Series of the same colour have different ones.

    >>> dash(0), dash(6)
    (None, '7 3')
    """
    return DASHES[(i + i // COLOURS) % len(DASHES)]


def mark(i: int, x: float, y: float, size: float = 4, class_: str = "mark", title: str | None = None) -> str:
    """The shape of series i around a place, perhaps with a tooltip.

    >>> mark(0, 10, 20, title="step 3")
    '<circle cx="10" cy="20" r="4" class="mark"><title>step 3</title></circle>'
    >>> mark(1, 10, 20)
    '<path d="M6.4 16.4h7.2v7.2h-7.2z" class="mark"/>'
    """
    inner = [] if title is None else [tooltip(title)]
    shape = SHAPES[(i + i // COLOURS) % len(SHAPES)]
    if shape == "circle":
        return element("circle", *inner, cx=x, cy=y, r=size, class_=class_)
    return element("path", *inner, d=_outline(shape, x, y, size), class_=class_)


def _outline(shape: str, x: float, y: float, size: float) -> str:
    """A shape of about the same area as the circle, its middle at x and y."""
    if shape == "square":
        half = 0.9 * size
        side = pixels(2 * half)
        return f"M{pixels(x - half)} {pixels(y - half)}h{side}v{side}h-{side}z"
    if shape == "cross":
        arm, third = 1.2 * size, 0.4 * size
        corners = [(arm, third), (third, third), (third, arm)]
        turned = [(a, b) for i in range(4) for a, b in _turned(corners, i)]
    else:
        turned = {
            "triangle": [(0, -1.35 * size), (1.17 * size, 0.675 * size), (-1.17 * size, 0.675 * size)],
            "down": [(0, 1.35 * size), (1.17 * size, -0.675 * size), (-1.17 * size, -0.675 * size)],
            "diamond": [(0, -1.25 * size), (1.25 * size, 0), (0, 1.25 * size), (-1.25 * size, 0)],
        }[shape]
    return "M" + "L".join(f"{pixels(x + a)} {pixels(y + b)}" for a, b in turned) + "z"


def _turned(corners: list[tuple[float, float]], quarters: int) -> Iterator[tuple[float, float]]:
    for a, b in corners:
        for _ in range(quarters):
            a, b = -b, a
        yield a, b


def legend(entries: list[tuple[str, str]], width: float, left: float = 0) -> tuple[str, float]:
    """Samples, 30 wide, with their texts, in as many lines as they need. Returns them and their height.

    >>> drawn, height = legend([(mark(0, 15, 0), "ours"), (mark(1, 15, 0), "theirs")], width=200)
    >>> height, drawn.count("<text")
    (20.0, 2)
    """
    drawn, x, y = [], left, 10.0
    for sample, name in entries:
        name = shorten(name, width - 40)
        needed = 38 + width_of(name)
        if x > left and x + needed > left + width:
            x, y = left, y + 20
        inner = element("g", sample, transform=f"translate({pixels(x)} {pixels(y)})")
        drawn.append(element("g", inner, text(name, x + 36, y + 4), class_="legend"))
        x += needed + 18
    return "".join(drawn), y + 10 if entries else 0.0


def document(width: float, height: float, title: str, description: str, body: str, standalone: bool) -> str:
    """The whole SVG. Standalone it has its style and its background, so that it opens alone.

    The title is for those who point at it or have it read to them: what is to be seen has none, as in a paper.

    >>> document(90, 60, "Loss", "It falls.", "", standalone=False)[:80]
    '<svg viewBox="0 0 90 60" width="90" height="60" class="remargin-figure" role="im'
    """
    about = [tooltip(title), element("desc", escape(description))]
    if standalone:
        moved = element("g", body or " ", transform=f"translate({_MARGIN} {_MARGIN})")
        width, height = width + 2 * _MARGIN, height + 2 * _MARGIN
        background = element("rect", width=width, height=height, class_="paper")
        body = element("style", html.escape(STYLE, quote=False)) + background + moved
    width, height = math.ceil(width), math.ceil(height)
    return element(
        "svg",
        *about,
        body,
        xmlns="http://www.w3.org/2000/svg" if standalone else None,
        viewBox=f"0 0 {width} {height}",
        width=width,
        height=height,
        class_="remargin-figure",
        role="img",
    )
