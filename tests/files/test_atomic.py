"""Files that are either wholly there or not there."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from remargin.errors import InputError
from remargin.files.arrays import write_array
from remargin.files.atomic import new_file, new_folder, refuse_existing, remove_left
from remargin.study.header import require_own_folder
from remargin.training.training_folder import TrainingFolder


def test_a_failed_block_leaves_nothing_behind(tmp_path: Path) -> None:
    def fail() -> None:
        with new_folder(tmp_path / "out", False, "ours") as folder:
            (folder / "half.txt").write_text("half")
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        fail()
    assert list(tmp_path.iterdir()) == []


WAITING = """
import sys, time
from remargin.files.atomic import new_folder
with new_folder(sys.argv[1], False, "ours") as folder:
    (folder / "half.txt").write_text("half")
    print(folder, flush=True)
    time.sleep(60)
"""


@contextmanager
def working(out: Path) -> Iterator[Path]:
    """The scratch folder of a process that fills a new folder; it is killed at the end."""
    command = [sys.executable, "-c", WAITING, str(out)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield Path(process.stdout.readline().strip()).parent
        finally:
            process.kill()


def test_what_a_killed_process_left_goes_and_nothing_else(tmp_path: Path) -> None:
    with working(tmp_path / "out") as left:
        pass
    assert left.exists()
    ours, theirs = left.name[:-8], ".out.00000000-"  # scratch of this machine, and of another
    kept = [tmp_path / ".out.settings" / "mine", tmp_path / f"{ours}abcdefgh" / "old"]  # not ours; an older version
    long_ago, just_made = tmp_path / f"{theirs}11111111" / "new", tmp_path / f"{theirs}22222222" / "new"
    for path in (*kept, long_ago, just_made):
        path.mkdir(parents=True)
    with working(tmp_path / "out") as in_use:
        for folder in (in_use, long_ago.parent, *(path.parent for path in kept)):
            for path in (folder, *folder.rglob("*")):
                os.utime(path, (0, 0))
        with new_file(tmp_path / "out"):
            pass
        assert not left.exists()  # at once: this machine knows that nobody holds it
        assert not long_ago.exists()
        assert all(path.exists() for path in (in_use, just_made, *kept))


def test_a_scratch_folder_that_is_removed_before_it_is_held_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process may take it for one that was left, in the moment between making and locking it."""
    flock, removed = fcntl.flock, []

    def too_late(descriptor: int, how: int) -> None:
        if not removed and how == fcntl.LOCK_EX:
            removed.extend(tmp_path.glob(".out.*"))
            remove_left(tmp_path)
        flock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", too_late)
    with new_file(tmp_path / "out") as file:
        file.write(b"content")
    assert len(removed) == 1
    assert (tmp_path / "out").read_bytes() == b"content"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_files_of_a_folder_can_be_read_by_those_who_can_read_others(tmp_path: Path) -> None:
    with new_folder(tmp_path / "out", False, "ours") as folder:
        (folder / "inner").mkdir()
        (folder / "ours").touch()
        (folder / "inner" / "weights").touch(mode=0o600)  # as safetensors writes them
    modes = {path.stat().st_mode & 0o777 for path in (tmp_path / "out").rglob("*") if path.is_file()}
    (tmp_path / "other").touch()
    assert modes == {(tmp_path / "other").stat().st_mode & 0o777}


def test_a_loop_of_links_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    for out in (tmp_path / "a", tmp_path / "a" / "inside"):
        with pytest.raises(InputError, match="a link that leads back to itself; choose another place"), new_file(out):
            pytest.fail("it is refused at once")
        with pytest.raises(InputError, match="leads back to itself"), new_folder(out, True, "ours"):
            pytest.fail("it is refused at once")
        with pytest.raises(InputError, match="leads back to itself"):
            refuse_existing(out, overwrite=True)
        with pytest.raises(InputError, match="leads back to itself"):
            TrainingFolder(out, {}, resume=False)
        with pytest.raises(InputError, match="leads back to itself"):
            require_own_folder(out)


