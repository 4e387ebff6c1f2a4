"""Where a command computes: in its own process, or by the workers of an executor."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from remargin.errors import InputError, refuse_idle

if TYPE_CHECKING:
    from remargin.files.executor import Executor

ENGINES = ("local", "ray")


@contextlib.contextmanager
def engine_executor(engine: str, ray_address: str | None, workers: int | None) -> Iterator[Executor | None]:
    """The executor that `--engine` asks for, closed when the block ends; None for this process.

    >>> with engine_executor("local", None, None) as executor:
    ...     print(executor)
    None
    """
    if engine not in ENGINES:
        raise InputError(f"unknown engine {engine!r}", do=f"use {' or '.join(ENGINES)}")
    if engine == "local":
        given = {"ray_address": ray_address, "workers": workers}
        refuse_idle("--engine local", [name for name, value in given.items() if value is not None])
        yield None
        return
    from remargin.integrations.ray import RayExecutor

    with RayExecutor(ray_address, workers) as executor:
        yield executor
