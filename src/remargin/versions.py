"""Which versions something was made with, and on what machine."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

PACKAGES = (
    "remargin", "torch", "transformers", "tokenizers", "safetensors", "pytorch-lightning", "numpy", "scipy", "bm25s",
    "ir-measures", "ir-datasets", "pyarrow", "bitsandbytes",
)  # fmt: skip


def versions() -> dict[str, str | None]:
    """Versions of Python and of the packages that results depend on; None where one is not installed.

    >>> list(versions())[:3]
    ['Python', 'remargin', 'torch']
    """
    return {"Python": platform.python_version(), **{package: _version(package) for package in PACKAGES}}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


@dataclass(frozen=True)
class Info:
    """What a bug report needs: versions (None where a package is not installed), the system, and what computes."""

    versions: dict[str, str | None]
    system: str
    threads: int
    gpus: list[str]


def info() -> Info:
    """Versions and devices, for a bug report; what `remargin info` shows.

    Example:
        >>> info().threads > 0
        True
    """
    import torch

    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return Info(versions(), platform.platform(), torch.get_num_threads(), gpus)
