"""`prepare` on ten million docpairs of ir_datasets: how long they take, and that memory does not grow with them.

    python benchmarks/docpairs.py [--lines 10000000]

A data set is registered with ir_datasets from made-up files, and prepared twice, each time in a process of its own:
with one docpair, and with all of them. What the second takes longer is the docpairs' part. Prints a section of
results/memory.md.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import made_up
import numpy as np

DOCUMENTS, QUERIES, OFFICIAL = 1_000_000, 500_000, 39_780_811
AT_ONCE = 1 << 18


def write(folder: Path, lines: int) -> None:
    """Documents and queries of one word each, a judgment for each query, and docpairs drawn at random."""
    made_up.tokenizer().save_pretrained(folder / "model")
    (folder / "model" / "config.json").write_text('{"model_type": "bert"}')
    vocabulary = made_up.words()
    for name, count in (("docs", DOCUMENTS), ("queries", QUERIES)):
        with open(folder / f"{name}.tsv", "w") as file:
            file.writelines(f"{i}\t{vocabulary[i % len(vocabulary)]}\n" for i in range(count))
    with open(folder / "qrels", "w") as file:
        file.writelines(f"{i} 0 {i} 1\n" for i in range(QUERIES))
    rng = np.random.default_rng(0)
    with open(folder / "many.tsv", "w") as file:
        for start in range(0, lines, AT_ONCE):
            count = min(AT_ONCE, lines - start)
            queries = rng.integers(0, QUERIES, count)
            negatives = (queries + rng.integers(1, DOCUMENTS, count)) % DOCUMENTS
            file.writelines(f"{q}\t{q}\t{n}\n" for q, n in zip(queries.tolist(), negatives.tolist(), strict=True))
    (folder / "one.tsv").write_text("0\t0\t1\n")


def measure(folder: Path, name: str) -> None:
    """Prepare the docpairs of that name, and print how long it took and the most memory it held."""
    import ir_datasets
    from ir_datasets.datasets.base import Dataset
    from ir_datasets.formats import TrecQrels, TsvDocPairs, TsvDocs, TsvQueries
    from ir_datasets.util import LocalDownload

    from remargin import prepare

    def at(file: str) -> LocalDownload:
        return LocalDownload(folder / file)

    train = (TsvDocs(at("docs.tsv")), TsvQueries(at("queries.tsv")), TrecQrels(at("qrels"), {1: "relevant"}))
    ir_datasets.registry.register("made-up/train", Dataset(*train))
    ir_datasets.registry.register("made-up/train/triples", Dataset(TsvDocPairs(at(f"{name}.tsv"))))
    report = prepare("irds:made-up/train", folder / "model", folder / name, "irds:made-up/train/triples")
    used = resource.getrusage(resource.RUSAGE_SELF)
    peak = used.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    cpu = used.ru_utime + used.ru_stime
    print(json.dumps({"triplets": report.triplets, "seconds": report.seconds, "cpu": cpu, "peak": peak}))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--lines", type=int, default=10_000_000)
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure(Path(options.measure[0]), options.measure[1])
        return
    with tempfile.TemporaryDirectory() as scratch:
        write(Path(scratch), options.lines)
        one, many = (
            json.loads(subprocess.check_output([sys.executable, __file__, "--measure", scratch, name]).splitlines()[-1])
            for name in ("one", "many")
        )
    seconds = many["cpu"] - one["cpu"]
    rate = many["triplets"] / seconds
    rows = [
        f"| {of['triplets']:,} | {of['seconds']:,.0f} | {of['cpu']:,.0f} | {of['peak'] / 1e6:,.0f} |"
        for of in (one, many)
    ]
    told = [
        "## Docpairs of ir_datasets, prepared as a stream",
        f"`prepare` over {DOCUMENTS:,} documents and {QUERIES:,} queries of a word; "
        f"Python {platform.python_version()}, {time.strftime('%Y-%m-%d')}. Made by `python benchmarks/docpairs.py`.",
        "\n".join(["| docpairs | s | CPU s | peak memory, MB |", "|---|---|---|---|", *rows]),
        f"The docpairs take {seconds:,.0f} s of a core, {rate:,.0f} in a second. So the official {OFFICIAL:,} of MS "
        f"MARCO take {OFFICIAL / rate / 60:,.0f} minutes.",
    ]
    print("\n\n".join(told))


if __name__ == "__main__":
    main()
