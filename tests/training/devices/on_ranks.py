"""What tests have every process do. The processes that follow import this module, too."""

from __future__ import annotations

import os
import socket
import stat
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import safetensors.torch
import torch
from torch import Tensor, nn

from remargin import BiEncoder
from remargin.losses.inputs import Similarity
from remargin.losses.margin import MarginLoss, Statistics
from remargin.model.tokenizer import Tokens
from remargin.training import loop
from remargin.training.batches import TripletBatch
from remargin.training.devices.global_loss import global_loss
from remargin.training.devices.ranks import Ranks
from remargin.training.engine import Engine
from remargin.training.loop import train
from remargin.training.settings import FitSettings

NO_TEXTS = Tokens(np.zeros(0, np.uint16), np.zeros(0, np.int64))


class Float64Engine(Engine):
    """In float32, Adam takes steps of the size of the learning rate where a gradient is nothing but rounding."""

    def __init__(self, model: Any, settings: Any, device: Any, dtype: Any, *others: Any) -> None:
        with mock.patch.object(torch, "float32", torch.float64):  # of the norms
            super().__init__(model, settings, device, torch.float64, *others)

    def describe(self) -> str:
        return "float64"


@contextmanager
def in_float64() -> Iterator[None]:
    wide = mock.patch.object(torch.Tensor, "float", torch.Tensor.double)
    with wide, mock.patch.object(loop, "Engine", Float64Engine):
        yield


def exact_model(folder: Path, similarity: Similarity = "cosine") -> BiEncoder:
    """Without dropout."""
    model = BiEncoder.from_pretrained(folder, similarity=similarity).double()
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return model


def silent(line: str) -> None:
    pass


class Masked(MarginLoss):
    """Leaves out pairs by their ids, as one does who knows what is relevant."""

    def __init__(self, loss: MarginLoss) -> None:
        super().__init__(loss.target, loss.in_batch, loss.error, loss.similarity, loss.stop_gradient)
        self.takes = ("ids",)

    def forward(self, *vectors: Tensor, ids: tuple[Tensor, ...]) -> Tensor:  # type: ignore[override]
        return super().forward(*vectors, mask=known(ids))

    def statistics(self, *vectors: Tensor, ids: tuple[Tensor, ...]) -> Statistics:  # type: ignore[override]
        return super().statistics(*vectors, mask=known(ids))


def known(ids: tuple[Tensor, ...]) -> Tensor:
    """About a third of all pairs."""
    queries, _, negatives = ids
    return ((queries[:, None] + negatives) % 3 == 0).nonzero()


def train_exactly(
    ranks: Ranks,
    folder: Path,
    data: Path,
    out: Path,
    settings: FitSettings,
    validator: Any = None,
    observe: Any = None,
    similarity: Similarity = "cosine",
    masked: bool = False,
) -> None:
    with in_float64():
        loss = settings.loss.build(similarity, 32)
        if masked:
            assert isinstance(loss, MarginLoss)
            loss = Masked(loss)
        loss = loss.double()
        train(
            exact_model(folder, similarity), data, out, loss, settings, validator, resume=True, say=silent, ranks=ranks,
            observe=observe if ranks.leads else None,
        )  # fmt: skip


def train_plainly(ranks: Ranks, folder: Path, data: Path, out: Path, settings: FitSettings) -> None:
    """In float32, with dropout."""
    train(BiEncoder.from_pretrained(folder), data, out, settings=settings, resume=True, say=silent, ranks=ranks)


def state(out: Path) -> dict[str, Tensor]:
    """Weights, state of the loss, and the optimiser's moments, as the checkpoint has them."""
    tensors = safetensors.torch.load_file(out / "checkpoint" / "state.safetensors")
    return {name: tensor for name, tensor in tensors.items() if not name.startswith("rng.")}


def differences(one: Path, other: Path) -> dict[str, float]:
    first, second = state(one), state(other)
    assert first.keys() == second.keys()
    return {name: float((first[name].double() - second[name].double()).abs().max()) for name in first}


def batch_of(size: int, k: int = 1) -> TripletBatch:
    rows = np.arange(size)
    return TripletBatch(rows, rows, rows if k == 1 else np.tile(rows[:, None], (1, k)), NO_TEXTS, None)


