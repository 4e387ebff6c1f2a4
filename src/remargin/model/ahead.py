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
    ready: queue.Queue[tuple[str, Any]] = queue.Queue(depth)
    stopped = threading.Event()

    def put(kind: str, value: Any) -> bool:
        while not stopped.is_set():
            try:
                ready.put((kind, value), timeout=0.1)
                return True
            except queue.Full:
                continue
        return False

    def work() -> None:
        try:
            for item in items:
                if not put("item", item):
                    return
            put("end", None)
        except BaseException as error:  # handed over to the caller
            put("error", error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        while True:
            kind, value = ready.get()
            if kind == "error":
                raise value
            if kind == "end":
                return
            yield value
    finally:
        stopped.set()
        thread.join()
