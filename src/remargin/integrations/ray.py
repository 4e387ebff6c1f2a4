"""An executor whose workers are actors of a Ray cluster: this machine's cores or GPUs, or those of many machines."""

from __future__ import annotations

import itertools
import os
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, Generic, NamedTuple, Self

from remargin import __version__
from remargin.errors import InputError, first_line
from remargin.files.executor import Item, Result, Start
from remargin.progress import say

ITEMS_AHEAD = 2  # that a worker has: the next is there when one is done
ATTEMPTS = 4  # to do an item: more workers than that do not die of chance
PATIENCE = 300.0  # seconds to wait for a first worker, and for a new one when all were lost
INSTALL = "install remargin on all machines of the cluster"


class RayExecutor:
    """Does work on the workers of a Ray cluster: one on each GPU or, without GPUs, as many as its cores are enough for.

    What a worker had when it died, or its machine, is done again by the others, and another worker starts where there
    is room. remargin must be installed on all machines. Use it in a `with` statement, which starts a cluster on this
    machine or connects to another, and leaves it as it was. If this process is connected to a cluster already, that
    one is used.

    Args:
        address: of a cluster that is running, such as "10.0.0.1:6379", or "auto" for the one of this machine. Without
            it, a cluster on this machine starts, and ends with the `with` statement.
        workers: how many; as many as there is room for, if not given.
        threads: of each worker, on CPUs: results are the same to the last bit for the same number. As many as PyTorch
            uses here, if not given, so that there is one worker on a machine like this one.

    Example:
        >>> from remargin import encode
        >>> with RayExecutor() as executor:  # doctest: +SKIP
        ...     encode("pairs:faq.csv", "minilm", "vectors", executor=executor)
    """

    def __init__(self, address: str | None = None, workers: int | None = None, threads: int | None = None) -> None:
        self._address, self._asked, self._threads = address, workers, threads
        self._room: _Room | None = None
        self._ours = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._ours:
            _ray().shutdown()
        self._ours, self._room = False, None

    @property
    def device(self) -> str:
        """The kind of device that all workers compute on."""
        return self._connected().device

    def run(self, start: Start[Item, Result], items: Iterable[Item]) -> Iterator[Result]:
        """The results of all items, each as soon as it is there.

        Raises:
            InputError: what the work itself raises; if no worker starts; and for an item that workers die of.
        """
        items = iter(items)
        for first in items:  # without items, no worker starts
            crew = _Crew(_ray(), start, self._connected())
            try:
                yield from crew.results(itertools.chain([first], items))
            finally:
                crew.dismiss()

    def _connected(self) -> _Room:
        """What the cluster has, which is started or connected to when it is first asked."""
        if self._room is None:
            ray, self._ours = _ray(), False
            if not ray.is_initialized():
                _start(ray, self._address)
                self._ours = True
            self._room = _Room.of(ray.cluster_resources(), self._asked, self._threads)
        return self._room


class _Room(NamedTuple):
    """What a cluster has for workers: the device and the CPU threads of each, and how many."""

    device: str
    threads: int
    workers: int

    @classmethod
    def of(cls, resources: Mapping[str, float], workers: int | None, threads: int | None) -> _Room:
        """The room of a cluster with these resources.

        >>> _Room.of({"CPU": 16.0, "GPU": 2.0}, None, 4), _Room.of({"CPU": 16.0}, None, 4)
        (_Room(device='cuda', threads=4, workers=2), _Room(device='cpu', threads=4, workers=4))
        """
        if threads is None:
            import torch

            threads = torch.get_num_threads()
        gpus, cores = int(resources.get("GPU", 0)), int(resources.get("CPU", 0))
        room = gpus or cores // threads
        if not room:
            problem = f"a worker of {threads} threads has no room on machines with {cores} CPUs in all"
            raise InputError(problem, do="give --threads a smaller number")
        return cls("cuda" if gpus else "cpu", threads, workers or room)


