"""Made-up sections and a made-up training run."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from remargin.files.ledger import Ledger
from remargin.reports.circles import Arrow, Circle, CirclePanel
from remargin.reports.figures import LineFigure, Panel, Point, Scatter, Series
from remargin.reports.run_files import write_config, write_report
from remargin.reports.sections import Section
from remargin.reports.tables import MISSING, Block, Cell, Table, number

REPORT = {
    "steps": 2,
    "triplets": 128,
    "before": 0.5001,
    "best": 0.7502,
    "best_step": 2,
    "best_triplets": 128,
    "stopped_early": False,
    "seconds": 1234.5,
    "model": "runs/faq/best",
    "validations": [[0, {"nDCG@10": 0.5001}], [2, {"nDCG@10": 0.7502}]],
}
HOSTILE = "<script>alert('x')</script> & \"quotes\" 損失"


def made_up(name: str = "variants") -> Section:
    """A section with one of everything."""
    blocks = [
        Block("published", [[Cell("BM25"), number(0.6647), MISSING, number(0.0)]]),
        Block("measured", [[Cell(HOSTILE), number(1 / 3, bold=True, marks="†‡"), Cell("12 ± 3", value=12.0), MISSING]]),
        Block("", [[Cell("a claim that is long enough to be broken into lines"), number(-0.25), MISSING, MISSING]]),
    ]
    table = Table("Zero-shot, nDCG@10", ["system", "sci_fact", "fiqa", "zero"], blocks, ["† 95% sure", "a second note"])
    plain = Table("", ["run"], [Block("", [[Cell("only text")]])])
    x = list(range(0, 300, 10))
    wave = Series("wave", x, [math.sin(i / 5) for i in range(30)], [-1.5] * 30, [1.5] * 30)
    lines = LineFigure("loss", f"Loss {HOSTILE}", "It falls.", [[Panel("", "step", "loss", [wave], mark_maxima=True)]])
    scatter = Scatter("queries", "Queries", "All of them.", "a", "b", [Point(0.1, 0.9, "q1", HOSTILE)])
    panel = CirclePanel("static", {"q": 90, "d-1": -15}, [Arrow("d-1", -15, end=-45)], {"t": -45})
    circle = Circle("pull", "Pulls", "Where to.", [panel])
    settings = {"seed": 0, "loss": {"target": "distributed", "in_batch": False}, "sizes": (64, 128), "data": Path("x")}
    summary = [f"In short: {HOSTILE}.", "And more."]
    return Section(name, f"Title of {name}", summary, [table, plain], [lines, scatter, circle], settings, ["One seed."])


def write_metrics(folder: Path, table: str) -> None:
    """The rows of a CSV table as metrics.csv, with checksums."""
    reader = csv.DictReader(io.StringIO(table))
    Ledger(folder / "metrics.csv", reader.fieldnames or [], reader)


@pytest.fixture
def make_run(tmp_path: Path) -> Callable[..., Path]:
    """Writes a folder as `remargin fit` does."""

    def write(name: str = "run", report: dict[str, Any] | None = None, rows: str | None = None) -> Path:
        folder = tmp_path / name
        folder.mkdir(parents=True)
        settings = {"loss": {"target": "0.3", "in_batch": True}, "batch_size": 32, "accumulate": 2}
        asked = {"data": "pairs:faq.csv", "model": "/models/minilm/best", "settings": settings}
        asked["settings"]["validation_measure"] = "nDCG@10"  # type: ignore[index]
        config = {"command": "remargin fit", "asked": asked, "versions": {"torch": "2.13"}}
        write_config(folder, config)
        header = "step,loss,explicit_mean,spread,target_mean,target_min,target_max,triplets_per_second,validation\n"
        given = rows or "0,,,,,,,,0.5\n1,0.5,0.3,0.2,0.6,0.1,0.9,10,\n2,nan,0.2,0.2,0.5,0.2,0.8,20,\n2,,,,,,,,0.75\n"
        write_metrics(folder, header + given)
        if report is not None:
            write_report(folder, report)
        return folder

    return write
