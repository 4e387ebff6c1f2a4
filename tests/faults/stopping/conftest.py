"""Servers that run commands, the small inputs of these commands, and lines for the end."""

from __future__ import annotations

import queue
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from .cases import AT_ONCE, Servers, borrowed
from .harness import Server
from .verbs import make_inputs, make_splade

lines_for_the_end: list[str] = []


@pytest.fixture(scope="session")
def say_at_the_end() -> Callable[[str], None]:
    """Takes a line that pytest shows when all tests have ended."""
    return lines_for_the_end.append


def pytest_terminal_summary(terminalreporter: Any) -> None:
    for line in lines_for_the_end:
        terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    """As many servers as commands are to run at once."""
    free: Servers = queue.SimpleQueue()
    started = [Server() for _ in range(AT_ONCE)]
    for server in started:
        free.put(server)
    yield free
    for server in started:
        server.close()


@pytest.fixture(scope="session")
def inputs(tiny_model: Any, tiny_encoder: Any, servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with everything that the commands read."""
    folder = tmp_path_factory.mktemp("inputs")
    shutil.copytree(tiny_model("bert"), folder / "model")
    shutil.copytree(tiny_encoder("bert"), folder / "encoder")  # the same, but says how it is used
    make_splade(tiny_model("bert", head=True), folder / "splade")
    with borrowed(servers) as server:
        make_inputs(folder, server)
    return folder