def _start(ray: Any, address: str | None) -> None:
    """Connect to a cluster, or start one on this machine, with what PyTorch may use of it."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is reported to anybody
    where = {"address": "local", "include_dashboard": False} if address is None else {"address": address}
    try:
        ray.init(**where, log_to_driver=False, logging_level="warning")
    except (ConnectionError, RuntimeError, TimeoutError, ValueError) as error:
        problem = f"no Ray cluster at {address}" if address else "no Ray cluster could start here"
        do = "check --ray-address, or leave it out for a cluster of this machine's own"
        raise InputError(f"{problem} ({first_line(error)})", do=do) from None


class _Worker(Generic[Item, Result]):
    """What an actor is: the work, begun in a process of its own."""

    def __init__(self, start: Start[Item, Result], room: _Room) -> None:
        self._start, self._room = start, room

    def begin(self) -> str:
        """Begin the work; gives the version of remargin here."""
        if self._room.device == "cpu":
            import torch

            torch.set_num_threads(self._room.threads)
        self._work = self._start(self._room.device)
        return __version__

    def do(self, item: Item) -> Result:
        """Do an item."""
        return next(self._work([item]))


class _Crew:
    """The actors of one run, and which of them does what.

    Ray could restart actors itself, but then waits for room on the machines that are left: here, those that are alive
    do what others had.
    """

    def __init__(self, ray: Any, start: Any, room: _Room) -> None:
        self._ray, self._room = ray, room
        needs = {"num_gpus": 1, "num_cpus": 1} if room.device == "cuda" else {"num_cpus": room.threads}
        self._kind = ray.remote(**needs, max_restarts=0)(_Worker)
        self._start = ray.put(start)
        self._beginning: dict[Any, Any] = {}  # actors, by what will hold their answers
        self._doing: dict[Any, tuple[Any, int]] = {}  # actors and the numbers of items, likewise
        self._items: dict[Any, dict[int, Any]] = {}  # of each actor that has begun, in the order of its work
        self._deaths: Counter[int | None] = Counter()  # of actors, by the item that they did; None: as they began

    def results(self, items: Iterator[Any]) -> Iterator[Any]:
        """The results of all items, in the order in which they come."""
        numbered, again = enumerate(items), deque[tuple[int, Any]]()
        more = True
        while True:
            self._hire()
            for actor in self._free():
                item = again.popleft() if again else next(numbered, None) if more else None
                more = more and item is not None
                if item is not None:
                    number, content = item
                    self._items[actor][number] = content
                    self._doing[actor.do.remote(content)] = actor, number
            if not more and not again and not self._doing:
                return
            answers, _ = self._ray.wait([*self._beginning, *self._doing], timeout=None if self._items else PATIENCE)
            if not answers:
                problem = f"no worker of the cluster was free in {PATIENCE:,.0f} seconds"
                raise InputError(problem, do="end other work there, or ask for less (--workers, --threads)")
            done: int | None = None
            if answers[0] in self._beginning:
                actor = self._beginning.pop(answers[0])
            else:
                actor, done = self._doing.pop(answers[0])
            try:
                result = self._ray.get(answers[0])
            except self._ray.exceptions.RayTaskError as error:  # the work itself failed
                raise (error.cause if isinstance(error.cause, InputError | OSError) else error) from None
            except self._ray.exceptions.RayError as error:  # the actor, or its machine, is gone
                again.extend(self._lost(actor, error))
                continue
            if done is None:
                _require_same_version(result)
                self._items[actor] = {}
                self._deaths[None] = 0
            else:
                del self._items[actor][done]
                yield result

    def dismiss(self) -> None:
        """End all actors."""
        for actor in (*self._items, *self._beginning.values()):
            self._ray.kill(actor)

    def _free(self) -> Iterator[Any]:
        """The actors that can take an item, those without any first."""
        for load in range(ITEMS_AHEAD):
            yield from [actor for actor, items in self._items.items() if len(items) == load]

    def _hire(self) -> None:
        """Start as many actors as are missing; one that finds no room now may find some later."""
        for _ in range(self._room.workers - len(self._items) - len(self._beginning)):
            actor = self._kind.remote(self._start, self._room)
            self._beginning[actor.begin.remote()] = actor

    def _lost(self, actor: Any, error: Exception) -> Iterable[tuple[int, Any]]:
        """Let an actor go that died, or is out of reach and may live on; gives what it had."""
        self._ray.kill(actor)
        self._doing = {answer: other for answer, other in self._doing.items() if other[0] is not actor}
        items = self._items.pop(actor, {})
        number = next(iter(items), None)
        self._deaths[number] += 1
        if self._deaths[number] == ATTEMPTS:
            doing = "on the same piece of work" if items else "as they began"
            problem = f"{ATTEMPTS} workers died one after the other {doing} ({first_line(error)})"
            lacking = "No module named 'remargin'" in str(error)
            raise InputError(problem, do=INSTALL if lacking else "see Ray's logs; there may be too little memory")
        if items:
            say(f"a worker was lost; others do what it had ({type(error).__name__})")
        return items.items()


def _require_same_version(version: str) -> None:
    if version != __version__:
        problem = f"a worker has remargin {version}, and this is remargin {__version__}"
        raise InputError(problem, do="install the same version on all machines")


def _ray() -> Any:
    try:
        import ray
    except ImportError:
        raise InputError("this engine needs Ray", do="pip install 'remargin[ray]'") from None
    return ray
