"""Training runs, their checkpoints and teachers, and reports on them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from remargin.data.training_data import TrainingData
from remargin.model.checkpoint import Progress, load_checkpoint, save_checkpoint
from remargin.model.cross_encoder import OURS, CrossEncoder
from remargin.reports.blend_file import AwayValues, BlendPath, save_path
from remargin.reports.circles import Arrow, Circle, CirclePanel, Sector
from remargin.reports.collect import sections_in
from remargin.reports.figures import LineFigure, Panel, Point, Scatter, Series
from remargin.reports.page import page_text, write_page
from remargin.reports.sections import Section
from remargin.reports.stages import Stage, StagePanel, Stages
from remargin.reports.suspicious import FILE as SUSPICIOUS
from remargin.reports.suspicious import Suspicious, write_suspicious
from remargin.reports.tables import MISSING, Block, Cell, Table, number
from remargin.teacher.in_batch import InBatchTeacher
from remargin.teacher.training import TeacherSettings, train_cross_encoder
from remargin.training.fitting import fit
from remargin.training.settings import FitSettings
from remargin.training.streaming.learning import stream
from remargin.training.topics import run_topics

from .mutations import BINARY, CONFIG, HEADER, JOURNAL, LEDGER
from .running import Case
from .stores import only
from .world import World, killed_at, silent


def checkpoint(world: World) -> Case:
    folder, model = world.folder("checkpoint"), nn.Linear(3, 2)
    optimiser = torch.optim.AdamW(model.parameters())
    model(torch.ones(3)).sum().backward()
    optimiser.step()
    progress = Progress(2, 8, 0.5, 1, 4, 1, [(0, {"nDCG@10": 0.25}), (1, {"nDCG@10": 0.5})], 1.5)
    fixed = {"batch_size": 4, "loss": "MarginLoss()"}
    save_checkpoint(folder / "checkpoint", progress, {"model": model}, optimiser, {"scale": 1.0}, fixed)

    def load(folder: Path) -> None:
        fresh = nn.Linear(3, 2)
        found, _ = load_checkpoint(
            folder / "checkpoint", {"model": fresh}, torch.optim.AdamW(fresh.parameters()), fixed
        )
        assert f"{found.step + found.triplets + found.without_gain:,} {found.seconds:.0f}"  # all are numbers
        assert all(isinstance(values, dict) for _, values in found.validations), "validations without values"

    return Case(folder, {"checkpoint/progress.json": HEADER}, (load,), count=800)


def resumed_run(world: World) -> Case:
    """A run that was killed before its last step, and goes on: `fit --resume`."""
    folder = world.folder("resumed")

    def resume(folder: Path) -> None:
        world.fit(folder / "run", resume=True)

    def by_folder(folder: Path) -> None:
        fit(resume=folder / "run", say=silent)

    def until_the_second_step(line: str) -> None:
        if line.startswith("step 2/"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        world.fit(folder / "run", say=until_the_second_step)
    files = {
        "run/checkpoint/progress.json": HEADER,
        "run/config.yaml": CONFIG,
        "run/schedule.json": HEADER,
        "run/metrics.csv": LEDGER,
        "run/best/remargin_model.json": HEADER,
        "run/data/remargin.json": HEADER,
        "run/data/triplets/header.json": HEADER,
        "run/data/tokens/queries/header.json": HEADER,
    }
    return Case(folder, files, (resume, by_folder), count=150)


def stopped_stream(world: World) -> Case:
    """A training run on a stream that goes on with the lines that were not trained on."""
    folder = world.folder("stopped-stream")
    (folder / "in").mkdir()
    pairs = [{"query": "a value", "positive": f"text {n}", "negative": "another"} for n in range(6)]
    lines = [*map(json.dumps, pairs), "no line", json.dumps({"query": "q", "document": "d", "grade": -1})]
    (folder / "in" / "1.jsonl").write_text("\n".join(lines) + "\n")
    options: Any = {"batch_size": 2, "precision": "32", "shuffle": 2, "save_every": 2, "also": str(world.beir)}

    def until_the_third_step(line: str) -> None:
        if line.startswith("step 3 "):
            raise KeyboardInterrupt

    options |= {"wait": 0, "log_every": 1, "say": until_the_third_step}
    with pytest.raises(KeyboardInterrupt):
        stream(folder / "in", None, world.model, folder / "run", **options)

    def again(folder: Path) -> None:
        stream(resume=folder / "run", wait=0, say=silent)

    files = {
        "run/stream.jsonl": JOURNAL,
        "run/trained.jsonl": JOURNAL,
        "run/metrics.csv": LEDGER,
        "run/config.yaml": CONFIG,
        "run/checkpoint/progress.json": HEADER,
    }
    return Case(folder, files, (again,), count=150)


def run_on_prepared_data(world: World) -> Case:
    """`fit` on what `prepare` wrote, with a teacher's scores."""
    settings = FitSettings.preset(steps=1, batch_size=4, precision="32", target="teacher", validation_depth=5)

    def fit_on(folder: Path) -> None:
        fit(folder, world.model, folder / "run", settings, also=str(world.beir), say=silent)

    files = {"remargin.json": HEADER, "triplets/header.json": HEADER, "tokens/documents/header.json": HEADER}
    return Case(world.prepared, files, (fit_on,), count=100)


