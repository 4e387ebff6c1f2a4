"""Where the time of encoding goes on a CPU: ours and sentence-transformers', both in bfloat16, by kind of operation.

    python benchmarks/encode_profile.py [results/engine-cpu.md]

The same made-up texts and encoder of MiniLM's size as engine_cpu.py, whose results it adds a section to. The linear
layers alone, with nothing around them, bound what the rest could win. All in one thread, in CPU seconds, which other
work on the machine changes little.
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
from engine_cpu import DOCUMENTS, PROFILE, their_encoder
from made_up import PASSAGE
from torch.profiler import ProfilerActivity, profile

from remargin import BiEncoder
from remargin.model.encoder import PAPER_LENGTHS, encoding_dtype

TURNS = 5
KINDS = {  # by parts of the names of PyTorch's operations
    "matrix products": ("linear", "mm", "mkldnn"),
    "attention": ("attention", "softmax", "flash"),
    "LayerNorm": ("layer_norm",),
    "activation": ("gelu",),
    "copies and casts": ("copy", "index", "cat", "gather", "clone", "fill"),
}


def shares(run: Any) -> Counter[str]:
    """The operations' own time by their kind."""
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        run()
    times: Counter[str] = Counter()
    for event in profiled.key_averages():
        kind = next((k for k, parts in KINDS.items() if any(part in event.key for part in parts)), "other operations")
        times[kind] += event.self_cpu_time_total
    return times


def linear_layers(ours: BiEncoder, documents: list[str]) -> Any:
    """The linear layers of our encoder and GELU, as oneDNN computes them, over as many tokens in the same groups."""
    compute = ours._computing()
    lengths = ours.tokenizer(documents, ours.document_length)[0].lengths
    counts = [int(lengths[rows].sum()) for rows in compute.groups(lengths, ours.device)]
    width, dtype = ours.whole_dimension, encoding_dtype(ours.precision, ours.device)
    inputs = {count: torch.randn(count, width).to(dtype) for count in counts}

    def run() -> None:
        with torch.inference_mode():
            for count in counts:
                for layer in compute.body.layers:
                    layer.qkv(inputs[count])
                    layer.down(layer.up(layer.out(inputs[count])))

    return run


def main() -> None:
    torch.set_num_threads(1)  # a profiler does not see what others do
    documents = made_up.texts(DOCUMENTS, PASSAGE, np.random.default_rng(0))
    with tempfile.TemporaryDirectory() as scratch:
        model = made_up.save_encoder(Path(scratch) / "model", "minilm")
        ours = BiEncoder.from_pretrained(model, pooling="mean", device="cpu", precision="bf16", lengths=PAPER_LENGTHS)
        theirs = their_encoder(model, torch.bfloat16).eval()
        ways = {
            "ours": lambda: ours.encode_documents(documents, progress=False),
            "sentence-transformers": lambda: theirs.encode(documents, show_progress_bar=False),
        }
        ways["linear layers alone"] = linear_layers(ours, documents)
        seconds = dict.fromkeys(ways, float("inf"))
        for _ in range(TURNS):
            for name, run in ways.items():
                start = time.process_time()
                run()
                seconds[name] = min(seconds[name], time.process_time() - start)
        times = {name: shares(run) for name, run in ways.items() if name != "linear layers alone"}
    floor = seconds["linear layers alone"]
    lines = [
        PROFILE,
        "",
        f"One thread, torch {torch.__version__}, Python {platform.python_version()}, "
        f"{time.strftime('%Y-%m-%d')}, bfloat16. Made by `python benchmarks/encode_profile.py`.",
        "",
        f"CPU seconds for {DOCUMENTS:,} documents: the best of {TURNS} calls by turns, shared out as the operations of "
        "a profiled call were.",
        "",
        f"| | {' | '.join(times)} |",
        "|---" * (1 + len(times)) + "|",
    ]
    for kind in (*KINDS, "other operations"):
        cells = (f"{seconds[name] * of[kind] / of.total():.2f}" for name, of in times.items())
        lines.append(f"| {kind} | {' | '.join(cells)} |")
    lines += [
        f"| all | {' | '.join(f'{seconds[name]:.2f}' for name in times)} |",
        "",
        "Our linear layers and GELU alone, without attention, LayerNorm, pooling and tokenizer, take "
        f"{floor:.2f} s: {floor / seconds['ours']:.0%} of our time. sentence-transformers takes "
        f"{their(seconds, 'ours')} times as long as we do, and {their(seconds, 'linear layers alone')} times as long "
        "as the linear layers alone: no engine with oneDNN's products in bfloat16 gets beyond that here.",
    ]
    print("\n".join(lines))
    if len(sys.argv) > 1:
        file = Path(sys.argv[1])
        before = file.read_text().partition(PROFILE)[0].rstrip() + "\n\n" if file.exists() else ""
        file.write_text(before + "\n".join(lines) + "\n")


def their(seconds: dict[str, float], way: str) -> str:
    return f"{seconds['sentence-transformers'] / seconds[way]:.2f}"


if __name__ == "__main__":
    main()
