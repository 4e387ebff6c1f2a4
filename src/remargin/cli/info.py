"""remargin info: versions and devices, for a bug report."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

PACKAGES = ("remargin", "torch", "transformers", "tokenizers", "safetensors", "numpy", "pyarrow", "ir-datasets")


def info() -> None:
    """Show versions and devices: what a bug report needs."""
    import torch

    print(f"Python {platform.python_version()} on {platform.platform()}")
    for package in PACKAGES:
        try:
            print(f"{package} {version(package)}")
        except PackageNotFoundError:
            print(f"{package}: not installed")
    print(f"CPU threads: {torch.get_num_threads()}")
    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    print(f"GPUs: {', '.join(gpus) or 'none'}")
