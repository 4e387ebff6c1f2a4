"""What 8.8 million, 138 million and 10 billion passages cost: GPU hours, storage, shards, recall and latency.

    python benchmarks/scale.py > results/scale.md

Nothing of that size is run. GPU hours and latencies follow from the rates in results/engine-h200.md and
results/exact-h200.md, which were measured on one H200; the overlaps of codes with exact search come from a simulation
here, for which no real collection is large enough; and two rates of the CPU are measured here, in seconds of CPU time.
Every assumption is a constant below, and is printed.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import pickle
import re
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from remargin.data.tables import batches
from remargin.files.hashes import texts_fingerprint
from remargin.retrieval.codes import Coder
from remargin.retrieval.encoding import MOST
from remargin.retrieval.settings import BackendSettings
from remargin.retrieval.shards import SHARD
from remargin.retrieval.texts import collection_texts

RESULTS = Path(__file__).parents[1] / "results"
PASSAGES = {"8.8M (MS MARCO)": 8.8e6, "138M (MS MARCO v2)": 138e6, "10B (a web crawl)": 10e9}
MODELS = {"minilm": 384, "distilbert": 768}  # numbers in a vector
GPUS = 8
GPU_BYTES = 0.9 * 139 * 2**30  # of an H200, less what the search itself takes
TEXT_BYTES = 350  # of a passage, without compression
PAPER_BYTES = 320  # of a vector in HNSW32 over OPQ32: results/indexes.md
SIZES = [2**n for n in range(12, 19)]  # of the simulation
DECAY = 0.5  # of the standard deviation along the axes of its vectors: the i-th has i ** -DECAY, as texts' have about
QUERIES, K, OVER_FETCH = 100, 100, 8


def rate(model: str) -> float:
    """Passages that one H200 encodes in a second, from texts."""
    row = next(line for line in (RESULTS / "engine-h200.md").read_text().splitlines() if f"encode, {model}, from texts" in line)  # fmt: skip  # noqa: E501
    found = re.search(r"([\d,]+) documents/s", row)
    assert found is not None
    return float(found[1].replace(",", ""))


def exact_ms() -> float:
    """Milliseconds in which one H200 compares 1,000 queries with a million vectors of 768 numbers."""
    row = next(line for line in (RESULTS / "exact-h200.md").read_text().splitlines() if "remargin exact" in line)
    return float(row.split("|")[2])


def made_up(count: int, dimension: int, rng: np.random.Generator) -> np.ndarray:
    """Unit vectors of which a few directions have most, as those of texts have."""
    vectors = rng.normal(size=(count, dimension)).astype("f4") * np.arange(1, dimension + 1, dtype="f4") ** -DECAY
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def overlaps(dimension: int = 384) -> dict[str, list[float]]:
    """The share of the exact top 100 among the candidates of int8 and binary codes, by the number of vectors."""
    rng = np.random.default_rng(0)
    documents, queries = made_up(SIZES[-1], dimension, rng), made_up(QUERIES, dimension, rng)
    scores = queries @ documents.T
    found: dict[str, list[float]] = {}
    for coding, fetch in (("int8", 2), ("binary", OVER_FETCH)):
        coder = Coder.fit(documents, coding)
        approximate = (queries * coder.scale) @ coder.decode(torch.from_numpy(coder.encode(documents))).numpy().T
        for size in SIZES:
            best = np.argpartition(-scores[:, :size], K, axis=1)[:, :K]
            candidates = np.argpartition(-approximate[:, :size], fetch * K, axis=1)[:, : fetch * K]
            shares = [len(np.intersect1d(*pair)) / K for pair in zip(best, candidates, strict=True)]
            found.setdefault(coding, []).append(float(np.mean(shares)))
    return found


def at(size: float, shares: list[float]) -> float:
    """An overlap at another size, by a power law: a line through the logarithms of the larger half of the sizes."""
    half = len(SIZES) // 2
    slope, start = np.polyfit(np.log(SIZES[half:]), np.log(shares[half:]), 1)
    return min(1.0, float(np.exp(start + slope * math.log(size))))


def driver_rate(count: int = 50_000) -> tuple[float, float]:
    """Passages a second that one process reads, hashes and pickles for the workers; and GB/s that it joins."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        text = ("word " * (TEXT_BYTES // 5)).strip()
        with open(folder / "corpus.jsonl", "w") as file:
            file.writelines(json.dumps({"_id": f"d{n}", "title": "", "text": f"{n} {text}"}) + "\n" for n in range(count))  # fmt: skip  # noqa: E501
        (folder / "queries.jsonl").write_text('{"_id": "q", "text": "a query"}\n')
        (folder / "qrels").mkdir()
        (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq\td0\t1\n")
        start = time.process_time()
        for block in batches(collection_texts(folder), SHARD):
            texts_fingerprint((text.id, text.text) for text in block)
            pickle.dumps(block, protocol=5)
        read = count / (time.process_time() - start)
        (folder / "shard").write_bytes(os.urandom(1 << 28))
        start = time.process_time()
        content = (folder / "shard").read_bytes()
        for _ in range(2):  # as a shard, and as the file that it is joined to
            hashlib.sha256(content).digest()
        (folder / "joined").write_bytes(content)
        return read, len(content) / 1e9 / (time.process_time() - start)


def hours(value: float) -> str:
    return f"{60 * value:.1f} min" if value < 1 else f"{value:,.1f} h"


def size(value: float) -> str:
    return f"{value / 1e12:,.1f} TB" if value >= 1e12 else f"{value / 1e9:,.1f} GB"


def main() -> None:
    read, joined = driver_rate()
    print(f"# What corpora cost\n\nMade by `python benchmarks/scale.py`, {time.strftime('%Y-%m-%d')}. Computed, not run: from rates that one H200 reached (results/engine-h200.md, results/exact-h200.md).\n")  # fmt: skip  # noqa: E501
    print("## Encoding\n")
    print(f"| passages | model | passages/s on a GPU | GPU hours | on {GPUS} GPUs | one driver feeds and joins in | shards of {SHARD:,} | vectors, float16 | vectors, float32 |\n|" + "---|" * 9)  # fmt: skip  # noqa: E501
    for name, count in PASSAGES.items():
        for model, dimension in MODELS.items():
            alone = count / rate(model) / 3600
            bytes_ = count * dimension * 2
            driving = count / read / 3600 + bytes_ / 1e9 / joined / 3600
            print(f"| {name} | {model} | {rate(model):,.0f} | {hours(alone)} | {hours(alone / GPUS)} | {hours(driving)} | {math.ceil(count / SHARD):,} | {size(bytes_)} | {size(2 * bytes_)} |")  # fmt: skip  # noqa: E501
    print("\n## Storage and search\n")
    print("| passages | model | index folders | texts | int8 codes | binary codes | HNSW over OPQ | H200s for exact search | 1,000 queries, exact, on them |\n|" + "---|" * 9)  # fmt: skip  # noqa: E501
    for name, count in PASSAGES.items():
        for model, dimension in MODELS.items():
            cards = math.ceil(count * dimension * 2 / GPU_BYTES)
            seconds = exact_ms() / 1e3 * (count / 1e6) * (dimension / 768) / cards
            print(f"| {name} | {model} | {math.ceil(count / (MOST - 1))} | {size(count * TEXT_BYTES)} | {size(count * dimension)} | {size(count * dimension / 8)} | {size(count * PAPER_BYTES)} | {cards:,} | {seconds:.2f} s |")  # fmt: skip  # noqa: E501
    shares = overlaps()
    int8 = BackendSettings(coding="int8").fetch_factor
    print("\n## Recall: the share of the exact top 100 that codes find\n")
    print(f"Simulated: unit vectors of 384 numbers with decaying deviations along their axes (exponent {DECAY}), {QUERIES} queries; beyond {SIZES[-1]:,} vectors, shares are extrapolated by a power law. These vectors have no near neighbours, which is hard for codes: of 64,135 real ones, binary codes find 0.998 of the top 1,000 (results/indexes.md).\n")  # fmt: skip  # noqa: E501
    columns = [f"{n:,}" for n in SIZES[::3]] + [f"{name.split()[0]}, extrapolated" for name in PASSAGES]
    print(f"| codes | over-fetch | {' | '.join(columns)} |\n|" + "---|" * (2 + len(columns)))
    for (coding, found), fetch in zip(shares.items(), (int8, OVER_FETCH), strict=True):
        cells = [f"{share:.3f}" for share in found[::3]] + [f"{at(count, found):.2f}" for count in PASSAGES.values()]
        print(f"| {coding} | {fetch} | {' | '.join(cells)} |")
    print(f"""
## Assumptions

- Texts have the lengths of MS MARCO's, as in results/engine-h200.md; a passage has {TEXT_BYTES} bytes.
- GPUs do not slow each other down: shards are independent, and nothing but texts and counts passes between machines.
- One driver reads {read:,.0f} passages a second and joins {joined:.1f} GB/s, in CPU time measured here, beside a disk that is as fast. Where that takes longer than the GPUs, it decides: encode parts of the corpus with several drivers, each into a folder of its own.
- A worker that dies loses what it did of one shard: half of it on average, {SHARD / rate("distilbert") / 2:.1f} s of a GPU with distilbert. With a death every hour, that is {SHARD / rate("distilbert") / 2 / 3600:.2%} of a GPU's time.
- An index folder holds up to {MOST - 1:,} vectors. An H200 has {GPU_BYTES / 2**30:.0f} GiB for vectors, in 16 bits. The time of exact search is that of 1,000 queries at once (one pass over the matrix), and in proportion to the numbers in it.
- Not in it: the network, a server's own overhead, replicas.""")  # noqa: E501


if __name__ == "__main__":
    main()
