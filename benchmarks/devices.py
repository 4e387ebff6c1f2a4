"""Training on several devices: throughput over their number, and moments against gathering over the batch size.

    python benchmarks/devices.py [results/devices.md]

On a CPU each device is a process, here with one thread, so that two of them are two cores. The first table trains an
encoder of MiniLM's size on made-up texts of MS MARCO's lengths, at one global batch. The second has two processes
compute the distributed loss, forward and backward, of vectors of a global batch: through moments, or by gathering all
vectors and computing it directly, B x B. By turns, best of several; memory is the peak of one process beyond its input.
"""

from __future__ import annotations

import csv
import ctypes
import os
import platform
import sys
import tempfile
import time
from pathlib import Path
from unittest import mock

os.environ["HF_HUB_OFFLINE"] = "1"

import made_up
import numpy as np
import torch

from remargin import BiEncoder, MarginLoss, train
from remargin.losses import margin
from remargin.model.encoder import PAPER_LENGTHS
from remargin.model.tokenizer import Tokens
from remargin.training.batches import TripletBatch
from remargin.training.devices.global_loss import global_loss
from remargin.training.devices.joining import World, leading
from remargin.training.devices.ranks import Ranks
from remargin.training.settings import FitSettings

BATCH, STEPS, TURNS = 32, 6, 3
DIMENSION = 384
SIZES = [1 << power for power in range(7, 17)]  # 128 to 65,536
LARGEST_DIRECT = 8192  # beyond, the B x B matrices of two processes are too much beside other work
NO_TEXTS = Tokens(np.zeros(0, np.uint16), np.zeros(0, np.int64))


def fit(ranks: Ranks, model: Path, data: Path, out: Path) -> None:
    """One training run, by all processes."""
    torch.set_num_threads(1)
    chosen = FitSettings.preset(steps=STEPS, batch_size=BATCH, log_every=1, learning_rate=1e-6, save_every=10**6)
    encoder = BiEncoder.from_pretrained(model, pooling="mean", device="cpu", lengths=PAPER_LENGTHS)
    train(encoder, data, out, settings=chosen, say=lambda line: None, resume=True, ranks=ranks)


def triplets_per_second(out: Path) -> float:
    with open(out / "metrics.csv", newline="") as file:
        return max(float(row["triplets_per_second"]) for row in csv.DictReader(file) if row["loss"])


def memory(field: str) -> int:
    """Of this process, in bytes: VmRSS now, or VmHWM at its peak."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


def loss(ranks: Ranks, size: int, moments: bool, repeats: int) -> list[tuple[float, int]]:
    """Seconds, the best of several, and bytes, of each process."""
    torch.set_num_threads(1)
    count = ranks.share(size).stop - ranks.share(size).start
    vectors = torch.randn(3 * count, DIMENSION, generator=torch.Generator().manual_seed(ranks.rank)).requires_grad_()
    rows = np.arange(size)
    batch = TripletBatch(rows, rows, rows, NO_TEXTS, None)
    times, taken = [], 0
    forced = mock.patch("remargin.training.devices.global_loss.moments_are_less", return_value=moments)
    with forced, mock.patch.object(margin, "_moments_pay", return_value=moments):
        for _ in range(repeats):
            vectors.grad = None
            ctypes.CDLL(None).malloc_trim(0)  # what earlier measurements left is no memory of this one
            Path("/proc/self/clear_refs").write_text("5")  # the peak is from now on
            before = memory("VmRSS")
            ranks.collect(None)
            began = time.perf_counter()
            global_loss(MarginLoss("distributed"), batch, vectors, {}, ranks, gather=False)[0].backward()
            ranks.collect(None)
            times.append(time.perf_counter() - began)
            taken = max(taken, memory("VmHWM") - before)
    return ranks.collect((min(times), taken))


def throughput() -> list[str]:
    import devices

    counts = range(1, (os.cpu_count() or 1) + 1)
    best = dict.fromkeys(counts, 0.0)
    with tempfile.TemporaryDirectory() as folder:
        model = made_up.save_encoder(Path(folder) / "model", "minilm")
        made_up.prepared(Path(folder), model, documents=600, queries=200, triplets=400)
        for turn in range(TURNS):
            for count in counts:
                out = Path(folder) / f"{turn}-{count}"
                with leading(World.of(count), out) as ranks:
                    ranks.send(devices.fit, model, Path(folder) / "data", out)
                    fit(ranks, model, Path(folder) / "data", out)
                best[count] = max(best[count], triplets_per_second(out))
    rows = [f"| {count} | {best[count]:.1f} | {best[count] / best[1]:.2f}x |" for count in counts]
    return ["| devices (cores) | triplets/s | against one |", "|---|---|---|", *rows]


def moments_against_direct() -> list[str]:
    import devices

    rows = ["| B | direct ms | moments ms | direct / moments | direct MB | moments MB | direct / moments |"]
    rows.append("|---|---|---|---|---|---|---|")
    with leading(World.of(2), Path("benchmark")) as ranks:
        for size in SIZES:
            measured: dict[bool, tuple[float, int]] = {}
            for moments in (True, False):
                if moments or size <= LARGEST_DIRECT:
                    repeats = 7 if size <= 2048 else 2
                    ranks.send(devices.loss, size, moments, repeats)
                    of_all = loss(ranks, size, moments, repeats)
                    measured[moments] = max(s for s, _ in of_all), max(b for _, b in of_all)
            cells = []
            for place, unit in ((0, 1e3), (1, 1e-6)):
                of_moments = measured[True][place]
                of_direct = measured[False][place] if False in measured else None
                direct = "" if of_direct is None else f"{of_direct * unit:,.1f}"
                ratio = "" if of_direct is None else f"{of_direct / of_moments:.2f}" if of_moments * unit > 1 else "-"
                cells += [direct, f"{of_moments * unit:,.1f}", ratio]
            rows.append(f"| {size:,} | {' | '.join(cells)} |")
            print(rows[-1], file=sys.stderr, flush=True)
    return rows


def main() -> None:
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    lines = [
        "# Training on several devices",
        "",
        f"{os.cpu_count()} cores of {platform.machine()}, torch {torch.__version__}, "
        f"Python {platform.python_version()}, {time.strftime('%Y-%m-%d')}. Made by "
        "`python benchmarks/devices.py`, beside other work on the same cores: only the ratios mean something.",
        "",
        f"An encoder of MiniLM's size, a global batch of {BATCH} triplets, one thread for each device:",
        "",
        *throughput(),
        "",
        f"The distributed loss of a global batch on two devices, d = {DIMENSION}, forward and backward. Beyond "
        f"B = {LARGEST_DIRECT:,} the direct way is left out: at 65,536, one B x B matrix is 17 GB.",
        "",
        *moments_against_direct(),
    ]
    text = "\n".join(lines)
    print(text)
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(text + "\n")


if __name__ == "__main__":
    main()
