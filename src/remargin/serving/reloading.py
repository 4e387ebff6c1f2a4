"""Watching what is served: a new model or index is loaded beside the old one, and takes its place at once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from remargin.errors import first_line
from remargin.serving.engine import Engine
from remargin.serving.loading import Served

log = logging.getLogger(__name__)


class Reloader:
    """Looks at what is served every `seconds`, and hands over a new engine when it has changed.

    A change counts when two looks find the same, so that a folder that is being copied is not loaded half. What cannot
    be loaded is a warning, and the old engine stays until the next change.

    Args:
        served: what is on disk.
        state: what `served.state()` was before the present engine was loaded.
        swap: takes the new engine.
        failed: called when a change could not be loaded.
        seconds: between two looks.
    """

    def __init__(
        self,
        served: Served,
        state: object,
        swap: Callable[[Engine], None],
        failed: Callable[[], None] = lambda: None,
        seconds: float = 1.0,
    ) -> None:
        self._served, self._state, self._swap, self._failed, self._seconds = served, state, swap, failed, seconds
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="loader")
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Reloader:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        seen = self._state
        while True:
            await asyncio.sleep(self._seconds)
            now = await loop.run_in_executor(self._thread, self._served.state)
            settled, seen = now == seen, now
            if now == self._state or not settled:
                continue
            self._state = now
            try:
                engine = await loop.run_in_executor(self._thread, self._served.load)
            except Exception as error:  # whatever a damaged folder makes libraries raise: serving goes on
                log.warning("a change was not taken over, and what was served before still is (%s)", first_line(error))
                self._failed()
            else:
                self._swap(engine)
