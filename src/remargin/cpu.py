"""Linear layers for encoding on a CPU: weights laid out once as oneDNN likes them, and GELU in the same pass."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from remargin.postnorm import PostNorm

TOKENS = 1200  # oneDNN lays the weights out for about so many rows at once; any number of them is right


class Frozen(nn.Module):
    """A linear layer that cannot be trained any more, perhaps with GELU behind it."""

    def __init__(self, layer: nn.Linear, gelu: bool = False) -> None:
        super().__init__()
        self._weight = torch.ops.mkldnn._reorder_linear_weight(layer.weight.detach(), TOKENS)
        self._bias = None if layer.bias is None else layer.bias.detach()
        self._then = "gelu" if gelu else "none"

    def forward(self, x: Tensor) -> Tensor:
        """What the layer gives, or GELU of it."""
        out: Tensor = torch.ops.mkldnn._linear_pointwise(x, self._weight, self._bias, self._then, [], "none")
        return out


def freeze(body: Any) -> None:
    """Replace the linear layers of an encoder that is only to encode, where oneDNN is there and its kind is known."""
    known = isinstance(body, PostNorm) and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
    if not known or not torch.backends.mkldnn.is_available():
        return
    if body.word.dtype == torch.bfloat16 and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return
    for layer in body.layers:
        parts: Any = layer
        parts.qkv, parts.out, parts.down = Frozen(parts.qkv), Frozen(parts.out), Frozen(parts.down)
        parts.up = Frozen(parts.up, gelu=parts.exact_gelu)
        parts.activation = nn.Identity() if parts.exact_gelu else parts.activation
