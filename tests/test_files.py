"""Files that are either wholly there or not there."""

from __future__ import annotations

import errno
import json
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
from remargin.files import RangeReader, map_array, new_file, new_folder, read_header, write_array, write_header


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
from remargin.files import new_folder
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
    kept = [tmp_path / ".out.settings" / "mine", tmp_path / ".out.abcdefgh" / "old"]  # not ours; an older version
    for path in kept:
        path.mkdir(parents=True)
    with working(tmp_path / "out") as in_use:
        for folder in (left, in_use, *(path.parent for path in kept)):
            for path in (folder, *folder.rglob("*")):
                os.utime(path, (0, 0))
        just_made = tmp_path / ".out.12345678" / "new"
        just_made.mkdir(parents=True)
        with new_file(tmp_path / "out"):
            pass
        assert not left.exists()
        assert all(path.exists() for path in (in_use, just_made, *kept))


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
    monkeypatch.setattr("remargin.files._swapped", lambda one, other: False)
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
        "import sys, time; from remargin.files import new_folder\n"
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


def test_a_header_notices_any_change(tmp_path: Path) -> None:
    path = tmp_path / "header.json"
    write_header(path, {"format": "x-1", "count": 3})
    assert read_header(path, "x-1", "again") == {"format": "x-1", "count": 3}
    with pytest.raises(InputError, match="format 'x-1', expected 'x-2'; again"):
        read_header(path, "x-2", "again")
    changed = json.loads(path.read_text())
    changed["count"] = 4
    path.write_text(json.dumps(changed))
    with pytest.raises(InputError, match="checksum"):
        read_header(path, "x-1", "again")
    for damage in ("{", "[]", "{}", "3"):
        path.write_text(damage)
        with pytest.raises(InputError, match="not a header"):
            read_header(path, "x-1", "again")
    path.unlink()
    with pytest.raises(InputError, match="not found; again"):
        read_header(path, "x-1", "again")


def test_a_reader_can_be_sent_to_another_process(tmp_path: Path) -> None:
    import pickle

    np.arange(9, dtype=np.uint16).tofile(tmp_path / "a.bin")
    reader = pickle.loads(pickle.dumps(RangeReader(tmp_path / "a.bin", np.uint16, 9)))
    assert reader.read(np.array([3]), np.array([2])).tolist() == [3, 4]


def test_arrays_in_files_are_read_and_their_size_is_checked(tmp_path: Path) -> None:
    written = np.arange(300, dtype=np.uint32).reshape(-1, 3)
    path = tmp_path / "rows.bin"
    written.tofile(path)
    np.testing.assert_array_equal(map_array(path, np.uint32, (100, 3)), written)
    stretches = RangeReader(path, np.uint32, 300).read(np.array([7, 0, 299, 5]), np.array([3, 1, 1, 0]))
    assert stretches.tolist() == [7, 8, 9, 0, 299]
    for read in (lambda p: map_array(p, np.uint32, (100,)), lambda p: RangeReader(p, np.uint32, 100)):
        with pytest.raises(InputError, match="1,200 bytes long, its header says 400 bytes"):
            read(path)
        with pytest.raises(InputError, match="missing"):
            read(tmp_path / "nothing.bin")
    (tmp_path / "empty.bin").touch()
    assert map_array(tmp_path / "empty.bin", np.uint32, (0, 3)).shape == (0, 3)
