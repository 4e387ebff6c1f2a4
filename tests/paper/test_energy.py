"""What tables 3 and 4 say of energy is what the driver counted, and nothing where it counted nothing."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from remargin.paper.experiments import EXPERIMENTS
from remargin.paper.systems import DISTRIBUTED
from remargin.reports.tables import MISSING, Cell, Table
from remargin.study.results import Results
from remargin.study.systems import STATIC

from ..small_study import silent

STUDY = Path(__file__).parents[2] / "results" / "paper" / "medquad"


@pytest.fixture(scope="module")
def runs() -> list[dict[str, Any]]:
    """Every packed training run, as its file has it."""
    with gzip.open(STUDY / "runs.jsonl.gz", "rt") as file:
        contents = [json.loads(line)["content"] for line in file]
    return [content for content in contents if isinstance(content, dict) and content.get("spec")]


def drawn(name: str, study: Path = STUDY) -> Table:
    return EXPERIMENTS[name].section(Results.open(study, say=silent)).tables[0]


def energy(table: Table, row: str) -> Cell:
    place = table.header.index("energy")
    return next(cells[place] for block in table.blocks for cells in block.rows if cells[0].text == row)


def to_best(run: dict[str, Any]) -> float:
    return float(run["joules"] * run["best_step"] / run["steps"])


def test_energy_is_that_of_the_runs_until_the_best_model(runs: list[dict[str, Any]]) -> None:
    """A row without a sweep, recomputed from the files; the learning rate tells its runs from trials."""
    table = drawn("variants")
    row = next(cells for cells in table.blocks[0].rows if cells[0].text == DISTRIBUTED.name)
    rate = float(row[1].text.removeprefix("rate "))
    own = [
        run
        for run in runs
        if (run["spec"]["model"], run["spec"]["target"], run["spec"]["rate"]) == ("MiniLM", "distributed", rate)
        and not (run["spec"]["stop_gradient"] or run["spec"]["released"])
        and run["spec"]["batch_size"] == 128
    ]
    longest = max(run["spec"]["triplets"] for run in own)
    seeds = {run["spec"]["seed"]: to_best(run) for run in own if run["spec"]["triplets"] == longest}
    assert len(seeds) == 3
    assert energy(table, DISTRIBUTED.name).value == pytest.approx(fmean(seeds.values()))


def test_a_sweep_and_a_teacher_cost_energy_too() -> None:
    variants, baselines = drawn("variants"), drawn("baselines")
    swept, plain = (energy(variants, system.name) for system in (STATIC, DISTRIBUTED))
    assert swept.marks == "*"
    assert (swept.value or 0) > 5 * (plain.value or 0)  # eleven margins
    assert (energy(baselines, "MarginMSE").value or 0) > (energy(baselines, DISTRIBUTED.name).value or 0)
    assert energy(baselines, "BM25").text == ""


def test_without_a_record_there_is_no_number(study_folder: Path) -> None:
    """The small study was trained without a GPU."""
    assert energy(drawn("variants", study_folder), DISTRIBUTED.name) == MISSING
    assert energy(drawn("baselines", study_folder), DISTRIBUTED.name) == MISSING
