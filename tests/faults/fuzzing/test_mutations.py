"""Whatever is wrong in a file that remargin reads, it works all the same or says in one line what is wrong.

Each target is a valid folder, of which thousands of copies are damaged, each in one place, and then read. Mutations are
chosen with a fixed seed; REMARGIN_FUZZ=10 tries ten times as many.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from . import layouts, models, runs, sources, stores, studies
from .mutations import Mutation, mutations
from .running import Case, read_mutated
from .world import MakeModel, World

TIMES = float(os.environ.get("REMARGIN_FUZZ", "1"))
TARGETS: list[Callable[[World], Case]] = [
    *models.TARGETS,
    *layouts.TARGETS,
    *stores.TARGETS,
    *sources.TARGETS,
    *runs.TARGETS,
    *studies.TARGETS,
]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(int(900 * max(1, TIMES)), method="thread"),  # each mutation has a limit of its own
    pytest.mark.skipif(torch.cuda.is_available(), reason="a process that uses a GPU cannot be forked"),
]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, tiny_model: MakeModel) -> Iterator[World]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)  # the disk is not what is tested, and it is slow
        yield World(tmp_path_factory.mktemp("world"), tiny_model())


def unchanged(case: Case) -> list[Mutation]:
    """Every file written anew with what it holds."""
    return [
        Mutation(name, "unchanged", lambda path, format=format: format.write(path, format.read(path)))  # type: ignore[misc]
        for name, format in case.files.items()
    ]


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.__name__)
def test_readers_work_or_say_what_is_wrong(target: Callable[[World], Case], world: World, tmp_path: Path) -> None:
    case = target(world)
    before = read_mutated(case, unchanged(case), tmp_path)
    if before.refused or before.failures:
        pytest.fail(f"{target.__name__}, unchanged: {before.first_refusal} {before.report()}", pytrace=False)
    chosen = mutations(case.folder, case.files, round(case.count * TIMES), seed=target.__name__)
    tally = read_mutated(case, chosen, tmp_path)
    print(f"{target.__name__}: {tally}")
    if tally.failures:
        pytest.fail(f"{target.__name__}: {tally.report()}", pytrace=False)
    assert tally.worked, "nothing was harmless"
    assert tally.refused or case.heals, "nothing was refused"
