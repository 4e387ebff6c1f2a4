"""A training run made by hand, with texts and paths that must not reach a card; an encoder without dropout; rows."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from remargin import BiEncoder
from remargin.files.ledger import Ledger
from remargin.reports.blend_file import AwayValues, BlendPath, save_path
from remargin.reports.run_files import write_config, write_report
from remargin.retrieval.hybrid import Fusion, save_fusion

SECRET = "/home/ada/secret"


def mean(value: float) -> dict[str, dict[str, float]]:
    return {measure: {"mean": value, "low": value - 0.05, "high": value + 0.05} for measure in ("nDCG@10", "RR")}


SYSTEMS = {"bm25": mean(0.4), "before": mean(0.5), "after": mean(0.6), "hybrid": mean(0.65), "gain": mean(0.1)}
AWAY = {"what": f"{SECRET}/scifact", "measure": "nDCG@10", "queries": 300, "before": 0.6, "after": 0.55}
AWAY |= {"difference": -0.05, "low": -0.07, "high": -0.03}
SEEN = {"pairs": 1234, "queries": 1000, "documents": 5000, "documents_truncated": 50, "document_length": 64}
SEEN |= {"shared": {"dev": {"queries": 70}, "test": {"queries": 200}}, "popular": "a private text"}
REPORT: dict[str, Any] = {
    "steps": 300, "triplets": 38_400, "before": 0.5, "best": 0.6, "best_step": None, "best_triplets": None,
    "stopped_early": False, "seconds": 12.5, "model": "model", "validations": [], "weight": 0.5, "away": AWAY,
    "outcome": {"split": "test", "ranked": "ranked in full (5,000 documents)", "queries": 200, "systems": SYSTEMS},
    "fusion": {"weight": 0.4, "data": f"pairs:{SECRET}/faq.csv"}, "data": SEEN,
}  # fmt: skip
ASKED = {
    "data": f"pairs:{SECRET}/faq.csv?query=q&document=a",
    "model": "sentence-transformers/all-MiniLM-L6-v2",
    "out": f"{SECRET}/runs/faq",
    "settings": {"loss": {"target": "softmax"}, "batch_size": 128, "learning_rate": 2e-5},
}

MakeRun = Callable[..., Path]


@pytest.fixture
def make_run(tmp_path: Path, tiny_encoder: Any) -> MakeRun:
    """Writes a training run that is done; returns its model folder."""

    def make(report: dict[str, Any] | None = None, asked: dict[str, Any] | None = None, **config: Any) -> Path:
        run = tmp_path / "runs" / "faq"
        run.mkdir(parents=True)
        model = BiEncoder.from_pretrained(tiny_encoder(), query_prefix="query: `x` ")
        model.save(run / "model")
        save_fusion(run / "model", Fusion(0.4, "RR", 0.4, 0.5, 0.6, data=f"pairs:{SECRET}/faq.csv"))
        command = f"remargin fit --data {SECRET}/faq.csv"
        about = {"command": command, "asked": {**ASKED, **(asked or {})}, "versions": {"remargin": "0.1.0", "x": None}}
        write_config(run, about | config)
        Ledger(run / "metrics.csv", ["step", "loss"], [{"step": 1, "loss": 0.5}])
        away = AwayValues(f"{SECRET}/scifact", "nDCG@10", [0.6, 0.58, 0.5])
        values = {"nDCG@10": [0.5, 0.6, 0.55]}
        save_path(run, BlendPath("nDCG@10", [0.0, 0.5, 1.0], values, 0.5, "dev", 70, "ranked in full", away))
        write_report(run, {**REPORT, **(report or {})})
        return run / "model"

    return make


@pytest.fixture(scope="session")
def still_model(tiny_encoder: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny encoder with mean pooling and vectors as they are, without dropout, so that gradients can be compared."""
    bare, folder = (tmp_path_factory.mktemp(name) for name in ("bare", "still"))
    shutil.copytree(tiny_encoder(), bare, dirs_exist_ok=True)
    config = json.loads((bare / "config.json").read_text())
    config.update(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    (bare / "config.json").write_text(json.dumps(config))
    BiEncoder.from_pretrained(bare, pooling="mean", similarity="dot").save(folder, overwrite=True)
    return folder


@pytest.fixture
def rows() -> list[list[str]]:
    """12 rows of (query, positive, three negatives): two rows share a query, two a positive; one has it as negative."""
    words = ["margins", "adapt", "query", "document", "returns", "value"]
    words += ["list", "text", "model", "train", "test", "file"]
    table = [
        [f"how {w}", f"the {w} is {n}", f"a {w} in {n}", f"of {w}, {n}", f"{w} {n} {n}"] for n, w in enumerate(words)
    ]
    table[3][0] = table[2][0]
    table[5][1] = table[4][1]
    table[7][2] = table[2][1]
    return table
