"""Triton kernels for encoders of short texts: imported only where Triton is, used only if `check` finds them right."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from remargin.model.kernels import attention

CLOSE = 0.05  # relative to the length of the whole, in bfloat16


def check(device: str = "cuda", dtype: torch.dtype = torch.bfloat16) -> None:
    """Compare each kernel, forward and backward, with PyTorch's own operations on this machine.

    Raises:
        RuntimeError: if one is off. Whatever Triton raises where it does not run goes through too.
    """
    with torch.inference_mode(False), torch.enable_grad(), torch.autocast(device, enabled=False):
        _check(device, dtype)


def _check(device: str, dtype: torch.dtype) -> None:
    own = torch.Generator(device).manual_seed(0)  # no random number of anyone else's is used up

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, device=device, generator=own).to(dtype).requires_grad_()

    qkv, lengths = draw(74, 3, 2, 64), [3, 70, 1]
    bounds = torch.tensor([0, 3, 73, 74], dtype=torch.int32, device=device)
    texts = [text.permute(1, 2, 0, 3).unbind(0) for text in qkv.float().split(lengths)]
    wanted = torch.cat([F.scaled_dot_product_attention(q, k, v, scale=0.1).transpose(0, 1) for q, k, v in texts])
    _same("attention", attention.attention(qkv, bounds, 70, 0.1), wanted, (qkv,))
    _check_attention_dropout(device, dtype)


def _check_attention_dropout(device: str, dtype: torch.dtype) -> None:
    """With values that are unit vectors, the output is the attention weights themselves: what was dropped shows."""
    tokens, p = 32, 0.5
    bounds = torch.tensor([0, tokens], dtype=torch.int32, device=device)
    qkv = torch.zeros(tokens, 3, 1, tokens, device=device, dtype=dtype)
    qkv[:, 2, 0] = torch.eye(tokens, device=device, dtype=dtype)
    qkv.requires_grad_()
    seeds = torch.tensor([5, 6], device=device)
    weights = attention.attention(qkv, bounds, tokens, 1.0, p, seeds, 1)
    kept = weights[:, 0] > 0
    if not 0.4 < kept.float().mean() < 0.6:
        raise RuntimeError("attention dropout keeps another share than it should")
    q, k, v = qkv.float()[:, :, 0].unbind(1)
    wanted = (((q @ k.T).softmax(1) * kept / (1 - p)) @ v)[:, None]
    _same("attention dropout", weights, wanted, (qkv,))


def _same(name: str, computed: Tensor, wanted: Tensor, inputs: tuple[Tensor, ...]) -> None:
    own = torch.Generator(computed.device).manual_seed(1)
    of = torch.randn(computed.shape, device=computed.device, generator=own).to(computed.dtype)
    pairs = [(computed, wanted)]
    gradients = torch.autograd.grad(computed, inputs, of), torch.autograd.grad(wanted, inputs, of.to(wanted.dtype))
    pairs += zip(*gradients, strict=True)
    for a, b in pairs:
        if not (a.float() - b.float()).norm() <= CLOSE * b.float().norm():
            raise RuntimeError(f"{name} gives other results than PyTorch")
