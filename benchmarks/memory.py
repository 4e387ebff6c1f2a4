"""Resident memory of the training data at MS MARCO's size: 40 million triplets over 9 million documents, made up.

    python benchmarks/memory.py [results/memory.md]

Writes 2.5 GB to a temporary folder, then reads 10,000 shuffled batches of 128 triplets through the loader that training
uses, packed. No model: what is measured is what the data adds.
"""

from __future__ import annotations

import itertools
import multiprocessing
import platform
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

import made_up
import numpy as np
import torch
from made_up import PASSAGE, QUERY

from remargin.data.tokens import TokenWriter
from remargin.data.training_data import TrainingData
from remargin.data.triplets import TripletWriter
from remargin.model.ahead import ahead
from remargin.model.encoder import PAPER_LENGTHS, BiEncoder
from remargin.model.tokenizer import Tokenizer, Tokens
from remargin.training.batches import Batches
from remargin.training.engine import Engine
from remargin.training.samplers import RandomSampler
from remargin.training.settings import FitSettings

DOCUMENTS, QUERIES, TRIPLETS, BATCHES = 9_000_000, 1_000_000, 40_000_000, 10_000
BLOCK = 500_000


def resident() -> float:
    """Megabytes, as the kernel counts them."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def write(folder: Path, tokenizer: Tokenizer) -> None:
    rng = np.random.default_rng(0)
    for kind, count, like, length in (("documents", DOCUMENTS, PASSAGE, 200), ("queries", QUERIES, QUERY, 30)):
        writer = TokenWriter(folder / "tokens" / kind, tokenizer, length)
        for start in range(0, count, BLOCK):
            size = min(BLOCK, count - start)
            drawn = made_up.lengths(size, like, rng)
            ids = rng.integers(5, made_up.WORDS, drawn.sum(), dtype=np.uint16)
            writer.append([f"{kind[0]}{start + i}" for i in range(size)], Tokens(ids, drawn), 0)
        writer.close()
    triplets = TripletWriter(folder / "triplets")
    for _ in range(0, TRIPLETS, BLOCK):
        rows = [rng.integers(0, count, BLOCK, dtype=np.uint32) for count in (QUERIES, DOCUMENTS, DOCUMENTS)]
        triplets.add(np.stack(rows, 1), None)
    triplets.close()


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        model = BiEncoder.from_pretrained(
            made_up.save_encoder(Path(scratch) / "model", "minilm"), device="cpu", lengths=PAPER_LENGTHS
        )
        writer = multiprocessing.get_context("fork").Process(
            target=write, args=(Path(scratch) / "data", model.tokenizer)
        )
        writer.start()  # in a process of its own, whose memory does not count
        writer.join()
        before = resident()
        data = TrainingData(Path(scratch) / "data")
        batches = Batches(data, RandomSampler.of(data.triplets, batch_size=128, seed=0))
        engine = Engine(model, FitSettings(), torch.device("cpu"), torch.float32, batches.typical_lengths())
        weights = resident()
        marks = {}
        started = time.perf_counter()
        drawn = map(batches.batch, itertools.count())
        with closing(ahead((batch, engine.split(batch.texts)) for batch in drawn)) as loader:
            for number, _ in zip(range(1, BATCHES + 1), loader, strict=False):
                if number in (1, 10, 100, 1000, BATCHES // 2, BATCHES):
                    marks[number] = resident()
        seconds = (time.perf_counter() - started) / BATCHES
    lines = [
        "# Resident memory of the training data",
        "",
        f"{TRIPLETS:,} triplets over {DOCUMENTS:,} documents and {QUERIES:,} queries; Python "
        f"{platform.python_version()}, {time.strftime('%Y-%m-%d')}. Made by `python benchmarks/memory.py`.",
        "",
        f"Before the data was opened: {before:,.0f} MB; with the data and the engine's copy of the weights: "
        f"{weights:,.0f} MB. A batch of 128 triplets takes {1000 * seconds:.1f} ms to read and pack.",
        "",
        "| batches read | MB resident | MB more than before the first |",
        "|---|---|---|",
        *(f"| {number:,} | {size:,.0f} | {size - weights:+,.0f} |" for number, size in marks.items()),
    ]
    print("\n".join(lines))
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
