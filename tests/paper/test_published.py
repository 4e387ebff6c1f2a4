"""published.toml is the paper's table, digit by digit."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from remargin.data.benchmarks import BEIR
from remargin.paper.published import published_baselines, published_variants, published_zero_shot

PAPER = Path(__file__).parents[3] / "shared" / "paper" / "000_915ce6f4a4fae0a9.txt"


def test_every_row_has_every_data_set_and_a_source() -> None:
    rows = published_zero_shot()
    assert [row.source.label for row in rows] == ["paper"] * 8 + ["BEIR leaderboard"] * 7
    for row in rows:
        assert list(row.cells) == [benchmark.short for benchmark in BEIR]
        assert row.source.doi == "10.1145/3731120.3744594"


@pytest.mark.skipif(not PAPER.is_file(), reason="needs the paper's source")
def test_every_cell_is_the_papers() -> None:
    table = PAPER.read_text().partition(r"\label{tab:beir-benchmark}")[2].partition(r"\end{tabular}")[0]
    lines = [line.replace(r"\\", "").replace(r"\bf", "").split("&")[1:] for line in table.splitlines() if "&&" in line]
    printed = [(" ".join(name.split()), [float(cell) for cell in cells if cell.strip()]) for name, *cells in lines]
    ours = [(row.system, [*row.cells.values(), row.in_domain, row.average]) for row in published_zero_shot()]
    assert len(printed) == 15
    assert ours == printed


def printed(label: str, pattern: str) -> list[list[str]]:
    """The rows of a table of the paper that have a mark for in-batch negatives, or its name for none."""
    table = PAPER.read_text().partition(rf"\label{{{label}}}")[2].partition(r"\end{tabular}")[0]
    rows = [line.partition(r"\\")[0].split("&") for line in table.splitlines() if re.search(pattern, line)]
    return [
        [re.sub(r"\\bfseries|\\phantom\{.*?\}\}|\\textsuperscript\{\*\}", "", cell).strip() for cell in row]
        for row in rows
    ]


def value(cell: str) -> tuple[float, bool]:
    """A number, and whether it is marked as equivalent."""
    return float(cell.replace(r"\pmark", "")), r"\pmark" in cell


def millions(cell: str) -> tuple[float | None, bool]:
    """Triplets, and whether they are an estimate."""
    number = re.search(r"[\d.]+(?=\{M\})", cell)
    return (float(number[0]) if number else None), "approx" in cell


@pytest.mark.skipif(not PAPER.is_file(), reason="needs the paper's source")
def test_so_is_every_cell_of_table_3() -> None:
    names = {"S": "static", "A": "adaptive", "D": "distributed"}
    rows = printed("tab:comparison-variants", r"& [SAD] & \\[xc]mark")
    assert len(rows) == 15
    for row, (_, target, in_batch, *cells, time, seen) in zip(published_variants(), rows, strict=True):
        suffix = ", in-batch" if "cmark" in in_batch and target != "D" else ""
        assert (row.target, row.time, row.triplets) == (names[target] + suffix, time, millions(seen)[0])
        ours = [*zip(row.ndcg, row.ndcg_equivalent, strict=True), *zip(row.recall, row.recall_equivalent, strict=True)]
        assert ours == [value(cell) for cell in cells]
    assert [row.model for row in published_variants()[::5]] == ["distilBERT", "RoBERTa", "MPNet"]


@pytest.mark.skipif(not PAPER.is_file(), reason="needs the paper's source")
def test_so_is_every_cell_of_table_4() -> None:
    rows = printed("tab:comparison-baselines", r"& (Rand|\s*\\coloremph|\s*TAS-B|---)|&(Rand|TAS-B)")
    assert len(rows) == 15
    for row, (*_, in_batch, _, a, b, c, d, seen) in zip(published_baselines(), rows, strict=True):
        assert row.in_batch == {r"\xmark": False, r"\cmark": True}.get(in_batch)
        ours = [*zip(row.ndcg, row.ndcg_equivalent, strict=True), *zip(row.recall, row.recall_equivalent, strict=True)]
        assert ours == [value(cell) for cell in (a, b, c, d)]
        assert (row.triplets, row.about) == millions(seen)
    (reference,) = (i for i, row in enumerate(rows) if any("coloremph" in cell for cell in row))
    assert [row.reference for row in published_baselines()].index(True) == reference


def test_four_printed_averages_are_not_the_mean_of_the_cells() -> None:
    slips = []
    for row in published_zero_shot():
        digit = 0.001 if row.source.label == "paper" else 0.01
        if abs(sum(row.cells.values()) / 14 - row.average) > 0.51 * digit:
            slips.append(row.system)
    untuned = ["Static (Untuned, w. IB)", "Static (Untuned, w/o IB)"]
    assert slips == ["Adaptive (w/o. IB)", *untuned, "Distributed (w. E.S.)"]
