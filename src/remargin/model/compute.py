"""The encoder as it computes: a copy of a BiEncoder's weights in some precision, over padding-free batches."""

from __future__ import annotations

import copy
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers.modeling_layers import GradientCheckpointingLayer

from remargin.errors import InputError
from remargin.model.cpu import freeze, on_all_cores, size_step
from remargin.model.dropping import computed_twice
from remargin.model.packing import NO_KERNELS, Kernels, Packed, choose_kernels, pack, register_interface, split
from remargin.model.pooling import pooled_rows
from remargin.model.postnorm import PostNorm, Sources
from remargin.model.tokenizer import Tokens

log = logging.getLogger(__name__)

# How many tokens at once are encoded fastest, on a CPU (what fits its caches) and on a GPU (what fills it).
TOKENS_AT_ONCE = (2400, 65_536)

EngineName = Literal["auto", "packed", "padded"]
R = TypeVar("R")


@torch.no_grad()
def weights_state(module: nn.Module) -> object:
    """A value that changes when a weight is changed or moved, which tells that a copy of the weights is out of date.

    A weight that is changed has another version, as autograd counts them. Two ways leave no trace there, and show
    otherwise: a fused optimiser's step, because a module in training, or with gradients that a step may still use,
    is never the same; and `weight.data.copy_(...)` for a whole model, as averaging does, in a few numbers of some
    weights that can be trained. Whoever trains tells the owner of the copy, too: `BiEncoder.train` drops it.

    >>> layer = nn.Linear(2, 2).eval()
    >>> before = weights_state(layer)
    >>> weights_state(layer) == before
    True
    >>> layer.weight.grad = torch.ones(2, 2)
    >>> torch.optim.Adam(layer.parameters(), fused=True).step()
    >>> weights_state(layer) == before
    False
    """
    weights = list(module.parameters())
    if module.training or any(weight.grad is not None for weight in weights):
        return object()
    trainable = [weight for weight in weights if weight.requires_grad] or weights
    some = trainable[:: len(trainable) // 16 + 1]
    numbers = torch.cat([weight.flatten()[:: weight.numel() // 4 + 1] for weight in some]).float().cpu().numpy()
    return numbers.tobytes(), *((weight.data_ptr(), weight._version) for weight in weights)


class Compute(nn.Module):
    """Turns packed texts into vectors, in float32 or half precision, and knows where its weights came from.

    The master weights stay where they are, in float32: `pull` copies them here, `gradients` says how to change them.

    Args:
        model: a BiEncoder.
        dtype: to compute in.
        engine: "packed", "padded" (as transformers runs it, with rectangles of tokens), or "auto": packed if it can be.
        attention_dropout: keep the model's dropout on attention weights.

    Raises:
        InputError: if the engine is "packed" and this architecture cannot be.
    """

    def __init__(
        self,
        model: Any,
        dtype: torch.dtype = torch.float32,
        engine: EngineName = "auto",
        attention_dropout: bool = False,
    ) -> None:
        super().__init__()
        if engine not in get_args(EngineName):
            raise InputError(f"unknown engine {engine!r}", do=f"use {', '.join(get_args(EngineName))}")
        self.dtype = dtype
        self.pooling: str = model.pooling
        self._dims: int | None = getattr(model, "dims", None)
        config = model.backbone.config
        attention_dropout = attention_dropout and _drops_attention(config)
        self._width = int(config.hidden_size)
        head_size = getattr(config, "head_dim", None) or self._width // (
            getattr(config, "num_attention_heads", None) or 1
        )
        self.kernels = choose_kernels(head_size, dtype)
        self.body: Any
        if engine != "padded" and PostNorm.fits(model.backbone):
            self.body = PostNorm(model.backbone, dtype, attention_dropout, self.kernels)
        elif engine != "padded" and not attention_dropout and _runs_packed(model.backbone):
            self.body = _ThroughInterface(model.backbone, dtype, self.kernels)
        elif engine == "packed":
            kind = model.backbone.config.model_type
            with_it = " with attention dropout" if attention_dropout else ""
            raise InputError(f"a model of type {kind} cannot be packed{with_it}", do="use the padded engine")
        else:
            self.body = _Padded(model.backbone, dtype, attention_dropout)
        self.projection: nn.Linear | None = None
        self.sources: Sources = self.body.sources
        if model.projection is not None:
            self.projection = copy.deepcopy(model.projection).to(dtype)
            self.sources += _same(self.projection, model.projection)
        for mine, masters in self.sources:
            mine.requires_grad_(masters[0].requires_grad)  # what is frozen keeps nothing for a gradient
        trained = [(mine, masters) for mine, masters in self.sources if masters[0].requires_grad]
        self.trained = [mine for mine, _ in trained]
        self.masters = [master for _, masters in trained for master in masters]
        self._sizes = [[len(master) for master in masters] if len(masters) > 1 else None for _, masters in trained]
        self.train(model.training)

    @property
    def packed(self) -> bool:
        """Whether texts are computed without padding, except perhaps in the attention."""
        return not isinstance(self.body, _Padded)

    @property
    def linear_weights(self) -> int:
        """How many weights a token is multiplied with: half of the floating-point operations of its forward pass."""
        return sum(layer.weight.numel() for layer in self.body.modules() if isinstance(layer, nn.Linear))

    def describe(self, device: torch.device) -> str:
        """How it runs, in a few words."""
        name = {torch.float32: "float32", torch.bfloat16: "bfloat16", torch.float16: "float16"}[self.dtype]
        if not self.packed:
            return f"padded, {name}"
        biased = getattr(self.body, "relative", None) is not None
        causal = any(getattr(module, "is_causal", False) for module in self.body.modules())
        return f"packed ({self.kernels.name(device, self.dtype, biased, causal)}), {name}"

    def freeze(self) -> Compute:
        """Give up training: a CPU then lays out the weights for encoding, and the master weights are forgotten."""
        self.eval().requires_grad_(False)
        if isinstance(self.body, _Theirs):
            self.body.to(self.dtype)
        for remembered in (self.sources, self.trained, self.masters, self._sizes):
            remembered.clear()
        if next(self.parameters()).device.type == "cpu":
            freeze(self.body)
        return self

    def groups(
        self, lengths: NDArray[np.int64], device: torch.device, size: int | None = None
    ) -> list[NDArray[np.int64]]:
        """Which texts to encode together: `size` of them if given, else about as many tokens as run best at once."""
        if size is not None:
            return in_batches(lengths, size)
        gpu = device.type != "cpu"
        return list(split(lengths, TOKENS_AT_ONCE[gpu], by_length=not (gpu and self.packed)))

    def pack(self, tokens: Tokens, rows: NDArray[np.int64], longest: int | None = None) -> Packed:
        """Some texts end to end; with a filler where a CPU keeps memory for every size of a batch."""
        count = int(tokens.lengths[rows].sum())
        step = size_step(count) if self._on_cpu else 1
        return pack(tokens, rows, longest, multiple=step if count % step else 1)

    @property
    def _on_cpu(self) -> bool:
        """Whether our own layers compute on a CPU."""
        return isinstance(self.body, PostNorm) and self.body.word.device.type == "cpu"

    @property
    def side_by_side(self) -> bool:
        """Whether parts of a batch can be trained on at the same time: on a CPU, if all dropout is `drop`."""
        return self._on_cpu and not any(layer.weight_dropout for layer in self.body.layers)

    def each(self, work: Callable[[Packed], R], parts: Iterable[Packed], count: int) -> Iterator[R]:
        """What `work` returns for each part; on a CPU, several parts at a time."""
        return on_all_cores(work, parts, count) if self._on_cpu else map(work, parts)

    def forward(self, packed: Packed, frugal: bool = False) -> Tensor:
        """Vectors of the texts without the fillers, (n, d) in float32, as the model makes them: not of unit length.

        In training, a frugal pass keeps no more than the inputs of the layers, each of which is computed twice. A text
        without tokens, which some tokenizers make of an empty one, is pooled to zeros.
        """
        count = len(packed.bounds) - 1
        if not len(packed.ids):
            pooled = torch.zeros(count, self._width, dtype=self.dtype, device=packed.ids.device)
        elif self.pooling.startswith("mean"):
            hidden = self.body(packed, None, frugal).float()
            pooled = hidden.new_zeros(count, hidden.shape[1]).index_add(0, packed.texts, hidden)
            pooled = pooled / (packed.bounds[1:] - packed.bounds[:-1]).clamp(min=1)[:, None]
        else:
            empty = packed.bounds[1:] == packed.bounds[:-1]
            rows = pooled_rows(self.pooling, packed.bounds, len(packed.ids))
            pooled = self.body(packed, rows, frugal).masked_fill(empty[:, None], 0)
        pooled = pooled[: count - packed.fillers]
        if self.projection is not None:
            pooled = self.projection(pooled.to(self.dtype))
            if self.pooling.endswith("+pooler"):
                pooled = pooled.tanh()
        vectors: Tensor = pooled[:, : self._dims].float()
        return vectors

    @torch.no_grad()
    def pull(self) -> None:
        """Copy the master weights as they are now."""
        mine = [part for target, masters in self.sources for part in _parts(target, masters)]
        copy_together(mine, [master for _, masters in self.sources for master in masters])

    def gradients(self, vectors: Tensor, of_vectors: Tensor) -> list[Tensor]:
        """The gradients of the master weights, in the precision of the computation, from those of the vectors.

        On a CPU, that of the word embeddings is sparse: a part of a batch has few words.
        """
        gradients = torch.autograd.grad(vectors, self.trained, of_vectors, allow_unused=True)
        parts: list[Tensor] = []
        for gradient, mine, sizes in zip(gradients, self.trained, self._sizes, strict=True):
            whole = torch.zeros_like(mine) if gradient is None else gradient
            parts += whole.split(sizes) if sizes else [whole]
        return parts


def in_batches(lengths: NDArray[np.int64], size: int) -> list[NDArray[np.int64]]:
    """Rows of `size` texts each, the longest first.

    >>> [rows.tolist() for rows in in_batches(np.array([3, 9, 5]), 2)]
    [[1, 2], [0]]
    """
    if size < 1:
        raise InputError(f"a batch size of {size}", do="use 1 or more")
    order = np.argsort(-lengths, kind="stable")
    return [order[start : start + size] for start in range(0, len(order), size)]


def copy_together(targets: Sequence[Tensor], sources: Sequence[Tensor]) -> None:
    """Copy tensors into others in a few launches: one for each pair of precisions."""
    groups: dict[tuple[torch.dtype, torch.dtype], list[tuple[Tensor, Tensor]]] = defaultdict(list)
    for target, source in zip(targets, sources, strict=True):
        groups[target.dtype, source.dtype].append((target, source))
    for pairs in groups.values():
        torch._foreach_copy_([target for target, _ in pairs], [source for _, source in pairs])


def _parts(target: Tensor, masters: list[nn.Parameter]) -> tuple[Tensor, ...]:
    return target.split([len(master) for master in masters]) if len(masters) > 1 else (target,)


def _same(mine: nn.Module, theirs: nn.Module) -> Sources:
    return [(a, [b]) for a, b in zip(mine.parameters(), theirs.parameters(), strict=True)]


class _Theirs(nn.Module):
    """transformers' own model. Before it is frozen only products are in half precision: sums and norms stay float32."""

    def __init__(self, backbone: Any, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype
        self.model = copy.deepcopy(backbone)
        self.model.config.use_cache = False  # decoders would keep all keys and values, to generate text
        self.sources = _same(self.model, backbone)
        self._layers = [layer for layer in self.model.modules() if isinstance(layer, GradientCheckpointingLayer)]
        for layer in self._layers:
            setattr(layer, "_gradient_checkpointing_func", computed_twice)  # noqa: B010

    def hidden(self, ids: Tensor, frugal: bool, **inputs: Any) -> Tensor:
        """The last hidden states."""
        for layer in self._layers:
            layer.gradient_checkpointing = frugal
        mixed = self.dtype != next(self.model.parameters()).dtype
        with torch.autocast(ids.device.type, self.dtype, enabled=mixed, cache_enabled=False):  # graphs bear no cache
            states: Tensor = self.model(ids, **inputs)[0]
        return states


class _ThroughInterface(_Theirs):
    """transformers' model over packed texts, with our attention through its attention interface."""

    def __init__(self, backbone: Any, dtype: torch.dtype, kernels: Kernels) -> None:
        super().__init__(backbone, dtype)
        self.kernels = kernels
        self.model.set_attn_implementation(register_interface())
        table = getattr(getattr(backbone, "embeddings", None), "position_embeddings", None)
        offset = getattr(table, "padding_idx", None)
        self.first_position = 0 if offset is None else offset + 1

    def forward(self, packed: Packed, rows: Tensor | None = None, frugal: bool = False) -> Tensor:
        positions = packed.positions.long() + self.first_position
        inputs = {"position_ids": positions[None], "packed": packed, "kernels": self.kernels}
        hidden = self.hidden(packed.ids.long()[None], frugal, **inputs)[0]
        return hidden if rows is None else hidden[rows]


class _Padded(_Theirs):
    """transformers' model as it is, over texts that are padded to the longest."""

    def __init__(self, backbone: Any, dtype: torch.dtype, attention_dropout: bool) -> None:
        super().__init__(backbone, dtype)
        self.padding = int(getattr(backbone.config, "pad_token_id", None) or 0)
        for module in self.model.modules():
            if type(module).__name__.endswith("SelfAttention") and not attention_dropout:
                for name in ("dropout", "attention_dropout"):
                    if isinstance(getattr(module, name, None), nn.Dropout):
                        getattr(module, name).p = 0.0
                    elif isinstance(getattr(module, name, None), float):  # Longformer's is a number
                        setattr(module, name, 0.0)

    def forward(self, packed: Packed, rows: Tensor | None = None, frugal: bool = False) -> Tensor:
        shape = (len(packed.bounds) - 1, packed.longest)
        ids = packed.ids.new_full(shape, self.padding, dtype=torch.long)
        mask = torch.zeros_like(ids)
        ids[packed.texts, packed.positions] = packed.ids.long()
        mask[packed.texts, packed.positions] = 1
        hidden = self.hidden(ids, frugal, attention_mask=mask)
        places = packed.texts, packed.positions
        return hidden[places] if rows is None else hidden[places[0][rows], places[1][rows]]


def _drops_attention(config: Any) -> bool:
    """Whether a backbone has dropout on attention weights, as far as its configuration tells: ModernBERT has none."""
    rates = [getattr(config, name, None) for name in ("attention_probs_dropout_prob", "attention_dropout")]
    return rates == [None, None] or any(rates)


@torch.no_grad()
def _runs_packed(backbone: Any) -> bool:
    """Whether an architecture that we do not know gives the same hidden states packed: tried on three made-up texts."""
    if not getattr(backbone, "_supports_attention_backend", False):
        return False
    texts = [Tokens(np.arange(3, 3 + size) % backbone.config.vocab_size, np.array([size])) for size in (5, 2, 9)]
    try:
        whole = _ThroughInterface(backbone, torch.float32, NO_KERNELS).eval()
        device = next(backbone.parameters()).device
        packed = whole(pack(Tokens.together(texts)).to(device))
        alone = torch.cat([_Padded(backbone, torch.float32, False).eval()(pack(text).to(device)) for text in texts])
    except Exception as error:  # whatever its parts raise, it does not run packed
        log.info("%s does not run packed (%s)", type(backbone).__name__, error)
        return False
    return bool(torch.allclose(packed, alone, atol=1e-4, rtol=1e-3))


def fast_precision() -> Literal["bf16", "32"]:
    """bfloat16 where the device computes in it, which is up to twice as fast, else float32."""
    if torch.cuda.is_available():
        return "bf16" if torch.cuda.is_bf16_supported() else "32"
    flags = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    return "bf16" if "avx512_bf16" in flags or "amx_bf16" in flags else "32"
