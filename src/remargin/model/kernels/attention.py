"""Attention within each of many short texts that lie end to end: a Triton kernel without padding, atomics or copies.

General flash kernels are made for long sequences. For texts of some tens of tokens they spend most of their time on
set-up, and their backward pass on two extra kernels. Here one program computes a block of one text's head, forward in
one kernel and backward in two. The arithmetic is the same: softmax(q kᵀ scale) v in float32, online over blocks.

benchmarks/attention.py compares it with PyTorch's own.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

LOG2_E = 1.4426950408889634


class Blocks(NamedTuple):
    """How a kernel is split: tokens of its own block, tokens of the blocks that it goes through, and warps."""

    own: int
    other: int
    warps: int


# Tuned by benchmarks/attention.py on an H200; any choice gives the same result.
FORWARD = {32: Blocks(64, 32, 4), 64: Blocks(64, 32, 4)}
QUERIES = {32: Blocks(64, 32, 4), 64: Blocks(64, 32, 4)}
KEYS = {32: Blocks(64, 64, 4), 64: Blocks(64, 64, 4)}
DEFAULT = Blocks(32, 32, 4)


@triton.jit
def _scores(q, k, scale, length, columns):  # type: ignore[no-untyped-def]
    """Scores in base 2 of a block of queries against a block of keys; -inf behind the text's end."""
    return tl.where(columns[None, :] < length, tl.dot(q, tl.trans(k)) * scale, -float("inf"))


@triton.jit
def _kept(Seeds, index, dropout, rows, columns, longest):  # type: ignore[no-untyped-def]
    """What dropout multiplies weights with: nothing, or a little more than one. Drawn from a seed and the place."""
    place = rows[:, None] * longest + columns[None, :]
    return tl.where(tl.rand(tl.load(Seeds + index), place) >= dropout, 1 / (1 - dropout), 0.0)


@triton.jit(do_not_specialize=["index"])  # type: ignore[untyped-decorator]
def _forward(  # type: ignore[no-untyped-def]
    Q, K, V, Out, Lse, Bounds, Seeds, index, dropout, longest, scale, token_stride, head_stride, out_stride, tokens,
    D: tl.constexpr, OWN: tl.constexpr, OTHER: tl.constexpr, DROP: tl.constexpr,
):  # fmt: skip
    text, head, block = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    start = tl.load(Bounds + text)
    length = tl.load(Bounds + text + 1) - start
    if block * OWN >= length:
        return
    rows, inner, d = block * OWN + tl.arange(0, OWN), tl.arange(0, OTHER), tl.arange(0, D)
    base = start.to(tl.int64) * token_stride + head * head_stride
    q = tl.load(Q + base + rows[:, None] * token_stride + d[None, :], mask=rows[:, None] < length, other=0.0)
    highest = tl.full((OWN,), -float("inf"), tl.float32)
    total = tl.zeros((OWN,), tl.float32)
    out = tl.zeros((OWN, D), tl.float32)
    for first in range(0, length, OTHER):
        columns = first + inner
        place = base + columns[:, None] * token_stride + d[None, :]
        k = tl.load(K + place, mask=columns[:, None] < length, other=0.0)
        v = tl.load(V + place, mask=columns[:, None] < length, other=0.0)
        scores = _scores(q, k, scale, length, columns)
        higher = tl.maximum(highest, tl.max(scores, 1))
        p = tl.exp2(scores - higher[:, None])
        shrink = tl.exp2(highest - higher)
        total = total * shrink + tl.sum(p, 1)
        if DROP:
            p *= _kept(Seeds, index, dropout, head * tokens + start + rows, columns, longest)
        out = out * shrink[:, None] + tl.dot(p.to(v.dtype), v)
        highest = higher
    place = (start.to(tl.int64) + rows[:, None]) * out_stride + head * D + d[None, :]
    tl.store(Out + place, (out / total[:, None]).to(Out.dtype.element_ty), mask=rows[:, None] < length)
    tl.store(Lse + head * tokens + start + rows, highest + tl.log2(total), mask=rows < length)


