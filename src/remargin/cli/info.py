"""remargin info: versions and devices, for a bug report."""

from __future__ import annotations

import platform


def info() -> None:
    """Show versions and devices: what a bug report needs."""
    import torch

    from remargin.versions import versions

    for name, found in versions().items():
        print(f"{name}: not installed" if found is None else f"{name} {found}")
    print(f"on {platform.platform()}")
    print(f"CPU threads: {torch.get_num_threads()}")
    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    print(f"GPUs: {', '.join(gpus) or 'none'}")
