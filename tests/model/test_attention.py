"""Attention within texts that lie end to end, against its definition: windows, causal, and in bfloat16."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from remargin.model import products
from remargin.model.packing import attend, pack
from remargin.model.tokenizer import Tokens

LENGTHS = np.array([300, 2, 64, 1, 0, 129])  # the window of 70 has blocks of 70, that of 5 blocks of 64


def by_definition(qkv: Tensor, scale: float, window: int | None, causal: bool) -> Tensor:
    """softmax(q kᵀ scale) v of the tokens that each token sees, one text after another."""
    outs = []
    for text in qkv.split(LENGTHS.tolist()):
        q, k, v = text.permute(1, 2, 0, 3)
        place = torch.arange(len(text))
        before = place[:, None] - place[None, :]
        seen = before.abs() <= (len(text) if window is None else window)
        seen &= (before >= 0) if causal else seen
        scores = (q @ k.mT * scale).masked_fill(~seen, -torch.inf)
        outs.append((scores.softmax(-1) @ v).transpose(0, 1))
    return torch.cat(outs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [None, 0, 5, 70, 250])
def test_attention_is_its_definition(window: int | None, causal: bool, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    qkv = torch.randn(LENGTHS.sum(), 3, 2, 16, generator=generator).to(dtype)
    of = torch.randn(len(qkv), 2, 16, generator=generator)
    packed = pack(Tokens(np.zeros(len(qkv), np.int32), LENGTHS))
    results = []
    for compute in (
        lambda x: attend(x, packed, 0.3, window=window, causal=causal),
        lambda x: by_definition(x.double(), 0.3, window, causal),
    ):
        leaf = qkv.clone().requires_grad_()
        out = compute(leaf)
        out.backward(of.to(out.dtype))
        assert leaf.grad is not None
        results.append((out.detach().double(), leaf.grad.double()))
    (out, gradient), (expected, wanted) = results
    close = 1e-5 if dtype == torch.float32 else 0.03
    torch.testing.assert_close(out, expected, atol=close, rtol=close)
    torch.testing.assert_close(gradient, wanted, atol=2 * close, rtol=2 * close)


def test_a_long_text_keeps_no_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    """8,192 tokens squared, of 12 heads, would be 3 GB."""
    monkeypatch.setattr(products, "_products", None)
    monkeypatch.setattr(products, "_in_parts", None)
    q = torch.randn(1, 2, 1200, 8, dtype=torch.bfloat16)
    out = products.attention_by_products(q, q, q, None, 0.3)
    exact = (q.float() @ q.float().mT * 0.3).softmax(-1) @ q.float()
    torch.testing.assert_close(out.float(), exact, atol=0.02, rtol=0.02)
