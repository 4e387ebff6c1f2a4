"""The zero-shot tables from made-up scores."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from remargin.paper.published import published_zero_shot
from remargin.paper.zero_shot_table import (
    MEASURE,
    Column,
    Measured,
    equivalence,
    equivalence_table,
    judged_table,
    zero_shot_table,
)
from remargin.reports.tables import Table
from remargin.study.columns import find_column


def made_up(*values: float, **about: Any) -> Measured:
    scores = {f"q{i}": value for i, value in enumerate(values)}
    return Measured({MEASURE: scores, "R@100": scores}, {MEASURE: 0.5, "R@100": 0.25}, queries=len(values), **about)


def columns(*names: str) -> list[Column]:
    return [Column(name, (name,)) for name in names]


def cells(table: Table, block: str) -> dict[str, list[str]]:
    """The rows of a block as text, bold in stars."""
    [rows] = [b.rows for b in table.blocks if b.label == block]
    return {row[0].text: [f"*{c.text}*{c.marks}" if c.bold else c.text + c.marks for c in row[1:]] for row in rows}


def test_bold_daggers_and_means() -> None:
    results = {
        "first": {"x": [made_up(0.8, 0.6, 0.7, 0.5)], "SCF": [made_up(0.1, 0.2, 0.1, 0.2)]},
        "near": {"x": [made_up(0.8, 0.64, 0.7, 0.5)], "SCF": [made_up(0.9, 0.1, 0.6, 0.8)]},
        "poor": {"x": [made_up(0.1, 0.0, 0.3, 0.2)], "SCF": [made_up(0.1, 0.2, 0.2, 0.1)]},
    }
    table = zero_shot_table(results, columns("x", "SCF"), rows=published_zero_shot())
    assert table.header == ["system", "x", "SCF", "in-domain", "mean"]
    assert cells(table, "measured here") == {
        "first": ["0.650†", "0.150", "–", "0.400"],
        "near": ["*0.660*", "*0.600*", "–", "*0.630*"],
        "poor": ["0.150", "0.150", "–", "0.150"],
    }
    leaderboard = cells(table, "published (BEIR leaderboard)")
    assert leaderboard["TAS-B"] == ["–", "0.643", "0.408", "–"]  # no mean: it lacks a column
    assert len(leaderboard) == 7
    assert len(cells(table, "published (paper)")) == 8
    notes = " ".join(table.notes)
    assert "paired TOST over queries, bound 0.05, p < 0.05, Bonferroni over 2 comparisons per column" in notes
    assert "Queries: x 4, SCF 4." in notes
    assert "Kamalloo et al. 2024" in notes
    assert "10.1145/3731120.3744594" in notes


def test_bonferroni_counts_the_comparisons_of_the_column() -> None:
    rng = np.random.default_rng(0)
    top = rng.uniform(0.4, 0.6, 20)
    close = top - 0.03 + rng.normal(0, 0.045, 20)
    far = top - 0.3
    results = {name: {"x": [made_up(*values)]} for name, values in (("top", top), ("close", close))}
    assert cells(zero_shot_table(results, columns("x")), "measured here")["close"][0].endswith("†")
    results |= {f"far{i}": {"x": [made_up(*far)]} for i in range(40)}
    assert not cells(zero_shot_table(results, columns("x")), "measured here")["close"][0].endswith("†")


def test_a_row_without_common_columns_is_left_out_and_so_is_the_in_domain_column() -> None:
    table = zero_shot_table({"a": {"x": [made_up(0.5, 0.25)]}}, columns("x"), rows=published_zero_shot())
    assert table.header == ["system", "x", "mean"]
    assert [block.label for block in table.blocks] == ["measured here"]
    assert cells(table, "measured here") == {"a": ["0.375", "0.375"]}


def test_the_measured_in_domain_column_is_not_part_of_the_mean() -> None:
    results = {name: {"SCF": [made_up(0.5, 0.5)], "own": [made_up(0.9, value)]} for name, value in (("a", 1), ("b", 0))}
    table = zero_shot_table(results, columns("SCF"), Column("own", ("own",)), rows=published_zero_shot())
    assert cells(table, "measured here") == {
        "a": ["*0.500*", "*0.950*", "*0.500*"],
        "b": ["*0.500*†", "0.450", "*0.500*"],
    }
    assert cells(table, "published (paper)")["Distributed (w. E.S.)"] == ["0.441", "0.607", "0.441"]


def test_the_note_says_whose_in_domain_values_are_whose() -> None:
    results = {"a": {"SCF": [made_up(0.5, 0.5)], "own": [made_up(0.9, 0.1)]}}
    own, rows = Column("own", ("own",)), published_zero_shot()
    start = "In-domain, which is not part of the mean: "
    published = "published values are of MS MARCO, on test sets that differ by source"
    within = "Compare them within a block only."
    for in_domain, shown, expected in (
        (own, rows, [f"{start}{published}; those measured here are of own. {within}"]),
        (None, rows, [f"{start}{published}. {within}"]),
        (own, [], [f"{start}those measured here are of own."]),
        (None, [], []),
    ):
        notes = zero_shot_table(results, columns("SCF"), in_domain, rows=shown).notes
        assert [note for note in notes if "n-domain" in note] == expected


def test_cqadupstack_is_the_mean_of_its_twelve_means() -> None:
    parts = [made_up(*[i / 12] * (i + 1)) for i in range(12)]
    column = find_column("CQADupStack")
    assert len(column.parts) == 12
    results = {"a": {"CDS": parts}, "b": {"CDS": [made_up(*[0.0] * (i + 1)) for i in range(12)]}}
    table = zero_shot_table(results, [column])
    assert cells(table, "measured here")["a"] == ["*0.458*", "*0.458*"]  # over all queries it would be 0.611
    assert any("CDS is the mean of 12 means" in note for note in table.notes)
    assert "Queries: CDS 78." in table.notes
    judged = judged_table(results, [column], [MEASURE])
    assert judged.blocks[0].rows[0][1].value == pytest.approx(0.5)


def test_the_test_over_data_sets_is_that_of_statsmodels() -> None:
    from statsmodels.stats.weightstats import ttost_paired

    rows = {row.system: row.cells for row in published_zero_shot()}
    for system, other in (("Distributed (w. E.S.)", "TAS-B"), ("ANCE", "TAS-B"), ("TAS-B", "BM25")):
        a, b = (np.array(list(rows[name].values())) for name in (system, other))
        found = equivalence(rows[system], rows[other])
        assert found is not None
        assert found.p == pytest.approx(ttost_paired(a, b, -0.05, 0.05)[0], rel=1e-9)
        assert (found.data_sets, found.difference) == (14, pytest.approx((a - b).mean()))
    assert round(equivalence(rows["ANCE"], rows["TAS-B"]).p, 4) == 0.1167  # type: ignore[union-attr]


def test_pairs_of_the_test_over_data_sets() -> None:
    row = next(row for row in published_zero_shot() if row.system == "TAS-B")
    names = ("SCF", "NFC", "AgA", "own")
    values = {name: row.cells.get(name, 0.3) for name in names}
    results = {s: {n: [made_up(values[n], values[n] + s)] for n in names} for s in (0.0, 0.02)}
    labelled = {f"plus{s}": of_system for s, of_system in results.items()}
    table = equivalence_table(labelled, columns(*names), MEASURE, row)
    assert table is not None
    assert [[cell.text + cell.marks for cell in line] for line in table.blocks[0].rows] == [
        ["plus0.0", "plus0.02", "4", "-0.010", "0.000†"],
        ["plus0.0", "TAS-B (published)", "3", "0.000", "0.000†"],
        ["plus0.02", "TAS-B (published)", "3", "0.010", "0.000†"],
    ]
    assert equivalence_table(labelled, columns("SCF", "own"), MEASURE, row) is None
