"""Encoding on a CPU: weights laid out as oneDNN likes them, GELU in the same pass, each core with texts of its own."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from remargin.model.postnorm import PostNorm

TOKENS = 1200  # oneDNN lays the weights out for about this many rows at once; any number of rows is right

T = TypeVar("T")
R = TypeVar("R")


def size_step(tokens: int) -> int:
    """What the size of a batch, in tokens, is rounded up to a multiple of: so there are a few dozen sizes.

    oneDNN compiles code for each number of rows that it meets and keeps half a megabyte of each, and memory that was
    freed is used again for what has the same size: without rounding, a server grows with every batch.

    >>> [size_step(tokens) for tokens in (0, 256, 257, 2400)]
    [16, 16, 64, 64]
    """
    return 16 if tokens <= 256 else 64


class Frozen(nn.Module):
    """A linear layer that cannot be trained any more, perhaps with GELU behind it."""

    def __init__(self, layer: nn.Linear, gelu: bool = False) -> None:
        super().__init__()
        self._weight = torch.ops.mkldnn._reorder_linear_weight(layer.weight.detach(), TOKENS)
        self._bias = None if layer.bias is None else layer.bias.detach()
        self._then = "gelu" if gelu else "none"

    def forward(self, x: Tensor) -> Tensor:
        """What the layer gives, or GELU of it."""
        out: Tensor = torch.ops.mkldnn._linear_pointwise(x, self._weight, self._bias, self._then, [], "none")
        return out


def freeze(body: Any) -> None:
    """Replace the linear layers of an encoder that is only to encode, where oneDNN is there and its kind is known."""
    known = isinstance(body, PostNorm) and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
    if not known or not torch.backends.mkldnn.is_available():
        return
    if body.word.dtype == torch.bfloat16 and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return
    for layer in body.layers:
        parts: Any = layer
        parts.qkv, parts.out, parts.down = Frozen(parts.qkv), Frozen(parts.out), Frozen(parts.down)
        parts.up = Frozen(parts.up, gelu=parts.exact_gelu)
        parts.activation = nn.Identity() if parts.exact_gelu else parts.activation


def on_all_cores(work: Callable[[T], R], items: Iterable[T], count: int) -> Iterator[R]:
    """What `work` makes of each of `count` items, in their order.

    PyTorch's threads each take items of their own, instead of sharing every operation and waiting for each other at its
    end; too few items are worked on one after another.

    >>> list(on_all_cores(lambda n: n * n, range(100), 100)) == [n * n for n in range(100)]
    True
    """
    threads = torch.get_num_threads()
    if threads == 1 or count < 2 * threads:
        yield from map(work, items)
        return
    jobs: queue.SimpleQueue[tuple[Future[R], T] | None] = queue.SimpleQueue()
    ready = threading.Barrier(threads + 1)

    def do_jobs() -> None:
        torch.get_num_threads()  # who asks for the first time takes over what was set last anywhere: not after this
        torch.set_num_threads(1)
        ready.wait()
        while (job := jobs.get()) is not None:
            future, item = job
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(work(item))
                except BaseException as error:  # handed over to the caller
                    future.set_exception(error)

    team = [threading.Thread(target=do_jobs, daemon=True) for _ in range(threads)]
    for thread in team:
        thread.start()
    ready.wait()
    torch.set_num_threads(threads)  # one is for the team alone, and not for threads that are yet to come
    waiting: deque[Future[R]] = deque()
    try:
        for item in items:
            waiting.append(Future())
            jobs.put((waiting[-1], item))
            if len(waiting) > threads + 1:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()
        for _ in team:
            jobs.put(None)
        for thread in team:
            thread.join()
