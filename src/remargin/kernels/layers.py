"""What stands between an encoder's matrix products, each in one pass over memory, forward and backward.

    add_norm    LayerNorm(x + dropout(y + bias))
    bias_gelu   gelu(y + bias)

y is a matrix product without its bias; the bias is added here, because its gradient, a sum over all tokens, is then a
by-product. Dropout is not stored: it is drawn again from its seed, which comes from PyTorch's generator.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

WIDEST = 4096
PROGRAMS = 528  # of a backward pass: each goes through many rows, and sums over them


@triton.jit
def _kept(Seeds, index, place, p):  # type: ignore[no-untyped-def]
    """Which places dropout keeps."""
    return tl.rand(tl.load(Seeds + index), place) >= p


@triton.jit(do_not_specialize=["index"])  # type: ignore[untyped-decorator]
def _add_norm(  # type: ignore[no-untyped-def]
    X, Y, LinearBias, Weight, Bias, Sum, Out, Mean, Rate, Seeds, index, p, eps, rows,
    N: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr, DROP: tl.constexpr, SAVE: tl.constexpr,
):  # fmt: skip
    row, column = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDTH)
    inside = (row < rows)[:, None] & (column < N)[None, :]
    place = row[:, None] * N + column[None, :]
    y = tl.load(Y + place, mask=inside, other=0.0).to(tl.float32)
    y += tl.load(LinearBias + column, mask=column < N, other=0.0).to(tl.float32)[None, :]
    if DROP:
        y = tl.where(_kept(Seeds, index, place, p), y / (1 - p), 0.0)
    x = tl.load(X + place, mask=inside, other=0.0).to(tl.float32)
    total = tl.where(inside, (x + y).to(Out.dtype.element_ty).to(tl.float32), 0.0)
    mean = tl.sum(total, 1) / N
    centred = tl.where(inside, total - mean[:, None], 0.0)
    rate = 1 / tl.sqrt(tl.sum(centred * centred, 1) / N + eps)
    weight = tl.load(Weight + column, mask=column < N, other=0.0).to(tl.float32)
    bias = tl.load(Bias + column, mask=column < N, other=0.0).to(tl.float32)
    out = centred * rate[:, None] * weight[None, :] + bias[None, :]
    tl.store(Out + place, out.to(Out.dtype.element_ty), mask=inside)
    if SAVE:
        tl.store(Sum + place, total.to(Out.dtype.element_ty), mask=inside)
        tl.store(Mean + row, mean, mask=row < rows)
        tl.store(Rate + row, rate, mask=row < rows)


@triton.jit(do_not_specialize=["index"])  # type: ignore[untyped-decorator]
def _add_norm_backward(  # type: ignore[no-untyped-def]
    dOut, Sum, Mean, Rate, Weight, dX, dY, Partial, Seeds, index, p, rows,
    N: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr, DROP: tl.constexpr,
):  # fmt: skip
    column = tl.arange(0, WIDTH)
    weight = tl.load(Weight + column, mask=column < N, other=0.0).to(tl.float32)
    of_weight = tl.zeros((WIDTH,), tl.float32)
    of_bias = tl.zeros((WIDTH,), tl.float32)
    of_linear_bias = tl.zeros((WIDTH,), tl.float32)
    for first in range(tl.program_id(0) * ROWS, rows, tl.num_programs(0) * ROWS):
        row = first + tl.arange(0, ROWS)
        inside = (row < rows)[:, None] & (column < N)[None, :]
        place = row[:, None] * N + column[None, :]
        d_out = tl.load(dOut + place, mask=inside, other=0.0).to(tl.float32)
        mean = tl.load(Mean + row, mask=row < rows, other=0.0)
        rate = tl.load(Rate + row, mask=row < rows, other=0.0)
        total = tl.load(Sum + place, mask=inside, other=0.0).to(tl.float32)
        unit = tl.where(inside, (total - mean[:, None]) * rate[:, None], 0.0)
        of_weight += tl.sum(d_out * unit, 0)
        of_bias += tl.sum(d_out, 0)
        weighted = d_out * weight[None, :]
        along = tl.sum(weighted * unit, 1) / N
        level = tl.sum(weighted, 1) / N
        dx = (weighted - unit * along[:, None] - level[:, None]) * rate[:, None]
        tl.store(dX + place, dx.to(dX.dtype.element_ty), mask=inside)
        dy = tl.where(inside, dx, 0.0)
        if DROP:
            dy = tl.where(_kept(Seeds, index, place, p), dy / (1 - p), 0.0)
            tl.store(dY + place, dy.to(dY.dtype.element_ty), mask=inside)
        of_linear_bias += tl.sum(dy, 0)
    own = Partial + tl.program_id(0) * 3 * N + column
    tl.store(own, of_weight, mask=column < N)
    tl.store(own + N, of_bias, mask=column < N)
    tl.store(own + 2 * N, of_linear_bias, mask=column < N)


@triton.jit  # type: ignore[untyped-decorator]
def _bias_gelu(Y, Bias, Out, count, N: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    y = tl.load(Y + place, mask=place < count, other=0.0).to(tl.float32) + tl.load(Bias + place % N).to(tl.float32)
    out = 0.5 * y * (1 + tl.erf(y * 0.7071067811865476))
    tl.store(Out + place, out.to(Out.dtype.element_ty), mask=place < count)


@triton.jit  # type: ignore[untyped-decorator]
def _bias_gelu_backward(  # type: ignore[no-untyped-def]
    dOut, Y, Bias, dY, Partial, rows, N: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr
):
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    bias = tl.load(Bias + column, mask=column < N, other=0.0).to(tl.float32)
    of_bias = tl.zeros((COLUMNS,), tl.float32)
    for first in range(tl.program_id(0) * ROWS, rows, tl.num_programs(0) * ROWS):
        row = first + tl.arange(0, ROWS)
        inside = (row < rows)[:, None] & (column < N)[None, :]
        place = row[:, None].to(tl.int64) * N + column[None, :]
        y = tl.load(Y + place, mask=inside, other=0.0).to(tl.float32) + bias[None, :]
        d_out = tl.load(dOut + place, mask=inside, other=0.0).to(tl.float32)
        below = 0.5 * (1 + tl.erf(y * 0.7071067811865476))
        density = tl.exp(-0.5 * y * y) * 0.3989422804014327
        dy = d_out * (below + y * density)
        tl.store(dY + place, dy.to(dY.dtype.element_ty), mask=inside)
        of_bias += tl.sum(dy, 0)
    tl.store(Partial + tl.program_id(0) * N + column, of_bias, mask=column < N)


def _shape(width: int, elements: int) -> dict[str, int]:
    """Columns rounded up to a power of two, and how many rows to take at once."""
    rounded = triton.next_power_of_2(width)
    return {"N": width, "WIDTH": rounded, "ROWS": max(1, elements // rounded), "num_warps": 4 if rounded <= 1024 else 8}


@torch.library.custom_op("remargin::add_norm", mutates_args=())
def _add_norm_op(
    x: Tensor, y: Tensor, linear_bias: Tensor, weight: Tensor, bias: Tensor, seeds: Tensor,
    index: int, p: float, eps: float, save: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    rows, width = x.shape
    out = torch.empty_like(x)
    total = torch.empty_like(x) if save else x.new_empty(0)
    mean, rate = (x.new_empty(rows if save else 0, dtype=torch.float32) for _ in range(2))
    shape = _shape(width, 2048)
    _add_norm[(triton.cdiv(rows, shape["ROWS"]),)](
        x, y, linear_bias, weight, bias, total, out, mean, rate, seeds, index, p, eps, rows,
        DROP=p > 0, SAVE=save, **shape,
    )  # fmt: skip
    return out, total, mean, rate


@_add_norm_op.register_fake
def _(
    x: Tensor, y: Tensor, linear_bias: Tensor, weight: Tensor, bias: Tensor, seeds: Tensor,
    index: int, p: float, eps: float, save: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    saved = x.shape[0] if save else 0
    numbers = (x.new_empty(saved, dtype=torch.float32) for _ in range(2))
    return torch.empty_like(x), (torch.empty_like(x) if save else x.new_empty(0)), *numbers  # type: ignore[return-value]


@torch.library.custom_op("remargin::add_norm_backward", mutates_args=())
def _add_norm_backward_op(
    d_out: Tensor, total: Tensor, mean: Tensor, rate: Tensor, weight: Tensor, seeds: Tensor, index: int, p: float
) -> tuple[Tensor, Tensor, Tensor]:
    rows, width = d_out.shape
    dx = torch.empty_like(d_out)
    dy = torch.empty_like(d_out) if p > 0 else d_out.new_empty(0)
    partial = d_out.new_empty((PROGRAMS, 3, width), dtype=torch.float32)
    _add_norm_backward[(PROGRAMS,)](
        d_out, total, mean, rate, weight, dx, dy, partial, seeds, index, p, rows, DROP=p > 0, **_shape(width, 2048)
    )
    return dx, dy, partial.sum(0)


@_add_norm_backward_op.register_fake
def _(
    d_out: Tensor, total: Tensor, mean: Tensor, rate: Tensor, weight: Tensor, seeds: Tensor, index: int, p: float
) -> tuple[Tensor, Tensor, Tensor]:
    dy = torch.empty_like(d_out) if p > 0 else d_out.new_empty(0)
    return torch.empty_like(d_out), dy, d_out.new_empty((3, d_out.shape[1]), dtype=torch.float32)


def _remember_add_norm(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    _, _, _, weight, _, seeds, ctx.index, ctx.p, _, _ = inputs
    ctx.save_for_backward(*output[1:], weight, seeds)
    ctx.mark_non_differentiable(*output[1:])


def _add_norm_gradient(ctx: Any, d_out: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
    total, mean, rate, weight, seeds = ctx.saved_tensors
    dx, dy, sums = _add_norm_backward_op(d_out.contiguous(), total, mean, rate, weight, seeds, ctx.index, ctx.p)
    of_weight, of_bias, of_linear_bias = sums.to(weight.dtype)
    return dx, (dy if ctx.p > 0 else dx), of_linear_bias, of_weight, of_bias, None, None, None, None, None


_add_norm_op.register_autograd(_add_norm_gradient, setup_context=_remember_add_norm)


def add_norm(
    x: Tensor, y: Tensor, linear_bias: Tensor, norm: torch.nn.LayerNorm, p: float, seeds: Tensor, index: int
) -> Tensor:
    """LayerNorm(x + dropout(y + linear_bias)) of (T, d) tensors; dropout with the seed at `index`."""
    save = torch.is_grad_enabled()
    out: Tensor = _add_norm_op(
        x.contiguous(), y.contiguous(), linear_bias, norm.weight, norm.bias, seeds, index, p, norm.eps, save
    )[0]
    return out


@torch.library.custom_op("remargin::bias_gelu", mutates_args=())
def bias_gelu(y: Tensor, bias: Tensor) -> Tensor:
    """gelu(y + bias), the exact one, of a contiguous (T, d) tensor."""
    out, block = torch.empty_like(y), 2048
    _bias_gelu[(triton.cdiv(y.numel(), block),)](y, bias, out, y.numel(), N=y.shape[1], BLOCK=block, num_warps=4)
    return out


@bias_gelu.register_fake
def _(y: Tensor, bias: Tensor) -> Tensor:
    return torch.empty_like(y)


@torch.library.custom_op("remargin::bias_gelu_backward", mutates_args=())
def _bias_gelu_backward_op(d_out: Tensor, y: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    rows, width = y.shape
    dy, programs, columns = torch.empty_like(y), 256, 256
    partial = y.new_empty((programs, width), dtype=torch.float32)
    grid = (programs, triton.cdiv(width, columns))
    _bias_gelu_backward[grid](d_out, y, bias, dy, partial, rows, N=width, COLUMNS=columns, ROWS=8, num_warps=4)
    return dy, partial.sum(0)


@_bias_gelu_backward_op.register_fake
def _(d_out: Tensor, y: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(y), y.new_empty(y.shape[1], dtype=torch.float32)


def _remember_gelu(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _gelu_gradient(ctx: Any, d_out: Tensor) -> tuple[Tensor, Tensor]:
    y, bias = ctx.saved_tensors
    dy, of_bias = _bias_gelu_backward_op(d_out.contiguous(), y, bias)
    return dy, of_bias.to(bias.dtype)


bias_gelu.register_autograd(_gelu_gradient, setup_context=_remember_gelu)
