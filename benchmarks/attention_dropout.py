"""What it costs to train without dropout on attention weights: validation with and without, over seeds.

    python benchmarks/attention_dropout.py MODEL COLLECTION [SEED ...]

`fit` leaves it out unless it is asked for. Here the same training, with the distributed target, runs packed and padded,
without it and with it; the best nDCG@10 on dev (BM25's documents re-ranked) is shown.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from remargin import BiEncoder, Collection, fit
from remargin.data.prepare import TextSettings, prepare
from remargin.mining import MiningSettings, mine
from remargin.training.settings import fit_settings
from remargin.training.validation import Validator

ENGINES: dict[str, dict[str, Any]] = {
    "packed": {"engine": "packed"},
    "packed, with attention dropout": {"engine": "packed", "attention_dropout": True},
    "padded": {"engine": "padded"},
    "padded, with attention dropout": {"engine": "padded", "attention_dropout": True},
}


def prepared(model: str, data: Path, work: Path, triplets: int) -> Path:
    base, train = BiEncoder.from_pretrained(model), Collection.load(data, "train")
    per_pair = -(-triplets // sum(len(judged) for judged in train.qrels.values()))
    mine(train, work / "triplets.tsv", MiningSettings(triplets=per_pair))
    lengths = TextSettings(base.query_length, base.document_length, base.query_prefix, base.document_prefix)
    prepare(data, model, work / "data", work / "triplets.tsv", lengths)
    return work / "data"


def compare(model: str, folder: Path, seeds: list[int], work: Path) -> None:
    print("| seed | engine | nDCG@10 on dev before | best | at step | seconds |\n|---|---|---|---|---|---|", flush=True)
    for seed in seeds:
        for name, chosen in ENGINES.items():
            settings = fit_settings(
                steps=400, batch_size=128, learning_rate=1e-4, seed=seed, log_every=50, save_every=10**6, **chosen
            )
            validator = Validator(folder, "dev", settings)
            out = work / f"{name}-{seed}"
            done = fit(BiEncoder.from_pretrained(model), folder, out, None, settings, validator, say=lambda line: None)
            cells = (seed, name, f"{done.before:.4f}", f"{done.best:.4f}", done.best_step, f"{done.seconds:.0f}")
            print("| " + " | ".join(map(str, cells)) + " |", flush=True)


if __name__ == "__main__":
    model, data, *given = sys.argv[1:]
    print(
        f"{Path(data).name}, {time.strftime('%Y-%m-%d')}: 400 steps of 128 triplets, learning rate 1e-4\n", flush=True
    )
    with tempfile.TemporaryDirectory() as scratch:
        folder = prepared(model, Path(data), Path(scratch), 400 * 128)
        compare(model, folder, [int(seed) for seed in given] or [0, 1, 2], Path(scratch))
