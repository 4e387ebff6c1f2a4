"""Work a little ahead in a thread."""

from __future__ import annotations

import queue
import threading
from collections.abc import Generator, Iterable
from typing import Any, TypeVar

T = TypeVar("T")


def ahead(items: Iterable[T], depth: int = 2) -> Generator[T, None, None]:
    """The same items in the same order, made in a thread, up to `depth` of them before they are asked for.

    What goes wrong there is raised here. The thread ends when the caller stops asking.

    >>> list(ahead(n * n for n in range(4)))
    [0, 1, 4, 9]
    """
    ready: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
    room, stopped = threading.Semaphore(depth), threading.Event()

    def work() -> None:
        try:
            for item in items:
                room.acquire()
                if stopped.is_set():
                    return
                ready.put(("item", item))
            ready.put(("end", None))
        except BaseException as error:  # handed over to the caller
            ready.put(("error", error))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        while True:
            kind, value = ready.get()
            if kind == "error":
                raise value
            if kind == "end":
                return
            room.release()
            yield value
    finally:
        stopped.set()
        room.release()
        thread.join()
