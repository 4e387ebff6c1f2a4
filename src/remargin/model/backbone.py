"""The transformer under an encoder: every weight from its checkpoint, and how many tokens it takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from remargin.errors import InputError, first_line
from remargin.model.tokenizer import quiet_transformers
from remargin.model.weights import require_safetensors, require_sound_config


class Checkpoint:
    """What became of a checkpoint's weights: a pooler that it holds, and heads that were ignored."""

    def __init__(self, pooler: nn.Module | None, ignored: set[str]) -> None:
        self._pooler = pooler
        self.ignored = ignored

    def pooler_projection(self) -> nn.Linear | None:
        """A trainable copy of the checkpoint's own pooler layer, if it has one."""
        dense = getattr(self._pooler, "dense", None)
        if not isinstance(dense, nn.Linear):
            return None
        projection = nn.Linear(dense.in_features, dense.out_features)
        projection.load_state_dict(dense.state_dict())
        return projection


def load_backbone(folder: Path) -> tuple[nn.Module, Checkpoint]:
    """The encoder with every weight from the checkpoint; the pooler, if there, kept as it is and never trained."""
    from transformers import AutoModel

    require_safetensors(folder)
    backbone, info = load_as(AutoModel, folder, "an encoder", "name another model")
    if getattr(backbone.config, "is_encoder_decoder", False):
        raise InputError("has a decoder too, and is no encoder", file=folder, do="name an encoder, such as BERT")
    refuse_missing(info, folder)
    pooler = getattr(backbone, "pooler", None)
    if pooler is not None and any(key.startswith("pooler.") for key in info["missing_keys"]):
        backbone.pooler = pooler = None
    if pooler is not None:
        pooler.requires_grad_(False)
    return backbone, Checkpoint(pooler, set(info["unexpected_keys"]))


def load_as(kind: Any, folder: Path, what: str, do: str) -> tuple[Any, dict[str, Any]]:
    """A model of a class of transformers, in float32 and from safetensors alone, and what became of its weights."""
    require_safetensors(folder)
    require_sound_config(folder)
    try:
        with quiet_transformers():
            model, info = kind.from_pretrained(
                folder, use_safetensors=True, trust_remote_code=False, dtype=torch.float32, output_loading_info=True
            )
    except Exception as error:  # transformers raises whatever its parts raise
        raise InputError(f"cannot be loaded as {what} ({first_line(error)})", file=folder, do=do) from None
    return model, info


def refuse_missing(info: dict[str, Any], folder: Path) -> None:
    """Refuse a checkpoint that lacks weights of the encoder, as transformers' loading info says; a pooler may lack."""
    missing = {key for key in info["missing_keys"] if not key.startswith("pooler.")}
    if missing or info["mismatched_keys"]:
        lacking = sorted(missing) or sorted(str(key) for key in info["mismatched_keys"])
        problem = f"{len(lacking)} weights of the encoder are missing or of another shape, such as {lacking[0]}"
        raise InputError(problem, file=folder, do="use a complete checkpoint of this architecture")


def longest_input(backbone: nn.Module) -> int | None:
    """How many tokens the model's positions allow, or None where there is no limit."""
    positions: int | None = getattr(backbone.config, "max_position_embeddings", None)
    table = getattr(getattr(backbone, "embeddings", None), "position_embeddings", None)
    offset = getattr(table, "padding_idx", None)  # RoBERTa and its kin count positions from there
    if not isinstance(positions, int) or positions < 1:
        return None
    return positions if offset is None else positions - offset - 1


def checked_length(kind: str, length: int, backbone: nn.Module) -> int:
    """A maximum length of texts of a kind, if the model has so many positions."""
    limit = longest_input(backbone)
    if limit is not None and length > limit:
        raise InputError(f"{kind}_length {length}: the model has {limit} positions", do=f"use {limit} or less")
    return length
