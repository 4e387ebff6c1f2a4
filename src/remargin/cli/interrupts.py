"""Ctrl-C: at once while packages are loaded, and with a word on how to continue afterwards."""

from __future__ import annotations

import os
import shlex
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

INTERRUPTED = 128 + signal.SIGINT
SAME_COMMAND = {"prepare", "mine", "teach", "encode", "sweep", "curve", "reproduce", "benchmark"}  # continue their work
TRAINING_RUN = {"fit", "demo"}  # leave a training run that `fit --resume` continues
CONFIG = "config.yaml"  # of a training run; reports/run_files.py has it, but would load too much here


@contextmanager
def leaving_at_once() -> Iterator[None]:
    """Meanwhile, Ctrl-C ends the process with one line: there is nothing to lose yet, and no traceback to show."""
    before = signal.signal(signal.SIGINT, _leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def interruptible() -> None:
    """From here on Ctrl-C is a KeyboardInterrupt: there are files to finish or to remove."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def ends() -> None:
    """From here on Ctrl-C ends the process at once again: all is cleaned up."""
    signal.signal(signal.SIGINT, _leave)


def how_to_continue(verb: str, params: Mapping[str, Any]) -> str:
    """The line after Ctrl-C: the command that continues, if there is something to continue.

    >>> how_to_continue("mine", {}), how_to_continue("search", {})
    ('interrupted; the same command continues', 'interrupted; nothing was written')
    """
    if verb in SAME_COMMAND:
        return "interrupted; the same command continues"
    if verb == "index" and params.get("model") and not params.get("vectors"):  # vectors are kept
        return "interrupted; the same command continues, or says how"
    if verb in TRAINING_RUN:
        out = params.get("resume") or params.get("out")
        if out and (Path(out) / CONFIG).is_file():
            return f"interrupted; continue with: remargin fit --resume {shlex.quote(str(out))}"
    return "interrupted; nothing was written"


def _leave(number: int, frame: Any) -> None:
    with suppress(OSError):  # nobody may listen
        os.write(2, b"\ninterrupted\n")
    os._exit(INTERRUPTED)
