"""LoRA (Hu et al., ICLR 2022): an encoder is trained by low-rank changes of its linear layers, in PEFT's format.

Each linear layer of the backbone computes W x + 2 B A x, where W is frozen, and A and B, with a few rows and columns,
are trained: there are gradients and optimiser states of these alone. Merged, the layer is W + 2 B A, a plain one again.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from remargin.errors import InputError
from remargin.model.names import MINILM, MINILM_ON_THE_HUB

SCALE = 2  # of the change; PEFT has it as alpha, which is so many times the rank
FOLDER = "adapter"  # beside the merged weights
WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"
UNUSED = "pooler"  # never trained, and its outputs are not read


class LoraLinear(nn.Linear):
    """A linear layer with a low-rank change, or several side by side, each with its own.

    Attributes:
        lora_a: (layers * rank, in) what the inputs are brought down to.
        lora_b: (out, rank) and up again.
        sizes: how many outputs each of the layers has.
    """

    lora_a: nn.Parameter
    lora_b: nn.Parameter
    sizes: list[int]

    @classmethod
    def of(cls, weight: Any, bias: Any, lora_a: nn.Parameter, lora_b: nn.Parameter, sizes: list[int]) -> LoraLinear:
        """The layer of these parameters."""
        layer = cls(weight.shape[1], weight.shape[0], bias=False, device="meta")
        layer.weight, layer.bias, layer.lora_a, layer.lora_b, layer.sizes = weight, bias, lora_a, lora_b, sizes
        return layer

    def forward(self, input: Tensor) -> Tensor:
        """The outputs, with the change."""
        inner = F.linear(input, self.lora_a).split(self.lora_b.shape[1], dim=-1)
        change = [F.linear(part, rows) for part, rows in zip(inner, self.lora_b.split(self.sizes), strict=True)]
        return super().forward(input) + SCALE * (change[0] if len(change) == 1 else torch.cat(change, dim=-1))

    def merged(self) -> Tensor:
        """The weight of a plain layer with the same outputs."""
        return self.weight.detach() + SCALE * (self.lora_b.detach() @ self.lora_a.detach())


def adapted_layers(backbone: nn.Module) -> dict[str, LoraLinear]:
    """The layers that have a low-rank change, by their names."""
    return {name: layer for name, layer in backbone.named_modules() if isinstance(layer, LoraLinear)}


class Lora:
    """Low-rank changes of all linear layers of an encoder, from its construction until `merge` or `detach`.

    Args:
        model: a BiEncoder. Its backbone's own weights are frozen; a projection goes on being trained.
        rank: of the changes.
        seed: draws them; they begin as no change.

    Raises:
        InputError: if the backbone has no linear layers, or the rank is not below the size of one.

    Example:
        >>> from remargin import BiEncoder
        >>> model = BiEncoder.from_pretrained(model_folder)
        >>> lora = Lora(model, rank=4, seed=0)
        >>> sum(weight.numel() for weight in lora.learned.parameters()), lora.weights
        (3584, 22688)
    """

    def __init__(self, model: Any, rank: int, seed: int) -> None:
        self._model, self._backbone = model, model.backbone
        self._trained = [weight for weight in self._backbone.parameters() if weight.requires_grad]
        self.weights = sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
        layers = {
            name: layer
            for name, layer in self._backbone.named_modules()
            if type(layer) is nn.Linear and name.split(".")[0] != UNUSED
        }
        if not layers:
            raise InputError("the encoder has no linear layers that LoRA could change", do="leave out --lora")
        least = min(min(layer.weight.shape) for layer in layers.values())
        if rank >= least:
            raise InputError(f"LoRA of rank {rank}: the smallest layer has {least}", do="use a smaller --lora")
        self._backbone.requires_grad_(False)
        generator = torch.Generator().manual_seed(seed)
        for name, layer in layers.items():
            bound, weight = 1 / math.sqrt(layer.in_features), layer.weight
            drawn = torch.empty(rank, layer.in_features).uniform_(-bound, bound, generator=generator)
            down, up = nn.Parameter(drawn.to(weight)), nn.Parameter(weight.new_zeros(layer.out_features, rank))
            _put(self._backbone, name, LoraLinear.of(weight, layer.bias, down, up, [layer.out_features]))
        trained = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
        self.learned = nn.ParameterDict({name.replace(".", "/"): weight for name, weight in trained.items()})

    @torch.no_grad()
    def merge(self) -> None:
        """Make the changes part of the weights."""
        for layer in adapted_layers(self._backbone).values():
            layer.weight.copy_(layer.merged())
        self.detach()

    def detach(self) -> None:
        """Take the changes away."""
        for name, layer in adapted_layers(self._backbone).items():
            _put(self._backbone, name, _plain(layer, layer.weight))
        for weight in self._trained:
            weight.requires_grad_()

    def describe(self, copies: int, size: int, eight_bit: bool) -> str:
        """How many weights are trained, and the memory beside that of training all.

        Args:
            copies: bytes of the copies of the weights that compute.
            size: bytes of a number in their gradients.
            eight_bit: whether the optimiser's states have 8 bits.
        """
        learned = sum(weight.numel() for weight in self.learned.parameters())
        weights = sum(weight.numel() for weight in self._model.parameters())
        layers = list(adapted_layers(self._backbone).values())
        changes = sum(layer.lora_a.numel() + layer.lora_b.numel() for layer in layers)
        own = state_bytes(learned, weights, copies, size, eight_bit)
        whole = state_bytes(self.weights, weights - changes, copies - size * changes, size, eight_bit)
        rank = layers[0].lora_b.shape[1]
        share = f"LoRA of rank {rank} trains {learned / 1e6:,.2f} of {self.weights / 1e6:,.2f} million weights"
        return (
            f"{share}: {_size(own)} for weights, gradients and optimiser, {_size(whole)} with all; activations on top"
        )


def state_bytes(trained: int, weights: int, copies: int, size: int, eight_bit: bool = False) -> int:
    """The memory of training beside activations: float32 weights, the copies that compute, gradients, Adam's states.

    >>> state_bytes(trained=10, weights=1000, copies=2000, size=2), state_bytes(1000, 1000, 2000, 2)
    (6140, 20000)
    """
    return 4 * weights + copies + trained * (4 + size + (2 if eight_bit else 8))


def _size(count: int) -> str:
    return f"{count / 1e9:,.2f} GB" if count >= 1e9 else f"{count / 1e6:,.1f} MB"


@contextmanager
def merged(backbone: nn.Module) -> Iterator[None]:
    """Inside the block, a backbone has plain layers with the changes in their weights."""
    layers = adapted_layers(backbone)
    for name, layer in layers.items():
        _put(backbone, name, _plain(layer, nn.Parameter(layer.merged(), requires_grad=False)))
    try:
        yield
    finally:
        for name, layer in layers.items():
            _put(backbone, name, layer)


def save_adapter(backbone: nn.Module, name: str, folder: Path) -> None:
    """Write the changes as PEFT reads them: `PeftModel.from_pretrained` of the backbone and this folder.

    Args:
        backbone: with changes.
        name: of the model that they change.
        folder: to make.
    """
    layers = adapted_layers(backbone)
    rank = next(iter(layers.values())).lora_b.shape[1]
    config = {
        "peft_type": "LORA", "task_type": "FEATURE_EXTRACTION", "inference_mode": True, "r": rank,
        "lora_alpha": SCALE * rank, "lora_dropout": 0.0, "bias": "none", "fan_in_fan_out": False,
        "base_model_name_or_path": MINILM_ON_THE_HUB if name == MINILM else name, "target_modules": sorted(layers),
    }  # fmt: skip
    folder.mkdir()
    (folder / CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    weights: dict[str, Tensor] = {}
    for layer_name, layer in layers.items():
        for letter, weight in (("A", layer.lora_a), ("B", layer.lora_b)):
            weights[f"base_model.model.{layer_name}.lora_{letter}.weight"] = weight.detach().cpu().contiguous()
    safetensors.torch.save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})


def save_scaled(adapter: Path, factor: float, folder: Path) -> None:
    """Write an adapter with a factor on its changes: that of a model that was blended with its start by this weight."""
    folder.mkdir()
    (folder / CONFIG).write_bytes((adapter / CONFIG).read_bytes())
    weights = safetensors.torch.load_file(adapter / WEIGHTS)
    scaled = {name: factor * weight if ".lora_B." in name else weight for name, weight in weights.items()}
    safetensors.torch.save_file(scaled, folder / WEIGHTS, metadata={"format": "pt"})


def _plain(layer: LoraLinear, weight: Any) -> nn.Linear:
    plain = nn.Linear(layer.in_features, layer.out_features, bias=False, device="meta").train(layer.training)
    plain.weight, plain.bias = weight, layer.bias
    return plain


def _put(backbone: nn.Module, name: str, layer: nn.Module) -> None:
    place, _, own = name.rpartition(".")
    setattr(backbone.get_submodule(place), own, layer)
