"""published.toml is the paper's table, digit by digit."""

from __future__ import annotations

from pathlib import Path

import pytest

from remargin.data.benchmarks import BEIR
from remargin.experiments.published import published_zero_shot

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


def test_four_printed_averages_are_not_the_mean_of_the_cells() -> None:
    slips = []
    for row in published_zero_shot():
        digit = 0.001 if row.source.label == "paper" else 0.01
        if abs(sum(row.cells.values()) / 14 - row.average) > 0.51 * digit:
            slips.append(row.system)
    untuned = ["Static (Untuned, w. IB)", "Static (Untuned, w/o IB)"]
    assert slips == ["Adaptive (w/o. IB)", *untuned, "Distributed (w. E.S.)"]
