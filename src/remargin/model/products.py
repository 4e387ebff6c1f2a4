"""Attention as it is written down: in bfloat16 on a CPU faster than PyTorch's fused one, whose softmax is slow.

A few texts at a time, so that their scores stay in the cache. In training the scores are computed once more on the way
back, a few at a time again, which takes no longer than to fetch them from memory, and about halves what a training step
keeps there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import dropout as drop_out
from torch.nn.functional import scaled_dot_product_attention

CACHED_SCORES = 500_000  # so many are at hand together
MOST_SCORES = 2_000_000  # of one text: with more of them PyTorch's is faster, and keeps none


def attention_by_products(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float, dropout: float = 0.0
) -> Tensor:
    """Attention of (n, heads, L, D), with a mask of what is seen, or one to add to the scores.

    With dropout, or a mask to add, which has a gradient, all texts are computed at once in training: what is dropped
    must be the same with and without gradients. A compiler would look at every number of texts.

    >>> q = k = v = torch.randn(2, 1, 3, 4)
    >>> fused = torch.nn.functional.scaled_dot_product_attention(q, k, v, scale=0.5)
    >>> torch.allclose(attention_by_products(q, k, v, None, 0.5), fused, atol=1e-6)
    True
    """
    if q.shape[1] * q.shape[2] * k.shape[2] > MOST_SCORES:
        mask = mask if mask is None or mask.dtype == torch.bool else mask.to(q.dtype)
        return scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale, dropout_p=dropout)
    if dropout > 0 or torch.compiler.is_compiling():
        return _products(q, k, v, mask, scale, dropout)
    if not torch.is_grad_enabled():
        return _in_parts(q, k, v, mask, scale)
    if mask is not None and mask.dtype != torch.bool:
        return _products(q, k, v, mask, scale)
    recomputed: Tensor = _Recomputed.apply(q, k, v, mask, scale)  # type: ignore[no-untyped-call]
    return recomputed


class _Recomputed(torch.autograd.Function):
    """The same, keeping no scores: the backward pass computes those of a few texts at a time."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float) -> Tensor:
        ctx.save_for_backward(q, k, v, mask)
        ctx.scale = scale
        return _in_parts(q, k, v, mask, scale)

    @staticmethod
    def backward(ctx: Any, of_out: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, mask = ctx.saved_tensors
        of_q, of_k, of_v = (torch.empty(each.shape, dtype=each.dtype) for each in (q, k, v))
        for p, part_mask in _parts(q, mask):
            part_q, part_k, part_v, part_of_out = (each[p].contiguous() for each in (q, k, v, of_out))
            weights = _weights(part_q, part_k, part_mask, ctx.scale)
            of_weights = (part_of_out @ part_v.transpose(-1, -2)).float()
            of_v[p] = weights.to(part_v.dtype).transpose(-1, -2) @ part_of_out
            of_scores = torch._softmax_backward_data(of_weights, weights, -1, torch.float32)
            of_scores = of_scores.mul_(ctx.scale).to(part_q.dtype)
            of_q[p] = of_scores @ part_k
            of_k[p] = of_scores.transpose(-1, -2) @ part_q
        return of_q, of_k, of_v, None, None


def _in_parts(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    parts = [_products(q[p], k[p], v[p], part_mask, scale) for p, part_mask in _parts(q, mask)]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _parts(q: Tensor, mask: Tensor | None) -> Iterator[tuple[slice, Tensor | None]]:
    """Some texts at a time, and what they have of the mask."""
    texts, heads, length, _ = q.shape
    each = max(1, CACHED_SCORES // (heads * length * length))
    for start in range(0, max(texts, 1), each):
        part = slice(start, start + each)
        yield part, mask[part] if mask is not None and mask.dim() == 4 else mask


def _products(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float, dropout: float = 0.0) -> Tensor:
    weights = _weights(q.contiguous(), k.contiguous(), mask, scale)
    return drop_out(weights, dropout).to(v.dtype) @ v.contiguous()


def _weights(q: Tensor, k: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    """The attention weights, in float32."""
    scores = (q @ k.transpose(-1, -2)).float()
    if mask is None:
        return (scores * scale).softmax(-1)
    if mask.dtype == torch.bool:
        mask = torch.zeros_like(mask, dtype=torch.float32).masked_fill_(~mask, -torch.inf)
    return torch.add(mask, scores, alpha=scale).softmax(-1)
