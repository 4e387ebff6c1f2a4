"""What the figures draw is what was measured: against slow oracles, and against the files of the runs."""

from __future__ import annotations

import csv
import gzip
import io
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from remargin.paper.experiments import EXPERIMENTS
from remargin.paper.loss_geometry import LOSSES, NEGATIVES, POSITIVE, QUERY, negative_pulls, resting_angle
from remargin.paper.systems import ADAPTIVE, DISTRIBUTED
from remargin.paper.target_evolution import WINDOW
from remargin.reports.figures import LineFigure
from remargin.study.results import HITS, MEASURE, Results
from remargin.study.systems import STATIC_IN_BATCH, choose, sweep
from remargin.study.targets import TargetLog, read_targets, rolling_mean

from ..small_study import PLAN, silent


def table(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def cosine(a: float, b: float) -> float:
    return math.cos(math.radians(a - b))


def oracle_loss(name: str, angles: dict[str, float]) -> float:
    """The losses as they are written in the paper, by angles."""
    errors = []
    for own in angles.values():
        margin = cosine(QUERY, POSITIVE) - cosine(QUERY, own)
        if name.startswith("distributed"):
            errors += [(margin - (1 + cosine(POSITIVE, other)) / 2) ** 2 for other in angles.values()]
        else:
            target = 1.0 if name == "static 1.0" else (1 + cosine(POSITIVE, own)) / 2
            errors.append((margin - target) ** 2)
    return sum(errors) / len(errors)


@pytest.mark.parametrize("name", ["static 1.0", "adaptive", "distributed"])
def test_arrows_are_the_slopes_of_the_losses(name: str) -> None:
    step = 1e-4
    for label, pull in negative_pulls(LOSSES[name], NEGATIVES).items():
        ahead, behind = ({**NEGATIVES, label: NEGATIVES[label] + sign * step} for sign in (1, -1))
        slope = (oracle_loss(name, ahead) - oracle_loss(name, behind)) / math.radians(2 * step)
        assert pull == pytest.approx(-slope, abs=1e-6)


def test_a_negative_rests_where_nothing_pulls_it() -> None:
    for label in NEGATIVES:
        rest = resting_angle(LOSSES["static 1.0"], label)
        assert negative_pulls(LOSSES["static 1.0"], {**NEGATIVES, label: rest})[label] == pytest.approx(0, abs=1e-5)


@pytest.mark.parametrize("name", ["static-margins", "adaptive-margins", "distributed-margins"])
def test_axes_show_what_the_queries_can_resolve(study_folder: Path, name: str) -> None:
    study = Results.open(study_folder, say=silent)
    (figure,) = EXPERIMENTS[name].section(study).figures
    assert isinstance(figure, LineFigure)
    count = study.plan.validation_queries
    assert f"a mean over {count:,} queries" in figure.caption
    for row in figure.rows:
        values = [y for panel in row for series in panel.series for y in series.y if y is not None]
        shown = [value for value in values if value >= (row[0].floor or 0)]
        widest = max(1.959964 * (value * (1 - value) / count) ** 0.5 for value in shown)
        assert [panel.interval for panel in row] == [pytest.approx(min(widest, 0.5)) if widest else None] * len(row)


def test_the_static_figure_has_the_best_validation_of_every_run(study_folder: Path) -> None:
    study = Results.open(study_folder, say=silent)
    (figure,) = EXPERIMENTS["static-margins"].section(study).figures
    rows = table(figure.csv())
    assert len(rows) == 2 * 2 * len(PLAN.margins)  # measures, without and with in-batch negatives
    for value, result in sweep(study, "tiny", STATIC_IN_BATCH).points:
        for measure in (MEASURE, HITS):
            highest = max(values[measure] for step, values in result.curve if step)
            name = f"with in-batch negatives, {measure}"
            (row,) = (r for r in rows if r["panel"] == name and float(r["x"]) == value)
            assert float(row["y"]) == pytest.approx(highest)


def test_the_curves_are_the_validations_over_triplets(study_folder: Path) -> None:
    study = Results.open(study_folder, say=silent)
    (figure,) = EXPERIMENTS["adaptive-margins"].section(study).figures
    rows = table(figure.csv())
    spec = choose(study, "tiny", ADAPTIVE).spec
    for size in (PLAN.batch_size, PLAN.other_batch_size):
        curve = study.run(replace(spec, batch_size=size)).curve[1:]  # without the one before training
        drawn = [
            (int(r["x"]), float(r["y"]))
            for r in rows
            if r["panel"] == f"adaptive, {MEASURE}" and r["series"] == f"B = {size}"
        ]
        assert drawn == [(step * size, pytest.approx(values[MEASURE])) for step, values in curve]
        assert [x for x, _ in drawn] == [32, 64]


def test_the_evolution_is_a_rolling_mean_of_what_batches_had(study_folder: Path) -> None:
    study = Results.open(study_folder, say=silent)
    (figure,) = EXPERIMENTS["target-evolution"].section(study).figures
    targets = read_targets(study.run(choose(study, "tiny", DISTRIBUTED).spec).folder / "targets.csv.gz")
    assert [t.batch for t in targets] == list(range(PLAN.triplets // PLAN.batch_size))
    rows = table(figure.csv())
    for i, row in enumerate(rows):
        window = targets[max(0, i - WINDOW + 1) : i + 1]
        assert float(row["y"]) == pytest.approx(np.mean([t.mean for t in window]), abs=1e-6)
        assert float(row["low"]) == pytest.approx(np.mean([t.low for t in window]), abs=1e-6)
        assert float(row["high"]) == pytest.approx(np.mean([t.high for t in window]), abs=1e-6)


def test_the_log_of_targets_keeps_both_ends_and_goes_on_after_a_stop(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    batches = [torch.randn(3, 5, 8, generator=generator) for _ in range(40)]
    whole = TargetLog(tmp_path / "whole.csv", shown=10)
    for number, batch in enumerate(batches):
        whole(number, *batch)
    whole.save()
    found = read_targets(tmp_path / "whole.csv")
    assert [row.batch for row in found] == [*range(10), *range(30, 40)]
    _, p, n = batches[35]
    similarities = [
        float(torch.nn.functional.cosine_similarity(a[None], b[None])) for a in p for b in n
    ]  # one pair at a time
    (row,) = (r for r in found if r.batch == 35)
    assert row[1:] == pytest.approx([np.mean(similarities), min(similarities), max(similarities)], abs=1e-5)

    stopped = TargetLog(tmp_path / "stopped.csv", shown=10)
    for number, batch in enumerate(batches[:20]):
        stopped(number, *batch)
    stopped.save()
    resumed = TargetLog(tmp_path / "stopped.csv", shown=10)
    for number, batch in enumerate(batches[15:], start=15):
        resumed(number, *batch)
    resumed.save()
    assert read_targets(tmp_path / "stopped.csv") == found
    with gzip.open(tmp_path / "packed.csv.gz", "wb") as file:
        file.write((tmp_path / "whole.csv").read_bytes())
    assert read_targets(tmp_path / "packed.csv.gz") == found


def test_a_rolling_mean_is_a_mean_over_a_window() -> None:
    values = np.random.default_rng(0).random(100).tolist()
    wanted = [np.mean(values[max(0, i - 31) : i + 1]) for i in range(100)]
    assert rolling_mean(values) == pytest.approx(wanted)
