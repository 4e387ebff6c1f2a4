"""What the losses' arithmetic costs, changes around it, and refuses."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
from typing import Any

import pytest
import torch

from remargin.losses.contrastive import ContrastiveLoss
from remargin.losses.margin import MarginLoss
from remargin.losses.numerics import exact_products


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("target", ["distributed", pytest.param("adaptive", marks=pytest.mark.slow)])
def test_memory_of_the_moments_path_at_b_16384_d_768_is_below_half_a_gigabyte(target: str) -> None:
    program = """
        import sys, torch
        from remargin.losses.margin import MarginLoss

        def kilobytes(key):
            return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(key))

        loss = MarginLoss(sys.argv[1], in_batch=sys.argv[1] != "distributed")
        small = [torch.randn(800, 64, requires_grad=True) for _ in range(3)]
        loss(*small).backward()  # libraries load and threads start before we look
        batch = [torch.randn(16_384, 768, requires_grad=True) for _ in range(3)]
        before = kilobytes("VmRSS")
        open("/proc/self/clear_refs", "w").write("5")  # start counting the peak from here
        loss(*batch).backward()
        gradients = sum(t.grad.nbytes for t in batch)
        print(kilobytes("VmHWM") * 1024 - before * 1024 - gradients)
    """
    command = [sys.executable, "-c", textwrap.dedent(program), target]
    extra = int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert 50e6 < extra < 0.5e9


def test_low_precision_settings_come_back_when_the_last_of_several_threads_is_through() -> None:
    setting: Any = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    before, seen = setting.fp32_precision, []
    entered, left = threading.Event(), threading.Event()

    def longer() -> None:
        with exact_products(torch.device("cpu")):
            entered.set()
            left.wait(10)
            seen.append(setting.fp32_precision)

    thread = threading.Thread(target=longer)
    try:
        setting.fp32_precision = "bf16"
        with exact_products(torch.device("cpu")):
            thread.start()
            assert entered.wait(10)
        left.set()
        thread.join()
        assert [*seen, setting.fp32_precision] == ["ieee", "bf16"]
    finally:
        setting.fp32_precision = before


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
@pytest.mark.parametrize("size", [3, 5], ids=["direct", "moments"])
def test_a_gradient_of_the_gradient_is_refused(size: int, similarity: Any) -> None:
    batch = [torch.randn(size, 4, requires_grad=True) for _ in range(3)]
    for loss in (MarginLoss(similarity=similarity), ContrastiveLoss(similarity=similarity)):
        with pytest.raises(RuntimeError, match="trying to differentiate twice"):
            torch.autograd.grad(loss(*batch), batch, create_graph=True)
