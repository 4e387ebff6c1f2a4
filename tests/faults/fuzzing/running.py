"""Reads mutated copies of a folder in a process of its own, and counts what came of it."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

import remargin
from remargin.errors import InputError

from .mutations import Format, Mutation

SOURCE = Path(remargin.__file__).parent
SECONDS = 20  # of computing, for one reader of one mutation: a busy machine is no failure
WAITED = 300  # seconds without any progress, after which a process is ended that computes nothing
MEMORY = 4 << 30  # bytes beyond what the process has before
Reader = Callable[[Path], object]


@dataclass
class Case:
    """A valid folder, the files in it that are to be mutated, and what reads them.

    Attributes:
        count: how many mutations are tried, unless more are asked for.
        heals: that damage is never refused, since what is damaged is made again.
        reads_only: that no reader changes the folder, so one copy of it serves for all mutations.
    """

    folder: Path
    files: dict[str, Format]
    readers: tuple[Reader, ...]
    count: int = 300
    heals: bool = False
    reads_only: bool = False


def read_only_case(folder: Path, format: Format, *readers: Reader, files: tuple[str, ...] = ()) -> Case:
    """A case whose files, all of a folder or those named, have one format, and whose readers change nothing."""
    names = files or tuple(str(path.relative_to(folder)) for path in sorted(folder.rglob("*")) if path.is_file())
    return Case(folder, dict.fromkeys(names, format), readers, reads_only=True)


class NotFiniteError(AssertionError):
    """A reader gave numbers that are none, without a word."""


def require_finite(*arrays: NDArray[np.float32]) -> None:
    for array in arrays:
        if not np.isfinite(array).all():
            raise NotFiniteError("not all numbers are finite")


class TookTooLong(BaseException):
    """A reader did not come to an end. No library may catch this, so it is no Exception."""


@dataclass
class Tally:
    """How often a reader worked, refused its input as it should, or failed; and examples of each way to fail."""

    mutations: int = 0
    worked: int = 0
    refused: int = 0
    first_refusal: str = ""
    failures: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)

    def add(self, outcome: str, failure: str, example: str) -> None:
        if outcome == "worked":
            self.worked += 1
        elif outcome == "refused":
            self.refused += 1
            self.first_refusal = self.first_refusal or example
        else:
            self.failures[failure] += 1
            self.examples.setdefault(failure, example)

    def __str__(self) -> str:
        failed = f"{self.failures.total()} failed in {len(self.failures)} ways"
        return f"{self.mutations} mutations: {self.worked} worked, {self.refused} refused, {failed}"

    def report(self) -> str:
        """All ways to fail, the most frequent first."""
        lines = [
            f"  {count:4} x {failure}\n         {self.examples[failure]}"
            for failure, count in self.failures.most_common()
        ]
        return "\n".join([str(self), *lines])


def read_mutated(case: Case, mutations: list[Mutation], work: Path) -> Tally:
    """Let each reader read a copy of the folder with each mutation. One that ends its process has failed."""
    tally, done, log = Tally(len(mutations)), 0, work / "log.jsonl"
    while done < len(mutations):
        log.write_text("")
        end = _in_another_process(lambda done=done: _read_all(case, mutations[done:], work, log), log)  # type: ignore[misc]
        begun = None
        for line in log.read_text().splitlines():
            number, reader, *outcome = json.loads(line)
            begun = (done + number, reader) if not outcome else None
            if outcome:
                tally.add(*outcome)
        if begun is not None:
            number, reader = begun
            tally.add("failed", f"the process ended ({end}) in {reader}", describe(mutations[number]))
        elif end != "exit 0":
            said = log.with_suffix(".txt").read_text(errors="replace")
            raise AssertionError(f"the process ended ({end}) between two mutations: {said[-2000:]}")
        done = len(mutations) if begun is None else begun[0] + 1
    return tally


def _in_another_process(work: Callable[[], None], log: Path) -> str:
    """How a process ended that did the work; killed, if its log did not grow for long."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # threads of libraries, which have nothing to do now
        process = os.fork()
    if not process:
        _work_and_exit(work, log.with_suffix(".txt"))
    size, since = 0, time.monotonic()
    try:
        while True:
            found, status = os.waitpid(process, os.WNOHANG)
            if found:
                code = os.waitstatus_to_exitcode(status)
                process = 0
                return f"exit {code}" if code >= 0 else signal.Signals(-code).name
            if log.stat().st_size > size:
                size, since = log.stat().st_size, time.monotonic()
            elif time.monotonic() - since > WAITED:
                os.kill(process, signal.SIGKILL)
            time.sleep(0.01)
    finally:
        if process:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)


def _work_and_exit(work: Callable[[], None], output: Path) -> NoReturn:
    code = 1
    try:
        with open(output, "wb") as file:  # thousands of warnings, and panics of Rust
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        import torch

        torch.set_num_threads(1)  # those of the process before are not here
        with open("/proc/self/statm") as file:
            used = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, resource.RLIM_INFINITY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        work()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _read_all(case: Case, mutations: list[Mutation], work: Path, log: Path) -> None:
    signal.signal(signal.SIGPROF, _too_long)
    copy = work / "copy"
    shutil.rmtree(copy, ignore_errors=True)  # of a process that ended
    with open(log, "a") as file:
        for number, mutation in enumerate(mutations):
            for reader in case.readers:
                if not case.reads_only or not copy.exists():
                    shutil.rmtree(copy, ignore_errors=True)
                    shutil.copytree(case.folder, copy)
                mutation.apply(copy / mutation.file)
                print(json.dumps([number, reader.__name__]), file=file, flush=True)
                outcome = _outcome(reader, copy, describe(mutation))
                print(json.dumps([number, reader.__name__, *outcome]), file=file, flush=True)
                if case.reads_only:
                    _restore(case.folder / mutation.file, copy / mutation.file)


def _restore(original: Path, copy: Path) -> None:
    """Undo a mutation, be it that the file is gone or became a folder."""
    if copy.is_dir():
        copy.rmdir()
    shutil.copy(original, copy)


def describe(mutation: Mutation) -> str:
    return f"{mutation.file}: {mutation.what}"


def _outcome(reader: Reader, folder: Path, what: str) -> tuple[str, str, str]:
    """Whether it worked, was refused, or failed; if it failed, in what way and for which mutation."""
    try:
        with _time_limit():
            reader(folder)
    except InputError as error:
        if len(str(error).splitlines()) == 1:
            return "refused", "", f"{what} -> {reader.__name__}: {error}"
        failure, message = "InputError of several lines", str(error)
    except BaseException as error:  # panics of Rust are no Exception
        failure, message = type(error).__name__, str(error)
        failure += f" at {_place(error)}"
    else:
        return "worked", "", ""
    return "failed", failure, f"{what} -> {reader.__name__}: {message[:160]!a}"


def _place(error: BaseException) -> str:
    """Our innermost line in a traceback."""
    frames = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    ours = [(name, line) for name, line in frames if Path(name).is_relative_to(SOURCE)]
    name, line = (ours or frames)[-1]
    return f"{Path(name).relative_to(SOURCE) if ours else Path(name).name}:{line}"


@contextmanager
def _time_limit() -> Iterator[None]:
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _too_long(number: int, frame: FrameType | None) -> None:
    raise TookTooLong(f"longer than {SECONDS} s")
