"""Files and folders that are either wholly there or not there."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import glob
import gzip
import hashlib
import os
import platform
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import IO, cast

from remargin.errors import InputError

UNFINISHED = "new"
LEFT = 24 * 60 * 60  # seconds after which unfinished work of another machine is removed if nobody holds it


@contextlib.contextmanager
def new_folder(path: str | Path, overwrite: bool, marker: str) -> Iterator[Path]:
    """A folder to fill beside `path`, which becomes `path` when the block ends well and vanishes when it does not.

    With `overwrite` it replaces an older one, but only one that has the file `marker` in it: not just any folder.

    >>> import tempfile
    >>> target = Path(tempfile.mkdtemp()) / "out"
    >>> with new_folder(target, overwrite=False, marker="data.txt") as folder:
    ...     _ = (folder / "data.txt").write_text("whole")
    ...     target.exists()
    False
    >>> (target / "data.txt").read_text()
    'whole'
    """
    path = resolved(path)
    refuse_existing(path, overwrite, marker)
    path.parent.mkdir(parents=True, exist_ok=True)
    with naming(path), _scratch(path) as scratch:
        folder = scratch / UNFINISHED  # made by mkdir, so that it has the permissions of any other folder
        folder.mkdir()
        yield folder
        put_in_place(folder, path, overwrite, marker)


def put_in_place(folder: Path, path: Path, overwrite: bool = False, marker: str | None = None) -> None:
    """Make a finished folder appear at `path`, on the same disk, instead of an older one if that is allowed."""
    path = resolved(path)
    remove_left(path.parent, path.name)
    inside = list(folder.rglob("*"))
    for file in (file for file in inside if file.is_file()):
        file.chmod(folder.stat().st_mode & 0o666)  # as any other file: some libraries keep theirs to the user alone
    flush_to_disk(*inside)
    with locked(path) if path.is_dir() else contextlib.nullcontext():  # nobody may be changing the older one
        _exchange(folder, path, overwrite, marker)


def _exchange(folder: Path, path: Path, overwrite: bool, marker: str | None) -> None:
    refuse_existing(path, overwrite, marker)
    if path.exists() and _swapped(folder, path):
        flush_to_disk(path.parent)
        shutil.rmtree(folder, ignore_errors=True)
        return
    with _scratch(path) as scratch:  # killed between two renames, the older one is left in there
        old = scratch / "old"
        try:
            if path.exists():
                path.rename(old)
            folder.rename(path)
            flush_to_disk(path.parent)
        except BaseException:
            if old.exists() and not path.exists():
                old.rename(path)
            raise


def _swapped(one: Path, other: Path) -> bool:
    """Whether two folders could change places in one step, as Linux can: at no time is one of them missing."""
    rename = getattr(ctypes.CDLL(None), "renameat2", None)
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    return rename is not None and rename(here, os.fsencode(one), here, os.fsencode(other), exchange) == 0


@contextlib.contextmanager
def new_file(path: str | Path, overwrite: bool = False) -> Iterator[IO[bytes]]:
    """A file to write beside `path`, gzipped if its name ends in .gz, which becomes `path` when the block ends well."""
    path = resolved(path)
    refuse_existing(path, overwrite)
    path.parent.mkdir(parents=True, exist_ok=True)
    with naming(path), _scratch(path) as scratch:
        fresh = scratch / UNFINISHED
        with open(fresh, "wb") as file:
            if path.suffix == ".gz":
                with gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed:
                    yield cast(IO[bytes], packed)
            else:
                yield file
        flush_to_disk(fresh)
        refuse_existing(path, overwrite)
        fresh.replace(path)
        flush_to_disk(path.parent)


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Errors of the system are about this path if they name none, or something in its scratch folder.

    A full disk does not know what was written. NumPy does not know that the disk is full, and libraries in other
    languages say so in exceptions of their own.
    """
    try:
        yield
    except InputError:
        raise
    except OSError as error:
        if error.errno is None:
            problem = f"not all could be written ({error}); is the disk full?"
            raise OSError(errno.EIO, problem, str(path)) from error
        if error.filename is None or str(error.filename).startswith(str(path.parent / f".{path.name}.")):
            error.filename = str(path)
        raise
    except Exception as error:
        for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            if os.strerror(number) in str(error):
                raise OSError(number, os.strerror(number), str(path)) from error
        raise


@contextlib.contextmanager
def _scratch(path: Path) -> Iterator[Path]:
    """A hidden folder beside `path` to work in; those that killed processes left behind go."""
    remove_left(path.parent, path.name)
    scratch, descriptor = _held_folder(path)
    try:
        yield scratch
    finally:
        os.close(descriptor)
        shutil.rmtree(scratch, ignore_errors=True)


