"""The weight of the margin, a constant of the recipe: what each collection would get if the others chose it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TypeVar

from remargin.paper.beyond.requirements import RECIPE
from remargin.paper.beyond.rows import CollectionRows, RowName
from remargin.paper.beyond.systems import MARGIN_WEIGHT, MARGIN_WEIGHTS, weighted
from remargin.reports.tables import Block, Cell, Table, number

V = TypeVar("V")


@dataclass(frozen=True)
class LeftOut:
    """What the other collections choose for one that is left out.

    Attributes:
        collection: the one that is left out.
        chosen: the value with the highest mean on dev of the other collections.
        home: nDCG@10 on test of the collection with that value, blended.
        ours: the same with the recipe's value.
    """

    collection: str
    chosen: float
    home: float
    ours: float


def choose_on_others(values: Mapping[str, Mapping[V, float]], left_out: str) -> V:
    """The choice with the highest mean over all collections but one; the first of those that are level.

    >>> choose_on_others({"a": {0: 0.9, 1: 0.1}, "b": {0: 0.2, 1: 0.3}, "c": {0: 0.2, 1: 0.4}}, "a")
    1
    """
    others = [of_collection for name, of_collection in values.items() if name != left_out]
    return max(others[0], key=lambda choice: fmean(of_collection[choice] for of_collection in others))


def left_out_weights(collections: Sequence[CollectionRows]) -> list[LeftOut]:
    """For each collection the margin weight that dev of the others chooses; none with fewer than two collections."""
    rows = {weight: RowName(weighted(weight).name, True) for weight in MARGIN_WEIGHTS}
    having = [c for c in collections if all(row in c.rows for row in rows.values())]
    if len(having) < 2:
        return []
    dev = {c.name: {weight: c.rows[row].dev or 0.0 for weight, row in rows.items()} for c in having}
    chosen = {c.name: choose_on_others(dev, c.name) for c in having}
    return [
        LeftOut(c.name, chosen[c.name], c.rows[rows[chosen[c.name]]].home_mean, c.rows[RECIPE].home_mean)
        for c in having
    ]


def weight_tables(by_model: Mapping[str, Sequence[CollectionRows]]) -> list[Table]:
    """For each backbone: dev and test for each weight, and what each collection gets from the others' choice."""
    return [table for model, collections in by_model.items() for table in _tables(model, collections)]


def _tables(model: str, collections: Sequence[CollectionRows]) -> list[Table]:
    rows = {weight: RowName(weighted(weight).name, True) for weight in MARGIN_WEIGHTS}
    lines = [
        [number(weight, 1, bold=weight == MARGIN_WEIGHT), *(cell for c in collections for cell in _cells(c, row))]
        for weight, row in rows.items()
    ]
    header = ["c", *(f"{c.name} {kind}" for c in collections for kind in ("dev", "home", "away"))]
    tables = [Table(f"The weight of the margin, blended: {model}", header, [Block("", lines)])]
    if left_out := left_out_weights(collections):
        chosen = [
            [
                Cell(one.collection),
                number(one.chosen, 1),
                number(one.home),
                number(one.ours),
                _signed(one.home - one.ours),
            ]
            for one in left_out
        ]
        header = ["left out", "c that the others choose", "home with it", f"with {MARGIN_WEIGHT:g}", "difference"]
        tables.append(
            Table(f"The weight of the margin, leave-one-collection-out: {model}", header, [Block("", chosen)])
        )
    return tables


def _cells(collection: CollectionRows, name: RowName) -> list[Cell]:
    row = collection.rows.get(name)
    return [number(None)] * 3 if row is None else [number(row.dev), number(row.home_mean), number(row.away_mean)]


def _signed(value: float) -> Cell:
    return Cell(f"{value:+.3f}", value=value)
