"""remargin info: versions and devices, for a bug report."""

from __future__ import annotations

from typing import Any

from remargin.progress import show


def info() -> dict[str, Any]:
    """Print versions and devices, for a bug report.

    Examples:
        remargin info
        remargin info --json
    """
    import remargin

    here = remargin.info()
    for package, version in here.versions.items():
        show(f"{package}: not installed" if version is None else f"{package} {version}")
    show(f"on {here.system}")
    show(f"CPU threads: {here.threads}")
    show(f"GPUs: {', '.join(here.gpus) or 'none'}")
    return vars(here)
