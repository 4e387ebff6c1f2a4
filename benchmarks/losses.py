"""Where the moments path beats the direct B x B path, how much memory it takes, and how exact both are.

    python benchmarks/losses.py            # on a GPU if there is one, else on the CPU

Prints Markdown: forward and backward, best of several, all in one run. The two paths compute the same loss
(tests/losses/test_margin.py), so `direct / moments` above 1 is a pure gain.
"""

from __future__ import annotations

import platform
import time
from typing import Any
from unittest import mock

import torch

from remargin.losses import margin as losses
from remargin.losses.margin import MarginLoss

SIZES = [(128, 384), (384, 384), (768, 384), (1536, 384), (768, 768), (1536, 768), (3072, 768), (6144, 768)]
GPU_SIZES = [*SIZES, (16_384, 768)]
FORMS: dict[str, dict[str, Any]] = {"distributed": {}, "adaptive": {"in_batch": True}}
REPEATS = 7


def random_batch(size: int, dimension: int, device: str, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    return [torch.randn(size, dimension, device=device, dtype=dtype, requires_grad=True) for _ in range(3)]


def seconds(loss: MarginLoss, batch: list[torch.Tensor], moments: bool) -> float:
    """Best time of forward and backward, with the path forced."""

    def step() -> None:
        loss(*batch).backward()
        if batch[0].is_cuda:
            torch.cuda.synchronize()

    times = []
    with mock.patch.object(losses, "_moments_pay", return_value=moments):
        step()
        for _ in range(REPEATS):
            start = time.perf_counter()
            step()
            times.append(time.perf_counter() - start)
    return min(times)


def peak_bytes(loss: MarginLoss, moments: bool, size: int, dimension: int) -> int:
    """Peak GPU memory of forward and backward beyond the inputs and their gradients."""
    batch = random_batch(size, dimension, "cuda")
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    with mock.patch.object(losses, "_moments_pay", return_value=moments):
        loss(*batch).backward()
    gradients = sum(t.grad.nbytes for t in batch if t.grad is not None)
    return int(torch.cuda.max_memory_allocated() - before - gradients)


def relative_error(loss: MarginLoss, moments: bool, device: str) -> tuple[float, float]:
    """Of value and gradient in float32 under TF32 and autocast, against float64 without either."""
    exact = random_batch(2048, 256, device, torch.float64)
    single = [t.detach().float().requires_grad_() for t in exact]
    with mock.patch.object(losses, "_moments_pay", return_value=moments):
        expected = loss(*exact)
        gradients = torch.autograd.grad(expected, exact)
        torch.set_float32_matmul_precision("medium")
        with torch.autocast(device, dtype=torch.bfloat16):
            value = loss(*single)
            computed = torch.autograd.grad(value, single)
        torch.set_float32_matmul_precision("highest")
    worst = max(float((a - b).norm() / b.norm()) for a, b in zip(computed, gradients, strict=True))
    return ((value - expected).abs() / expected).item(), worst


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    machine = torch.cuda.get_device_name() if device == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    print(f"{machine}, torch {torch.__version__}, Python {platform.python_version()}, {time.strftime('%Y-%m-%d')}\n")
    print("| target | B | d | direct ms | moments ms | direct / moments |\n|---|---|---|---|---|---|")
    for target, options in FORMS.items():
        loss = MarginLoss(target, **options)  # type: ignore[arg-type]
        for size, dimension in GPU_SIZES if device == "cuda" else SIZES:
            batch = random_batch(size, dimension, device)
            direct, moments = (seconds(loss, batch, moments) for moments in (False, True))
            times = f"{direct * 1e3:.2f} | {moments * 1e3:.2f} | {direct / moments:.2f}"
            print(f"| {target} | {size:,} | {dimension} | {times} |")
    print("\nRelative error in float32 with TF32 and bfloat16 autocast switched on outside, against float64:\n")
    print("| target | path | value | gradient |\n|---|---|---|---|")
    for target, options in FORMS.items():
        for path, moments in (("direct", False), ("moments", True)):
            value, gradient = relative_error(MarginLoss(target, **options), moments, device)  # type: ignore[arg-type]
            print(f"| {target} | {path} | {value:.0e} | {gradient:.0e} |")
    if device == "cuda":
        print("\nPeak memory beyond inputs and gradients, B = 16,384, d = 768:\n")
        print("| target | direct MB | moments MB |\n|---|---|---|")
        for target, options in FORMS.items():
            loss = MarginLoss(target, **options)  # type: ignore[arg-type]
            direct_peak, moments_peak = (peak_bytes(loss, moments, 16_384, 768) / 1e6 for moments in (False, True))
            print(f"| {target} | {direct_peak:,.0f} | {moments_peak:,.0f} |")


if __name__ == "__main__":
    main()
