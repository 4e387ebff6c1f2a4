"""Draws the study beyond the paper: one table of all rows, one for each question, and two figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import fsum
from statistics import fmean
from typing import Any

from remargin.paper.beyond.requirements import (
    COLLECTIONS,
    RECIPE,
    RIVAL,
    SEEDS,
    Requirement,
    check_requirements,
    counts,
)
from remargin.paper.beyond.rows import UNTRAINED, CollectionRows, RowName
from remargin.paper.beyond.statistics import (
    away_differences,
    home_differences,
    macro_away,
    macro_home,
    macro_interval,
    shared_rows,
)
from remargin.paper.beyond.systems import GROUPS, PAPERS
from remargin.paper.compared import time_text
from remargin.paper.deciding import FAILS, HOLDS, OPEN, interval_text
from remargin.reports.figures import Figure, LineFigure, Panel, Series
from remargin.reports.sections import Section
from remargin.reports.tables import MISSING, Block, Cell, Table, number
from remargin.study.results import MEASURE

ByModel = Mapping[str, Sequence[CollectionRows]]
NOT_TRAINED = "not trained"
LABELS = ("the recipe and its tuned rival", "not tuned", "variants of the softmax loss", "the paper's", "other margins")


def section(name: str, title: str, by_model: ByModel, settings: Mapping[str, Any]) -> Section:
    """Everything about each backbone, on one collection or several."""
    tables: list[Table] = []
    figures: list[Figure] = []
    summary: list[str] = []
    for model, collections in by_model.items():
        requirements = check_requirements(collections)
        summary.append(_summary(model, collections, requirements))
        several = (
            f"{model}, {len(collections)} collections" if len(collections) > 1 else f"{model}, {collections[0].name}"
        )
        tables += [overview(several, collections), verdicts(several, requirements), by_collection(several, collections)]
        figures += [home_against_away(model, collections), over_compute(model, collections)]
    notes = [
        f"All figures are {MEASURE} of exact full rankings on test queries. Home is the collection that was trained "
        "on, away the others. Temperature, learning rate, checkpoint and blending were chosen on dev.",
        "Without blending, a row has the best model on dev; blending goes from the last model back to the start.",
        "Means over collections give each the same weight. Seeds are averaged within queries, and queries are "
        "bootstrapped within collections; a query of an away collection counts once, however many models it measures.",
        "Total compute is the training time of one model with all trials that dev chose among, and with blending.",
    ]
    listed = {model: {c.name: c.seeds for c in collections} for model, collections in by_model.items()}
    return Section(name, title, summary, tables, figures, {"seeds by collection": listed, **settings}, notes)


def _summary(model: str, collections: Sequence[CollectionRows], requirements: Sequence[Requirement]) -> str:
    """The recipe beside its rival, and how many requirements hold."""
    several = {HOLDS: "hold", FAILS: "do not hold", OPEN: OPEN}
    verdict = ", ".join(
        f"{count} {words if count == 1 else several[words]}" for words, count in counts(requirements).items() if count
    )
    shared = shared_rows(collections)
    known = [name for name in (UNTRAINED, RIVAL, RECIPE) if name in shared]
    means = "; ".join(
        f"{name.text} {_pair(macro_home(collections, name), macro_away(collections, name))}" for name in known
    )
    return f"{model}: {means}. Of {len(requirements)} requirements: {verdict}."


def _pair(home: float, away: float | None) -> str:
    return f"home {home:.3f}" + ("" if away is None else f", away {away:.3f}")


def overview(title: str, collections: Sequence[CollectionRows]) -> Table:
    """A line for each row: means, differences to the tuned rival and to no training, and cost."""
    shared = shared_rows(collections)
    compared = ["home, to the rival", "away, to no training"]
    header = ["system", "home", "away", *compared, "weight", "total compute", "trials"]
    blocks = [
        Block(label, [_line(collections, name, shared) for name in names]) for label, names in _grouped(shared).items()
    ]
    notes = [
        f"Differences with 95% intervals. The rival is {RIVAL.text}; weight is that of the trained weights. "
        "Trials are the part of the total compute that dev chose among."
    ]
    left_out = {name.text for c in collections for name in c.rows} - {name.text for name in shared}
    if left_out:
        notes.append(f"Not on every collection, and so left out: {'; '.join(sorted(left_out))}.")
    return Table(f"Home and away: {title}", header, blocks, notes)


def _grouped(names: Sequence[RowName]) -> dict[str, list[RowName]]:
    """Rows under the group in which they are trained; one that is in several stands in the first."""
    grouped: dict[str, list[RowName]] = {}
    for name in names:
        of_system = (i for i, group in enumerate(GROUPS) if any(name.system == s.name for s in group.systems))
        place = next(of_system, None)
        grouped.setdefault(NOT_TRAINED if place is None else LABELS[place], []).append(name)
    return {label: grouped[label] for label in (NOT_TRAINED, *LABELS) if label in grouped}


def _line(collections: Sequence[CollectionRows], name: RowName, shared: Sequence[RowName]) -> list[Cell]:
    rows = [collection.rows[name] for collection in collections]
    to_rival = to_untrained = MISSING
    if RIVAL in shared and name != RIVAL:
        to_rival = _difference(home_differences(collections, name, RIVAL))
    if name != UNTRAINED:
        to_untrained = _difference(away_differences(collections, name, UNTRAINED))
    weights = [row.weight for row in rows if row.weight is not None]
    seconds, trials = fsum(row.seconds for row in rows), fsum(row.trial_seconds for row in rows)
    return [
        Cell(name.text, bold=name == RECIPE),
        number(macro_home(collections, name), bold=name == RECIPE),
        number(macro_away(collections, name), bold=name == RECIPE),
        to_rival,
        to_untrained,
        number(fmean(weights) if weights else None, 2),
        _time(seconds),
        _time(trials),
    ]


def _time(seconds: float) -> Cell:
    return Cell(time_text(seconds), value=seconds) if seconds else MISSING


def _difference(groups: Mapping[str, Sequence[float]]) -> Cell:
    if not groups:
        return MISSING
    interval = macro_interval(list(groups.values()))
    return Cell(interval_text(interval), value=interval.mean)


def verdicts(title: str, requirements: Sequence[Requirement]) -> Table:
    """A line for each requirement, with a plain verdict."""
    rows = [
        [
            Cell(one.name),
            Cell(one.wanted),
            Cell(one.measured or "–"),
            Cell(one.verdict, bold=True),
            Cell(_why(one) or "–"),
        ]
        for one in requirements
    ]
    notes = [f"For a verdict the study needs {COLLECTIONS} collections and {SEEDS} seeds."]
    header = [f"{RECIPE.text}, compared", "wanted", "measured", "verdict", "so far"]
    return Table(f"Requirements: {title}", header, [Block("", rows)], notes)


def _why(one: Requirement) -> str:
    """What is missing, and what the results say so far."""
    if not one.missing:
        return ""
    so_far = {None: "no results", True: "would hold", False: "would not hold"}[one.so_far]
    return f"{so_far}; {one.missing}"


def by_collection(title: str, collections: Sequence[CollectionRows]) -> Table:
    """Every row on each collection: home, and the mean away of what was trained on it."""
    names = list(dict.fromkeys(name for collection in collections for name in collection.rows))
    header = ["system", *(f"{c.name} {kind}" for c in collections for kind in ("home", "away"))]
    blocks = []
    for label, grouped in _grouped(names).items():
        lines = []
        for name in grouped:
            rows = [collection.rows.get(name) for collection in collections]
            cells = [(None, None) if row is None else (row.home_mean, row.away_mean) for row in rows]
            lines.append([Cell(name.text, bold=name == RECIPE), *(number(value) for pair in cells for value in pair)])
        blocks.append(Block(label, lines))
    chosen = [
        f"{collection.name}: {RIVAL.text} has {collection.rows[RIVAL].chosen}."
        for collection in collections
        if RIVAL in collection.rows
    ]
    aways = [f"Away of {c.name}: {', '.join(c.rows[UNTRAINED].away)}." for c in collections if c.rows[UNTRAINED].away]
    return Table(f"By collection: {title}", header, blocks, [*aways, *chosen])


def _paths(collections: Sequence[CollectionRows], drawn: Sequence[str]) -> dict[str, list[RowName]]:
    """The rows of each system, without and with blending, that every collection has."""
    shared = shared_rows(collections)
    systems = dict.fromkeys(name.system for name in shared if name.system in drawn)
    return {system: [name for name in shared if name.system == system] for system in systems}


def _drawn(collections: Sequence[CollectionRows]) -> list[str]:
    """The systems in figures: without those of the paper that are tuned, which crowd them, unless they are all."""
    names = list(dict.fromkeys(name.system for name in collections[0].rows))
    own = [system.name for system in PAPERS.systems]
    crowded = [name for name in names if name not in own or name == own[-1]]
    return crowded if len(names) > len(crowded) > 1 else names


def home_against_away(model: str, collections: Sequence[CollectionRows]) -> Figure:
    """Home over away: a line from each system to its blended model."""
    series = []
    for system, names in _paths(collections, _drawn(collections)).items():
        points = [(macro_away(collections, name), macro_home(collections, name)) for name in names]
        places = sorted((away, home) for away, home in points if away is not None)
        if places:
            series.append(Series(system, [away for away, _ in places], [home for _, home in places]))
    caption = (
        f"{MEASURE}. A line joins a system and its blended model. Further up is better at home, to the right away."
    )
    if not series:
        series = [Series(UNTRAINED.system, [0.0], [macro_home(collections, UNTRAINED)])]
        caption = "There are no other collections: away is not known."
    return LineFigure(
        f"home-away-{model}", f"Home against away: {model}", caption, [[Panel("", "away", "home", series)]]
    )


def over_compute(model: str, collections: Sequence[CollectionRows]) -> Figure:
    """Home over total compute, in minutes."""
    series = []
    for system, names in _paths(collections, _drawn(collections)).items():
        spent = [fsum(c.rows[name].seconds for c in collections) / 60 for name in names]
        places = sorted(zip(spent, (macro_home(collections, name) for name in names), strict=True))
        series.append(Series(system, [x for x, _ in places], [y for _, y in places]))
    caption = f"{MEASURE} over the training time of one model on each collection, trials and blending included."
    panel = Panel("", "total compute (minutes)", "home", series)
    return LineFigure(f"compute-{model}", f"Quality over total compute: {model}", caption, [[panel]])
