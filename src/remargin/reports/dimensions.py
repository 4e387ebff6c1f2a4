"""What a model is worth whose vectors are truncated: a measure over their dimension, before and after training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypedDict

from remargin.files.shapes import Check, Finite, Size
from remargin.reports.figures import LineFigure, Panel, Series
from remargin.reports.tables import MISSING, Block, Cell, Table, number


class OverDims(TypedDict):
    """A measure's means by dimension, the largest first: of the encoder before training and of the model."""

    measure: str
    dims: list[Size]
    before: list[Finite]
    after: list[Finite]


def _complete(over: Mapping[str, Any]) -> bool:
    return len(over["dims"]) == len(over["before"]) == len(over["after"]) > 0


Dimensions = Annotated[OverDims, Check("as many values as dimensions", _complete)]


def dims_line(over: OverDims) -> str:
    """For people, in one line.

    >>> dims_line({"measure": "RR", "dims": [384, 64], "before": [0.5, 0.4], "after": [0.6, 0.58]})
    'RR of truncated vectors, before and after: 384 numbers 0.500 and 0.600, 64 numbers 0.400 and 0.580.'
    """
    rows = zip(over["dims"], over["before"], over["after"], strict=True)
    values = ", ".join(f"{dims} numbers {before:.3f} and {after:.3f}" for dims, before, after in rows)
    return f"{over['measure']} of truncated vectors, before and after: {values}."


def dims_table(over: OverDims, about: str) -> Table:
    """A row for each dimension.

    >>> over = {"measure": "RR", "dims": [384, 64], "before": [0.5, 0.4], "after": [0.6, 0.57]}
    >>> [[cell.text for cell in row] for row in dims_table(over, "").blocks[0].rows]
    [['384', '0.500', '0.600', '100%'], ['64', '0.400', '0.570', '95%']]
    """
    rows = [
        [
            Cell(f"{dims:,}", value=dims),
            number(before),
            number(after),
            Cell(f"{after / whole:.0%}", value=after / whole),
        ]
        for dims, before, after in zip(over["dims"], over["before"], over["after"], strict=True)
        for whole in [over["after"][0] or 1.0]
    ]
    header = ["dimension", f"{over['measure']} before training", "after training", "of the whole vectors'"]
    return Table("Truncated vectors", header, [Block("", rows)], [f"{about}."])


def _share(value: float, whole: float) -> Cell:
    return Cell(f"{value / whole:.0%}", value=value / whole) if whole else MISSING


def dims_figure(over: OverDims) -> LineFigure:
    """The measure over the dimension.

    >>> over = {"measure": "RR", "dims": [384, 64], "before": [0.5, 0.4], "after": [0.6, 0.58]}
    >>> [(series.name, list(series.x)) for series in dims_figure(over).panels[0].series]
    [('before training', [64, 384]), ('after training', [64, 384])]
    """
    lines = [Series(f"{side} training", over["dims"][::-1], over[side][::-1]) for side in ("before", "after")]
    caption = "The first numbers of the same vectors, brought to unit length again if they are compared by cosine."
    return LineFigure("dims", "Truncated vectors", caption, [[Panel("", "dimension", over["measure"], lines)]])
