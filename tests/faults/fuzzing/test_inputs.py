"""Many inputs for each reader: whatever is in a file, the reader reads it or says in one line what is wrong.

    pytest -m slow tests/faults/fuzzing/test_inputs.py                             a thousand inputs for each reader
    REMARGIN_INPUTS=100000 pytest -s -m slow tests/faults/fuzzing/test_inputs.py   as many as asked for, and the counts

An input is known by its number: REMARGIN_FIRST=4711 REMARGIN_INPUTS=1 makes one again.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from . import headers, inputs
from .havoc import havoc
from .mutations import JSON
from .running import Case, read_mutated
from .world import MakeModel, World

COUNT, FIRST = int(os.environ.get("REMARGIN_INPUTS", "1000")), int(os.environ.get("REMARGIN_FIRST", "0"))
IN_MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
AT_ONCE = 20_000  # inputs, between which a process ends and its memory is given back

no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="a process that uses a GPU cannot be forked")


@pytest.fixture(scope="module")
def world(tiny_model: MakeModel) -> Iterator[World]:
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory(dir=IN_MEMORY) as folder:
        patch.setattr(os, "fsync", lambda descriptor: None)  # the disk is not what is tested, and it is slow
        yield World(Path(folder), tiny_model())


@pytest.mark.slow
@pytest.mark.timeout(max(900, COUNT), method="thread")  # each input has a limit of its own
@no_gpu
@pytest.mark.parametrize("target", [*inputs.TARGETS, *headers.TARGETS], ids=lambda target: target.__name__)
def test_every_input_is_read_or_refused_in_one_line(target: Callable[[World], Case], world: World) -> None:
    case, since = target(world), time.monotonic()
    worked = refused = 0
    for first in range(FIRST, FIRST + COUNT, AT_ONCE):
        count = min(AT_ONCE, FIRST + COUNT - first)
        with tempfile.TemporaryDirectory(dir=IN_MEMORY) as work:
            tally = read_mutated(case, havoc(case.folder, case.files, count, target.__name__, first), Path(work))
        worked, refused = worked + tally.worked, refused + tally.refused
        if tally.failures:
            pytest.fail(f"{target.__name__}, from input {first}: {tally.report()}", pytrace=False)
    took = time.monotonic() - since
    print(f"{target.__name__}: {COUNT:,} inputs, {worked:,} readings worked, {refused:,} refused, {took:.0f} s")
    assert COUNT < 100 or (worked and refused), "only one of the two"


def test_the_same_number_is_the_same_input(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"a": [1, 2, {"b": "a text"}], "c": null}')
    made: list[set[bytes]] = [set(), set()]
    for contents in made:
        for mutation in havoc(tmp_path, {"a.json": JSON}, 200, "a seed"):
            for _ in range(2):  # as two readers do
                mutation.apply(tmp_path / "copy.json")
                contents.add((tmp_path / "copy.json").read_bytes())
    assert made[0] == made[1]
    assert len(made[0]) > 180  # and another number nearly always another one
