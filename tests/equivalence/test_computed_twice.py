"""Layers that are computed twice, because a text is above the token budget: the same gradients from less memory."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from remargin.model.compute import Compute
from remargin.model.dropping import seeded
from remargin.model.packing import pack
from remargin.model.tokenizer import Tokens
from remargin.training.engine import Engine
from remargin.training.settings import FitSettings

from . import test_packed
from .test_packed import DECODERS, FAMILIES, Model

CPU = torch.device("cpu")
TEXT = Tokens(np.random.default_rng(0).integers(5, 60, 35), np.array([35]))
KINDS = [(kind, "auto") for kind in (*FAMILIES, *DECODERS)] + [("bert", "padded"), ("modernbert", "padded")]
ATTENTION = ("bert", "roberta", "xlm-roberta", "electra", "distilbert", "mpnet")  # have dropout on attention weights


def dropping(model: Model) -> Model:
    """With all the dropout that the model has places for."""
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.2
    return model.train()


class Memory(TorchDispatchMode):
    """Counts the bytes of all tensors that are made inside the block and still there, and the most there ever were."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._there: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(made):
            storage = tensor.untyped_storage() if isinstance(tensor, Tensor) else None
            if storage is not None and storage._cdata not in self._there:
                self._there.add(storage._cdata)
                self.now += storage.nbytes()
                weakref.finalize(storage, self._gone, storage._cdata, storage.nbytes())
        self.peak = max(self.peak, self.now)
        return made

    def _gone(self, storage: int, size: int) -> None:
        self._there.discard(storage)
        self.now -= size


@pytest.mark.parametrize("own_generator", [True, False])
@pytest.mark.parametrize(("kind", "engine"), KINDS)
def test_gradients_are_the_same_to_the_bit(kind: str, engine: Any, own_generator: bool) -> None:
    """Also where dropout draws: from a generator of a part's own, or from PyTorch's."""
    model = dropping(Model(kind, "last"))
    compute = Compute(model, engine=engine, attention_dropout=kind in ATTENTION)
    found: list[list[Tensor]] = []
    for frugal in (False, True):
        torch.manual_seed(7)
        with seeded(3) if own_generator else torch.random.fork_rng(enabled=False):
            vectors = compute(pack(TEXT), frugal)
        follows = torch.rand(1)
        gradients = compute.gradients(vectors, torch.ones_like(vectors))
        found.append([vectors, follows, torch.rand(1), *(gradient.to_dense() for gradient in gradients)])
    for once, twice in zip(*found, strict=True):
        assert torch.equal(once, twice)
    assert all(gradient.abs().max() > 0 for gradient in found[0][-4:])


@pytest.mark.parametrize(("kind", "dtype"), [("bert", torch.bfloat16), ("qwen3", torch.bfloat16)])
def test_also_in_half_precision(kind: str, dtype: torch.dtype) -> None:
    compute = Compute(dropping(Model(kind, "last")), dtype)
    found = []
    for frugal in (False, True):
        with seeded(3):
            vectors = compute(pack(TEXT), frugal)
        found.append(compute.gradients(vectors, torch.ones_like(vectors)))
    assert all(torch.equal(once.to_dense(), twice.to_dense()) for once, twice in zip(*found, strict=True))


@pytest.mark.parametrize("engine", ["packed", "padded"])
@pytest.mark.parametrize("kind", ["bert", "modernbert", "qwen3"])
def test_memory_falls(kind: str, engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The peak of all tensors of a forward and a backward pass, with 12 layers, beside weights and their gradients."""
    monkeypatch.setitem(test_packed.SIZES, "num_hidden_layers", 12)
    monkeypatch.setitem(test_packed.SMALL, "max_position_embeddings", 800)
    text = Tokens(np.random.default_rng(0).integers(5, 60, 700), np.array([700]))
    model = dropping(Model(kind, "last"))
    model.backbone.get_input_embeddings().requires_grad_(False)  # type: ignore[operator]
    compute = Compute(model, engine=engine)
    peaks = []
    for frugal in (False, True):
        with Memory() as memory:
            vectors = compute(pack(text), frugal)
            compute.gradients(vectors, torch.ones_like(vectors))
        peaks.append(memory.peak)
    weights = sum(weight.numel() * weight.element_size() for weight in compute.trained)
    once, twice = (peak - weights for peak in peaks)
    assert 0 < twice < once / 3


@pytest.mark.parametrize("lengths", [[35], [35, 3, 9, 8], [35, 34]])
@pytest.mark.parametrize("kind", ["bert", "modernbert", "qwen3"])
def test_the_engine_does_so_above_the_budget_alone(
    kind: str, lengths: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    model: Any = dropping(Model(kind, "last"))
    model.query_length, model.document_length, model.dimension = 8, 35, 32
    texts = Tokens(np.random.default_rng(0).integers(5, 60, sum(lengths)), np.array(lengths))
    calls: list[tuple[int, bool]] = []
    forward = Compute.forward
    monkeypatch.setattr(
        Compute, "forward", lambda self, part, frugal=False: (
            calls.append((len(part.ids), frugal)), forward(self, part, frugal)
        )[1],
    )  # fmt: skip
    found = []
    for budget in (20, 35):  # of which the engine makes the same parts, but for the shortest texts
        engine = Engine(model, FitSettings(token_budget=budget), CPU, torch.float32, texts.lengths)
        assert ("longer texts layer by layer" in engine.describe()) == (budget == 20)
        model.zero_grad()
        torch.manual_seed(5)
        batch = engine.split(texts)
        calls.clear()
        with engine.embed(batch) as vectors:
            vectors.sum().backward()
        assert {frugal for size, frugal in calls if size > budget} == ({True} if budget == 20 else set())
        assert not any(frugal for size, frugal in calls if size <= budget)
        found.append([vectors.detach(), *(master.grad.clone() for master in engine.masters)])
    if len(batch.parts) == len(lengths):  # then each text draws from the same generator
        for above, within in zip(*found, strict=True):
            torch.testing.assert_close(above, within, atol=1e-6, rtol=1e-6)
