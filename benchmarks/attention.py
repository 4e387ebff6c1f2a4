"""Attention over packed short texts: our Triton kernels against PyTorch's varlen attention, on a GPU.

    python benchmarks/attention.py             # compare
    python benchmarks/attention.py --tune      # and try other cuts of the kernels

384 texts, as in a batch of 128 triplets of MS MARCO's lengths, 12 heads of 32 and 64 numbers, bfloat16. Microseconds
of one layer, replayed from a CUDA graph, so that launching does not count.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable

import numpy as np
import torch
from made_up import PASSAGE, QUERY, lengths
from torch import Tensor
from torch.nn.attention.varlen import varlen_attn

from remargin.model.kernels import attention as kernels
from remargin.model.kernels.attention import Blocks


def microseconds(run: Callable[[], object], repeats: int = 20) -> float:
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        run()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(repeats):
            run()
    best = float("inf")
    for _ in range(5):
        torch.cuda.synchronize()
        start = time.perf_counter()
        graph.replay()
        torch.cuda.synchronize()
        best = min(best, (time.perf_counter() - start) / repeats * 1e6)
    return best


def timed(attention: Callable[[Tensor], Tensor], qkv: Tensor, of: Tensor) -> tuple[float, float]:
    """Forward; forward and backward."""

    def forward() -> None:
        with torch.no_grad():
            attention(qkv)

    def both() -> None:
        leaf = qkv.detach().requires_grad_()
        torch.autograd.grad(attention(leaf), leaf, of)

    return microseconds(forward), microseconds(both)


def main() -> None:
    rng = np.random.default_rng(0)
    drawn = np.concatenate([lengths(128, QUERY, rng), lengths(256, PASSAGE, rng)])
    bounds = torch.from_numpy(np.concatenate([[0], np.cumsum(drawn)])).int().cuda()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {time.strftime('%Y-%m-%d')}\n")
    print("| heads of | varlen forward | ours | varlen forward + backward | ours |\n|---|---|---|---|---|")
    for size in (32, 64):
        qkv = torch.randn(int(drawn.sum()), 3, 12, size, device="cuda", dtype=torch.bfloat16)
        of = torch.randn_like(qkv[:, 0])

        def theirs(x: Tensor) -> Tensor:
            out: Tensor = varlen_attn(*x.unbind(1), bounds, bounds, 200, 200)
            return out

        def ours(x: Tensor, size: int = size) -> Tensor:
            return kernels.attention(x, bounds, 200, size**-0.5)

        a, b = timed(theirs, qkv, of), timed(ours, qkv, of)
        print(f"| {size} | {a[0]:.0f} | {b[0]:.0f} | {a[1]:.0f} | {b[1]:.0f} |", flush=True)
        if "--tune" not in sys.argv:
            continue
        cuts = [Blocks(*c) for c in itertools.product((32, 64, 128), (32, 64), (2, 4, 8)) if c[0] <= 16 * c[2]]
        for table, which in ((kernels.FORWARD, 0), (kernels.QUERIES, 1), (kernels.KEYS, 1)):
            kept, times = table[size], {}
            for blocks in cuts:
                table[size] = blocks
                try:
                    times[blocks] = timed(ours, qkv, of)[which]
                except Exception as error:  # too large for the chip
                    print("  ", blocks, type(error).__name__)
            table[size] = min(times, key=lambda blocks: times[blocks])
            best = ", ".join(f"{tuple(b)} {t:.0f}" for b, t in sorted(times.items(), key=lambda i: i[1])[:4])
            print(f"   tuned, was {tuple(kept)} {times.get(kept, 0):.0f}: {best}", flush=True)


if __name__ == "__main__":
    main()
