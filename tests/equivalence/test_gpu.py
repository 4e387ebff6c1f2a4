"""The engine on a GPU: its kernels, its precision, its compiled and replayed forms, against the plain ones."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from remargin.losses.contrastive import ContrastiveLoss
from remargin.losses.margin import MarginLoss
from remargin.losses.softmax_margin import SoftmaxMarginLoss
from remargin.model.encoder import BiEncoder
from remargin.model.packing import select
from remargin.model.tokenizer import Tokens
from remargin.training.engine import Engine
from remargin.training.settings import FitSettings

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")

GPU = torch.device("cuda")
LENGTHS = np.array([3, 50, 1, 30, 64, 33, 64, 2, 60, 17, 40, 9])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("size", [16, 32, 64, 128])
def test_kernels_are_attention(size: int, dtype: torch.dtype) -> None:
    from remargin.model.kernels import attention

    lengths = [3, 70, 130, 64, 0, 1, 200, 33]
    bounds = torch.tensor([0, *np.cumsum(lengths)], dtype=torch.int32, device=GPU)
    generator = torch.Generator(GPU).manual_seed(0)
    qkv = torch.randn(sum(lengths), 3, 3, size, device=GPU, generator=generator).to(dtype).requires_grad_()
    out = attention.attention(qkv, bounds, 200, 0.2)
    of = torch.randn(out.shape, device=GPU, generator=generator).to(dtype)
    out.backward(of)
    exact = qkv.detach().double().requires_grad_()
    texts = exact.split(lengths)
    wanted = torch.cat(
        [F.scaled_dot_product_attention(*t.permute(1, 2, 0, 3), scale=0.2).transpose(0, 1) for t in texts]
    )
    wanted.backward(of.double())
    assert qkv.grad is not None
    assert exact.grad is not None
    close = 0.02 if dtype == torch.bfloat16 else 0.003
    torch.testing.assert_close(out.double(), wanted, atol=close, rtol=close)
    torch.testing.assert_close(qkv.grad.double(), exact.grad, atol=2 * close, rtol=2 * close)


@pytest.fixture
def model(tiny_model: Any) -> BiEncoder:
    return BiEncoder.from_pretrained(tiny_model(), pooling="mean", document_length=64)


def texts(model: BiEncoder) -> Tokens:
    rng = np.random.default_rng(0)
    return Tokens(rng.integers(5, model.tokenizer.vocabulary, LENGTHS.sum()), LENGTHS)


def gradients(engine: Engine, tokens: Tokens, seed: int = 5) -> tuple[torch.Tensor, torch.Tensor]:
    """Vectors, and all gradients in one long vector."""
    torch.manual_seed(seed)
    for master in engine.compute.masters:
        master.grad = None
    with engine.embed(engine.split(tokens)) as vectors:
        vectors.backward(torch.randn(vectors.shape, generator=torch.Generator().manual_seed(1)).to(GPU))
    return vectors.detach(), torch.cat([m.grad.flatten() for m in engine.compute.masters if m.grad is not None])


def without_dropout(engine: Engine) -> Engine:
    engine.compute.train = lambda *_: torch.nn.Module.train(engine.compute, False)  # type: ignore[method-assign]
    return engine


def distance(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a - b).detach().norm() / b.detach().norm())


@pytest.mark.parametrize("compile", ["off", "on"])
def test_replayed_is_plain(model: BiEncoder, compile: Any) -> None:
    tokens = texts(model)
    plain = without_dropout(Engine(model, FitSettings(graphs=False, compile="off"), GPU, torch.bfloat16, LENGTHS))
    replayed = without_dropout(Engine(model, FitSettings(compile=compile), GPU, torch.bfloat16, LENGTHS))
    assert "CUDA graphs" in replayed.describe()
    assert "CUDA graphs" not in plain.describe()
    vectors, wanted = gradients(plain, tokens)
    for _ in range(3):  # recorded once, replayed thrice
        again, found = gradients(replayed, tokens)
        assert distance(again, vectors) < 0.02
        assert distance(found, wanted) < 0.03
    shorter = Tokens(tokens.ids[: LENGTHS[:6].sum()], LENGTHS[:6])
    assert distance(gradients(replayed, shorter)[1], gradients(plain, shorter)[1]) < 0.03


def test_replays_draw_new_dropout_and_the_same_for_the_same_state(model: BiEncoder) -> None:
    engine = Engine(model, FitSettings(compile="off"), GPU, torch.bfloat16, LENGTHS)
    first, again, other = (gradients(engine, texts(model), seed)[0] for seed in (5, 5, 6))
    assert distance(first, again) < 1e-6  # the mean of a text's tokens is summed up in any order
    assert distance(other, first) > 0.01


def test_a_budget_changes_nothing_with_dropout_on(model: BiEncoder) -> None:
    tokens = texts(model)
    budget = Engine(model, FitSettings(compile="off", token_budget=120), GPU, torch.bfloat16, LENGTHS)
    assert len(budget.split(tokens).parts) > 2
    cached = gradients(budget, tokens)
    budget.budget, parts = 10**6, budget.split(tokens)
    budget.split = lambda _: parts  # type: ignore[method-assign]  # split as before, but all kept
    kept = gradients(budget, tokens)
    assert distance(cached[0], kept[0]) < 1e-6
    assert distance(cached[1], kept[1]) < 1e-5


def test_float16_trains_with_scaled_gradients(model: BiEncoder, tmp_path: Path) -> None:
    engine = Engine(model, FitSettings(compile="off"), GPU, torch.float16, LENGTHS)
    vectors, gradient = gradients(engine, texts(model))
    assert torch.isfinite(vectors).all()
    assert torch.isfinite(gradient).all()


def test_without_room_for_a_graph_it_runs_plain(model: BiEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise torch.OutOfMemoryError("full")

    monkeypatch.setattr("remargin.training.engine._Graphs._record", full)
    plain = Engine(model, FitSettings(graphs=False, compile="off"), GPU, torch.bfloat16, LENGTHS)
    engine = Engine(model, FitSettings(compile="off"), GPU, torch.bfloat16, LENGTHS)
    assert distance(gradients(engine, texts(model))[1], gradients(plain, texts(model))[1]) < 0.03


def test_batches_of_fewer_texts_replay_the_same_graph(model: BiEncoder) -> None:
    """As topics give them."""
    whole = texts(model)
    engine = without_dropout(Engine(model, FitSettings(compile="off"), GPU, torch.bfloat16, LENGTHS))
    plain = without_dropout(Engine(model, FitSettings(graphs=False, compile="off"), GPU, torch.bfloat16, LENGTHS))
    gradients(engine, whole)
    assert engine._graphs is not None
    for left_out in ([2], [0, 2, 7]):
        rows = np.setdiff1d(np.arange(len(LENGTHS)), left_out)  # of texts so short that the shape stays
        some = select(whole, rows)
        for found, wanted in zip(gradients(engine, some), gradients(plain, some), strict=True):
            assert found.shape == wanted.shape
            assert distance(found, wanted) < 0.03
    assert len(engine._graphs._made) == 1


def test_a_finished_engine_leaves_no_graphs_behind(model: BiEncoder) -> None:
    model.to(GPU)
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved()
    for _ in range(3):
        with Engine(model, FitSettings(compile="off"), GPU, torch.bfloat16, LENGTHS) as engine:
            gradients(engine, texts(model))
        del engine
        for weight in model.parameters():
            weight.grad = None
        torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() - before < 64e6


def test_recording_is_not_spoilt_by_a_thread_that_pins_memory(model: BiEncoder) -> None:
    """As the loader does, which runs ahead."""
    stop = threading.Event()

    def pin() -> None:
        size = 1_000_000
        while not stop.is_set():
            torch.empty(size).pin_memory()  # never of a size that is in the cache already
            size += 100_000

    thread = threading.Thread(target=pin)
    thread.start()
    try:
        with Engine(model, FitSettings(compile="off"), GPU, torch.bfloat16, LENGTHS) as engine:
            for texts_at_once in range(4, 12):
                tokens = texts(model)
                some = Tokens(tokens.ids[: LENGTHS[:texts_at_once].sum()], LENGTHS[:texts_at_once])
                assert torch.isfinite(gradients(engine, some)[1]).all()
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize(
    "loss",
    [
        ContrastiveLoss(),
        SoftmaxMarginLoss(),
        SoftmaxMarginLoss(spread="running"),
        MarginLoss("distributed"),
        MarginLoss("adaptive", in_batch=True),
        MarginLoss(0.3),
    ],
)
@pytest.mark.filterwarnings("ignore:Synchronization debug mode:UserWarning")
def test_no_loss_waits_for_the_gpu(loss: torch.nn.Module) -> None:
    generator = torch.Generator(GPU).manual_seed(0)
    vectors = [torch.randn(64, 32, device=GPU, generator=generator, requires_grad=True) for _ in range(3)]
    ids = tuple(torch.randint(0, 20, (64,), generator=torch.Generator().manual_seed(side)) for side in range(3))
    loss = loss.to(GPU)
    arguments = {"ids": ids} if "ids" in loss.takes else {}  # type: ignore[operator]
    expected = loss(*vectors, **{name: tuple(t.to(GPU) for t in of) for name, of in arguments.items()}).item()
    try:
        torch.cuda.set_sync_debug_mode("error")
        value = loss(*vectors, **arguments)
        value.backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert value.item() == pytest.approx(expected, abs=1e-6)
