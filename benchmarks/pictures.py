"""The pictures of docs/: how targets, the softmax over margins, and blending work.

    python benchmarks/pictures.py

The first two are drawn from the formulas. The third has the numbers of results/away-proxy.md.
"""

from __future__ import annotations

import math
import re
from pathlib import Path

from remargin.losses.softmax_margin import MARGIN_WEIGHT
from remargin.paper import loss_geometry
from remargin.reports.circles import Circle
from remargin.reports.figures import LineFigure, Panel, Series

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "pictures"


def targets() -> LineFigure:
    """The target of a negative, against how alike positive and negative are."""
    alike = [i / 10 for i in range(-10, 11)]
    lines = [
        Series("adaptive and distributed: (1 + similarity) / 2", alike, [(1 + x) / 2 for x in alike]),
        Series("static margin of 0.3", alike, [0.3] * len(alike)),
    ]
    panel = Panel("", "similarity of positive and negative", "target of the margin", lines)
    caption = "A negative that is like the positive gets a larger target: it must be further behind."
    return LineFigure("targets", "How far behind must a negative be?", caption, [[panel]])


def softmax() -> LineFigure:
    """What a document weighs in the gradient of the softmax loss, relative to one with margin 0 and a mean target."""
    margins = [i / 100 for i in range(-10, 31)]

    def panel(spread: float) -> Panel:
        names = {0.1: "target 0.1 above the mean", 0.0: "mean target", -0.1: "target 0.1 below the mean"}
        lines = [
            Series(name, margins, [math.exp((MARGIN_WEIGHT * above - m) / spread) for m in margins])
            for above, name in names.items()
        ]
        return Panel(f"targets spread by {spread}", "margin of the document", "relative weight", lines)

    caption = "The spread of the targets is the temperature, and a target above the mean moves the curve to the right."
    return LineFigure("softmax", "What a document of the batch weighs", caption, [[panel(0.1), panel(0.2)]])


def blending() -> LineFigure:
    """The way from the starting to the trained weights: the demo's model on its own texts and elsewhere."""
    text = (ROOT / "results" / "away-proxy.md").read_text()
    rows = [row.split("|") for row in re.findall(r"^\| a = (.*) \|$", text, re.MULTILINE)]
    weights = [0.0, *(float(row[0]) for row in rows)]
    home = [0.0, *(float(row[2]) for row in rows)]
    away = [0.0, *(float(row[-1]) for row in rows)]
    x_label, y_label = "weight of the trained model", "change of nDCG@10"
    at_home, elsewhere = Series("home", weights, home), Series("elsewhere", weights, away)
    panels = [
        Panel("at home: docstrings, which it was trained on", x_label, y_label, [at_home]),
        Panel("elsewhere: mean of three collections", x_label, y_label, [elsewhere]),
    ]
    caption = "The model of the demo (results/away-proxy.md); dev chose the weight 0.6."
    return LineFigure("blending", "The way back to the starting weights", caption, [[panel] for panel in panels])


def geometry() -> Circle:
    """The paper's figure 2."""
    _, figure = loss_geometry.draw(None, loss_geometry.findings()).figures
    assert isinstance(figure, Circle)
    return figure


def pictures() -> dict[str, str]:
    """Every picture, by the name of its file."""
    return {
        f"{figure.name}.svg": figure.svg(standalone=True) for figure in (targets(), geometry(), softmax(), blending())
    }


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, svg in pictures().items():
        (FOLDER / name).write_text(svg + "\n", encoding="utf-8")
        print(FOLDER / name)
