"""What the cases are made of: a tiny model, a small collection, and what was made of them, each made once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from remargin import BiEncoder, Collection
from remargin.data.preparation import prepare
from remargin.mining.negatives import mine
from remargin.model.cross_encoder import CrossEncoder
from remargin.paper.experiments import EXPERIMENTS
from remargin.paper.losses import other_loss
from remargin.paper.running import run_experiments
from remargin.study.plan import Plan
from remargin.study.study import Study
from remargin.training.fitting import fit
from remargin.training.settings import FitSettings

WORDS = ["value", "list", "text", "model", "train", "test", "file", "query"]
DATA, OTHER = "docstrings:json,csv,string", "docstrings:email"
PLAN = Plan(
    triplets=16,
    sweep_triplets=16,
    validate_every=16,
    patience=None,
    batch_size=8,
    other_batch_size=4,
    margins=(1.0,),
    temperatures=(0.05,),
    teacher_scales=(1.0,),
    teacher_rates=(1e-4,),
    teacher_epochs=(1,),
    rates=(1e-3,),
    preset="default",
    validation_queries=4,
)
SETTINGS: FitSettings = FitSettings.preset(
    steps=2, batch_size=4, precision="32", log_every=1, save_every=1, validate_every=1, validation_depth=5
)


def silent(line: str) -> None:
    pass


@contextmanager
def killed_at(owner: Any, name: str) -> Iterator[None]:
    """Stops what is done in the block as soon as it calls something."""

    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, stop)
        with pytest.raises(KeyboardInterrupt):
            yield


class World:
    """Folders under one root, and what is in them."""

    def __init__(self, root: Path, model: Path) -> None:
        self.root, self.model = root, model

    def folder(self, name: str) -> Path:
        """A new one."""
        (self.root / name).mkdir()
        return self.root / name

    @cached_property
    def encoder(self) -> BiEncoder:
        return BiEncoder.from_pretrained(self.model, device="cpu")

    @cached_property
    def cross_encoder(self) -> CrossEncoder:
        model = CrossEncoder.from_pretrained(self.model, device="cpu", length=64)
        model.untrained = False
        return model

    @cached_property
    def beir(self) -> Path:
        """A BEIR folder with all splits."""
        folder = self.folder("beir")
        (folder / "qrels").mkdir()
        documents = [{"_id": f"d{i}", "title": word, "text": f"the {word} of a file"} for i, word in enumerate(WORDS)]
        queries = [{"_id": f"q{i}", "text": f"how is a {word}"} for i, word in enumerate(WORDS)]
        for name, records in {"corpus": documents, "queries": queries}.items():
            (folder / f"{name}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
        for split, numbers in {"train": range(4), "dev": range(4, 6), "test": range(6, 8)}.items():
            judged = "".join(f"q{i}\td{i}\t1\n" for i in numbers)
            (folder / "qrels" / f"{split}.tsv").write_text(f"query-id\tcorpus-id\tscore\n{judged}")
        return folder

    @cached_property
    def train(self) -> Collection:
        return Collection.load(self.beir, "train")

    @cached_property
    def dev(self) -> Collection:
        return Collection.load(self.beir, "dev")

    @cached_property
    def triplets(self) -> Path:
        mine(self.train, self.root / "triplets.tsv")
        return self.root / "triplets.tsv"

    @cached_property
    def prepared(self) -> Path:
        """With triplets that have scores."""
        folder = self.folder("prepared")
        lines = [f"q{i}\td{i}\td{i + 1}\t{i}.5\t0.{i}" for i in range(4)]
        table = ["query_id\tpositive_id\tnegative_id\tpositive_score\tnegative_score", *lines]
        (folder / "scored.tsv").write_text("\n".join(table) + "\n")
        prepare(self.beir, self.model, folder / "data", folder / "scored.tsv", **asdict(self.encoder.text_settings))
        return folder / "data"

    def fit(self, out: Path, resume: bool = False, say: Callable[[str], None] = silent) -> None:
        options: Any = {"triplets": self.triplets, "also": str(self.beir), "resume": resume, "say": say}
        fit(self.beir, self.model, out, SETTINGS, **options)

    @cached_property
    def run(self) -> Path:
        """A training run that is done."""
        self.fit(self.root / "run")
        return self.root / "run"

    @cached_property
    def study(self) -> Path:
        """Every experiment of the paper, as small as it can be."""
        out = self.root / "study"
        models = {"tiny": str(self.model)}
        study = Study(out, DATA, models, PLAN, zero_shot=[OTHER], also_test=[OTHER], say=silent, make_loss=other_loss)
        run_experiments(study, list(EXPERIMENTS))
        return out


MakeModel = Callable[..., Path]
