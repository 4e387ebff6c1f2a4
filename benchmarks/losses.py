"""Where the moments path beats the direct B x B path, and how much memory it takes.

    python benchmarks/losses.py            # a GPU if there is one, else the CPU

Prints a Markdown table: forward and backward, best of several, in one run. The two paths compute the same loss
(tests/test_losses.py), so `direct / moments` is a pure gain in time where it exceeds 1.
"""

from __future__ import annotations

import platform
import time
from unittest import mock

import torch

from remargin import losses

SIZES = [(128, 384), (384, 384), (768, 384), (1536, 384), (768, 768), (1536, 768), (3072, 768), (6144, 768)]
FORMS = {"distributed": {}, "adaptive": {"in_batch": True}}
REPEATS = 7


def seconds(loss: losses.MarginLoss, batch: list[torch.Tensor], moments: bool) -> float:
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


def peak_bytes(loss: losses.MarginLoss, size: int, dimension: int) -> int:
    """Peak GPU memory of forward and backward beyond the inputs and their gradients."""
    batch = [torch.randn(size, dimension, device="cuda", requires_grad=True) for _ in range(3)]
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    loss(*batch).backward()
    gradients = sum(t.grad.nbytes for t in batch if t.grad is not None)
    return torch.cuda.max_memory_allocated() - before - gradients


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    machine = torch.cuda.get_device_name() if device == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    print(f"{machine}, torch {torch.__version__}, Python {platform.python_version()}, {time.strftime('%Y-%m-%d')}\n")
    print("| target | B | d | direct ms | moments ms | direct / moments |\n|---|---|---|---|---|---|")
    for target, options in FORMS.items():
        loss = losses.MarginLoss(target, **options)
        for size, dimension in SIZES:
            batch = [torch.randn(size, dimension, device=device, requires_grad=True) for _ in range(3)]
            direct, moments = (seconds(loss, batch, moments) for moments in (False, True))
            times = f"{direct * 1e3:.2f} | {moments * 1e3:.2f} | {direct / moments:.2f}"
            print(f"| {target} | {size} | {dimension} | {times} |")
    if device == "cuda":
        for target, options in FORMS.items():
            extra = peak_bytes(losses.MarginLoss(target, **options), 16_384, 768)
            print(f"\npeak beyond inputs and gradients, {target}, B = 16,384, d = 768: {extra / 2**20:.0f} MiB")


if __name__ == "__main__":
    main()
