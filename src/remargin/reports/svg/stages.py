"""Draws stages of training: a column of boxes for each way to train, with arrows between them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from remargin.reports.svg.elements import colour, document, element, legend, pixels, text, wrapped

if TYPE_CHECKING:
    from remargin.reports.stages import Stages

# The paper's colours: blue for data, green for the bi-encoder, purple for the cross-encoder.
KINDS = {"data": colour(0), "bi-encoder": colour(2), "cross-encoder": colour(3)}
_TALL, _APART = 44.0, 28.0  # a box, and the room between two
_WIDEST, _LINE = 240.0, 15.0


def draw_stages(figure: Stages, standalone: bool, width: float) -> str:
    """Stages as SVG, at most so many pixels wide."""
    of_panel = min(width / len(figure.panels), _WIDEST + 40)
    whole = of_panel * len(figure.panels)
    used = {stage.kind for panel in figure.panels for stage in panel.stages}
    entries = [
        (element("g", element("path", d="M4 -6H26V6H4z", class_="sector"), class_=KINDS[kind]), kind)
        for kind in KINDS
        if kind in used
    ]
    body, top = legend(entries, whole)
    for i, panel in enumerate(figure.panels):
        middle = (i + 0.5) * of_panel
        drawn = text(panel.title, middle, top + 26, "strong", "middle")
        y = top + 40
        for j, stage in enumerate(panel.stages):
            drawn += _box(stage.label, KINDS[stage.kind], middle, y, of_panel - 24)
            y += _TALL
            if j + 1 < len(panel.stages):
                drawn += _arrow(middle, y, panel.stages[j + 1].returns)
                y += _APART
        body += element("g", drawn, class_="panel")
    most = max(len(panel.stages) for panel in figure.panels)
    return document(
        whole, top + 40 + most * (_TALL + _APART) - _APART + 4, figure.title, describe(figure), body, standalone
    )


def describe(figure: Stages) -> str:
    """What is to be seen, for those who cannot see it.

    >>> from remargin.reports.stages import Stage, StagePanel, Stages
    >>> stages = [Stage("triplets", "data"), Stage("student", "bi-encoder"), Stage("targets", "data", returns=True)]
    >>> describe(Stages("overview", "", "", [StagePanel("self-distillation", stages)]))
    'Stages of self-distillation: triplets (data), student (bi-encoder), targets (data, and back).'
    """
    sentences = []
    for panel in figure.panels:
        stages = [f"{s.label} ({s.kind}{', and back' if s.returns else ''})" for s in panel.stages]
        sentences.append(f"Stages of {panel.title}: {', '.join(stages)}.")
    return " ".join(sentences)


def _box(label: str, of_kind: str, middle: float, y: float, width: float) -> str:
    left = pixels(middle - width / 2)
    box = element(
        "path", d=f"M{left} {pixels(y)}h{pixels(width)}v{pixels(_TALL)}h{pixels(-width)}z", class_="sector stage"
    )
    lines = wrapped(label, width - 12)
    first = y + _TALL / 2 + 4 - _LINE * (len(lines) - 1) / 2
    words = [text(line, middle, first + _LINE * i, None, "middle") for i, line in enumerate(lines)]
    return element("g", box, class_=of_kind) + "".join(words)


def _arrow(x: float, y: float, both: bool) -> str:
    """Down to the next box, and with a second head up to the one before."""
    low, high = y + _APART - 2, y + 2
    heads = [f"{pixels(x)},{pixels(low)} {pixels(x - 5)},{pixels(low - 10)} {pixels(x + 5)},{pixels(low - 10)}"]
    if both:
        heads.append(
            f"{pixels(x)},{pixels(high)} {pixels(x - 5)},{pixels(high + 10)} {pixels(x + 5)},{pixels(high + 10)}"
        )
    line = element("path", d=f"M{pixels(x)} {pixels(high + (8 if both else 0))}V{pixels(low - 8)}", class_="line")
    drawn = "".join(element("polygon", points=points, fill="currentColor") for points in heads)
    return element("g", line, drawn, class_="ink")
