"""The zero-shot tables, from scores alone: what was measured, beside what others published."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from remargin.data.benchmarks import BEIR, MS_MARCO, TREC_DL
from remargin.evaluation.comparison import Scores, compare_scores
from remargin.evaluation.measures import judged_cutoff
from remargin.evaluation.significance import tost
from remargin.paper.published import PublishedRow
from remargin.reports.comparison import DAGGER
from remargin.reports.tables import MISSING, Block, Cell, Table, number
from remargin.study.columns import Column

MEASURE = "nDCG@10"  # of the published rows
RECALL_100 = "R@100"  # has a table of its own, whatever the first one shows
ALPHA = 0.05
FEWEST = 3  # data sets for a test over their means


@dataclass(frozen=True)
class Measured:
    """What one system is worth on one collection.

    Attributes:
        scores: by measure and query.
        judged: for each measure the share of judged documents down to its cutoff; None if nothing was found at all.
        documents: how many the collection has.
        queries: how many of them were judged.
        skipped: how much bad input was set aside.
        self_matches: queries that are documents themselves, which they do not find.
        missing: queries for which nothing was found.

    Example:
        >>> Measured({"RR": {"q1": 1.0, "q2": 0.5}}, {"RR": 0.8}).scores["RR"]["q2"]
        0.5
    """

    scores: Scores = field(repr=False)
    judged: Mapping[str, float | None]
    documents: int = 0
    queries: int = 0
    skipped: int = 0
    self_matches: int = 0
    missing: int = 0


Measurements = Mapping[str, Mapping[str, Sequence[Measured]]]  # by system and column, one for each part of the column


@dataclass(frozen=True)
class Equivalence:
    """Two systems compared over the means of data sets: how many, the mean difference, and p of the paired TOST.

    >>> equivalence({"fiqa": 0.31, "quora": 0.83, "nq": 0.45}, {"fiqa": 0.30, "quora": 0.83, "nq": 0.46}).data_sets
    3
    """

    data_sets: int
    difference: float
    p: float


def zero_shot_tables(
    results: Measurements,
    columns: Sequence[Column],
    in_domain: Column | None = None,
    measure: str = MEASURE,
    rows: Sequence[PublishedRow] = (),
    reference: PublishedRow | None = None,
    bound: float = 0.05,
) -> dict[str, Table]:
    """All tables, by the name of their file: table, recall, judged, and tost if there are data sets enough.

    >>> results = {"a": {"faq": [Measured({"R@100": {"q1": 1.0, "q2": 0.5}}, {"R@100": 0.5})]}}
    >>> list(zero_shot_tables(results, [Column("faq", ("faq",))], measure="R@100"))
    ['table', 'judged']
    """
    tables = {"table": zero_shot_table(results, columns, in_domain, measure, rows, bound)}
    if measure != RECALL_100:
        tables["recall"] = zero_shot_table(results, columns, None, RECALL_100, (), bound)
    tables["judged"] = judged_table(results, _all(columns, in_domain), list(dict.fromkeys([measure, RECALL_100])))
    tests = equivalence_table(results, columns, measure, reference, bound)
    return tables | ({"tost": tests} if tests else {})


def zero_shot_table(
    results: Measurements,
    columns: Sequence[Column],
    in_domain: Column | None = None,
    measure: str = MEASURE,
    rows: Sequence[PublishedRow] = (),
    bound: float = 0.05,
) -> Table:
    """The table: published rows that have any of the columns, then the measured ones.

    Bold and the dagger are about measured rows only: the best of a column, and those that are equivalent to it.

    >>> results = {"a": {"faq": [Measured({"RR": {"q1": 1.0, "q2": 0.5}}, {})]}}
    >>> table = zero_shot_table(results, [Column("faq", ("faq",))], measure="RR")
    >>> [cell.text for cell in table.blocks[0].rows[0]]
    ['a', '0.750', '0.750']
    """
    names = [column.name for column in columns]
    rows = [row for row in rows if row.cells.keys() & set(names)]
    blocks = [
        Block(f"published ({source.label})", [_published_cells(row, names) for row in rows if row.source == source])
        for source in dict.fromkeys(row.source for row in rows)
    ]
    marked = [_marked(results, column, measure, bound) for column in _all(columns, in_domain)]
    if rows and not in_domain:
        marked.append(dict.fromkeys(results, MISSING))
    means = {system: column_means(cells, columns, measure).values() for system, cells in results.items()}
    averages = {system: fmean(values) for system, values in means.items()}
    best = max(averages.values()) if len(averages) > 1 else math.inf
    measured = [
        [Cell(system), *(cells[system] for cells in marked), number(average, bold=average >= best)]
        for system, average in averages.items()
    ]
    blocks.append(Block("measured here", measured))
    header = ["system", *names, *(["in-domain"] if rows or in_domain else []), "mean"]
    notes = [*_method(results, bound), *_about_columns(results, _all(columns, in_domain))]
    return Table(f"Zero-shot, {measure}", header, blocks, [*notes, *_about_in_domain(rows, in_domain), *_sources(rows)])


def judged_table(results: Measurements, columns: Sequence[Column], measures: Sequence[str]) -> Table:
    """What share of the documents down to each measure's cutoff was judged, for each system and column.

    >>> results = {"a": {"faq": [Measured({}, {"RR": 0.5}), Measured({}, {"RR": 0.75})]}}
    >>> [block] = judged_table(results, [Column("faq", ("x", "y"))], ["RR"]).blocks
    >>> block.label, [cell.text for cell in block.rows[0]]
    ('Judged@10, for RR', ['a', '0.625'])
    """
    blocks = []
    for measure in measures:
        rows = []
        for system, cells in results.items():
            shares = [[part.judged[measure] for part in cells[column.name]] for column in columns]
            rows.append([Cell(system), *(number(_mean(parts)) for parts in shares)])
        blocks.append(Block(f"Judged@{judged_cutoff(measure)}, for {measure}", rows))
    notes = ["Share of the documents found that were judged. Those not judged count as not relevant."]
    return Table("Judged documents", ["system", *(column.name for column in columns)], blocks, notes)


def equivalence_table(
    results: Measurements,
    columns: Sequence[Column],
    measure: str = MEASURE,
    reference: PublishedRow | None = None,
    bound: float = 0.05,
) -> Table | None:
    """The TOST over data set means, for every two measured systems and each of them with a published one.

    None if no two of them have three data sets in common.

    >>> columns = [Column(name, (name,)) for name in "xyz"]
    >>> results = {s: {c.name: [Measured({"RR": {"q1": 1.0}}, {})] for c in columns} for s in ("after", "before")}
    >>> [cell.text for cell in equivalence_table(results, columns, "RR").blocks[0].rows[0]]
    ['after', 'before', '3', '0.000', '0.000']
    """
    means = {system: column_means(cells, columns, measure) for system, cells in results.items()}
    pairs = [(a, b, equivalence(means[a], means[b], bound)) for a, b in itertools.combinations(means, 2)]
    if reference:
        other = f"{reference.system} (published)"
        pairs += [(a, other, equivalence(means[a], reference.cells, bound)) for a in means]
    rows = []
    for a, b, test in pairs:
        if test:
            p = number(test.p, marks=DAGGER if test.p < ALPHA else "")
            rows.append([Cell(a), Cell(b), number(test.data_sets, 0), number(test.difference), p])
    header = ["system", "compared with", "data sets", "difference", "p"]
    note = f"Paired TOST over the means of data sets that both have, bound {bound:g}, p not corrected. "
    note += f"{DAGGER}: equivalent, p < {ALPHA:g}."
    return Table(f"Equivalence over data sets, {measure}", header, [Block("", rows)], [note]) if rows else None


def equivalence(a: Mapping[str, float], b: Mapping[str, float], bound: float = 0.05) -> Equivalence | None:
    """Compare two systems over the means of the data sets that both have; None if these are fewer than three.

    >>> ours = {"fiqa": 0.31, "scifact": 0.64, "quora": 0.83, "faq": 0.5}
    >>> test = equivalence(ours, {"fiqa": 0.30, "scifact": 0.65, "quora": 0.83})
    >>> test.data_sets, round(test.p, 3)
    (3, 0.007)
    """
    common = [name for name in a if name in b]
    if len(common) < FEWEST:
        return None
    first, second = [a[name] for name in common], [b[name] for name in common]
    return Equivalence(len(common), fmean(first) - fmean(second), tost(first, second, bound))


def column_scores(parts: Sequence[Measured], measure: str) -> dict[str, float]:
    """The scores of all queries of a column, weighted so that their mean is the mean of its parts' means.

    >>> parts = [Measured({"RR": {"q1": 1.0}}, {}), Measured({"RR": {"q1": 0.0, "q2": 0.5, "q3": 0.25}}, {})]
    >>> scores = column_scores(parts, "RR")
    >>> sum(scores.values()) / 4 == (1.0 + 0.25) / 2
    True
    """
    total = sum(len(part.scores[measure]) for part in parts)
    return {
        f"{i}/{query}": score * (total / (len(parts) * len(part.scores[measure])))
        for i, part in enumerate(parts)
        for query, score in part.scores[measure].items()
    }


def column_means(cells: Mapping[str, Sequence[Measured]], columns: Sequence[Column], measure: str) -> dict[str, float]:
    """A system's mean in each column.

    >>> column_means({"faq": [Measured({"RR": {"q1": 1.0, "q2": 0.5}}, {})]}, [Column("faq", ("faq",))], "RR")
    {'faq': 0.75}
    """
    scores = {column.name: column_scores(cells[column.name], measure).values() for column in columns}
    return {name: fmean(values) for name, values in scores.items()}


def _all(columns: Sequence[Column], in_domain: Column | None) -> list[Column]:
    return [*columns, *([in_domain] if in_domain else [])]


def _marked(results: Measurements, column: Column, measure: str, bound: float) -> dict[str, Cell]:
    """The measured cells of a column."""
    scores = {system: {measure: column_scores(parts[column.name], measure)} for system, parts in results.items()}
    queries = len(next(iter(scores.values()))[measure])
    if len(scores) == 1 or queries == 1:  # nothing to test
        return {system: number(fmean(by_measure[measure].values())) for system, by_measure in scores.items()}
    compared = compare_scores(scores, bound=bound, alpha=ALPHA, samples=1)  # Fisher's test is not shown
    return {
        row.run: number(row.mean.mean, bold=row.is_best, marks=DAGGER if row.equivalent else "")
        for row in compared.rows
    }


def _published_cells(row: PublishedRow, names: Sequence[str]) -> list[Cell]:
    cells = [row.cells.get(name) for name in names]
    return [Cell(row.system), *map(number, cells), number(row.in_domain), number(_mean(cells))]


def _mean(values: Sequence[float | None]) -> float | None:
    """The mean, if all of them are there."""
    present = [value for value in values if value is not None]
    return fmean(present) if present and len(present) == len(values) else None


def _method(results: Measurements, bound: float) -> list[str]:
    count = len(results) - 1
    if count == 0:
        return []
    how = f"paired TOST over queries, bound {bound:g}, p < {ALPHA:g}, Bonferroni over {count}"
    comparisons = f"comparison{'s' if count > 1 else ''} per column"
    return [f"Bold: highest of those measured here. {DAGGER}: equivalent to it ({how} {comparisons})."]


def _about_columns(results: Measurements, columns: Sequence[Column]) -> list[str]:
    """What the columns are, how many queries they have, and what was left out."""
    full = {benchmark.short: benchmark.name for benchmark in (*BEIR, MS_MARCO, *TREC_DL)}
    known = ", ".join(f"{column.name} {full[column.name]}" for column in columns if column.name in full)
    about = [f"Data sets: {known}."] if known else []
    about += [f"{column.name} is the mean of {len(column.parts)} means." for column in columns if len(column.parts) > 1]
    first = next(iter(results.values()))  # what is about the collections is the same for all systems
    counted = [
        ("Queries", _counts(first, columns, "queries")),
        ("Bad input, skipped", _counts(first, columns, "skipped")),
        (
            "Queries that are documents themselves, which they were not allowed to find",
            _counts(first, columns, "self_matches"),
        ),
    ]
    for system, cells in results.items():
        lacking = f"{system} found nothing for some queries, which count as 0"
        counted.append((lacking, _counts(cells, columns, "missing")))
    return [*([" ".join(about)] if about else []), *(f"{label}: {counts}." for label, counts in counted if counts)]


def _counts(cells: Mapping[str, Sequence[Measured]], columns: Sequence[Column], attribute: str) -> str:
    counts = {column.name: sum(getattr(part, attribute) for part in cells[column.name]) for column in columns}
    return ", ".join(f"{name} {count:,}" for name, count in counts.items() if count)


def _about_in_domain(rows: Sequence[PublishedRow], in_domain: Column | None) -> list[str]:
    """Whose values these are: the published ones are of another collection than the measured ones."""
    whose = ["published values are of MS MARCO, on test sets that differ by source"] if rows else []
    whose += [f"those measured here are of {in_domain.name}"] if in_domain else []
    compare = " Compare them within a block only." if rows else ""
    return [f"In-domain, which is not part of the mean: {'; '.join(whose)}.{compare}"] if whose else []


def _sources(rows: Sequence[PublishedRow]) -> list[str]:
    sources = dict.fromkeys(row.source for row in rows)
    cited = [f"Published ({source.label}): {source.citation}, doi:{source.doi}." for source in sources]
    return [*cited, "Means are ours, over the cells, where a row has all of them."] if rows else []
