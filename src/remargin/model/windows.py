"""Local attention: each token sees those near it. In blocks of tokens, so that a long text costs no more per token.

The blocks go through all texts end to end: nothing is padded but the last of them.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

LEAST = 64  # tokens of a block

Attention = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def pays(longest: int, window: int) -> bool:
    """Whether blocks are less work than whole texts: a block sees the one before it and the one behind it, too."""
    return longest > 3 * max(window, LEAST)


def window_attention(qkv: Tensor, texts: Tensor, window: int, causal: bool, attention: Attention) -> Tensor:
    """Attention of (T, 3, heads, D) between tokens of one text that are at most `window` apart, (T, heads, D).

    Args:
        qkv: queries, keys and values of all texts, end to end.
        texts: (T,) which text each token belongs to.
        window: tokens further apart do not see each other.
        causal: a token sees none behind it.
        attention: of queries (n, heads, L, D), keys and values (n, heads, K, D), and a mask (n, 1, L, K).

    Example:
        >>> from torch.nn.functional import scaled_dot_product_attention as attention
        >>> window_attention(torch.ones(7, 3, 1, 4), torch.tensor([0, 0, 0, 1, 1, 1, 1]), 2, False, attention).shape
        torch.Size([7, 1, 4])
    """
    tokens, size = len(qkv), max(window, LEAST)
    fill = -tokens % size
    behind = 0 if causal else size
    q = F.pad(qkv[:, 0], (0, 0, 0, 0, 0, fill)).unflatten(0, (-1, size)).transpose(1, 2)
    beside = F.pad(qkv[:, 1:], (0, 0, 0, 0, 0, 0, size, fill + behind))
    k, v = beside.unfold(0, 2 * size + behind, size).permute(1, 0, 2, 4, 3)  # of a block and those beside it
    owners = F.pad(texts, (0, fill), value=-1)
    others = F.pad(owners, (size, behind), value=-2).unfold(0, 2 * size + behind, size)
    place = torch.arange(2 * size + behind, device=qkv.device) - size - torch.arange(size, device=qkv.device)[:, None]
    near = (place >= -window) & (place <= (0 if causal else window))
    mask = near & (owners.view(-1, size, 1) == others[:, None])
    return attention(q, k, v, mask[:, None]).transpose(1, 2).flatten(0, 1)[:tokens]
