"""Where the time of encoding goes on a CPU: ours and sentence-transformers', both in bfloat16, by kind of operation.

    python benchmarks/encode_profile.py [results/encode-profile.md]

The same made-up texts and encoder of MiniLM's size as engine_cpu.py. The matrix products, which both must compute,
bound what the rest could win.
"""

from __future__ import annotations

import platform
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import made_up
import numpy as np
import torch
from engine_cpu import DOCUMENTS, their_encoder
from made_up import PASSAGE
from torch.profiler import ProfilerActivity, profile

from remargin import BiEncoder
from remargin.model.encoder import PAPER_LENGTHS

KINDS = {  # by parts of the names of PyTorch's operations
    "matrix products": ("linear", "mm", "mkldnn"),
    "attention": ("attention", "softmax", "flash"),
    "LayerNorm": ("layer_norm",),
    "activation": ("gelu",),
    "copies and casts": ("copy", "index", "cat", "gather", "clone", "fill"),
}


def measured(run: Any) -> tuple[float, Counter[str]]:
    """Seconds without a profiler, best of three, and the shares of the operations' own time, in one thread."""
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # a profiler does not see what others do
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        run()
    torch.set_num_threads(threads)
    times: Counter[str] = Counter()
    for event in profiled.key_averages():
        kind = next((k for k, parts in KINDS.items() if any(part in event.key for part in parts)), "other operations")
        times[kind] += event.self_cpu_time_total
    return min(seconds), times


def main() -> None:
    documents = made_up.texts(DOCUMENTS, PASSAGE, np.random.default_rng(0))
    with tempfile.TemporaryDirectory() as scratch:
        model = made_up.save_encoder(Path(scratch) / "model", "minilm")
        ours = BiEncoder.from_pretrained(model, pooling="mean", device="cpu", precision="bf16", lengths=PAPER_LENGTHS)
        theirs = their_encoder(model, torch.bfloat16).eval()
        ways = {
            "ours": lambda: ours.encode_documents(documents, progress=False),
            "sentence-transformers": lambda: theirs.encode(documents, show_progress_bar=False),
        }
        profiles = {name: measured(run) for name, run in ways.items()}
    lines = [
        "# Where the time of encoding goes, on a CPU",
        "",
        f"{torch.get_num_threads()} threads, torch {torch.__version__}, Python {platform.python_version()}, "
        f"{time.strftime('%Y-%m-%d')}, bfloat16. Made by `python benchmarks/encode_profile.py`.",
        "",
        "Seconds for 1,024 documents: the best of three calls, shared out as the operations of a profiled call in one "
        "thread were.",
        "",
        f"| | {' | '.join(profiles)} |",
        "|---" * (1 + len(profiles)) + "|",
    ]
    for kind in (*KINDS, "other operations"):
        cells = (f"{seconds * times[kind] / times.total():.2f}" for seconds, times in profiles.values())
        lines.append(f"| {kind} | {' | '.join(cells)} |")
    lines.append(f"| all | {' | '.join(f'{seconds:.2f}' for seconds, _ in profiles.values())} |")
    print("\n".join(lines))
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
