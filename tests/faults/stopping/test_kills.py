"""kill -9 at every change of a file that a verb makes: nothing is lost, and the same command comes to the same end.

    pytest -m slow tests/faults/stopping/test_kills.py                       some of the changes of the longest verbs
    REMARGIN_KILLS=all pytest -m slow tests/faults/stopping/test_kills.py    every change of every verb

Milvus is left out: its file is written by its own code, in the scratch folder that all other indexes are built in too.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from .cases import Case, Servers, borrowed, visible
from .outputs import LEFT_OVER, contents, differences, entry, unreadable
from .verbs import OUT, VERBS

IN_MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None  # where waiting for the disk takes no time
BEGINNING = 16  # changes that no verb leaves out: those before anything is there to go on with


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", VERBS)
def test_killed_at_any_change_of_a_file_nothing_is_lost_and_the_same_command_ends_well(
    name: str, inputs: Path, servers: Servers, say_at_the_end: Callable[[str], None], tmp_path: Path
) -> None:
    with borrowed(servers) as server:
        case = Case.make(VERBS[name], inputs, tmp_path, server)
    count = len(case.whole.operations)
    every = 1 if os.environ.get("REMARGIN_KILLS") == "all" else case.verb.every
    places = [place for place in range(1, count + 1) if place <= BEGINNING or place % every == 0]
    say_at_the_end(f"{name}: killed at {len(places)} of {count} changes of files")
    case.try_all(places, lambda place: kill(case, place, servers))


def kill(case: Case, place: int, servers: Servers) -> None:
    """Run a verb, kill it, see what it left, and run it again."""
    with borrowed(servers) as server, tempfile.TemporaryDirectory(dir=IN_MEMORY) as folder:
        work = Path(folder) / "work"
        shutil.copytree(case.start, work)
        killed = server.run(work, case.verb.words, place)
        where = f"killed at {killed.operations[-1]}"
        if not killed.killed:
            case.fail("it was not killed", where, killed)
            return
        check_what_is_left(case, work, where)
        outcome = case.go_on(work, server, where)
        case.check_result(work, where, outcome)
        case.check_inputs(work, where)


def check_what_is_left(case: Case, work: Path, where: str) -> None:
    """Each output that can be seen is the older one, the new one or, if it grows, one that can be read."""
    out = work / OUT
    for name in {Path(path).parts[0] for path in case.before} - {path.name for path in out.iterdir()}:
        case.fail(f"it lost {name}", where)
    if case.verb.grows:
        for line in unreadable(out):
            case.fail(f"it leaves something that is {line}", where)
        return
    found = contents(out)
    for name in visible(work):
        left, before, after = (entry(of_out, name) for of_out in (found, case.before, case.after))
        if left not in (before, after):
            lacking = [line for line in differences(left, after) if not line.startswith(LEFT_OVER)]
            for line in unreadable(out) + lacking:
                case.fail(f"it leaves {name} that is neither the older nor the new one: {line}", where)
