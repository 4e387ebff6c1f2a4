"""Work on a Ray cluster is what one process does, whoever dies on the way.

What is done with lost workers is tested here with a Ray that is made up; the slow tests have a real cluster.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch

from remargin import InputError, __version__
from remargin.integrations import ray as module
from remargin.integrations.ray import ATTEMPTS, ITEMS_AHEAD, RayExecutor


@pytest.fixture(autouse=True)
def same_threads() -> Iterator[None]:
    """Workers that are made up set the threads of this process, and scores depend on them in their last bit."""
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


class Lost(Exception):
    """As Ray says that an actor died."""


class Failed(Exception):
    """As Ray hands over what the work raised."""

    def __init__(self, cause: BaseException) -> None:
        self.cause = cause


class Call(NamedTuple):
    number: int
    actor: MadeUpActor
    method: str
    arguments: tuple[Any, ...]


class MadeUpActor:
    def __init__(self, ray: MadeUpRay, kind: Any, *arguments: Any) -> None:
        self.ray, self.hands, self.alive, self.number = ray, kind(*arguments), True, len(ray.actors)
        ray.actors.append(self)

    def __getattr__(self, method: str) -> Any:
        return SimpleNamespace(remote=lambda *arguments: self.ray.call(Call(self.ray.calls, self, method, arguments)))


class MadeUpRay:
    """A cluster in this process, with room for some actors, where calls are answered in the order of a dice."""

    def __init__(self, room: int, dies: Callable[[Call], bool] = lambda call: False) -> None:
        self.room, self.dies, self.dice = room, dies, random.Random(0)
        self.actors: list[MadeUpActor] = []
        self.calls, self.most_waiting = 0, 0
        self.exceptions = SimpleNamespace(RayTaskError=Failed, RayError=Lost)

    def is_initialized(self) -> bool:
        return True

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 8.0}

    def put(self, value: Any) -> Any:
        return value

    def remote(self, **options: Any) -> Callable[[type], Any]:
        assert options == {"num_cpus": 2, "max_restarts": 0}
        return lambda kind: SimpleNamespace(remote=lambda *arguments: MadeUpActor(self, kind, *arguments))

    def call(self, call: Call) -> Call:
        self.calls += 1
        return call

    def wait(self, calls: list[Call], timeout: float | None) -> tuple[list[Call], list[Call]]:
        self.most_waiting = max(self.most_waiting, sum(call.method == "do" for call in calls))
        with_room = [actor for actor in self.actors if actor.alive][: self.room]
        able = [call for call in calls if call.actor in with_room or not call.actor.alive]
        able = list({call.actor: call for call in reversed(able)}.values())  # an actor answers in order
        assert able or timeout is not None, "it would wait for ever"
        return self.dice.sample(able, min(1, len(able))), []

    def get(self, call: Call) -> Any:
        if call.actor.alive and self.dies(call):
            call.actor.alive = False
        if not call.actor.alive:
            raise Lost(f"actor {call.actor.number} died")
        try:
            return getattr(call.actor.hands, call.method)(*call.arguments)
        except (InputError, ZeroDivisionError) as error:
            raise Failed(error) from None

    def kill(self, actor: MadeUpActor) -> None:
        actor.alive = False


def squares(device: str | None) -> Callable[[Iterable[int]], Iterator[int]]:
    assert device == "cpu"
    return lambda numbers: (number**2 if number >= 0 else 1 // 0 for number in numbers)


def made_up(monkeypatch: pytest.MonkeyPatch, *arguments: Any) -> MadeUpRay:
    ray = MadeUpRay(*arguments)
    monkeypatch.setitem(sys.modules, "ray", ray)
    return ray


def done(items: Iterable[int], workers: int | None = None) -> list[int]:
    with RayExecutor(workers=workers, threads=2) as executor:
        return sorted(executor.run(squares, items))


@pytest.mark.parametrize("room", [1, 2, 4, 9])
def test_items_are_done_once_by_as_many_workers_as_there_is_room_for(
    monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    ray = made_up(monkeypatch, room)
    taken = 0

    def items() -> Iterator[int]:
        nonlocal taken
        for taken in range(40):  # noqa: UP028
            yield taken

    with RayExecutor(threads=2) as executor:
        results = executor.run(squares, items())
        first = next(results)
        assert taken <= 4 * ITEMS_AHEAD  # no more than are worked on
        assert sorted([first, *results]) == [n**2 for n in range(40)]
    assert len(ray.actors) == 4
    assert ray.most_waiting == ITEMS_AHEAD * min(room, 4)
    assert not any(actor.alive for actor in ray.actors)


def test_without_items_no_worker_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = made_up(monkeypatch, 4)
    assert done([]) == []
    assert not ray.actors


@pytest.mark.parametrize("lost", [{0}, {1, 2}, {0, 1, 2, 3}, set(range(9))])
def test_what_lost_workers_had_is_done_by_others(
    monkeypatch: pytest.MonkeyPatch, lost: set[int], capsys: pytest.CaptureFixture[str]
) -> None:
    """Each of these actors dies of the third item that it is to do."""
    begun: dict[int, int] = {}

    def dies(call: Call) -> bool:
        if call.method == "do":
            begun[call.actor.number] = begun.get(call.actor.number, 0) + 1
        return call.actor.number in lost and begun.get(call.actor.number) == 3

    ray = made_up(monkeypatch, 3, dies)
    assert done(range(60)) == [n**2 for n in range(60)]
    died = len({number for number, items in begun.items() if number in lost and items >= 3})
    assert len(ray.actors) >= 4 + died
    assert capsys.readouterr().err.count("a worker was lost; others do what it had") == died > 0


def test_an_item_that_workers_die_of_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = made_up(monkeypatch, 2, lambda call: call.arguments == (7,))
    with pytest.raises(InputError, match=rf"{ATTEMPTS} workers died one after the other on the same piece of work"):
        done(range(20))
    assert not any(actor.alive for actor in ray.actors)
    made_up(monkeypatch, 2, lambda call: call.method == "begin")
    with pytest.raises(InputError, match=rf"{ATTEMPTS} workers died one after the other as they began"):
        done(range(20))


def test_errors_of_the_work_are_raised_here(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(device: str | None) -> Any:
        raise InputError("no such thing", file="there", do="look elsewhere")

    made_up(monkeypatch, 2)
    with RayExecutor(threads=2) as executor, pytest.raises(InputError, match="there: no such thing; look elsewhere"):
        list(executor.run(refuses, [1]))
    with pytest.raises(Failed) as failed:  # with the traceback of the worker, which Ray puts into its message
        done([1, -1, 2])
    assert isinstance(failed.value.cause, ZeroDivisionError)
    monkeypatch.setattr(module, "__version__", "0.0.1")
    monkeypatch.setattr(module._Worker, "begin", lambda self: __version__)
    with pytest.raises(InputError, match=rf"a worker has remargin {__version__}, and this is remargin 0.0.1; install"):
        done([1])


def test_a_cluster_without_room_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    made_up(monkeypatch, 0)
    with pytest.raises(InputError, match="no worker of the cluster was free in 300 seconds"):
        done([1])
    with pytest.raises(InputError, match="a worker of 9 threads has no room on machines with 8 CPUs in all"):
        assert RayExecutor(threads=9).device
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"needs Ray; pip install 'remargin\[ray\]'"):
        assert RayExecutor().device


def test_options_of_another_engine_are_refused(remargin: Any, tiny_encoder: Any, tmp_path: Path) -> None:
    verb = ("encode", "--data", "docstrings:json", "--model", tiny_encoder(), "--out", tmp_path / "vectors")
    for options, message in (
        (("--engine", "spark"), "unknown engine 'spark'; use local or ray"),
        (("--workers", 2), "--workers does nothing for --engine local"),
        (("--ray-address", "auto"), "--ray-address does nothing for --engine local"),
        (("--shard-size", 4096), "--shard-size does nothing for encoding in one process"),
    ):
        result = remargin(*verb, *options)
        assert result.returncode == 2
        assert message in result.stderr
    assert not list(tmp_path.iterdir())