def _held_folder(path: Path) -> tuple[Path, int]:
    """A new folder for `_scratch`, and the descriptor by which this process holds it as long as it lives."""
    while True:
        scratch = Path(tempfile.mkdtemp(prefix=f".{path.name}.{_machine()}-", dir=path.parent))
        descriptor = os.open(scratch, os.O_RDONLY)
        with contextlib.suppress(OSError):  # not every file system has locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if scratch.exists():
            return scratch, descriptor
        os.close(descriptor)  # taken for one that was left, in the moment before it was held


@cache
def _machine() -> str:
    """A short name for this machine since it was started: whoever has the same one sees the same locks."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    return hashlib.blake2b((boot.read_text() if boot.exists() else platform.node()).encode(), digest_size=4).hexdigest()


def is_scratch(path: Path) -> bool:
    """Whether the name of a path is that of a scratch folder.

    >>> is_scratch(Path("runs/.best.1f2e3d4c-a1b2c3d_")), is_scratch(Path("runs/.git"))
    (True, False)
    """
    return re.fullmatch(r"\..+\.[0-9a-f]{8}-[a-z0-9_]{8}", path.name) is not None


def remove_left(folder: Path, name: str | None = None, deep: bool = False) -> None:
    """Remove the scratch folders that killed processes left in a folder.

    Args:
        folder: where to look.
        name: the file or folder that they are for; any, if not given.
        deep: look in all folders inside, too.
    """
    pattern = f".{'*' if name is None else glob.escape(name)}.????????-????????"
    for scratch in list(folder.rglob(pattern) if deep else folder.glob(pattern)):
        with contextlib.suppress(OSError):  # it may be removed in this moment, or be somebody else's, or held
            _remove_if_left(scratch)


def remove_folder(path: Path) -> None:
    """Remove a folder so that nobody sees half of it: it is moved out of sight first."""
    with _scratch(path) as scratch:
        path.rename(scratch / UNFINISHED)


def replace_folder(path: Path, other: Path) -> None:
    """Put `other` in the place of the folder at `path`, which need not be there. Killed in between, `other` is left."""
    with _scratch(path) as scratch:
        if path.exists():
            path.rename(scratch / UNFINISHED)
        other.rename(path)


def _remove_if_left(scratch: Path) -> None:
    """Remove a folder of `_scratch` that nobody holds, if there is nothing but unfinished work in it.

    The locks of another machine may not be seen here: its folders go when nothing in them has changed for a day.
    """
    descriptor = os.open(scratch, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        newest = max(path.lstat().st_mtime for path in (scratch, *scratch.rglob("*")))
        ours = scratch.name.endswith(f".{_machine()}-{scratch.name[-8:]}")
        inside = [path.name for path in scratch.iterdir()]
        if (ours or time.time() - newest > LEFT) and inside in ([], [UNFINISHED]):
            shutil.rmtree(scratch, ignore_errors=True)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Nobody else works on the folder meanwhile: a second process that tries is told so. Ends with the process."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError("another process is writing it", file=folder, do="wait until that one ended") from None
        if not folder.exists() or folder.stat().st_ino != os.fstat(descriptor).st_ino:
            raise InputError("was replaced in this moment", file=folder, do="try again")
        yield
    finally:
        os.close(descriptor)


def on_disk(text: str) -> Path | None:
    """The file or folder that a text names, if it names one; it may well be something else, and too long for a name.

    >>> on_disk("/") is not None, on_disk("docstrings:" + "json," * 1000)
    (True, None)
    """
    path = Path(text)
    try:
        return path if path.exists() else None
    except OSError:
        return None


def resolved(path: str | Path) -> Path:
    """Where a path leads: what a link points to is written, not the link.

    Raises:
        InputError: for a loop of links.
    """
    try:
        Path(path).stat()
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise InputError("a link that leads back to itself", file=path, do="choose another place") from None
    return Path(path).resolve()


def refuse_existing(path: Path, overwrite: bool, marker: str | None = None) -> None:
    """An existing output is never overwritten unless asked, and a folder only if it has the marker of its kind.

    Without a marker the output is a file.
    """
    resolved(path)  # refuses a loop
    if marker is None and path.exists() and not path.is_file():
        raise InputError(
            f"is {'a folder' if path.is_dir() else 'no ordinary file'}", file=path, do="choose another place"
        )
    above = next(parent for parent in path.absolute().parents if parent.exists())
    if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
        problem = f"cannot be written: {above} is {'read-only' if above.is_dir() else 'not a folder'}"
        raise InputError(problem, file=path, do="choose another place")
    if not path.exists() or (path.is_dir() and all(map(is_scratch, path.iterdir()))):
        return
    if not overwrite:
        raise InputError("already exists", file=path, do="choose another place, or ask to overwrite it (--overwrite)")
    if marker is not None and not (path / marker).is_file():
        problem = f"exists and is not ours to overwrite: there is no {marker} in it"
        raise InputError(problem, file=path, do="choose another place")


def flush_to_disk(*paths: Path) -> None:
    """Wait until files and folders are safely on disk."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