def topics(world: World) -> Case:
    """Of queries, as a run that samples batches by topic keeps them."""
    folder, rows = world.folder("topics"), np.arange(6)

    def read(folder: Path) -> None:
        run_topics(folder / "topics.npy", 6, rows, lambda: rows.astype(np.int32) % 2, resume=True, say=silent)

    read(folder)
    return Case(folder, {"topics.npy": BINARY}, (read,), count=400)


def in_batch_teacher(world: World) -> Case:
    folder, device = world.folder("in-batch-teacher"), torch.device("cpu")

    def load(folder: Path, resume: bool = True) -> None:
        data = TrainingData(world.prepared)
        found = InBatchTeacher.load(world.model, data, "cosine", folder, device, resume, silent)
        rows = np.arange(3)
        assert torch.isfinite(found.margins(rows, rows, rows[::-1].copy())).all()

    load(folder, resume=False)
    files = {f"teacher/{kind}.json": HEADER for kind in ("queries", "documents")}
    return Case(folder, files, (load,), count=300, heals=True)


def _train_teacher(world: World, out: Path) -> None:
    settings = TeacherSettings(epochs=1, batch_size=2, validations=2, validation_depth=5)
    model = CrossEncoder.from_pretrained(world.model, device="cpu", length=64)
    train_cross_encoder(model, world.train, world.triplets, out, settings, world.dev, say=silent)
    model.score([("a query", "a text")])


def trained_teacher(world: World) -> Case:
    """A cross-encoder that is not trained again."""
    folder = world.folder("teacher")
    _train_teacher(world, folder / "teacher")

    def again(folder: Path) -> None:
        _train_teacher(world, folder / "teacher")

    return Case(folder, {f"teacher/{OURS}": HEADER}, (again,), count=300)


def stopped_teacher(world: World) -> Case:
    """The checkpoint of one that was stopped."""
    folder = world.folder("stopped-teacher")

    def again(folder: Path) -> None:
        _train_teacher(world, folder / "teacher")

    with killed_at(CrossEncoder, "save"):
        again(folder)
    return Case(folder, {only(folder, ".teacher.*/progress.json"): HEADER}, (again,), count=150)


def show(folder: Path) -> None:
    """`report` on it."""
    write_page(folder / "page.html", sections_in(folder), "a page")


def report_on_a_run(world: World) -> Case:
    folder = world.folder("report")
    for name in ("config.yaml", "metrics.csv", "report.json"):
        shutil.copy(world.run / name, folder)
    write_suspicious(folder / SUSPICIOUS, [Suspicious("q", "a", "b", 0.5, 0.75, "which?", "this one", "that one")])
    files = {"config.yaml": CONFIG, "metrics.csv": LEDGER, "report.json": HEADER, SUSPICIOUS: HEADER}
    return Case(folder, files, (show,), count=1200)


def report_on_a_blend(world: World) -> Case:
    """A training run whose weights were blended with those of its start."""
    folder = world.folder("blend-report")
    for name in ("config.yaml", "metrics.csv", "report.json"):
        shutil.copy(world.run / name, folder)
    values = {"nDCG@10": [0.5, 0.75, 0.7], "RR": [0.4, 0.6, 0.7]}
    away = AwayValues("docstrings:json", "nDCG@10", [0.3, 0.4, 0.2])
    path = BlendPath("nDCG@10", [0.0, 0.5, 1.0], values, 0.5, "dev", 2, "ranked in full (8 documents)", away)
    save_path(folder, path)
    return Case(folder, {"blend.json": HEADER}, (show,), count=500)


def section(world: World) -> Case:
    folder = world.folder("section")
    rows = [
        [Cell("BM25"), number(0.66, bold=True, marks="†"), MISSING],
        [Cell("x"), number(0.0), Cell("1 ± 2", value=1.0)],
    ]
    table = Table("Zero-shot, nDCG@10", ["system", "a", "b"], [Block("measured", rows)], ["a note"])
    wave = Series("wave", [0, 10, 20], [0.5, 1.0, 0.25], [0.0, 0.0, 0.0], [1.0, 2.0, 1.0])
    lines = LineFigure("loss", "Loss", "It falls.", [[Panel("", "step", "loss", [wave], mark_maxima=True)]])
    scatter = Scatter("queries", "Queries", "All.", "a", "b", [Point(0.1, 0.9, "q1", "text"), Point(0.5, 0.5, "q2")])
    panel = CirclePanel(
        "static",
        {"q": 90, "d-1": -15},
        [Arrow("d-1", -15, end=-45), Arrow("d+", 5, end=1.0)],
        {"t": 0},
        [Sector("t", 1, 9)],
    )
    stages = Stages(
        "stages", "Stages", "Two.", [StagePanel("with", [Stage("a", "data"), Stage("b", "bi-encoder", True)])]
    )
    figures = [lines, scatter, Circle("pull", "Pulls", "Where to.", [panel]), stages]
    settings = {"seed": 0, "loss": {"target": "distributed", "in_batch": False}, "sizes": [64, 128]}
    Section("variants", "A title", ["A summary."], [table], figures, settings, ["A note."]).save(folder)

    def load(folder: Path) -> None:
        found = Section.load(folder)
        page_text([found], "a page")
        assert list(found.files())

    def save_again(folder: Path) -> None:
        Section("loss", "Another").save(folder, overwrite=True)

    return Case(folder, {"section.json": HEADER}, (load, show, save_again), count=500)


TARGETS = [
    checkpoint,
    resumed_run,
    run_on_prepared_data,
    topics,
    in_batch_teacher,
    stopped_stream,
    trained_teacher,
    stopped_teacher,
    report_on_a_run,
    report_on_a_blend,
    section,
]
