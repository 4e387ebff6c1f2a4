"""A model folder as an encoder is read from it: how it is used, its backbone, and its projection."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from remargin.errors import InputError
from remargin.model.backbone import Checkpoint, load_backbone
from remargin.model.folder import Settings
from remargin.model.parts import INTACT, field_of, read_part
from remargin.model.pooling import NormedLinear
from remargin.model.weights import read_tensors, tensor_names


@dataclass
class EncoderFolder:
    """A folder with one encoder, and what it says; a layout of its own reads its weights in another way."""

    settings: Settings

    @property
    def has_projection(self) -> bool:
        """Whether the folder holds a projection."""
        return self.settings.dense is not None

    def projection(self) -> nn.Linear | None:
        """The projection that the folder holds, with its layer norm if there is one."""
        if self.settings.dense is None:
            return None
        config = read_part(self.settings.dense / "config.json", dict)
        names = tensor_names(self.settings.dense)
        weights = read_tensors(self.settings.dense, "linear.weight", "linear.bias")
        weight, bias = weights.get("linear.weight"), weights.get("linear.bias")
        has_bias = field_of(config, "bias", bool, self.settings.dense / "config.json", True)
        if weight is None or has_bias != (bias is not None) or names - set(weights):
            problem = f"not one linear layer: it has {', '.join(sorted(names))}"
            raise InputError(problem, file=self.settings.dense, do="use another model")
        kind = nn.Linear if self.settings.norm is None else NormedLinear
        projection = kind(weight.shape[1], weight.shape[0], bias=bias is not None)
        state = {"weight": weight} if bias is None else {"weight": weight, "bias": bias}
        if self.settings.norm is not None:
            state |= read_tensors(self.settings.norm, "norm.weight", "norm.bias")
        try:
            projection.load_state_dict(state)
        except RuntimeError:
            raise InputError("not a layer norm of the projection", file=self.settings.norm, do=INTACT) from None
        return projection

    def load(self) -> tuple[nn.Module, Checkpoint]:
        """The encoder's backbone, and what else its checkpoint held."""
        return load_backbone(self.settings.transformer)
