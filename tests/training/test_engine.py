"""The engine: the same vectors and gradients however a batch is split, ordered, cached or read."""

from __future__ import annotations

import contextlib
import os
import threading
from typing import Any

import numpy as np
import pytest
import torch

from remargin.errors import InputError
from remargin.model.ahead import ahead
from remargin.model.encoder import BiEncoder
from remargin.model.packing import AttentionDropout, attend, pack
from remargin.model.tokenizer import Tokens
from remargin.training import engine
from remargin.training.engine import Engine
from remargin.training.settings import FitSettings

CPU = torch.device("cpu")
LENGTHS = np.array([3, 17, 1, 30, 8, 8, 29, 2, 11, 5, 30, 4])


@pytest.fixture
def model(tiny_model: Any) -> BiEncoder:
    model = BiEncoder.from_pretrained(tiny_model(), pooling="mean")
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            assert module.p > 0  # or the tests of dropout would show nothing
    return model


def texts(model: BiEncoder, order: np.ndarray | None = None) -> Tokens:
    rng = np.random.default_rng(0)
    each = [rng.integers(5, model.tokenizer.vocabulary, length) for length in LENGTHS]
    each = each if order is None else [each[i] for i in order]
    return Tokens(np.concatenate(each), np.array([len(ids) for ids in each]))


def without_dropout(engine: Engine) -> Engine:
    engine.compute.train = lambda *_: torch.nn.Module.train(engine.compute, False)  # type: ignore[method-assign]
    return engine


def run(
    model: BiEncoder, tokens: Tokens, dropout: bool, of: torch.Tensor | None = None, **settings: Any
) -> tuple[torch.Tensor, list[torch.Tensor], int]:
    """Vectors, gradients, and in how many parts."""
    engine = Engine(model, FitSettings(**settings), CPU, torch.float32, tokens.lengths)
    engine = engine if dropout else without_dropout(engine)
    model.zero_grad()
    torch.manual_seed(5)
    batch = engine.split(tokens)
    with engine.embed(batch) as vectors:
        of = torch.randn(vectors.shape, generator=torch.Generator().manual_seed(1)) if of is None else of
        vectors.backward(of)
    return vectors.detach(), [p.grad.clone() for p in engine.compute.masters if p.grad is not None], len(batch.parts)


def same(a: list[torch.Tensor], b: list[torch.Tensor]) -> None:
    assert len(a) == len(b) > 5
    for left, right in zip(a, b, strict=True):
        torch.testing.assert_close(left, right, atol=1e-5, rtol=1e-4)


