"""Lines from the source into the journal, as many as the next batch needs, and the wait for them."""

from __future__ import annotations

import time
from collections.abc import Callable

from remargin.training.streaming.journal import StreamJournal, Taken
from remargin.training.streaming.sources import Source
from remargin.training.streaming.window import Window

LOOK_AGAIN = 0.2  # seconds between two looks for new lines


class Feed:
    """Gives the examples of one batch after another.

    No more lines are taken than the next batch needs. So whoever writes faster than training reads has to wait, and
    memory holds no more than the window and a batch.

    Args:
        source: where lines come from.
        journal: keeps them.
        window: draws examples.
        size: the examples of a batch.
        wait: the seconds without a new line after which no more is expected; None waits for ever.
        stopped: whether to wait no longer, as somebody wants to stop.
    """

    def __init__(
        self,
        source: Source,
        journal: StreamJournal,
        window: Window,
        size: int,
        wait: float | None,
        stopped: Callable[[], bool],
    ) -> None:
        self._source, self._journal, self._window, self._size = source, journal, window, size
        self._wait, self._stopped = wait, stopped
        self._closing = False  # until another line comes
        self.waited = 0.0  # seconds

    def batch(self) -> list[Taken]:
        """The examples of the next batch; fewer than usual at the end of the stream; none when there are no more."""
        since = time.monotonic()
        while lacking := self._window.lacking(self._size):
            if self._stopped():
                return []
            silent = time.monotonic() - since
            self._closing |= self._source.ended or (self._wait is not None and silent >= self._wait)
            if lines := self._source.take(lacking, self._closing):
                self._journal.add(lines)
                since, self._closing = time.monotonic(), False
            elif self._closing:
                return self._window.batch(self._window.rest(self._size))
            elif not self._source.ended:
                self._pause()
        return self._window.batch(self._size)

    def _pause(self) -> None:
        began = time.monotonic()
        time.sleep(LOOK_AGAIN)
        self.waited += time.monotonic() - began
