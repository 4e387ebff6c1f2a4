"""Pickled weights as safetensors: the one place where a pickle is opened, on demand, and for tensors alone."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from remargin.errors import InputError, first_line
from remargin.files.atomic import new_folder, refuse_existing
from remargin.model.folder import local_folder

PICKLED, CONVERTED = "pytorch_model.bin", "model.safetensors"
COPIED = ("*.json", "*.txt", "*.model", "artifact.metadata", "README.md", "LICENSE*")


def convert_weights(
    model: str | Path, out: str | Path, overwrite: bool = False, say: Callable[[str], None] = print
) -> None:
    """Copy a model folder, with its pickled weights (pytorch_model.bin) as safetensors.

    PyTorch's restricted reader (`weights_only`) opens the pickles: it makes tensors and plain containers, and refuses
    everything else, so that no code of the file runs.

    Args:
        model: a folder, or a name of the hub.
        out: the folder to write.
        overwrite: replace `out` if it is there.
        say: takes a line about each file.

    Raises:
        InputError: if there are no pickled weights, or there is more than tensors in them.
    """
    out = Path(out)
    refuse_existing(out, overwrite, "config.json")
    folder = local_folder(model, pickles=True)
    pickles = sorted(folder.rglob(PICKLED))
    if not pickles:
        shards = next(folder.rglob("pytorch_model-*.bin"), None)
        problem = "its pickled weights are in several files, which is not supported" if shards else "no pickled weights"
        raise InputError(problem, file=folder, do=f"name a model with {PICKLED}")
    with new_folder(out, overwrite, "config.json") as written:
        for path in sorted({path for pattern in COPIED for path in folder.rglob(pattern) if path.is_file()}):
            _make_room(written / path.relative_to(folder))
            shutil.copyfile(path, written / path.relative_to(folder))
        for path in sorted(folder.rglob("*.safetensors")):
            if not (path.parent / PICKLED).is_file():
                _make_room(written / path.relative_to(folder))
                shutil.copyfile(path, written / path.relative_to(folder))
        for path in pickles:
            target = written / path.relative_to(folder).with_name(CONVERTED)
            _make_room(target)
            count = _convert(path, target)
            say(f"{path.relative_to(folder)}: {count:,} tensors, now {target.relative_to(written)}")


def _make_room(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)


def _convert(path: Path, target: Path) -> int:
    """Write a pickle's tensors as safetensors, and return how many they are."""
    import safetensors.torch
    import torch

    do = "use another model"
    try:
        content: Any = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # pickle and torch raise whatever they find
        raise InputError(f"holds more than tensors, or is damaged ({first_line(error)})", file=path, do=do) from None
    if isinstance(content, dict) and isinstance(content.get("state_dict"), dict):
        content = content["state_dict"]
    if not isinstance(content, dict) or not content:
        raise InputError("holds no tensors by their names", file=path, do=do)
    tensors: dict[str, torch.Tensor] = {}
    for name, tensor in content.items():
        if not isinstance(name, str) or not isinstance(tensor, torch.Tensor):
            raise InputError(f"{name!r} is no tensor", file=path, do=do)
        tensors[name] = tensor.detach().clone().contiguous()  # safetensors keeps no two names of one tensor
    safetensors.torch.save_file(tensors, target, metadata={"format": "pt"})
    return len(tensors)