@triton.jit(do_not_specialize=["index"])  # type: ignore[untyped-decorator]
def _backward_queries(  # type: ignore[no-untyped-def]
    Q, K, V, Out, dOut, Lse, Delta, dQ, Bounds, Seeds, index, dropout, longest,
    scale, natural_scale, token_stride, head_stride, out_stride, tokens,
    D: tl.constexpr, OWN: tl.constexpr, OTHER: tl.constexpr, DROP: tl.constexpr,
):  # fmt: skip
    """Gradients of a block of queries, and what the keys' gradients need of them: Delta, the sum of out x d_out."""
    text, head, block = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    start = tl.load(Bounds + text)
    length = tl.load(Bounds + text + 1) - start
    if block * OWN >= length:
        return
    rows, inner, d = block * OWN + tl.arange(0, OWN), tl.arange(0, OTHER), tl.arange(0, D)
    base = start.to(tl.int64) * token_stride + head * head_stride
    out_place = (start.to(tl.int64) + rows[:, None]) * out_stride + head * D + d[None, :]
    q = tl.load(Q + base + rows[:, None] * token_stride + d[None, :], mask=rows[:, None] < length, other=0.0)
    d_out = tl.load(dOut + out_place, mask=rows[:, None] < length, other=0.0)
    out = tl.load(Out + out_place, mask=rows[:, None] < length, other=0.0)
    lse = tl.load(Lse + head * tokens + start + rows, mask=rows < length, other=float("inf"))
    delta = tl.sum(out.to(tl.float32) * d_out.to(tl.float32), 1)
    tl.store(Delta + head * tokens + start + rows, delta, mask=rows < length)
    dq = tl.zeros((OWN, D), tl.float32)
    for first in range(0, length, OTHER):
        columns = first + inner
        place = base + columns[:, None] * token_stride + d[None, :]
        k = tl.load(K + place, mask=columns[:, None] < length, other=0.0)
        v = tl.load(V + place, mask=columns[:, None] < length, other=0.0)
        p = tl.exp2(_scores(q, k, scale, length, columns) - lse[:, None])
        dp = tl.dot(d_out, tl.trans(v))
        if DROP:
            dp *= _kept(Seeds, index, dropout, head * tokens + start + rows, columns, longest)
        ds = p * (dp - delta[:, None])
        dq += tl.dot(ds.to(k.dtype), k)
    tl.store(
        dQ + base + rows[:, None] * token_stride + d[None, :],
        (dq * natural_scale).to(dQ.dtype.element_ty),
        mask=rows[:, None] < length,
    )


@triton.jit(do_not_specialize=["index"])  # type: ignore[untyped-decorator]
def _backward_keys(  # type: ignore[no-untyped-def]
    Q, K, V, dOut, Lse, Delta, dK, dV, Bounds, Seeds, index, dropout, longest,
    scale, natural_scale, token_stride, head_stride, out_stride, tokens,
    D: tl.constexpr, OWN: tl.constexpr, OTHER: tl.constexpr, DROP: tl.constexpr,
):  # fmt: skip
    """Gradients of a block of keys and their values."""
    text, head, block = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    start = tl.load(Bounds + text)
    length = tl.load(Bounds + text + 1) - start
    if block * OWN >= length:
        return
    columns, inner, d = block * OWN + tl.arange(0, OWN), tl.arange(0, OTHER), tl.arange(0, D)
    base = start.to(tl.int64) * token_stride + head * head_stride
    out_base = start.to(tl.int64) * out_stride + head * D
    lse_base = head * tokens + start
    own = base + columns[:, None] * token_stride + d[None, :]
    k = tl.load(K + own, mask=columns[:, None] < length, other=0.0)
    v = tl.load(V + own, mask=columns[:, None] < length, other=0.0)
    dk = tl.zeros((OWN, D), tl.float32)
    dv = tl.zeros((OWN, D), tl.float32)
    for first in range(0, length, OTHER):
        rows = first + inner
        q = tl.load(Q + base + rows[:, None] * token_stride + d[None, :], mask=rows[:, None] < length, other=0.0)
        d_out = tl.load(
            dOut + out_base + rows[:, None] * out_stride + d[None, :], mask=rows[:, None] < length, other=0.0
        )
        lse = tl.load(Lse + lse_base + rows, mask=rows < length, other=float("inf"))
        delta = tl.load(Delta + lse_base + rows, mask=rows < length, other=0.0)
        p = tl.exp2(_scores(q, k, scale, length, columns) - lse[:, None])
        dp = tl.dot(d_out, tl.trans(v))
        if DROP:
            kept = _kept(Seeds, index, dropout, head * tokens + start + rows, columns, longest)
            dv += tl.dot(tl.trans((p * kept).to(d_out.dtype)), d_out)
            dp *= kept
        else:
            dv += tl.dot(tl.trans(p.to(d_out.dtype)), d_out)
        ds = p * (dp - delta[:, None])
        dk += tl.dot(tl.trans(ds.to(q.dtype)), q)
    tl.store(dK + own, (dk * natural_scale).to(dK.dtype.element_ty), mask=columns[:, None] < length)
    tl.store(dV + own, dv.to(dV.dtype.element_ty), mask=columns[:, None] < length)


def fits(head_dimension: int, dtype: torch.dtype) -> bool:
    """Whether the kernel takes heads of that size and numbers of that type."""
    return head_dimension in (16, 32, 64, 128) and dtype in (torch.bfloat16, torch.float16)


