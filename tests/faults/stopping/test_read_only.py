"""A place that cannot be written: one clear line, before any work is done, and nothing is changed.

Root may write everywhere, so the outputs lie on a file system in memory that is mounted read-only.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from .cases import Servers, borrowed, inputs_in
from .outputs import contents
from .test_full_disk import ENOUGH, PAGE, mount, require_mount, small_disk
from .verbs import OUT, VERBS, make_older, make_work


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", VERBS)
def test_a_read_only_place_is_one_clear_line(name: str, inputs: Path, servers: Servers, tmp_path: Path) -> None:
    require_mount(tmp_path)
    verb, work = VERBS[name], tmp_path / "work"
    make_work(work, inputs, verb)
    with borrowed(servers) as server:
        make_older(work, verb, server)
        shutil.copytree(work / OUT, tmp_path / "older")
        before = inputs_in(work)
        with small_disk(work / OUT, (256 << 20) // PAGE):
            shutil.copytree(tmp_path / "older", work / OUT, dirs_exist_ok=True)
            mount(work / OUT, f"remount,ro,{ENOUGH}").check_returncode()
            outcome = server.run(work, verb.words)
            found = contents(work / OUT)
    line = outcome.stderr.splitlines()[-1]
    assert (outcome.code, line[:7]) == (2, "error: "), outcome.stderr
    assert "read-only" in line.lower()
    assert f"{OUT}" in line
    assert "Traceback" not in outcome.stderr
    assert not any("step " in said for said in outcome.stdout.splitlines()), "it worked before it looked"
    assert found == contents(tmp_path / "older")
    assert inputs_in(work) == before
