"""Batches: the same results as one at a time, within their limits, and nothing that was accepted is lost."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence

import pytest

from remargin.serving.batching import Batcher, Closed, QueueFull


def test_jobs_that_come_together_are_done_together_and_each_gets_its_own_result() -> None:
    batches: list[list[int]] = []

    def squares(jobs: Sequence[int]) -> list[int]:
        batches.append(list(jobs))
        return [job * job for job in jobs]

    async def run() -> list[int]:
        async with Batcher(squares, most=8, seconds=0.05) as batcher:
            return await asyncio.gather(*(batcher.submit(n) for n in range(20)))

    assert asyncio.run(run()) == [n * n for n in range(20)]
    assert [len(batch) for batch in batches] == [8, 8, 4]
    assert [job for batch in batches for job in batch] == list(range(20))


def test_a_lonely_job_waits_for_others_only_a_moment() -> None:
    async def run() -> float:
        async with Batcher(list, seconds=0.02) as batcher:
            started = time.perf_counter()
            await batcher.submit(1)
            return time.perf_counter() - started

    assert 0.01 < asyncio.run(run()) < 1


def test_sizes_count_and_a_job_larger_than_a_batch_is_one_of_its_own() -> None:
    batches: list[list[str]] = []

    def work(jobs: Sequence[str]) -> list[str]:
        batches.append(list(jobs))
        return list(jobs)

    async def run() -> None:
        async with Batcher(work, most=4, seconds=0.02, room=8) as batcher:
            await asyncio.gather(*(batcher.submit(name, size) for name, size in (("a", 2), ("b", 3), ("c", 1))))
            assert await batcher.submit("huge", 100) == "huge"  # when nothing else waits

    asyncio.run(run())
    assert batches == [["a"], ["b", "c"], ["huge"]]


def test_past_its_room_a_job_is_refused_and_the_others_are_done() -> None:
    free = threading.Event()

    def work(jobs: Sequence[int]) -> list[int]:
        free.wait(10)
        return list(jobs)

    async def run() -> list[object]:
        async with Batcher(work, most=1, seconds=0, room=3) as batcher:
            first = asyncio.create_task(batcher.submit(0))
            await asyncio.sleep(0.05)  # it is being worked on
            others = [asyncio.create_task(batcher.submit(n)) for n in range(1, 7)]
            await asyncio.sleep(0.05)
            assert batcher.waiting == 3
            free.set()
            return await asyncio.gather(first, *others, return_exceptions=True)

    results = asyncio.run(run())
    assert results[:4] == [0, 1, 2, 3]
    assert [type(result) for result in results[4:]] == [QueueFull] * 3


def test_a_bad_job_spoils_no_other() -> None:
    def work(jobs: Sequence[int]) -> list[float]:
        return [1 / job for job in jobs]

    async def run() -> list[object]:
        async with Batcher(work, seconds=0.02) as batcher:
            return await asyncio.gather(*(batcher.submit(n) for n in (1, 0, 2)), return_exceptions=True)

    one, error, half = asyncio.run(run())
    assert (one, half) == (1.0, 0.5)
    assert isinstance(error, ZeroDivisionError)


def test_closing_finishes_what_was_accepted_and_takes_no_more() -> None:
    def work(jobs: Sequence[int]) -> list[int]:
        time.sleep(0.02)
        return list(jobs)

    async def run() -> tuple[list[int], Batcher[int, int]]:
        async with Batcher(work, most=2, seconds=5) as batcher:
            tasks = [asyncio.create_task(batcher.submit(n)) for n in range(9)]
            await asyncio.sleep(0)
        assert all(task.done() for task in tasks)
        with pytest.raises(Closed):
            await batcher.submit(10)
        return [task.result() for task in tasks], batcher

    results, _ = asyncio.run(run())
    assert results == list(range(9))


def test_who_gave_up_is_not_worked_for() -> None:
    done: list[int] = []

    def work(jobs: Sequence[int]) -> list[int]:
        time.sleep(0.05)
        done.extend(jobs)
        return list(jobs)

    async def run() -> None:
        async with Batcher(work, most=1, seconds=0) as batcher:
            tasks = [asyncio.create_task(batcher.submit(n)) for n in range(3)]
            await asyncio.sleep(0.01)
            tasks[1].cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(run())
    assert done == [0, 2]
