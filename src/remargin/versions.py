"""Which versions something was made with."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

PACKAGES = (
    "remargin", "torch", "transformers", "tokenizers", "safetensors", "pytorch-lightning", "numpy", "scipy", "bm25s",
    "ir-measures", "ir-datasets", "pyarrow",
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
