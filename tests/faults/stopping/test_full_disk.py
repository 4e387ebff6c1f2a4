"""A disk that is full at any page of what a verb writes: one clear line, nothing left behind, and it can go on.

The outputs lie on a file system in memory that is as large as each test wants it, which only root can mount.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from .cases import Case, Servers, borrowed
from .harness import Outcome
from .outputs import SCRATCH, UNFINISHED, contents, differences, unreadable
from .verbs import OUT, VERBS

PAGE = 4096
MOST_SIZES = 24  # for each verb
FILLER = "filler"  # a file of one page, so that a disk can be without any room: there is none of size 0
ENOUGH = "size=256m"
FULL = re.compile(r"no space left on device|disk full", re.IGNORECASE)
IN_SCRATCH = re.compile(rf"(^|/)\.[^/]+\.{SCRATCH}(/|$)")


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", VERBS)
def test_a_full_disk_is_one_clear_line_and_leaves_what_was_there(
    name: str, inputs: Path, servers: Servers, say_at_the_end: Callable[[str], None], tmp_path: Path
) -> None:
    require_mount(tmp_path)
    with borrowed(servers) as server:
        case = Case.make(VERBS[name], inputs, tmp_path, server)
    need = pages(tmp_path / "whole" / OUT)
    step = max(1, -(-need // MOST_SIZES))
    sizes = range(0, need, step)
    say_at_the_end(f"{name}: writes {need} pages; tried on {len(sizes)} disks with room for fewer")
    case.try_all(sizes, lambda room: fill(case, room, servers))


def fill(case: Case, room: int, servers: Servers) -> None:
    """Run a verb where only so many pages are free, see what it left, make room, and run it again."""
    where = f"room for {room} pages"
    with borrowed(servers) as server, tempfile.TemporaryDirectory() as folder:
        work = Path(folder) / "work"
        shutil.copytree(case.start, work, ignore=lambda path, names: names if Path(path) == case.start / OUT else ())
        with small_disk(work / OUT, pages(case.start / OUT) + 1 + room):
            (work / OUT / FILLER).write_bytes(bytes(PAGE))
            shutil.copytree(case.start / OUT, work / OUT, dirs_exist_ok=True)
            failed = server.run(work, case.verb.words)
            (work / OUT / FILLER).unlink()
            case.check_inputs(work, where)
            if failed.code == 0 and room > 0:  # where it changes what was there, it may need less than it leaves
                case.check_result(work, where, failed)
                return
            check_message(case, failed, where)
            check_what_is_left(case, work, where)
            mount(work / OUT, f"remount,{ENOUGH}")
            case.check_result(work, where, case.go_on(work, server, where))


def check_message(case: Case, failed: Outcome, where: str) -> None:
    """Exit code 2, and one line that names a path and says that the disk is full; else only what is always said."""
    *others, line = failed.stderr.splitlines() or [""]
    usual = {without_numbers(said) for said in case.whole.stderr.splitlines()}
    if failed.code != 2 or "Traceback" in failed.stderr:
        case.fail(f"exit code {failed.code}", where, failed)
    elif not line.startswith("error: "):
        case.fail("its last line is no error", where, failed)
    elif unusual := [said for said in others if without_numbers(said) not in usual]:
        case.fail(f"more than one line, the first is {unusual[0]!r}", where, failed)
    elif f"{OUT}/" not in line:
        case.fail("no path", where, failed)
    elif not FULL.search(line):
        case.fail("not said that the disk is full", where, failed)


def check_what_is_left(case: Case, work: Path, where: str) -> None:
    """What was there before is as it was; what is new is what the same command goes on with."""
    found = contents(work / OUT)
    kept = re.compile("|".join(re.escape(name).replace(r"\#", UNFINISHED) for name in case.verb.kept) or "(?!)")
    if case.verb.grows:
        for line in unreadable(work / OUT):
            case.fail(f"it leaves something that is {line}", where)
    else:
        for line in differences({name: found[name] for name in found if name in case.before}, case.before):
            case.fail(f"what was there: {line}", where)
    for name in found:
        if name not in case.before and (IN_SCRATCH.search(name) or not kept.fullmatch(Path(name).parts[0])):
            case.fail(f"it leaves {name}", where)


def without_numbers(line: str) -> str:
    return re.sub(r"[\d.,]+", "#", line)


def pages(folder: Path) -> int:
    """How many pages of memory the files in a folder take."""
    return sum(-(-path.stat().st_size // PAGE) for path in folder.rglob("*") if path.is_file())


def mount(folder: Path, options: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], capture_output=True)


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[None]:
    """Mount a file system of so many pages."""
    folder.mkdir(exist_ok=True)
    mount(folder, f"size={size * PAGE}").check_returncode()
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def require_mount(folder: Path) -> None:
    """Skip the test where nothing can be mounted."""
    trial = folder / "trial"
    trial.mkdir()
    try:
        mounted = mount(trial, "size=4096").returncode == 0
    except FileNotFoundError:
        mounted = False
    if not mounted:
        pytest.skip("no file system can be mounted here; root can")
    subprocess.run(["umount", str(trial)], check=True)
