"""Processes that train together."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from remargin.training.devices.joining import World, leading
from remargin.training.devices.ranks import Ranks

from ..conftest import beir, encoder, model, prepared, scored, start  # noqa: F401

ROOT = Path(__file__).parents[3]
Together = Callable[[int], Any]


@contextmanager
def together(size: int, out: Path) -> Iterator[Ranks]:
    """So many processes, of which this one leads; the others can import the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])))
        with leading(World.of(size), out) as ranks:
            yield ranks


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    with together(2, tmp_path_factory.mktemp("two")) as ranks:
        yield ranks
