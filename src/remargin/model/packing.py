"""Padding-free batches: texts end to end, and the attention that keeps each text to itself."""

from __future__ import annotations

import contextlib
import importlib
import logging
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from remargin.model.products import attention_by_products
from remargin.model.tokenizer import Tokens
from remargin.model.windows import pays, window_attention

log = logging.getLogger(__name__)

INTERFACE = "remargin_packed"  # the name under which transformers finds our attention


class Packed(NamedTuple):
    """Several texts' tokens end to end, as tensors of 32-bit integers on one device.

    Attributes:
        ids: (T,) of the tokens.
        positions: (T,) of the tokens within their texts, from 0.
        texts: (T,) which text each token belongs to.
        bounds: (n + 1,) where the texts begin; text i has the tokens bounds[i] to bounds[i + 1].
        longest: no text has more tokens than that.
        fillers: how many of the n texts, the last ones, only fill up a fixed shape.
    """

    ids: Tensor
    positions: Tensor
    texts: Tensor
    bounds: Tensor
    longest: int
    fillers: int = 0

    def to(self, device: torch.device) -> Packed:
        """The same on another device, without waiting for it."""
        return self._replace(**{name: getattr(self, name).to(device, non_blocking=True) for name in self._fields[:4]})

    def pin(self) -> Packed:
        """The same in memory that a GPU copies from while it computes."""
        return self._replace(**{name: getattr(self, name).pin_memory() for name in self._fields[:4]})


def pack(
    tokens: Tokens,
    rows: NDArray[np.int64] | None = None,
    longest: int | None = None,
    multiple: int = 1,
    texts: int = 0,
) -> Packed:
    """Texts end to end: some rows of them, in that order, or all.

    With a `multiple` above 1, filler texts are added at the end, so that batches have one of a few shapes: the number
    of tokens is a multiple of it, and there are at least `texts` texts.

    >>> packed = pack(Tokens(np.array([7, 8, 9]), np.array([1, 2])), multiple=4, longest=2, texts=3)
    >>> packed.bounds.tolist(), packed.positions.tolist(), packed.fillers
    ([0, 1, 3, 4, 4, 4], [0, 0, 1, 0], 3)
    """
    tokens = tokens if rows is None else select(tokens, rows)
    lengths = tokens.lengths
    longest = longest or max(1, int(lengths.max(initial=0)))
    missing = -int(lengths.sum()) % multiple
    fillers = 0 if multiple == 1 else max(0, texts - len(lengths)) + -(-multiple // longest)
    if fillers:
        share, more = divmod(missing, fillers)
        lengths = np.concatenate([lengths, share + (np.arange(fillers) < more)])
    bounds = np.concatenate([[0], np.cumsum(lengths)])
    owners = np.repeat(np.arange(len(lengths)), lengths)
    ids = np.concatenate([tokens.ids, np.zeros(missing, np.int32)])
    arrays = (ids, np.arange(len(ids)) - bounds[owners], owners, bounds)
    flat, positions, texts_of, starts = (torch.from_numpy(array.astype(np.int32)) for array in arrays)
    return Packed(flat, positions, texts_of, starts, longest, fillers)


def select(tokens: Tokens, rows: NDArray[np.int64]) -> Tokens:
    """Some of the texts, in that order."""
    lengths, starts = tokens.lengths[rows], tokens.starts[rows]
    ends = np.cumsum(lengths)
    places = np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - ends + lengths, lengths)
    return Tokens(tokens.ids[places], lengths)