Case = tuple[nn.Module, list[Tensor], dict[str, Any], bool]  # a loss, a batch, more arguments, and whether to gather


def losses(ranks: Ranks, cases: list[Case]) -> list[list[tuple[Tensor, list[Tensor]]]]:
    """For each process and case: the loss, and the gradients of the process's own vectors."""
    results = []
    for loss, batch, arguments, gather in cases:
        own = ranks.share(len(batch[0]))
        rows = torch.cat([part[own].flatten(0, -2) for part in batch]).detach().requires_grad_()
        k = batch[2].shape[1] if batch[2].ndim == 3 else 1
        value, _ = global_loss(loss, batch_of(len(batch[0]), k), rows, arguments, ranks, gather)
        value.backward()  # type: ignore[no-untyped-call]
        count = own.stop - own.start
        assert rows.grad is not None
        results.append((value.detach(), list(rows.grad.split([count, count, count * k]))))
    return ranks.collect(results)


def bytes_sent(ranks: Ranks, cases: list[Case]) -> list[int]:
    """How many bytes this process sent to others for the forward and backward pass of each case, as the kernel says."""
    sent = []
    for case in cases:
        before = _settled()
        losses_alone(ranks, case)
        sent.append(_settled() - before)
    return sent


def _settled() -> int:
    """Bytes acknowledged when no more are."""
    before, now = -1, _acknowledged()
    while now != before:
        time.sleep(0.5)
        before, now = now, _acknowledged()
    return now


def losses_alone(ranks: Ranks, case: Case) -> None:
    loss, batch, arguments, gather = case
    rows = torch.cat([part[ranks.share(len(part))] for part in batch]).detach().requires_grad_()
    global_loss(loss, batch_of(len(batch[0])), rows, arguments, ranks, gather)[0].backward()  # type: ignore[no-untyped-call]


def _acknowledged() -> int:
    """Bytes that were sent and acknowledged over all TCP connections of this process: field 16 of tcp_info."""
    total = 0
    opened = [path.name for path in Path("/proc/self/fd").iterdir()]  # all of them, before this opens any
    for name in opened:
        try:
            if not stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                continue
            with socket.socket(fileno=os.dup(int(name))) as connection:
                info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
        except OSError:  # closed by now, or no connection of TCP
            continue
        total += struct.unpack_from("Q", info, 120)[0]
    return total


def exchange(ranks: Ranks, out: Path) -> None:
    """One of everything that processes exchange."""
    rows = [2, 0, 1][: ranks.size]
    own = torch.full((rows[ranks.rank], 3), float(ranks.rank + 1), requires_grad=True)
    parts = ranks.gather(own, rows)
    assert [part.tolist() for part in parts] == [[[rank + 1.0] * 3] * count for rank, count in enumerate(rows)]
    (torch.cat(parts) * (ranks.rank + 1)).sum().backward()  # type: ignore[no-untyped-call]
    assert own.grad is not None
    assert torch.equal(own.grad, torch.full_like(own, ranks.rank + 1.0))  # of its own loss alone
    tensors = [torch.full((2, 3), 1.0), torch.full((4,), 2.0, dtype=torch.float64), torch.full((1, 5), 3.0)]
    with mock.patch("remargin.training.devices.ranks.ADDED_AT_ONCE", 8):
        ranks.total_together(tensors)
    assert [float(tensor.mean()) for tensor in tensors] == [ranks.size, 2.0 * ranks.size, 3.0 * ranks.size]
    assert ranks.agree(ranks.leads)
    assert ranks.hear(f"from {ranks.rank}") == "from 0"
    assert ranks.collect(ranks.rank) == list(range(ranks.size))
    weight = torch.full((2,), float(ranks.rank))
    ranks.spread([weight])
    assert not weight.any()
    name = out / "once"
    ranks.after_leader(lambda: name.touch(exist_ok=False) if ranks.leads else name.read_bytes())


def fail(ranks: Ranks, rank: int | None, how: BaseException | int) -> None:
    """One process ends in some way: with an error, or with a signal to itself. The others wait for it."""
    if ranks.rank == rank:
        if isinstance(how, BaseException):
            raise how
        os.kill(os.getpid(), how)
    ranks.collect(None)