def test_an_existing_folder_is_kept_unless_overwriting_is_asked_for(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "mine.txt").write_text("precious")
    with pytest.raises(InputError, match="already exists"), new_folder(out, False, "ours"):
        pass
    with pytest.raises(InputError, match="not ours to overwrite"), new_folder(out, overwrite=True, marker="ours"):
        pass
    (out / "ours").touch()
    with pytest.raises(RuntimeError), new_folder(out, overwrite=True, marker="ours"):
        raise RuntimeError
    assert (out / "mine.txt").read_text() == "precious"
    with new_folder(out, overwrite=True, marker="ours") as folder:
        (folder / "new.txt").write_text("new")
    assert [p.name for p in out.iterdir()] == ["new.txt"]
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_the_old_folder_comes_back_if_the_last_rename_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "ours").write_text("precious")
    rename = Path.rename

    def stopped(self: Path, target: Path) -> Path:
        if self.name == "new":
            raise KeyboardInterrupt
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", stopped)
    with new_folder(out, overwrite=True, marker="ours") as folder:  # Linux does not rename: there is no such moment
        (folder / "ours").write_text("precious")
    monkeypatch.setattr("remargin.files.atomic._swapped", lambda one, other: False)
    with pytest.raises(KeyboardInterrupt), new_folder(out, overwrite=True, marker="ours"):
        pass
    assert (out / "ours").read_text() == "precious"
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_links_are_followed_and_devices_left_alone(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("there")
    os.mkfifo(tmp_path / "pipe")
    with new_file(tmp_path / "link") as file:
        file.write(b"content")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "there").read_text() == "content"
    with pytest.raises(InputError, match="is no ordinary file"), new_file(tmp_path / "pipe", overwrite=True):
        pass


def test_a_full_disk_is_noticed_and_named(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space left"), open("/dev/full", "wb") as file:
        write_array(file, np.zeros(3))
    with pytest.raises(OSError, match=f"No space left on device: '{tmp_path / 'out'}'"), new_file(tmp_path / "out"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    words = f"not all could be written \\(9 requested and 4 written\\); is the disk full\\?: '{tmp_path / 'out'}'"
    with pytest.raises(OSError, match=words), new_file(tmp_path / "out"):
        raise OSError("9 requested and 4 written")  # as NumPy says it
    with pytest.raises(OSError, match="No space left") as error, new_folder(tmp_path / "out", False, "ours") as folder:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder / "inside"))
    assert error.value.filename == str(tmp_path / "out")  # not the scratch folder, which is gone


def test_an_empty_folder_counts_as_not_there(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with new_folder(tmp_path / "out", False, "ours") as folder:
        (folder / "new.txt").touch()
    assert (tmp_path / "out" / "new.txt").is_file()


def test_a_file_does_not_replace_a_folder(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for overwrite in (False, True):
        with (
            pytest.raises(InputError, match="empty: is a folder; choose another place"),
            new_file(tmp_path / "empty", overwrite),
        ):
            pytest.fail("it is refused at once")


def test_a_folder_that_appears_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    def race() -> None:
        with new_folder(tmp_path / "out", False, "ours"):
            (tmp_path / "out").mkdir()
            (tmp_path / "out" / "theirs.txt").write_text("theirs")

    with pytest.raises(InputError, match="already exists"):
        race()
    assert (tmp_path / "out" / "theirs.txt").read_text() == "theirs"


def test_a_killed_process_leaves_the_old_folder(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "old.txt").write_text("old")
    program = (
        "import sys, time; from remargin.files.atomic import new_folder\n"
        "with new_folder(sys.argv[1], overwrite=True, marker='old.txt') as f:\n"
        "    (f / 'half.txt').write_text('half'); print('ready', flush=True); time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", program, str(out)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert [p.name for p in out.iterdir()] == ["old.txt"]