def split(lengths: NDArray[np.int64], budget: int, by_length: bool) -> Iterator[NDArray[np.int64]]:
    """Texts in groups of at most `budget` tokens; a text that is longer has a group of its own.

    In their order; or, where padding costs, the longest first, and padding counts against the budget: texts of just one
    length share a group if they fill half of it. Longest first also means that what is too large for memory fails at
    once.

    >>> [group.tolist() for group in split(np.array([2, 9, 3, 9]), budget=18, by_length=True)]
    [[1, 3], [2, 0]]
    >>> [group.tolist() for group in split(np.array([2, 9, 9, 5]), budget=18, by_length=True)]
    [[1, 2], [3, 0]]
    >>> [group.tolist() for group in split(np.array([2, 9, 3, 9]), budget=18, by_length=False)]
    [[0, 1, 2], [3]]
    """
    order = np.argsort(-lengths, kind="stable") if by_length else np.arange(len(lengths))
    ordered = lengths[order]
    ends = np.cumsum(ordered)
    start = 0
    while start < len(order):
        if by_length:
            most = max(1, budget // max(1, int(ordered[start])))
            alike = int(np.searchsorted(-ordered, -ordered[start], side="right")) - start
            end = start + (alike if most / 2 <= alike < most else most)
        else:
            before = int(ends[start - 1]) if start else 0
            end = max(start + 1, int(np.searchsorted(ends, before + budget, side="right")))
        yield order[start:end]
        start = end


class AttentionDropout(NamedTuple):
    """The share of the attention weights that is dropped; our kernels choose them with seed `which` of `seeds`."""

    share: float = 0.0
    seeds: Tensor | None = None
    which: int = 0


NONE_DROPPED = AttentionDropout()


class Kernels(NamedTuple):
    """Attention kernels for packed batches in half precision on a GPU.

    Attributes:
        ours: Triton's, without window or bias; None where they do not run or do not fit.
        varlen: PyTorch's, without dropout or bias; None where PyTorch has none.
    """

    ours: Callable[..., Tensor] | None = None
    varlen: Callable[..., Tensor] | None = None

    def name(self, device: torch.device, dtype: torch.dtype, biased: bool, causal: bool) -> str:
        """Which attention a packed batch gets where there is no window, in words; see `attend`."""
        if device.type == "cuda" and dtype != torch.float32 and not biased:
            if self.ours is not None and not causal:
                return "our kernels"
            if self.varlen is not None:
                return "varlen attention"
        return "but for the attention"


NO_KERNELS = Kernels()


def attend(
    qkv: Tensor,
    packed: Packed,
    scale: float,
    bias: Tensor | None = None,
    window: int | None = None,
    causal: bool = False,
    dropout: AttentionDropout = NONE_DROPPED,
    kernels: Kernels = NO_KERNELS,
) -> Tensor:
    """Attention of (T, 3, heads, D) within each text: by a varlen kernel where there is one, else padded just for this.

    Args:
        bias: (heads, L, L) to add to the scores of tokens at two positions; L is `packed.longest`.
        window: tokens further apart than that do not see each other.
        causal: a token sees none behind it.
        dropout: on the attention weights.
        kernels: those that fit; see `choose_kernels`.
    """
    if bias is None and qkv.dtype in (torch.bfloat16, torch.float16) and qkv.is_cuda:
        if kernels.ours is not None and window is None and not causal:
            return kernels.ours(qkv, packed.bounds, packed.longest, scale, *dropout)
        if kernels.varlen is not None and not dropout.share:
            before = -1 if window is None else window
            options = {"window_size": (before, 0 if causal else before)} if causal or window is not None else {}
            bounds, longest = packed.bounds, packed.longest
            return kernels.varlen(*qkv.unbind(1), bounds, bounds, longest, longest, scale=scale, **options)
    if bias is None and window is not None and pays(packed.longest, window):
        attention = partial(_attention, scale=scale, dropout=dropout.share)
        return window_attention(qkv, packed.texts, window, causal, attention)
    return _padded_attention(qkv, packed, scale, bias, window, causal, dropout.share)


def _padded_attention(
    qkv: Tensor, packed: Packed, scale: float, bias: Tensor | None, window: int | None, causal: bool, dropout: float
) -> Tensor:
    texts, longest, tokens = len(packed.bounds) - 1, packed.longest, len(packed.ids)
    whole = texts * longest == tokens  # all as long as the longest: nothing to pad
    mask = None
    if whole:
        q, k, v = qkv.view(texts, longest, *qkv.shape[1:]).permute(2, 0, 3, 1, 4)
    else:
        place = torch.arange(longest, device=qkv.device)
        rows = (packed.bounds[:-1, None] + place).clamp(max=tokens - 1)
        padded = qkv.flatten(1).index_select(0, rows.flatten()).view(texts, longest, *qkv.shape[1:])
        q, k, v = padded.permute(2, 0, 3, 1, 4)
        if not causal:  # else padding is behind all that a token sees
            # A text without tokens sees one all the same: its output is never read, but must be a number.
            mask = (place < (packed.bounds[1:] - packed.bounds[:-1]).clamp(min=1)[:, None])[:, None, None, :]
    near = _near(longest, window, causal, qkv.device)
    if near is not None:
        itself = torch.eye(longest, dtype=torch.bool, device=qkv.device)  # or padding would see nothing, which is NaN
        mask = near if mask is None else mask & near | itself
    if bias is not None:
        mask = bias if mask is None else bias.masked_fill(~mask, -torch.inf)
    out = _attention(q, k, v, mask, scale, dropout).transpose(1, 2).flatten(0, 1)
    return out if whole else out.index_select(0, packed.texts * longest + packed.positions)


def _near(length: int, window: int | None, causal: bool, device: torch.device) -> Tensor | None:
    """Which of a text's tokens see which, (length, length); None if all see all."""
    window = length if window is None else window
    if window >= length - 1 and not causal:
        return None
    place = torch.arange(length, device=device)
    before = place[:, None] - place[None, :]
    return (before <= window) & (before >= (0 if causal else -window))


def _attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float, dropout: float) -> Tensor:
    if q.device.type == "cpu" and q.dtype == torch.bfloat16:
        return attention_by_products(q, k, v, mask, scale, dropout)
    mask = mask if mask is None or mask.dtype == torch.bool else mask.to(q.dtype)
    return scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale, dropout_p=dropout)


