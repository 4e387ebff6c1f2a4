"""remargin info: versions and devices, for a bug report."""

from __future__ import annotations

import platform

from remargin.progress import tell


def info() -> None:
    """Show versions and devices: what a bug report needs."""
    import torch

    from remargin.versions import versions

    for name, found in versions().items():
        tell(f"{name}: not installed" if found is None else f"{name} {found}")
    tell(f"on {platform.platform()}")
    tell(f"CPU threads: {torch.get_num_threads()}")
    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    tell(f"GPUs: {', '.join(gpus) or 'none'}")
