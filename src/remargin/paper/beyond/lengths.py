"""Rate and length of the recipe: what dev says of each, and what each collection would get if the others chose them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import NamedTuple

from remargin.paper.beyond.constants import choose_on_others
from remargin.paper.beyond.systems import OURS, untrained_tasks
from remargin.reports.sections import Section
from remargin.reports.tables import Block, Cell, Table, number
from remargin.study.blending import CHOSEN, blend_of, blended_at
from remargin.study.experiment import Experiment
from remargin.study.plan import Plan
from remargin.study.results import MEASURE, TEST, ZERO_SHOT, Results
from remargin.study.specs import RunSpec
from remargin.study.systems import choose, declare
from remargin.study.tasks import Task

NAME, TITLE = "beyond-lengths", "Beyond the paper: learning rate and length of the recipe"
RATES = (5e-5, 1e-4, 2e-4)
SHARES = (1 / 16, 1 / 4, 1.0)  # of the plan's triplets


class Length(NamedTuple):
    """A peak learning rate, and how many triplets are trained on.

    >>> Length(1e-4, 25_000).text
    '0.0001, 25,000 triplets'
    """

    rate: float
    triplets: int

    @property
    def text(self) -> str:
        """For people."""
        return f"{self.rate:g}, {self.triplets:,} triplets"


@dataclass(frozen=True)
class LengthRow:
    """The recipe with a rate and a length, with the first seed and blended, as nDCG@10.

    Attributes:
        dev: at the weight that dev chooses.
        home, away: on test queries of its own collection, and the mean of others.
        weight: of the trained weights.
    """

    dev: float
    home: float
    away: float | None
    weight: float


@dataclass(frozen=True)
class CollectionLengths:
    """The rows of one backbone on one collection, and which of them the recipe has."""

    name: str
    ours: Length
    rows: Mapping[Length, LengthRow]


def lengths(plan: Plan) -> list[Length]:
    """Every rate with every length.

    >>> lengths(Plan(triplets=100_000))[0].text
    '5e-05, 6,250 triplets'
    """
    return [Length(rate, max(1, round(plan.triplets * share))) for rate in RATES for share in SHARES]


def _measures(results: Results) -> list[str]:
    return [blended_at(kind, CHOSEN) for kind in ((TEST, ZERO_SHOT) if results.columns else (TEST,))]


def _specs(plan: Plan, ours: RunSpec) -> dict[Length, RunSpec]:
    return {length: replace(ours, rate=length.rate, triplets=length.triplets) for length in lengths(plan)}


def _tasks(results: Results) -> Iterator[Task]:
    yield from untrained_tasks(results)
    for model in results.models:
        choice = declare(results, model, OURS)
        yield from choice.runs(_specs(results.plan, choice.spec).values(), _measures(results))


def findings(results: Results) -> Mapping[str, CollectionLengths]:
    """The rows of each backbone.

    Raises:
        NotTrained: naming a run that is missing.
    """
    return results.of_models(lambda model: _rows(results, model))


def _rows(results: Results, model: str) -> CollectionLengths:
    ours = choose(results, model, OURS).spec
    rows = {}
    for length, spec in _specs(results.plan, ours).items():
        run = results.run(spec, *_measures(results))
        blend = blend_of(run)
        home = fmean(run.test(blended_at(TEST, CHOSEN))[MEASURE].values())
        others = run.zero_shot(blended_at(ZERO_SHOT, CHOSEN)) if results.columns else {}
        away = [fmean(scores[MEASURE].values()) for scores in others.values()]
        rows[length] = LengthRow(blend.value, home, fmean(away) if away else None, blend.chosen)
    return CollectionLengths(results.name, Length(ours.rate, ours.triplets), rows)


def draw(results: Results, findings: Mapping[str, CollectionLengths]) -> Section:
    """A table for each backbone, on one collection."""
    return section({model: [rows] for model, rows in findings.items()})


def section(by_model: Mapping[str, Sequence[CollectionLengths]]) -> Section:
    """The same, on one collection or several."""
    tables = [table for model, collections in by_model.items() for table in _tables(model, collections)]
    notes = ["Runs with the first seed, blended. Dev chooses; home and away are measured on test queries."]
    return Section(NAME, TITLE, [], tables, [], {"rates": list(RATES), "shares": list(SHARES)}, notes)


def _tables(model: str, collections: Sequence[CollectionLengths]) -> Iterator[Table]:
    first = collections[0]
    header = ["rate", "triplets", *(f"{c.name} {kind}" for c in collections for kind in ("dev", "home", "away"))]
    if several := len(collections) > 1:
        header[2:2] = ["mean dev", "mean home", "mean away"]
    lines = []
    for length in first.rows:
        rows = [c.rows[length] for c in collections]
        means = [_mean([getattr(row, kind) for row in rows]) for kind in ("dev", "home", "away")] if several else []
        cells = [number(value) for value in (*means, *(v for row in rows for v in (row.dev, row.home, row.away)))]
        rate = Cell(f"{length.rate:g}", value=length.rate)
        triplets = Cell(f"{length.triplets:,}", value=length.triplets)
        lines.append([rate, triplets, *cells])
    yield Table(f"Rate and length, blended: {model}", header, [Block("", lines)])
    if several:
        yield _left_out(model, collections)


def _left_out(model: str, collections: Sequence[CollectionLengths]) -> Table:
    """What dev of the other collections chooses, and what the one that is left out gets with it."""
    dev = {c.name: {length: row.dev for length, row in c.rows.items()} for c in collections}
    lines = []
    for c in collections:
        chosen = choose_on_others(dev, c.name)
        ours = c.rows[c.ours].home if c.ours in c.rows else None
        own = max(c.rows, key=lambda length: c.rows[length].dev)
        lines.append(
            [Cell(c.name), Cell(chosen.text), number(c.rows[chosen].home), number(ours), number(c.rows[own].home)]
        )
    header = ["left out", "the others choose", "home with it", "with the recipe's", "with its own dev's"]
    return Table(f"Rate and length, leave-one-collection-out: {model}", header, [Block("", lines)])


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if len(known) == len(values) else None


EXPERIMENT = Experiment(NAME, _tasks, findings, draw, compares=True)
