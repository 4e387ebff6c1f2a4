"""An encoder as ONNX, in float32 and int8: its vectors, its speed and its nDCG@10, beside BiEncoder, on a CPU.

    python benchmarks/onnx_files.py --data cranfield --model minilm > results/onnx.md

All three read the same tokens, with the same threads, in turns; the best of several rounds counts. Ratios are of one
run, so that what else the machine does touches all three.
"""

from __future__ import annotations

import argparse
import os
import platform
import tempfile
from datetime import date
from pathlib import Path

import onnxruntime
import torch

from remargin import Collection
from remargin.integrations.exporting import export
from remargin.integrations.int8 import MEASURE


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True)
    parser.add_argument("--model", required=True)
    given = parser.parse_args()
    threads = len(os.sched_getaffinity(0))
    os.environ["OMP_NUM_THREADS"] = str(threads)
    torch.set_num_threads(threads)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "hub"
        made = export(out, given.model, data=given.data, int8=True, skip_bad=True, say=lambda line: None)
        sizes = {file: (out / file).stat().st_size / 1e6 for file in ("model.onnx", "model_int8.onnx")}
    assert made.int8 is not None
    assert made.int8.cost is not None
    speed, cost = made.int8.speeds, made.int8.cost
    model = Path(given.model).absolute().name if Path(given.model).is_dir() else given.model
    load = os.getloadavg()[0]
    versions = f"torch {torch.__version__}, onnxruntime {onnxruntime.__version__}"
    print(f"CPU ({platform.machine()}), {threads} threads, {versions}, {date.today()}; load average {load:.1f}")
    print(f"\n{model}, documents of {Collection.load(given.data, 'test', skip_bad=True).name.rpartition('/')[2]}")
    print(f"of {speed.tokens:.0f} tokens on average; largest difference of a number in float32: {made.onnx:.1g}")
    print(f"\n| | MB | texts/s | ratio | {MEASURE} |\n|---|---|---|---|---|")
    print(f"| BiEncoder, float32 | | {speed.encoder:.1f} | 1.00x | {cost.before:.3f} |")
    print(f"| ONNX, float32 | {sizes['model.onnx']:.0f} | {speed.onnx:.1f} | {speed.onnx / speed.encoder:.2f}x | |")
    ratio = f"{speed.int8 / speed.encoder:.2f}x"
    print(f"| ONNX, int8 | {sizes['model_int8.onnx']:.0f} | {speed.int8:.1f} | {ratio} | {cost.after:.3f} |")
    change = cost.difference
    print(f"\nint8 against float32: {speed.int8 / speed.onnx:.2f}x the speed; {MEASURE} {change.mean:+.3f} ", end="")
    print(f"({change.low:.3f} to {change.high:.3f}) over {cost.queries} queries and {cost.documents:,} documents")


if __name__ == "__main__":
    main()