def _launch(
    kernel: Any, blocks: Blocks, bounds: Tensor, heads: int, longest: int, *arguments: Any, **fixed: Any
) -> None:
    grid = (len(bounds) - 1, heads, triton.cdiv(longest, blocks.own))
    kernel[grid](*arguments, OWN=blocks.own, OTHER=blocks.other, num_warps=blocks.warps, **fixed)


@torch.library.custom_op("remargin::attention", mutates_args=())
def _attention(
    qkv: Tensor, bounds: Tensor, longest: int, scale: float, dropout: float, seeds: Tensor, index: int
) -> tuple[Tensor, Tensor]:
    """The output, (T, heads, D), and the scores' log-sum-exp in base 2, which the backward pass needs."""
    tokens, _, heads, dimension = qkv.shape
    q, k, v = qkv.unbind(1)
    out = qkv.new_empty((tokens, heads, dimension))
    lse = qkv.new_empty((heads, tokens), dtype=torch.float32)
    _launch(
        _forward, FORWARD.get(dimension, DEFAULT), bounds, heads, longest,
        q, k, v, out, lse, bounds, seeds, index, dropout, longest, scale * LOG2_E,
        q.stride(0), q.stride(1), out.stride(0), tokens, D=dimension, DROP=dropout > 0,
    )  # fmt: skip
    return out, lse


@_attention.register_fake
def _(
    qkv: Tensor, bounds: Tensor, longest: int, scale: float, dropout: float, seeds: Tensor, index: int
) -> tuple[Tensor, Tensor]:
    tokens, _, heads, dimension = qkv.shape
    return qkv.new_empty((tokens, heads, dimension)), qkv.new_empty((heads, tokens), dtype=torch.float32)


@torch.library.custom_op("remargin::attention_backward", mutates_args=())
def _attention_backward(
    qkv: Tensor, out: Tensor, d_out: Tensor, lse: Tensor, bounds: Tensor, longest: int, scale: float,
    dropout: float, seeds: Tensor, index: int,
) -> Tensor:  # fmt: skip
    tokens, _, heads, dimension = qkv.shape
    gradient = torch.empty_like(qkv)
    q, k, v = qkv.unbind(1)
    dq, dk, dv = gradient.unbind(1)
    delta = torch.empty_like(lse)
    strides = (q.stride(0), q.stride(1), out.stride(0))
    rest = (bounds, seeds, index, dropout, longest, scale * LOG2_E, scale, *strides, tokens)
    fixed = {"D": dimension, "DROP": dropout > 0}
    arguments: tuple[Any, ...] = (q, k, v, out, d_out, lse, delta, dq, *rest)
    _launch(_backward_queries, QUERIES.get(dimension, DEFAULT), bounds, heads, longest, *arguments, **fixed)
    arguments = (q, k, v, d_out, lse, delta, dk, dv, *rest)
    _launch(_backward_keys, KEYS.get(dimension, DEFAULT), bounds, heads, longest, *arguments, **fixed)
    return gradient


@_attention_backward.register_fake
def _(
    qkv: Tensor, out: Tensor, d_out: Tensor, lse: Tensor, bounds: Tensor, longest: int, scale: float,
    dropout: float, seeds: Tensor, index: int,
) -> Tensor:  # fmt: skip
    return torch.empty_like(qkv)


def _remember(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    qkv, bounds, ctx.longest, ctx.scale, ctx.dropout, seeds, ctx.index = inputs
    ctx.save_for_backward(qkv, *output, bounds, seeds)
    ctx.mark_non_differentiable(output[1])


def _gradient(ctx: Any, d_out: Tensor, _: Any) -> tuple[Tensor | None, ...]:
    qkv, out, lse, bounds, seeds = ctx.saved_tensors
    gradient = _attention_backward(
        qkv, out, d_out.contiguous(), lse, bounds, ctx.longest, ctx.scale, ctx.dropout, seeds, ctx.index
    )
    return gradient, None, None, None, None, None, None


_attention.register_autograd(_gradient, setup_context=_remember)


def attention(
    qkv: Tensor,
    bounds: Tensor,
    longest: int,
    scale: float,
    dropout: float = 0.0,
    seeds: Tensor | None = None,
    index: int = 0,
) -> Tensor:
    """Attention of queries, keys and values side by side, (T, 3, heads, D) -> (T, heads, D).

    Args:
        qkv: of all texts, end to end.
        bounds: (n + 1,) integers: text i has the tokens bounds[i] to bounds[i + 1]. The last is T.
        longest: no text has more tokens than that.
        scale: of the scores.
        dropout: share of attention weights that is dropped.
        seeds: of which the one at `index` decides which weights that are.
    """
    seeds = bounds if seeds is None else seeds  # without dropout they are not looked at
    out: Tensor = _attention(qkv.contiguous(), bounds, longest, scale, dropout, seeds, index)[0]
    return out
