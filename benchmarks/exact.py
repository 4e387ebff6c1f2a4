"""Exact search against its rivals: FAISS Flat on a CPU, the whole score matrix and torch.topk on a GPU.

    python benchmarks/exact.py             # on a GPU if there is one, else on the CPU

CPU: 100,000 vectors of 384 numbers, 1,000 queries, k = 100, float32, the same threads for both. GPU: 1,000,000 vectors
of 768 numbers in bfloat16 on the device, 1,000 queries, k = 100. By turns, best of several. The script checks that
both sides find the same.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from remargin.retrieval.exact import top_k

QUERIES, K = 1000, 100
REPEATS = 15


def unit(count: int, dimension: int, device: str) -> torch.Tensor:
    vectors = torch.randn(count, dimension, device=device)
    return torch.nn.functional.normalize(vectors, dim=1)


def by_turns(ours: Callable[[], Any], theirs: Callable[[], Any], wait: Callable[[], None]) -> tuple[float, float]:
    """Seconds that each takes, at best."""
    best = [float("inf"), float("inf")]
    for _ in range(REPEATS):
        for i, run in enumerate((ours, theirs)):
            wait()
            start = time.perf_counter()
            run()
            wait()
            best[i] = min(best[i], time.perf_counter() - start)
    return best[0], best[1]


def on_cpu() -> None:
    import faiss

    faiss.omp_set_num_threads(torch.get_num_threads())
    documents, queries = unit(100_000, 384, "cpu").numpy(), unit(QUERIES, 384, "cpu").numpy()
    index = faiss.IndexFlatIP(384)
    index.add(documents)
    scores, rows = top_k(queries, documents, K)
    expected, expected_rows = index.search(queries, K)
    assert np.abs(scores - expected).max() < 1e-5
    assert (rows == expected_rows).mean() > 0.999
    ours, theirs = by_turns(lambda: top_k(queries, documents, K), lambda: index.search(queries, K), lambda: None)
    threads = torch.get_num_threads()
    print(
        f"CPU, {threads} threads, torch {torch.__version__}, faiss {faiss.__version__}, {time.strftime('%Y-%m-%d')}\n"
    )
    print("| 100,000 x 384, float32, 1,000 queries, k = 100 | seconds | ratio |\n|---|---|---|")
    print(f"| FAISS Flat | {theirs:.3f} | 1.00 |\n| remargin exact | {ours:.3f} | {ours / theirs:.2f} |")


def on_gpu() -> None:
    documents, queries = unit(1_000_000, 768, "cuda").bfloat16(), unit(QUERIES, 768, "cuda").bfloat16()

    def whole() -> Any:
        return (queries @ documents.T).topk(K)

    def ours() -> Any:
        return top_k(queries, documents, K, "cuda")

    expected = torch.mm(queries, documents.T, out_dtype=torch.float32).topk(K)  # type: ignore[call-overload]
    assert np.abs(ours()[0] - expected.values.cpu().numpy()).max() < 1e-5
    del expected
    memory = []
    for run in (ours, whole):
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run()
        memory.append((torch.cuda.max_memory_allocated() - before) / 1e6)
    seconds = by_turns(ours, whole, torch.cuda.synchronize)
    name = torch.cuda.get_device_name()
    print(f"{name}, torch {torch.__version__}, Python {platform.python_version()}, {time.strftime('%Y-%m-%d')}\n")
    print("| 1,000,000 x 768, bfloat16, 1,000 queries, k = 100 | ms | ratio | MB | ratio |\n|---|---|---|---|---|")
    print(
        f"| whole matrix, torch.topk (scores in bfloat16) | {seconds[1] * 1e3:.1f} | 1.00 | {memory[1]:,.0f} | 1.00 |"
    )
    ratios = seconds[0] / seconds[1], memory[0] / memory[1]
    print(f"| remargin exact (scores in float32, copied to the host) | {seconds[0] * 1e3:.1f} | {ratios[0]:.2f} | {memory[0]:,.0f} | {ratios[1]:.3f} |")  # fmt: skip  # noqa: E501


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    on_gpu() if torch.cuda.is_available() else on_cpu()
