"""Rows of the study beyond the paper that are made up, with means that are easily computed by hand."""

from __future__ import annotations

from collections.abc import Mapping

from remargin.paper.beyond.requirements import BLENDED_RIVAL, RECIPE, RIVAL
from remargin.paper.beyond.rows import BM25, UNTRAINED, CollectionRows, Row, RowName
from remargin.paper.beyond.systems import OURS

SPREAD = (-0.02, 0.0, 0.02)  # added to the queries of a collection, so that they differ


def row(home: float, away: float, seconds: float = 0.0, weight: float | None = None, dev: float | None = None) -> Row:
    """All queries have nearly the same score."""
    return Row(
        {f"q{i}": home + shift for i, shift in enumerate(SPREAD)},
        {"x": {f"x{i}": away + shift for i, shift in enumerate(SPREAD)}, "y": {"y0": away, "y1": away}},
        seconds,
        dev,
        weight,
    )


GOOD: Mapping[RowName, Row] = {
    BM25: row(0.40, 0.45),
    UNTRAINED: row(0.50, 0.43),
    RowName(OURS.name): row(0.72, 0.40, seconds=100),
    RECIPE: row(0.73, 0.44, seconds=110, weight=0.6),
    RIVAL: row(0.72, 0.41, seconds=1000),
    BLENDED_RIVAL: row(0.725, 0.43, seconds=1010, weight=0.8),
}


def collections(count: int = 6, seeds: int = 3, **changed: Row) -> list[CollectionRows]:
    """Collections on which everything holds, unless rows are changed: recipe, rival, blended_rival, untrained."""
    names = {"recipe": RECIPE, "rival": RIVAL, "blended_rival": BLENDED_RIVAL, "untrained": UNTRAINED}
    rows = {**GOOD, **{names[name]: value for name, value in changed.items()}}
    return [CollectionRows(f"c{i}", seeds, rows) for i in range(count)]
