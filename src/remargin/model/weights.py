"""The weights of a model folder, before they are loaded: safetensors or nothing, and no more layers than there are."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from remargin.errors import InputError
from remargin.model.parts import INTACT, OURS, read_part

if TYPE_CHECKING:
    from torch import Tensor

LAYERS = ("num_hidden_layers", "n_layers")  # DistilBERT's names differ
HEADS = ("num_attention_heads", "n_heads")


def require_safetensors(folder: Path) -> None:
    """Refuse a folder whose weights are pickles, or that has none."""
    if not any(folder.glob("*.safetensors")):
        pickled = next((p.name for p in folder.glob("*.bin")), None)
        if pickled:
            problem = f"only pickled weights ({pickled}), which are never read"
            raise InputError(problem, file=folder, do="convert them once: `remargin export --safetensors`")
        of_run = (folder / name for name in ("model", "best"))  # where `fit` puts them
        inside = next((model for model in of_run if (model / OURS).is_file()), None)
        raise InputError("no weights", file=folder, do=f"use {inside}" if inside else "use a model with .safetensors")


def require_sound_config(folder: Path) -> None:
    """Refuse a config that would make no working model, before transformers builds one.

    Of more layers than there are tensors it would build them without end; what is NaN or infinite, such as a rate of
    dropout, would fail or spread when the model is used. Without layers, or with heads fewer than none, which divide
    its width as well as others do, it would load and then fail.
    """
    config = read_part(folder / "config.json", dict, missing={})
    for name, value in config.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise InputError(f"{name} is {value}, which is no finite number", file=folder / "config.json", do=INTACT)
        if name in (*LAYERS, *HEADS) and isinstance(value, int | float) and value < 1:
            raise InputError(f"{name} is {value}, not 1 or more", file=folder / "config.json", do=INTACT)
    tensors = tensor_names(folder)
    if not tensors:
        return  # whoever loads them says what is wrong
    for name in LAYERS:
        layers = config.get(name)
        if isinstance(layers, int | float) and layers > len(tensors):
            problem = f"{name} is {layers}, but there are only {len(tensors)} weights"
            raise InputError(problem, file=folder / "config.json", do=INTACT)


def tensor_names(folder: Path) -> set[str]:
    """The names of all tensors in a folder's safetensors; none if they cannot be read, which whoever loads them says.

    >>> "embeddings.word_embeddings.weight" in tensor_names(model_folder)
    True
    """
    import safetensors

    names: set[str] = set()
    try:
        for path in folder.glob("*.safetensors"):
            with safetensors.safe_open(path, "np") as file:
                names.update(file.keys())
    except (safetensors.SafetensorError, OSError):
        return set()
    return names


def read_tensors(folder: Path, *names: str) -> dict[str, Tensor]:
    """Some tensors of a folder, in float32; those that it lacks are left out.

    Raises:
        InputError: if a file cannot be read.
    """
    import safetensors

    require_safetensors(folder)
    tensors: dict[str, Tensor] = {}
    try:
        for path in folder.glob("*.safetensors"):
            with safetensors.safe_open(path, "pt") as file:
                tensors |= {name: file.get_tensor(name).float() for name in names if name in file.keys()}  # noqa: SIM118
    except (safetensors.SafetensorError, OSError) as error:
        raise InputError(f"cannot be read ({error})", file=folder, do=INTACT) from None
    return tensors


def digest_of(weights: Mapping[str, Tensor], *about: str) -> str:
    """A hash of weights, in their order, and of words about how they are used."""
    import torch

    digest = hashlib.blake2b(" ".join(about).encode())
    for name, weight in weights.items():
        digest.update(f"{name} {tuple(weight.shape)} {weight.dtype}".encode())
        digest.update(weight.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()[:32]
