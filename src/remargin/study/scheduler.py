"""Trains and measures what experiments declare, until nothing is missing."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

from remargin.study.hardware import hardware
from remargin.study.results import Results
from remargin.study.study import Study
from remargin.study.tasks import Task, Train, joined

Declare = Callable[[Results], Iterable[Task]]


@dataclass(frozen=True)
class Schedule:
    """All tasks that are declared now: those that are done, those that can be done, and those of later waves.

    Attributes:
        done: their results are there.
        ready: nothing keeps them from being done.
        later: they depend on what dev will choose, or on a run that is not trained yet.
        impossible: their backbone is not at hand.
        seconds: how long the training of `ready` and `later` takes, from the speed of the runs that are there; None
            where nothing was trained on this hardware yet.
    """

    done: tuple[Task, ...]
    ready: tuple[Task, ...]
    later: tuple[Task, ...]
    impossible: tuple[Task, ...]
    seconds: float | None

    @property
    def total(self) -> int:
        """How many tasks there are in all."""
        return len(self.done) + len(self.ready) + len(self.later)


def schedule(results: Results, declare: Declare) -> Schedule:
    """What is to be done for an experiment, as far as it is known."""
    groups: dict[str, list[Task]] = {"done": [], "ready": [], "later": [], "impossible": []}
    for task in joined(declare(results)):
        at_hand = results.at_hand is not None and (task.model is None or task.model in results.at_hand)
        if task.is_done(results):
            groups["done"].append(task)
        elif not at_hand:
            groups["impossible"].append(task)
        else:
            groups["ready" if task.is_ready(results) else "later"].append(task)
    seconds = expected_seconds(results, [*groups["ready"], *groups["later"]])
    return Schedule(**{name: tuple(tasks) for name, tasks in groups.items()}, seconds=seconds)


def expected_seconds(results: Results, tasks: Sequence[Task]) -> float | None:
    """How long some tasks train, from the speed of the runs that the study has from this hardware."""
    here, spent, seen = hardware(), dict[str, float](), dict[str, int]()
    for result in results.all_runs():
        if result.spec is not None and result.triplets and result.about["hardware"] == here:
            model = result.spec.model
            spent[model] = spent.get(model, 0.0) + result.seconds
            seen[model] = seen.get(model, 0) + result.triplets
    if not seen:
        return None
    speeds = {model: spent[model] / seen[model] for model in seen}
    usual = sum(spent.values()) / sum(seen.values())
    return sum(speeds.get(task.model or "", usual) * task.triplets for task in tasks)


def work_through(study: Study, declare: Declare) -> None:
    """Do what is declared and not done, until nothing is left that can be done.

    Tasks are done in the order of their declaration, and declared anew after each: what dev chooses among some runs
    decides which runs follow. `study.jobs` tasks are done at once, each in a process of its own: worth it where one run
    leaves most of a GPU idle. A task that fails ends the work; what is done by then is kept.
    """
    if study.jobs > 1:
        _work_together(study, declare)
        return
    tried: set[Task] = set()
    while True:
        now = schedule(study.results, declare)
        task = next((task for task in now.ready if task not in tried), None)
        if task is None:
            return
        study.say(_announced(now, task, 0, study.jobs))
        tried.add(task)
        task.do(study)


def _announced(now: Schedule, task: Task, running: int, jobs: int) -> str:
    """Which task begins, of how many, and how long the rest may take."""
    left = "" if now.seconds is None else f", about {time_left(now.seconds / jobs)} left"
    return f"run {len(now.done) + running + 1} of {now.total}{left}: {task.key}"


def time_left(seconds: float) -> str:
    """A duration, roughly.

    >>> time_left(40), time_left(540), time_left(9000)
    ('1 minute', '9 minutes', '2.5 hours')
    """
    minutes = max(1, round(seconds / 60))
    if minutes < 100:
        return f"{minutes} minute{'s' * (minutes > 1)}"
    return f"{seconds / 3600:.1f} hours"


_worker: list[Study] = []  # the study of a worker process, opened once


def _open_worker(given: dict[str, Any], jobs: int) -> None:
    _worker.append(Study(**given, jobs=jobs, begin=False))


def _do(task: Task) -> None:
    task.do(_worker[0])


def _work_together(study: Study, declare: Declare) -> None:
    """Do tasks in several processes, each as soon as it is ready and a process is free."""
    tried: set[Task] = set()
    running: dict[Future[None], Task] = {}
    context = multiprocessing.get_context("spawn")  # CUDA cannot be used after a fork
    with ProcessPoolExecutor(study.jobs, context, _open_worker, (study.given, study.jobs)) as pool:
        try:
            while True:
                now = schedule(study.results, declare)
                busy = {task.key for task in running.values()}
                ready = [task for task in now.ready if task not in tried and task.key not in busy]
                for task in ready[: study.jobs - len(running)]:
                    study.say(_announced(now, task, len(running), study.jobs))
                    tried.add(task)
                    _prepare(study, task)
                    running[pool.submit(_do, task)] = task
                if not running:
                    return
                for finished in wait(running, return_when=FIRST_COMPLETED).done:
                    del running[finished]
                    finished.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _prepare(study: Study, task: Task) -> None:
    """Make what processes share, such as tokens and a teacher's scores, so that no two of them make it."""
    if isinstance(task, Train):
        study.prepare_run(task.spec)
        if task.second_teacher is not None:
            study.model(task.second_teacher)
    if task.model is not None:
        study.training.prepared(task.model)  # to validate
