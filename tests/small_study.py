"""One small study of everything, which tests of studies and of the paper share; see conftest.py."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from remargin.paper import baselines
from remargin.paper.systems import TAUGHT_BY_MARGIN_MSE
from remargin.reports.sections import Section
from remargin.study.plan import Plan
from remargin.study.study import Study

DATA = "docstrings:json,csv,string,textwrap"
OTHER = "docstrings:email,logging"
PLAN = Plan(
    triplets=64,
    sweep_triplets=32,
    validate_every=32,
    patience=None,
    batch_size=16,
    other_batch_size=8,
    margins=(0.0, 1.0),
    temperatures=(0.05, 0.2),
    teacher_scales=(0.5, 1.0),
    teacher_rates=(1e-4, 1e-3),
    teacher_epochs=(1,),
    rates=(1e-3, 1e-2),
    seeds=(0, 1),
    preset="default",
    validation_queries=20,
)

Open = Callable[..., Study]


def leave_out_rows(patch: pytest.MonkeyPatch) -> None:
    """Train no rows with MarginMSE as the second teacher, for the sake of time; tests/study/test_teacher.py does."""
    blocks = {
        label: tuple(system for system in systems if system not in TAUGHT_BY_MARGIN_MSE)
        for label, systems in baselines.BLOCKS.items()
    }
    patch.setattr(baselines, "BLOCKS", blocks)


def silent(line: str) -> None:
    pass


def write_beir(folder: Path, text: str = "this one", test_queries: str = "qr") -> Path:
    """A document, and queries of one letter."""
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    (folder / "corpus.jsonl").write_text(json.dumps({"_id": "d", "text": text}) + "\n")
    queries = [json.dumps({"_id": id, "text": "which one?"}) for id in "qr"]
    (folder / "queries.jsonl").write_text("\n".join(queries))
    for split, ids in {"train": "q", "dev": "q", "test": test_queries}.items():
        judged = "".join(f"{id}\td\t1\n" for id in ids)
        (folder / "qrels" / f"{split}.tsv").write_text(f"query-id\tcorpus-id\tscore\n{judged}")
    return folder


def without_texts(section: Section) -> Section:
    """As it is without the collection at hand: scatter plots have ids only."""
    for figure in section.figures:
        if hasattr(figure, "points"):
            figure.points = [replace(point, text="") for point in figure.points]
    return section
