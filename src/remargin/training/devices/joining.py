"""How the processes of a training run come together: started here, or by torchrun, also on several machines."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import distributed
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

import remargin
from remargin.errors import InputError
from remargin.progress import silenced
from remargin.training.devices.lifeline import Follow, Lead, why_it_ended
from remargin.training.devices.ranks import ALONE, Ranks

# Whoever waits may wait for long, as for a leader that mines: a process that has ended is found by the lifeline.
PATIENT = timedelta(days=30)
CONNECTS_WITHIN = timedelta(minutes=2)
HERE = "127.0.0.1"
ADDRESS = "lifeline"
FOLLOWER = "from remargin.training.devices import joining as j; j.follow(j.World.of(None), j.CONNECTS_WITHIN)"
# An exchange fails with a RuntimeError when another process has ended. A process that follows waits for so many
# seconds to be ended with the others, before it takes the failure for its own; the leader waits for longer.
SETTLES_WITHIN, HEARS_WITHIN = 2.0, 8.0


@dataclass(frozen=True)
class World:
    """How many processes are to train together, and which of them this is.

    Attributes:
        rank, size: of all processes.
        local, here: of those on this machine.
        started: whether all processes are there already, as torchrun starts them; else the leader starts the others.

    Example:
        >>> World.of(2, {})
        World(rank=0, size=2, local=0, here=2, started=False)
        >>> World.of(None, {"WORLD_SIZE": "4", "RANK": "3", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"})
        World(rank=3, size=4, local=1, here=2, started=True)
    """

    rank: int = 0
    size: int = 1
    local: int = 0
    here: int = 1
    started: bool = False

    @classmethod
    def of(cls, devices: int | None, environment: Mapping[str, str] = os.environ) -> World:
        """As the environment says that torchrun gives its processes; else so many devices of this machine, or one.

        Raises:
            InputError: if there are not so many devices, or torchrun started another number of processes.
        """
        world = _started(environment) or cls(size=devices or 1, here=devices or 1)
        if devices is not None and devices < 1:
            raise InputError(f"devices is {devices}", do="it must be at least 1")
        if devices not in (None, world.here):
            problem = f"devices is {devices}, but torchrun started {world.here} processes on this machine"
            raise InputError(problem, do="leave out --devices")
        if world.size > 1 and torch.cuda.is_available() and world.here > (gpus := torch.cuda.device_count()):
            raise InputError(f"{world.here} devices, but this machine has {gpus} GPUs", do=f"use at most {gpus}")
        return world

    @property
    def faster(self) -> int:
        """How many times as fast as one process all are, about: those on one machine share the cores of its CPU."""
        return self.size if torch.cuda.is_available() else max(1, self.size // self.here)


def _started(environment: Mapping[str, str]) -> World | None:
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    values = [environment.get(name, "") for name in names]
    if not values[0] or values[1] in ("", "1"):
        return None
    if not all(value.isdecimal() for value in values):
        said = ", ".join(f"{name}={value}" for name, value in zip(names, values, strict=True))
        raise InputError(f"the environment is not one of torchrun: {said}", do="start with torchrun, or unset RANK")
    rank, size, local, here = map(int, values)
    return World(rank, size, local, here, started=True)


@contextmanager
def leading(world: World, out: Path) -> Iterator[Ranks]:
    """Meanwhile, the other processes follow: they run what `Ranks.send` sends them.

    Args:
        world: this process is the first one of it.
        out: the folder of the training run, for messages.

    Raises:
        ChildProcessError: if another process has ended.
        InputError: if another process has met bad input.
    """
    if world.size == 1:
        yield ALONE
        return
    host = os.environ["MASTER_ADDR"] if world.started else HERE
    do = f"the last checkpoint is kept: remargin fit --resume {out}"
    lifeline, children = Lead(host, world.size, str(out), do), list[subprocess.Popen[bytes]]()
    threads = torch.get_num_threads()
    try:
        if world.started:
            store = _store(CONNECTS_WITHIN)
            if store.add("training runs", 1) > 1:
                do = "start each with a torchrun of its own, or use --devices"
                raise InputError("a second training run under one torchrun, whose other processes are gone", do=do)
        else:
            make_store: Any = distributed.TCPStore  # type: ignore[attr-defined]
            store = make_store(HERE, 0, world.size, is_master=True, wait_for_workers=False)
            torch.set_num_threads(max(1, threads // world.size))
            children += [_start(rank, world.size, store.port) for rank in range(1, world.size)]
        store.set(ADDRESS, lifeline.address)
        lifeline.accept(lambda: _first_ended(children), lambda rank: _reason(children, rank))
        with _group(store, world) as ranks:
            yield ranks
            ranks.hear(None)
    except BaseException as error:
        lifeline.raise_failure(HEARS_WITHIN if isinstance(error, RuntimeError) else 0)  # as exchanges raise
        raise
    finally:
        lifeline.close()
        torch.set_num_threads(threads)
        for child in children:
            _end(child)


def follow(world: World, connects_within: timedelta = PATIENT) -> NoReturn:
    """Be one of the processes that follow: do what the leader sends, in silence, and end this process with it.

    Args:
        world: this process is not the first one of it.
        connects_within: how long the leader may take to be there; it may mine for hours first.
    """
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):  # the leader hears them, too, and still needs this process
            signal.signal(number, signal.SIG_IGN)
    logging.getLogger("remargin").setLevel(logging.ERROR)
    store = _store(connects_within)
    lifeline = Follow(store.get(ADDRESS).decode(), world.rank, world.size)
    code = 0
    try:
        with silenced(), _group(store, world) as ranks:
            while (work := ranks.hear()) is not None:
                function, arguments = work
                function(ranks, *arguments)
    except InputError as error:
        lifeline.report(error)
        code = 2
    except Exception as error:
        time.sleep(SETTLES_WITHIN if isinstance(error, RuntimeError) else 0)
        lifeline.report(error)
        traceback.print_exc()
        code = 1
    lifeline.close()
    sys.stderr.flush()
    os._exit(code)  # at once: to take an interpreter down takes seconds, in which the leader waits for this process


@contextmanager
def _group(store: Any, world: World) -> Iterator[Ranks]:
    """The processes as torch.distributed knows them: what is on a GPU goes by NCCL, everything else by Gloo."""
    gpus = torch.cuda.is_available()
    if gpus:
        torch.cuda.set_device(world.local)
    backend = "cpu:gloo,cuda:nccl" if gpus else "gloo"
    common = PrefixStore("group", store)
    distributed.init_process_group(backend, store=common, rank=world.rank, world_size=world.size, timeout=PATIENT)
    try:
        yield Ranks(world.rank, world.size, world.local, world.here)
    finally:
        distributed.destroy_process_group()


def _store(connects_within: timedelta) -> Any:
    """Where the environment says that processes leave each other what they need to come together."""
    store, _, _ = next(rendezvous("env://", timeout=connects_within))
    store.set_timeout(PATIENT)
    return store


def _start(rank: int, size: int, port: int) -> subprocess.Popen[bytes]:
    """Start another process on this machine, which runs nothing of the program that called `fit`."""
    own = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size}
    shared = {"MASTER_ADDR": HERE, "MASTER_PORT": port, "OMP_NUM_THREADS": torch.get_num_threads()}
    path = os.pathsep.join([str(Path(remargin.__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, **{name: str(value) for name, value in {**own, **shared}.items()}, "PYTHONPATH": path}
    environment.pop("TORCHELASTIC_USE_AGENT_STORE", None)
    return subprocess.Popen([sys.executable, "-c", FOLLOWER], env=environment, start_new_session=True)


def _first_ended(children: list[subprocess.Popen[bytes]]) -> int | None:
    ended = (rank for rank, child in enumerate(children, start=1) if child.poll() is not None)
    return next(ended, None)


def _reason(children: list[subprocess.Popen[bytes]], rank: int) -> str | None:
    code = children[rank - 1].poll() if children else None
    return None if code is None else why_it_ended(code)


def _end(child: subprocess.Popen[bytes]) -> None:
    """Wait for a process that is about to end; if it does not, end it."""
    with suppress(subprocess.TimeoutExpired):
        child.wait(10)
        return
    child.kill()
    child.wait()
