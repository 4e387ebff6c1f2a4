"""Does the engine train as well as the plain way: packed against padded, without and with attention dropout.

    python benchmarks/quality.py MODEL COLLECTION [--seeds 0 1 2] [--engines packed padded]

The same training with the distributed target each time: the best nDCG@10 on dev (BM25's documents re-ranked), that
model's on test (all documents ranked), and the last model's. Padded is what others do: transformers' own model,
padded batches, autocast.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from remargin import BiEncoder, Collection, train
from remargin.data.preparation import prepare
from remargin.mining.negatives import mine
from remargin.model.encoder import PAPER_LENGTHS
from remargin.study.full_ranking import FullRanking
from remargin.study.hardware import hardware
from remargin.training.settings import FitSettings
from remargin.training.validation import Validator

STEPS, BATCH, RATE, MEASURE = 400, 128, 1e-4, "nDCG@10"
ENGINES: dict[str, dict[str, Any]] = {
    "packed": {"engine": "packed"},
    "packed, with attention dropout": {"engine": "packed", "attention_dropout": True},
    "padded": {"engine": "padded"},
    "padded, with attention dropout": {"engine": "padded", "attention_dropout": True},
}


def prepared(model: str, data: Path, work: Path, triplets: int) -> Path:
    base, train = BiEncoder.from_pretrained(model, lengths=PAPER_LENGTHS), Collection.load(data, "train")
    per_pair = -(-triplets // sum(len(judged) for judged in train.qrels.values()))
    mine(train, work / "triplets.tsv", triplets=per_pair)
    prepare(data, model, work / "data", work / "triplets.tsv", **asdict(base.text_settings))
    return work / "data"


def compare(model: str, folder: Path, test: FullRanking, seeds: list[int], engines: list[str], work: Path) -> None:
    print(
        "| engine | seed | dev before | dev, best | at step | test, best | test, last | seconds |\n" + "|---" * 8 + "|"
    )
    values: dict[str, list[list[float]]] = {}
    for seed in seeds:
        for name in engines:
            usual: dict[str, Any] = {
                "steps": STEPS,
                "batch_size": BATCH,
                "learning_rate": RATE,
                "log_every": 50,
                "save_every": 10**6,
            }
            settings = FitSettings.preset(seed=seed, **usual, **ENGINES[name])
            validator, out = Validator(folder, "dev", settings), work / f"{name}-{seed}"
            done = train(
                BiEncoder.from_pretrained(model, lengths=PAPER_LENGTHS),
                folder,
                out,
                None,
                settings,
                validator,
                say=lambda line: None,
            )
            best, last = (
                test.measure(BiEncoder.from_pretrained(out / kept), name).means[MEASURE] for kept in ("best", "last")
            )
            values.setdefault(name, []).append([done.best or 0.0, best, last])
            cells = (
                *(name, seed, f"{done.before:.4f}", f"{done.best:.4f}", done.best_step),
                *(f"{best:.4f}", f"{last:.4f}", f"{done.seconds:.0f}"),
            )
            print("| " + " | ".join(map(str, cells)) + " |", flush=True)
    print("\n| engine, mean ± deviation over seeds | dev | test, best | test, last |\n|---|---|---|---|")
    for name, rows in values.items():
        shown = (f"{np.mean(column):.4f} ± {np.std(column, ddof=1):.4f}" for column in zip(*rows, strict=True))
        print(f"| {name} | {' | '.join(shown)} |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("collection", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES))
    asked = parser.parse_args()
    print(
        f"{asked.collection.name}, distributed target, {STEPS} steps of {BATCH} triplets, learning rate {RATE:g}, "
        f"{MEASURE}. {hardware()}, torch {torch.__version__}, {time.strftime('%Y-%m-%d')}.\n",
        flush=True,
    )
    with tempfile.TemporaryDirectory() as scratch:
        folder = prepared(asked.model, asked.collection, Path(scratch), STEPS * BATCH)
        test = FullRanking(Collection.load(asked.collection, "test"))
        compare(asked.model, folder, test, asked.seeds, asked.engines, Path(scratch))