def test_however_a_batch_is_split(model: BiEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = texts(model)
    monkeypatch.setattr("remargin.training.engine.TOKENS_AT_ONCE", (10_000, 0))
    whole, gradients, parts = run(model, tokens, dropout=False)
    assert parts == 1
    monkeypatch.setattr("remargin.training.engine.TOKENS_AT_ONCE", (40, 0))
    in_parts, from_parts, parts = run(model, tokens, dropout=False)
    assert parts > 3
    torch.testing.assert_close(in_parts, whole, atol=1e-5, rtol=1e-4)
    same(from_parts, gradients)
    cached, twice, _ = run(model, tokens, dropout=False, token_budget=20)
    torch.testing.assert_close(cached, whole, atol=1e-5, rtol=1e-4)
    same(twice, gradients)


def test_a_budget_changes_nothing_with_dropout_on(model: BiEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remargin.training.engine.TOKENS_AT_ONCE", (40, 0))
    tokens = texts(model)
    kept, gradients, parts = run(model, tokens, dropout=True)
    cached, twice, again = run(model, tokens, dropout=True, token_budget=40)
    assert parts == again > 3
    assert torch.equal(cached, kept)
    same(twice, gradients)
    without, _, _ = run(model, tokens, dropout=False)
    assert (without - kept).abs().max() > 1e-3  # there was dropout


def test_random_numbers_go_on_as_without_a_budget(model: BiEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remargin.training.engine.TOKENS_AT_ONCE", (40, 0))
    after = []
    for budget in (None, 40):
        run(model, texts(model), dropout=True, token_budget=budget)
        after.append(torch.rand(3))
    assert torch.equal(*after)


def test_cores_compute_parts_side_by_side_and_their_number_changes_nothing(
    model: BiEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("remargin.training.engine.TOKENS_AT_ONCE", (20, 0))
    compute, busy = engine.Compute.forward, set()

    def forward(*args: Any) -> torch.Tensor:
        busy.add(threading.get_ident())
        return compute(*args)

    monkeypatch.setattr(engine.Compute, "forward", forward)
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            busy.clear()
            found.append(run(model, texts(model), dropout=True))
            assert (threading.get_ident() in busy) == (threads == 1)
    finally:
        torch.set_num_threads(before)
    (alone, gradients, parts), (together, of_them, _) = found
    assert parts >= 6
    torch.testing.assert_close(alone, together)
    same(gradients, of_them)


@pytest.mark.parametrize("engine", ["packed", "padded"])
def test_order_of_texts_does_not_matter(model: BiEncoder, engine: Any) -> None:
    order = np.random.default_rng(3).permutation(len(LENGTHS))
    straight, gradients, _ = run(model, texts(model), dropout=False, engine=engine)
    of = torch.randn(straight.shape, generator=torch.Generator().manual_seed(1))
    mixed, of_mixed, _ = run(model, texts(model, order), dropout=False, engine=engine, of=of[order])
    torch.testing.assert_close(mixed, straight[order], atol=1e-5, rtol=1e-4)
    same(of_mixed, gradients)


def test_gradients_add_up_until_they_are_taken(model: BiEncoder) -> None:
    _, once, _ = run(model, texts(model), dropout=False)
    engine = Engine(model, FitSettings(accumulate=2), CPU, torch.float32, LENGTHS)
    engine = without_dropout(engine)
    model.zero_grad()
    for _ in range(2):
        with engine.embed(engine.split(texts(model))) as vectors:
            vectors.backward(torch.randn(vectors.shape, generator=torch.Generator().manual_seed(1)))
    same([p.grad / 2 for p in engine.compute.masters if p.grad is not None], once)


def test_blocks_add_up_and_one_that_fails_changes_nothing(model: BiEncoder) -> None:
    _, once, _ = run(model, texts(model), dropout=False)
    engine = without_dropout(Engine(model, FitSettings(), CPU, torch.float32, LENGTHS))
    batch, generator = engine.split(texts(model)), torch.Generator()
    model.zero_grad()
    for factor in (1, 3):
        with engine.embed(batch) as vectors:
            of = torch.randn(vectors.shape, generator=generator.manual_seed(1))
            vectors.backward(factor * of)
    with contextlib.suppress(KeyboardInterrupt), engine.embed(batch) as vectors:
        vectors.backward(of)
        raise KeyboardInterrupt
    with engine.embed(batch):  # and without a loss there is no gradient to add
        pass
    same([p.grad / 4 for p in engine.compute.masters if p.grad is not None], once)


def test_attention_dropout_is_left_out_unless_it_is_asked_for(model: BiEncoder) -> None:
    tokens = texts(model)
    plain, with_it = (run(model, tokens, dropout=True, attention_dropout=on)[0] for on in (False, True))
    assert (plain - with_it).abs().max() > 1e-3
    for name, on in (("packed", True), ("padded", True), ("padded", False)):
        engine = Engine(model, FitSettings(engine=name, attention_dropout=on), CPU, torch.float32, LENGTHS)  # type: ignore[arg-type]
        body = engine.compute.body
        if name == "packed":
            shares = [layer.weight_dropout for layer in body.layers]
        else:
            shares = [m.dropout.p for m in body.modules() if type(m).__name__.endswith("SelfAttention")]
        assert shares == [0.1 if on else 0.0] * len(shares)


def test_attention_dropout_keeps_its_share_and_the_mean() -> None:
    """With unit vectors as values, the output is the attention weights themselves."""
    tokens = 32
    packed = pack(Tokens(np.zeros(tokens, int), np.array([tokens])))
    for dtype in (torch.float32, torch.bfloat16):
        qkv = torch.zeros(tokens, 3, 1, tokens, dtype=dtype)
        qkv[:, 2, 0] = torch.eye(tokens)
        torch.manual_seed(0)
        weights = attend(qkv, packed, 1.0, dropout=AttentionDropout(0.25)).float()
        kept = weights > 0
        assert kept.float().mean().item() == pytest.approx(0.75, abs=0.05)
        torch.testing.assert_close(weights[kept], torch.full_like(weights[kept], 1 / 32 / 0.75), rtol=0.01, atol=0)


def test_half_precision_keeps_master_weights_and_gradients_in_float32(model: BiEncoder) -> None:
    engine = Engine(model, FitSettings(), CPU, torch.bfloat16, LENGTHS)
    with engine.embed(engine.split(texts(model))) as vectors:
        vectors.backward(torch.ones_like(vectors))
    assert vectors.dtype == torch.float32
    assert (
        {p.dtype for p in engine.compute.masters}
        == {p.grad.dtype for p in engine.compute.masters if p.grad is not None}
        == {torch.float32}
    )
    products = [module for module in engine.compute.modules() if isinstance(module, torch.nn.Linear)]
    assert {product.weight.dtype for product in products} == {torch.bfloat16}


def test_in_training_half_precision_is_for_the_products_alone(model: BiEncoder) -> None:
    """What is added up from layer to layer stays in float32, as under autocast."""
    engine = Engine(model, FitSettings(), CPU, torch.bfloat16, LENGTHS)
    seen = {True: set(), False: set()}
    for layer in engine.compute.body.layers:
        layer.register_forward_hook(lambda layer, _, out: seen[layer.training].add(out.dtype))
    with engine.embed(engine.split(texts(model))):
        pass
    engine.evaluate(engine.parts(texts(model))[0])
    assert seen == {True: {torch.float32}, False: {torch.bfloat16}}


def test_padding_is_counted(model: BiEncoder) -> None:
    tokens = texts(model)
    packed = Engine(model, FitSettings(), CPU, torch.float32, LENGTHS).split(tokens)
    padded = Engine(model, FitSettings(engine="padded"), CPU, torch.float32, LENGTHS).split(tokens)
    assert packed.tokens == packed.computed == padded.tokens == LENGTHS.sum()
    assert padded.computed == 30 * len(LENGTHS)


def test_ahead_hands_over_errors_and_ends_its_thread() -> None:
    def broken() -> Any:
        yield 1
        raise InputError("cut off", do="mend it")

    items = ahead(broken())
    assert next(items) == 1
    with pytest.raises(InputError, match="cut off"):
        next(items)
    before = threading.active_count()
    endless = ahead(iter(int, 1))
    assert [next(endless), next(endless)] == [0, 0]
    assert threading.active_count() == before + 1
    endless.close()
    assert threading.active_count() == before


def test_memory_that_others_have_taken_is_not_for_training(model: BiEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    everything = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert 0 < engine._available_memory() <= everything
    budgets = []
    for available in (1 << 34, 1 << 33):
        monkeypatch.setattr(engine, "_available_memory", lambda available=available: available)
        budgets.append(engine._budget(model, torch.device("cpu"), torch.float32, 1))
    assert budgets[0] == pytest.approx(2 * budgets[1], abs=1)
