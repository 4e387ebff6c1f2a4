"""remargin info: versions and devices, for a bug report."""

from __future__ import annotations

from remargin.progress import tell


def info() -> None:
    """Print versions and devices, for a bug report."""
    import remargin

    here = remargin.info()
    for package, version in here.versions.items():
        tell(f"{package}: not installed" if version is None else f"{package} {version}")
    tell(f"on {here.system}")
    tell(f"CPU threads: {here.threads}")
    tell(f"GPUs: {', '.join(here.gpus) or 'none'}")
