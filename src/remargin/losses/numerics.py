"""The few tensor operations under the losses, lean in memory and exact in float32.

They are autograd functions because a backward pass runs under whatever precision settings hold by then, say TF32:
each sets its own again.
"""

from __future__ import annotations

import contextlib
import functools
import math
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

BACKENDS: Any = (torch.backends.cuda.matmul, torch.backends.mkldnn.matmul)  # type: ignore[attr-defined]


class _Exact:
    """Who computes exactly now. The precision of float32 products is one setting for the whole process.

    Attributes:
        inside: how many are in `exact_products`, in all threads.
        before: the settings that the first of them met.
    """

    def __init__(self) -> None:
        self.lock, self.inside, self.before = threading.Lock(), 0, list[str]()


_EXACT = _Exact()


@contextlib.contextmanager
def exact_products(device: torch.device) -> Iterator[None]:
    """Matrix products in full precision: no autocast, no TF32, no bfloat16 on CPU. Settings come back afterwards.

    They are the whole process's: of several threads, the last one out brings them back.
    """
    with _EXACT.lock:
        if not _EXACT.inside:
            _EXACT.before = [backend.fp32_precision for backend in BACKENDS]
        _EXACT.inside += 1
        for backend in BACKENDS:
            backend.fp32_precision = "ieee"
    try:
        with torch.autocast(device.type, enabled=False):
            yield
    finally:
        with _EXACT.lock:
            _EXACT.inside -= 1
            if not _EXACT.inside:
                for backend, precision in zip(BACKENDS, _EXACT.before, strict=True):
                    backend.fp32_precision = precision


def dot(a: Tensor, b: Tensor) -> Tensor:
    """The dot product of each row of a with the same row of b, as a column."""
    return (a * b).sum(1, keepdim=True)


def product(a: Tensor, b: Tensor) -> Tensor:
    """The matrix product of a and b, exact in the forward and the backward pass."""
    result: Tensor = _Product.apply(a, b)  # type: ignore[no-untyped-call]
    return result


def unit(x: Tensor) -> Tensor:
    """Rows at unit length, whatever their scale. A zero row stays zero and gets no gradient."""
    result: Tensor = _Unit.apply(x)  # type: ignore[no-untyped-call]
    return result


class Whole(NamedTuple):
    """What a part of a batch needs to know of all of it, where several processes have a part each.

    Attributes:
        size: how many rows all parts have.
        total: puts the sum over all parts into a tensor, and returns it.
    """

    size: int
    total: Callable[[Tensor], Tensor]


def mean_squares(offset: Tensor, left: Tensor, through: Tensor, right: Tensor, whole: Whole | None = None) -> Tensor:
    """mean_j (offset_i - left_i . right_j)² for every i, through the mean c and covariance C of the rows of `right`:

        (offset_i - left_i . c)² + left_iᵀ C left_i

    Both terms are squares, so nothing cancels. O(B d²) time, and no B x B matrix. `right` gets its gradient through the
    products through_i . right_j alone: `through` is `left`, or the part of it that is not to be held constant.

    Where the rows are a part of a batch, j goes through the rows of all parts: what is exchanged is two moments in the
    forward pass and two sums of their sizes in the backward pass, d² + d numbers each, and no rows.
    """
    result: Tensor = _MeanSquares.apply(offset, left, through, right, whole)  # type: ignore[no-untyped-call]
    return result


def _once(backward: Callable[..., Any]) -> Callable[..., Any]:
    """A backward pass that refuses create_graph: what it returns has no gradient of its own.

    torch's once_differentiable overlooks that where the incoming gradient is constant, and where
    torch.autograd.grad asks for the inputs alone: then the second derivative silently lacks a part.
    """

    @functools.wraps(backward)
    def checked(ctx: Any, grad: Tensor) -> Any:
        if torch.is_grad_enabled():
            raise RuntimeError("trying to differentiate twice: the losses have a first derivative only")
        return backward(ctx, grad)

    return checked


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        ctx.save_for_backward(a, b)
        with exact_products(a.device):
            result: Tensor = a @ b
        return result

    @staticmethod
    @_once
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
        a, b = ctx.saved_tensors
        with exact_products(grad.device):
            return (
                grad @ b.T if ctx.needs_input_grad[0] else None,
                a.T @ grad if ctx.needs_input_grad[1] else None,
            )


class _Unit(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        largest = torch.linalg.vector_norm(x, math.inf, dim=1, keepdim=True)
        zero = largest < torch.finfo(x.dtype).tiny
        largest = largest.masked_fill(zero, math.inf)
        unit: Tensor = x / largest  # at most 1, so that no square overflows or underflows
        length = torch.linalg.vector_norm(unit, dim=1, keepdim=True).masked_fill(zero, 1)
        unit /= length
        ctx.save_for_backward(unit, largest * length)
        return unit

    @staticmethod
    @_once
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        unit, length = ctx.saved_tensors
        gradient: Tensor = torch.addcmul(grad, unit, dot(grad, unit), value=-1).div_(length)
        return gradient


class _MeanSquares(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, offset: Tensor, left: Tensor, through: Tensor, right: Tensor, given: Whole | None) -> Tensor:
        whole = given or Whole(len(right), lambda tensor: tensor)
        mean = right.mean(0) if given is None else whole.total(right.sum(0)) / whole.size
        centred = right - mean
        with exact_products(right.device):
            covariance = whole.total(centred.T @ centred) / whole.size
            del centred
            residual = offset - left @ mean
            spread = dot(left @ covariance, left)[:, 0]
        ctx.save_for_backward(residual, left, through, right, mean, covariance)
        ctx.whole = whole
        return residual.square() + spread

    @staticmethod
    @_once
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        residual, left, through, right, mean, covariance = ctx.saved_tensors
        whole: Whole = ctx.whole
        weight = (2 * grad)[:, None]
        d_offset = (weight[:, 0] * residual) if ctx.needs_input_grad[0] else None
        d_left = d_right = None
        with exact_products(grad.device):
            if ctx.needs_input_grad[1]:
                d_left = torch.addr(left @ covariance, residual, mean, alpha=-1).mul_(weight)
            if ctx.needs_input_grad[3]:
                outer = whole.total(left.T @ (weight * through))
                d_right = (right - mean) @ outer
                d_right -= whole.total((weight[:, 0] * residual) @ through)
                d_right /= whole.size
        return d_offset, d_left, None, d_right, None
