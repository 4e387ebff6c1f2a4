"""ANCE as its authors and castorini published it: RoBERTa, then a dense layer and a layer norm on its first token.

A copy for sentence-transformers, such as msmarco-roberta-base-ance-firstp, has modules instead, which need no layout.
"""

from __future__ import annotations

from pathlib import Path

from torch import nn

from remargin.errors import InputError
from remargin.model.folder import Settings
from remargin.model.layouts.base import Layout
from remargin.model.opening import EncoderFolder
from remargin.model.parts import INTACT
from remargin.model.pooling import NormedLinear
from remargin.model.weights import read_tensors, tensor_names

NAMES = {
    "embeddingHead.weight": "weight",
    "embeddingHead.bias": "bias",
    "norm.weight": "norm.weight",
    "norm.bias": "norm.bias",
}


class AnceFolder(EncoderFolder):
    """The dense layer and the layer norm lie beside the backbone's weights."""

    @property
    def has_projection(self) -> bool:
        """Always: it is how the layout is recognised."""
        return True

    def projection(self) -> nn.Linear | None:
        """Both layers together."""
        tensors = read_tensors(self.settings.transformer, *NAMES)
        try:
            rows, columns = tensors["embeddingHead.weight"].shape
            head = NormedLinear(columns, rows)
            head.load_state_dict({NAMES[name]: tensor for name, tensor in tensors.items()})
        except (KeyError, ValueError, RuntimeError):
            problem = f"not ANCE's dense layer and layer norm: it has {', '.join(sorted(tensors))}"
            raise InputError(problem, file=self.settings.transformer, do=INTACT) from None
        return head


def _recognises(folder: Path) -> bool:
    return "embeddingHead.weight" in tensor_names(folder)


def _open(folder: Path) -> EncoderFolder:
    return AnceFolder(Settings(folder, "cls+linear", "dot"))


LAYOUT = Layout("ANCE", _recognises, encoder=_open)