def choose_kernels(head_size: int, dtype: torch.dtype) -> Kernels:
    """The kernels of this machine that fit attention heads of a size and a precision.

    Whoever builds a model calls this once and passes the result on to `attend`: a forward pass may be compiled, and
    must not look for kernels.
    """
    kernels, varlen = _kernels_here()
    fits = kernels is not None and kernels.attention.fits(head_size, dtype)
    return Kernels(kernels.attention.attention if fits else None, varlen)


@cache  # a fact about the machine, and finding it out compiles the kernels
def _kernels_here() -> tuple[Any, Callable[..., Tensor] | None]:
    """Our kernels, where Triton runs and they are right, and PyTorch's varlen attention, if it has one."""
    if not torch.cuda.is_available() or torch.cuda.get_device_capability() < (8, 0):
        return None, None
    varlen = None
    with contextlib.suppress(ImportError):
        varlen = importlib.import_module("torch.nn.attention.varlen").varlen_attn
    try:
        kernels = importlib.import_module("remargin.model.kernels")
        kernels.check()
        return kernels, varlen
    except ImportError:
        log.info("no Triton: PyTorch's own operations are used")
    except Exception as error:  # whatever it is, there is another way
        log.warning("our GPU kernels do not run here (%s): PyTorch's own operations are used", error)
    return None, varlen


def register_interface() -> str:
    """Make `_interface` known to transformers under a name of ours, which is returned.

    The register is the process's own: this is the one place that writes into it, always the same function under the
    same name, so that calling it again changes nothing.
    """
    from transformers import AttentionInterface

    AttentionInterface.register(INTERFACE, _interface)
    return INTERFACE


def _interface(
    module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, *, packed: Packed, kernels: Kernels,
    scaling: float | None = None, sliding_window: int | None = None, **others: Any,
) -> tuple[Tensor, None]:  # fmt: skip
    """`attend` as transformers calls it, in a model that got `packed` and `kernels` in its forward pass.

    There is no mask, and one row that holds all texts. Attention dropout is left out.
    """
    for name in ("softcap", "s_aux"):
        if others.get(name) is not None:
            raise NotImplementedError(f"attention with {name}")
    groups = query.shape[1] // key.shape[1]  # of query heads that share keys and values
    key, value = (each if groups == 1 else each.repeat_interleave(groups, dim=1) for each in (key, value))
    qkv = torch.stack([query, key, value], dim=3)[0].permute(1, 2, 0, 3)
    window = None if sliding_window is None else sliding_window - 1
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    causal = bool(getattr(module, "is_causal", False))
    return attend(qkv, packed, scale, window=window, causal=causal, kernels=kernels).unsqueeze(0), None
