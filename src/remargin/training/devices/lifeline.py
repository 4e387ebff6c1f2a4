"""A connection of every process with the first one, over which each sees at once that another one has ended.

An exchange of torch.distributed says so late or never: with NCCL it hangs for minutes. The kernel closes the
connections of a process that ends, however it ends, and keep-alive packets find a machine that is gone.
"""

from __future__ import annotations

import errno
import os
import secrets
import selectors
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from remargin.errors import InputError
from remargin.progress import tell

OVER = b"."  # the leader has left, and all is well or has been said
BAD_INPUT = "bad input: "
LEAVES_BY_ITSELF = 5.0  # seconds for the main thread to come out of what it does, before the process is ended
GREETS_WITHIN = 10.0


class Lead:
    """The leader's ends. A thread of its own watches them.

    Args:
        host: where the others find this machine.
        size: how many processes there are, this one included.
        where: the folder of the training run, for messages.
        do: what to do when a process has ended, in words.
    """

    def __init__(self, host: str, size: int, where: str, do: str) -> None:
        self._size, self._where, self._do = size, where, do
        self._secret, self._over = secrets.token_hex(8), False
        self._ends: dict[socket.socket, int] = {}
        self._said: dict[int, str] = {}
        self._reasons: Callable[[int], str | None] = lambda rank: None
        self.failure: OSError | InputError | None = None
        self._seen, self._left = threading.Event(), threading.Event()  # by the thread; by whom it concerns
        self._watcher: threading.Thread | None = None
        local = host in ("127.0.0.1", "localhost")
        self._door = socket.create_server(("127.0.0.1" if local else "", 0), backlog=size)
        self.address = f"{host} {self._door.getsockname()[1]} {self._secret}"

    def accept(self, ended: Callable[[], int | None], reasons: Callable[[int], str | None]) -> None:
        """Wait for all other processes, then watch them.

        Args:
            ended: a process that has ended before it came, if that is known.
            reasons: why a process ended, in words, if that is known.
        """
        self._reasons = reasons
        self._door.settimeout(0.2)
        while len(self._ends) < self._size - 1:
            with suppress(TimeoutError):
                end, _ = self._door.accept()
                _keep_alive(end)
                if (rank := self._rank_of(end)) is None:
                    end.close()
                else:
                    self._ends[end] = rank
            if (rank_ended := ended()) is not None:
                raise self._failure(rank_ended)
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()

    def _rank_of(self, end: socket.socket) -> int | None:
        """Whose end it is, as the first line says; None for a stranger's."""
        end.settimeout(GREETS_WITHIN)
        try:
            with end.makefile() as lines:
                secret, rank = lines.readline().split()
        except (OSError, ValueError):
            return None
        end.settimeout(None)
        return int(rank) if secret == self._secret else None

    def raise_failure(self, wait: float) -> None:
        """Raise what another process ended with, if one did; wait some seconds for that to be seen."""
        self._seen.wait(wait)
        if self.failure is not None:
            self._left.set()
            raise self.failure from None

    def close(self) -> None:
        """Tell the others that all is over."""
        self._over = True
        self._left.set()
        self._tell_the_others()
        if self._watcher is not None:
            self._watcher.join()
        for end in (self._door, *self._ends):
            end.close()

    def _watch(self) -> None:
        with selectors.DefaultSelector() as selector:
            for door in self._ends:
                selector.register(door, selectors.EVENT_READ)
            while self._ends and not self._over:
                for key, _ in selector.select(timeout=0.5):
                    end = key.fileobj
                    assert isinstance(end, socket.socket)
                    rank, text = self._ends[end], _received(end)
                    self._said[rank] = self._said.get(rank, "") + text
                    if not text and not self._over:
                        time.sleep(0.1)  # until the system knows why
                        self._fail(rank)
                    if not text:
                        return

    def _fail(self, rank: int) -> None:
        self.failure = self._failure(rank)
        self._tell_the_others()
        self._seen.set()
        if not self._left.wait(LEAVES_BY_ITSELF):
            tell(f"error: {_words(self.failure)}", error=True)
            sys.stdout.flush()
            os._exit(2)

    def _failure(self, rank: int) -> OSError | InputError:
        said = self._said.get(rank, "").strip()
        if said.startswith(BAD_INPUT):
            return InputError(f"process {rank} of {self._size}: {said.removeprefix(BAD_INPUT)}")
        why = said or self._reasons(rank) or "its machine, or whoever ended it, knows why"
        problem = f"process {rank} of {self._size} of the training run has ended ({why}); {self._do}"
        return ChildProcessError(errno.ECHILD, problem, self._where)

    def _tell_the_others(self) -> None:
        for end in list(self._ends):
            with suppress(OSError):
                end.sendall(OVER)
                end.shutdown(socket.SHUT_RDWR)


class Follow:
    """Another process's end. When the leader has left, the process ends: nothing that it does is of use any more."""

    def __init__(self, address: str, rank: int, size: int) -> None:
        host, port, secret = address.split()
        self._rank, self._size, self._over = rank, size, False
        self._end = socket.create_connection((host, int(port)), timeout=GREETS_WITHIN)
        self._end.settimeout(None)
        _keep_alive(self._end)
        self._end.sendall(f"{secret} {rank}\n".encode())
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()

    def report(self, error: BaseException) -> None:
        """Tell the leader what this process ends with."""
        text = f"{BAD_INPUT}{error}" if isinstance(error, InputError) else f"{type(error).__name__}: {error}"
        with suppress(OSError):
            self._end.sendall(" ".join(text.split()).encode())

    def close(self) -> None:
        """Leave, when there is nothing more to do."""
        self._over = True
        with suppress(OSError):
            self._end.shutdown(socket.SHUT_RDWR)
        self._watcher.join()
        self._end.close()

    def _watch(self) -> None:
        text = _received(self._end)
        if self._over:
            return
        if not text.startswith(OVER.decode()) and self._rank == 1:  # one of the others speaks, as the leader cannot
            tell(f"error: process 0 of {self._size} of the training run has ended; the others end too", error=True)
        os._exit(0 if text else 1)


def why_it_ended(code: int) -> str:
    """An exit code in words.

    >>> why_it_ended(-9), why_it_ended(1)
    ('killed by SIGKILL', 'exit code 1')
    """
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def _words(failure: OSError | InputError) -> str:
    return str(failure) if isinstance(failure, InputError) else f"{failure.filename}: {failure.strerror}"


def _received(end: socket.socket) -> str:
    try:
        return end.recv(65_536).decode(errors="replace")
    except OSError:  # reset, or not alive any more
        return ""


def _keep_alive(end: socket.socket) -> None:
    """Find out in some seconds that the other machine is gone."""
    end.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 4), ("TCP_KEEPINTVL", 2), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):
            end.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
