from __future__ import annotations

import pytest
import torch
from torch import Tensor

from remargin.model import products
from remargin.model.products import attention_by_products

TEXTS, HEADS, LENGTH, SIZE = 5, 3, 7, 4
SEEN = (torch.arange(LENGTH) < torch.tensor([7, 1, 4, 6, 2])[:, None])[:, None, None, :]
PLACE = torch.arange(LENGTH)
NEAR = (PLACE[:, None] - PLACE).abs() <= 2
MASKS = {"none": None, "texts": SEEN, "window": NEAR, "both": SEEN & NEAR | torch.eye(LENGTH, dtype=torch.bool)}


def inputs(dtype: torch.dtype) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    made = torch.randn(4, TEXTS, LENGTH, HEADS, SIZE, generator=generator).to(dtype)
    return made.transpose(2, 3)  # as the engine has them: not contiguous


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("texts_at_once", [1, 2, 9])
def test_a_few_texts_at_a_time_are_all_of_them_to_the_last_bit(
    name: str, texts_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(products, "CACHED_SCORES", texts_at_once * HEADS * LENGTH**2)
    *qkv, of_out = inputs(torch.bfloat16)
    leaves = [each.clone().requires_grad_() for each in qkv]
    expected = products._products(*leaves, MASKS[name], 0.5)
    gradients = torch.autograd.grad(expected, leaves, of_out)
    out = attention_by_products(*leaves, MASKS[name], 0.5)
    torch.testing.assert_close(out, expected, rtol=0, atol=0)
    for ours, theirs in zip(torch.autograd.grad(out, leaves, of_out), gradients, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
        assert ours.any()


@pytest.mark.parametrize("name", MASKS)
def test_values_and_gradients_are_those_of_pytorchs_own_attention(name: str) -> None:
    *qkv, of_out = inputs(torch.float32)
    leaves = [each.clone().requires_grad_() for each in qkv]
    expected = torch.nn.functional.scaled_dot_product_attention(*leaves, attn_mask=MASKS[name], scale=0.5)
    gradients = torch.autograd.grad(expected, leaves, of_out)
    out = attention_by_products(*leaves, MASKS[name], 0.5)
    torch.testing.assert_close(out, expected)
    for ours, theirs in zip(torch.autograd.grad(out, leaves, of_out), gradients, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_training_keeps_no_scores() -> None:
    kept = list[int]()

    def keep(tensor: Tensor) -> Tensor:
        kept.append(tensor.numel())
        return tensor

    long = [torch.randn(2, HEADS, 64, SIZE, requires_grad=True) for _ in range(3)]
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        attention_by_products(*long, None, 0.5)
        assert 0 < sum(kept) <= 3 * long[0].numel()
        kept.clear()
        products._products(*long, None, 0.5)
        assert max(kept) == 2 * HEADS * 64 * 64


def test_a_bias_that_is_learned_has_its_gradient() -> None:
    *qkv, of_out = inputs(torch.float32)
    bias = torch.randn(HEADS, LENGTH, LENGTH, requires_grad=True)
    expected = torch.autograd.grad(
        torch.nn.functional.scaled_dot_product_attention(*qkv, attn_mask=bias, scale=0.5), bias, of_out
    )
    ours = torch.autograd.grad(attention_by_products(*qkv, bias, 0.5), bias, of_out)
    torch.testing.assert_close(ours, expected)
