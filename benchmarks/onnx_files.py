"""An encoder as ONNX, in float32 and int8: its vectors, its speed and its nDCG@10, beside BiEncoder, on a CPU.

    python benchmarks/onnx_files.py --data COLLECTION --model minilm > results/onnx.md

All three read the same tokens, with the same threads, in turns; the best of several rounds counts. Ratios are of one
run, so that what else the machine does touches all three. A pool of the documents is ranked for some of the test
queries; --queries and --documents take more of them.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from datetime import date
from pathlib import Path

import onnxruntime
import torch

from remargin import BiEncoder, Collection
from remargin.integrations.int8 import MEASURE, cost_of_int8, speeds, write_int8
from remargin.integrations.onnx import INT8_FILE, OnnxEncoder, write_onnx


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--queries", type=int, default=75)
    parser.add_argument("--documents", type=int, default=600)
    parser.add_argument("--timed", type=int, default=64)
    given = parser.parse_args()
    threads = len(os.sched_getaffinity(0))
    torch.set_num_threads(threads)
    collection = Collection.load(given.data, "test", skip_bad=True).sample(given.queries, seed=0)
    model = BiEncoder.from_pretrained(given.model, precision="32", device="cpu")
    name, data = Path(given.model).name, Path(given.data).name
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "model"
        model.save(out)
        difference, share = write_onnx(model, out), write_int8(out)
        onnx, int8 = OnnxEncoder(out, threads=threads), OnnxEncoder(out, INT8_FILE, threads)
        speed = speeds(model, onnx, int8, list(collection.documents.values())[: given.timed])
        cost = cost_of_int8(model, int8, collection, data, given.documents)
    versions = f"torch {torch.__version__}, onnxruntime {onnxruntime.__version__}"
    print(f"CPU, {threads} threads, {versions}, {date.today()}; load average {os.getloadavg()[0]:.1f}")
    print(f"\n{name}, {given.timed} documents of {data} with {speed.tokens:.0f} tokens on average")
    print(f"\n| | size | texts/s | ratio | {MEASURE} |\n|---|---|---|---|---|")
    print(f"| BiEncoder, float32 | | {speed.encoder:.1f} | 1.00x | {cost.before:.3f} |")
    print(f"| ONNX, float32 | 1.00 | {speed.onnx:.1f} | {speed.onnx / speed.encoder:.2f}x | |")
    print(f"| ONNX, int8 | {share:.2f} | {speed.int8:.1f} | {speed.int8 / speed.encoder:.2f}x | {cost.after:.3f} |")
    print(f"\nLargest difference of a number of ONNX in float32 from BiEncoder's: {difference:.1g}.")
    change = f"{cost.difference.mean:+.3f} ({cost.difference.low:.3f} to {cost.difference.high:.3f})"
    print(f"{MEASURE} of int8 less that of float32: {change}, {cost.queries} queries, {cost.documents:,} documents.")
    print(f"int8 is {speed.int8 / speed.onnx:.2f}x as fast as ONNX in float32.")


if __name__ == "__main__":
    main()
