"""Concurrent jobs, done together: an encoder takes little longer for several queries than for one."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Generic, TypeVar

J = TypeVar("J")
R = TypeVar("R")


class QueueFull(Exception):
    """There are as many jobs waiting as may wait."""


class Closed(Exception):
    """No more jobs are taken: the server is stopping."""


@dataclass
class _Waiting(Generic[J, R]):
    job: J
    size: int
    answer: asyncio.Future[R] = field(repr=False)


class Batcher(Generic[J, R]):
    """Takes jobs one by one, and has one thread work on several at a time, in the order in which they came.

    While the thread works, jobs gather for the next batch. If it is idle, a job waits a few milliseconds for others.

    Args:
        work: does several jobs, and returns a result for each.
        most: jobs in a batch, by their sizes; a larger job is a batch of its own.
        seconds: how long the first job of a batch waits for others.
        room: jobs that may wait, by their sizes.
        watch: called with the size of each batch and the seconds that it took.

    Example:
        >>> async def squares():
        ...     async with Batcher(lambda jobs: [job * job for job in jobs]) as batcher:
        ...         return await asyncio.gather(*(batcher.submit(n) for n in range(4)))
        >>> asyncio.run(squares())
        [0, 1, 4, 9]
    """

    def __init__(
        self,
        work: Callable[[Sequence[J]], Sequence[R]],
        most: int = 64,
        seconds: float = 0.004,
        room: int = 512,
        watch: Callable[[int, float], None] = lambda size, seconds: None,
    ) -> None:
        self._work, self._most, self._seconds, self._room, self._watch = work, most, seconds, room, watch
        self._waiting: deque[_Waiting[J, R]] = deque()
        self.waiting = 0  # their sizes, added up
        self._came = asyncio.Event()
        self._closed = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="encoder")
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Batcher[J, R]:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *error: object) -> None:
        """Take no more jobs, and finish those that were taken."""
        self._closed = True
        self._came.set()
        if self._task is not None:
            await self._task
        self._thread.shutdown()

    async def submit(self, job: J, size: int = 1) -> R:
        """The result of a job, when its batch is done.

        Raises:
            QueueFull: if too many jobs wait already.
            Closed: if the batcher is being closed.
        """
        if self._closed:
            raise Closed
        if self.waiting + size > max(self._room, size):
            raise QueueFull
        waiting = _Waiting[J, R](job, size, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        self.waiting += size
        self._came.set()
        return await waiting.answer

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            while not self._waiting and not self._closed:
                self._came.clear()
                await self._came.wait()
            if not self._waiting:
                return
            if len(self._waiting) == 1:
                await self._others()
            batch = self._taken()
            if not batch:  # whoever asked has gone
                continue
            started = loop.time()
            results = await loop.run_in_executor(self._thread, self._done, [one.job for one in batch])
            self._watch(sum(one.size for one in batch), loop.time() - started)
            for one, result in zip(batch, results, strict=True):
                if one.answer.done():
                    continue
                if isinstance(result, BaseException):
                    one.answer.set_exception(result)
                else:
                    one.answer.set_result(result)

    async def _others(self) -> None:
        """Wait a moment for more jobs, but not if the batch is full or the server stops."""
        end = asyncio.get_running_loop().time() + self._seconds
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(end):
                while self.waiting < self._most and not self._closed:
                    self._came.clear()
                    await self._came.wait()

    def _taken(self) -> list[_Waiting[J, R]]:
        """The next batch: at least one job, and as many as fit."""
        batch: list[_Waiting[J, R]] = []
        size = 0
        while self._waiting and (not batch or size + self._waiting[0].size <= self._most):
            one = self._waiting.popleft()
            self.waiting -= one.size
            if not one.answer.done():  # else it was cancelled
                batch.append(one)
                size += one.size
        return batch

    def _done(self, jobs: list[J]) -> list[R | Exception]:
        """The results; if the batch fails, those of each job alone, so that one bad job spoils no other."""
        try:
            return list(self._work(jobs))
        except Exception as error:
            return [error] if len(jobs) == 1 else [result for job in jobs for result in self._done([job])]
