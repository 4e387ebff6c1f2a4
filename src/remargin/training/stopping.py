"""Ctrl-C and SIGTERM, held back until training can be left without losing a step."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress
from types import FrameType
from typing import Any


class Stopping:
    """From `hold` on, the first request to stop only sets `asked`; whoever sees that saves its work and calls `leave`.

    A second request is not held back. Where signals cannot be handled, outside of the main thread, and where they are
    ignored or handled outside of Python, nothing changes.

    >>> before = signal.signal(signal.SIGINT, signal.default_int_handler)  # which a job in the background lacks
    >>> try:
    ...     with Stopping() as stopping:
    ...         stopping.hold()
    ...         signal.raise_signal(signal.SIGINT)
    ...         print("still here, and asked to leave:", stopping.asked)
    ...         stopping.leave()
    ... except KeyboardInterrupt:
    ...     print("gone")
    still here, and asked to leave: True
    gone
    >>> _ = signal.signal(signal.SIGINT, before)
    """

    def __init__(self) -> None:
        self._before: dict[int, Any] = {}
        self._number: int | None = None

    @property
    def asked(self) -> bool:
        """Whether somebody wants it to stop."""
        return self._number is not None

    def hold(self) -> None:
        """Hold a request back: there is something to lose now."""
        if threading.current_thread() is threading.main_thread():
            heard = [n for n in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(n) not in (signal.SIG_IGN, None)]
            self._before = {number: signal.signal(number, self._ask) for number in heard}

    def leave(self) -> None:
        """Do what the request would have done."""
        assert self._number is not None
        self._restore()
        signal.raise_signal(self._number)

    def __enter__(self) -> Stopping:
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self._number = number
        self._restore()
        with suppress(OSError):  # nobody may listen; and no print, for one may be under way
            os.write(2, b"\nstopping after this step, to keep it; once more to stop at once\n")

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}
