"""What tests of training share: a small collection that can be learned, prepared."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch

from remargin import BiEncoder, Collection
from remargin.data.preparation import prepare
from remargin.data.training_data import TrainingData
from remargin.mining.negatives import mine
from remargin.training import measuring
from remargin.training.batches import Batches
from remargin.training.fitting import fit
from remargin.training.measuring import Fit
from remargin.training.samplers import RandomSampler
from remargin.training.settings import FitSettings

Start = Any  # `fit` with data and model; takes the folder and the settings


def silent(line: str) -> None:
    pass


def random_batches(folder: Path, batch_size: int, seed: int = 0) -> Batches:
    data = TrainingData(folder)
    return Batches(data, RandomSampler.of(data.triplets, batch_size, seed))


@pytest.fixture(scope="module")
def beir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A collection that can be learned: a query and its document share a made-up word."""
    folder = tmp_path_factory.mktemp("beir")
    (folder / "qrels").mkdir()
    rng = random.Random(0)
    words = ["".join(rng.choices("abcdefgh", k=4)) for _ in range(60)]
    documents = [
        {"_id": f"d{i}", "text": f"the value of {word} in {' '.join(rng.sample(words, 2))}"}
        for i, word in enumerate(words)
    ]
    queries = [{"_id": f"q{i}", "text": f"how is {word}"} for i, word in enumerate(words)]
    for name, records in {"corpus": documents, "queries": queries}.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    for split, rows in {"train": range(40), "dev": range(40, 50), "test": range(50, 60)}.items():
        (folder / "qrels" / f"{split}.tsv").write_text("".join(f"q{i}\td{i}\t1\n" for i in rows))
    return folder


@pytest.fixture(scope="module")
def prepared(beir: Path, tiny_model: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("prepared")
    mine(Collection.load(beir, "train"), folder / "t.tsv", triplets=3)
    prepare(beir, tiny_model("bert"), folder / "data", folder / "t.tsv", document_length=64)
    return folder / "data"


@pytest.fixture
def model(tiny_model: Any) -> BiEncoder:
    return BiEncoder.from_pretrained(tiny_model("bert"))


def settings(**options: Any) -> FitSettings:
    defaults = {
        "steps": 6,
        "batch_size": 8,
        "learning_rate": 1e-3,
        "precision": "32",
        "log_every": 2,
        "validate_every": 3,
    }
    return FitSettings.preset(**{**defaults, **options})


@pytest.fixture(scope="module")
def scored(tiny_model: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Queries of three kinds with three triplets each, of two negatives and a teacher's scores."""
    folder = tmp_path_factory.mktemp("scored")
    rng = np.random.default_rng(0)
    kinds = ["how to {}{} a file", "margins {}{} adapt", "is the value {}{} in"]
    rows = [
        {
            "query": kinds[i % 3].format(*"abcdefgh"[i // 8 : i // 8 + 1], "abcdefgh"[i % 8]),
            "positive": f"document {i} {j}",
            "negatives": [f"text {i} {j}", f"list {j} {i}"],
            "scores": [float(score) for score in 10 + 5 * rng.standard_normal(3)],
        }
        for i in range(36)
        for j in range(3)
    ]
    (folder / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    prepare(None, tiny_model("bert"), folder / "data", folder / "t.jsonl", document_length=64)
    return folder / "data"


def sampled(**options: Any) -> FitSettings:
    """Settings for the few triplets of `scored`."""
    defaults = {"steps": 9, "batch_size": 5, "learning_rate": 1e-3, "precision": "32", "log_every": 3, "save_every": 2}
    return FitSettings.preset(**{**defaults, **options})


@pytest.fixture(scope="module")
def encoder(tiny_model: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A start that says how its vectors are made, as encoders do that were trained: one to go back to."""
    folder = tmp_path_factory.mktemp("encoder") / "model"
    BiEncoder.from_pretrained(tiny_model("bert"), "mean", document_length=32).save(folder)
    return folder


@pytest.fixture(scope="module")
def start(beir: Path, encoder: Path) -> Start:
    """Training that moves the weights enough for the figures to differ."""
    return partial(fit, str(beir), str(encoder), also=str(beir), say=silent)


def quick(**changes: Any) -> FitSettings:
    return FitSettings.preset(**{"steps": 8, "batch_size": 8, "learning_rate": 3e-3, "precision": "32", **changes})


@pytest.fixture(autouse=True, scope="module")
def small_dev_splits_choose() -> Iterator[None]:
    """The dev splits here have ten queries, which are too few for people, but choose well enough for tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measuring, "FEWEST_QUERIES", 8)
        yield


@pytest.fixture(scope="module")
def fitted(start: Start, tmp_path_factory: pytest.TempPathFactory) -> Fit:
    """One whole training run, as most people have it."""
    whole: Fit = start(tmp_path_factory.mktemp("fitted") / "run", quick())
    return whole


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return safetensors.torch.load_file(folder / "model.safetensors")


def models(run: Path, *names: str) -> list[dict[str, torch.Tensor]]:
    return [weights(run / name) for name in names]
