"""What a result was made with: hardware, energy, memory."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from math import fsum
from types import TracebackType
from typing import Any

import torch


def hardware() -> str:
    """The GPU, or the number of CPU threads."""
    return torch.cuda.get_device_name() if torch.cuda.is_available() else f"{torch.get_num_threads()} CPU threads"


def peak_memory(reset: bool = False) -> int | None:
    """The most bytes in use on the GPU since it was last reset; None without one."""
    if not torch.cuda.is_available():
        return None
    peak = torch.cuda.max_memory_allocated()
    if reset:
        torch.cuda.reset_peak_memory_stats()
    return peak


class Energy:
    """How much energy the GPU used meanwhile, in joules; None where it does not say.

    >>> with Energy() as energy:
    ...     pass
    >>> energy.joules is None or energy.joules >= 0
    True
    """

    joules: float | None = None

    def __enter__(self) -> Energy:
        self._device = _nvml_device()
        self._before = self._read()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        after = self._read()
        if after is not None and self._before is not None:
            self.joules = (after - self._before) / 1000

    def _read(self) -> int | None:
        """Millijoules since the driver was loaded."""
        if self._device is None:
            return None
        nvml, handle = self._device
        try:
            return int(nvml.nvmlDeviceGetTotalEnergyConsumption(handle))
        except nvml.NVMLError:
            return None


def total_energy(joules: Iterable[float | None]) -> float | None:
    """The sum; None where a part was not recorded.

    >>> total_energy([1.5, 2.0]), total_energy([1.5, None])
    (3.5, None)
    """
    parts = list(joules)
    return None if None in parts else fsum(part for part in parts if part is not None)


def _nvml_device() -> tuple[Any, Any] | None:
    """NVIDIA's management library and the GPU as it knows it, if it is installed."""
    if not torch.cuda.is_available():
        return None
    try:
        nvml = importlib.import_module("pynvml")
        nvml.nvmlInit()
        return nvml, nvml.nvmlDeviceGetHandleByUUID(f"GPU-{torch.cuda.get_device_properties(0).uuid}")
    except Exception:  # not installed, no such device, or no permission: then nobody knows
        return None
