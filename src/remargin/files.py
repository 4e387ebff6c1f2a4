"""Files that are either wholly there or not there, with checksums that say which bytes they should hold."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import glob
import gzip
import hashlib
import json
import math
import os
import shutil
import tempfile
import time
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

import numpy as np
from numpy.typing import DTypeLike, NDArray

from remargin.errors import InputError

UNFINISHED = "new"
BLOCK = 1 << 24
LEFT = 24 * 60 * 60  # seconds after which unfinished work that nobody holds is removed


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
    path = Path(path).resolve()  # what a link leads to is written, not the link
    refuse_existing(path, overwrite, marker)
    path.parent.mkdir(parents=True, exist_ok=True)
    with _naming(path), _scratch(path) as scratch:
        folder = scratch / UNFINISHED  # made by mkdir, so that it has the permissions of any other folder
        folder.mkdir()
        yield folder
        put_in_place(folder, path, overwrite, marker)


def put_in_place(folder: Path, path: Path, overwrite: bool = False, marker: str | None = None) -> None:
    """Make a finished folder appear at `path`, on the same disk, instead of an older one if that is allowed."""
    path = path.resolve()
    flush_to_disk(*folder.rglob("*"))
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
    path = Path(path).resolve()
    refuse_existing(path, overwrite)
    path.parent.mkdir(parents=True, exist_ok=True)
    with _naming(path), _scratch(path) as scratch:
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
def _naming(path: Path) -> Iterator[None]:
    """Errors of the system that do not say so are about this path: a full disk does not know what was written."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


@contextlib.contextmanager
def _scratch(path: Path) -> Iterator[Path]:
    """A hidden folder beside `path` to work in; those that killed processes left behind go."""
    for left in path.parent.glob(f".{glob.escape(path.name)}.????????"):
        _remove_if_left(left)
    scratch = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    descriptor = os.open(scratch, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # not every file system has locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)  # as long as this process lives
        yield scratch
    finally:
        os.close(descriptor)
        shutil.rmtree(scratch, ignore_errors=True)


def _remove_if_left(scratch: Path) -> None:
    """Remove a folder of `_scratch` that nobody works in for a day, if there is nothing but unfinished work in it."""
    with contextlib.suppress(OSError):  # it may be removed in this moment, or be somebody else's, or locked
        descriptor = os.open(scratch, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            newest = max(path.lstat().st_mtime for path in (scratch, *scratch.rglob("*")))
            left = time.time() - newest > LEFT  # the lock may be yet to come, or be one that only its own host sees
            if left and [path.name for path in scratch.iterdir()] == [UNFINISHED]:
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


def refuse_existing(path: Path, overwrite: bool, marker: str | None = None) -> None:
    """An existing output is never overwritten unless asked, and a folder only if it has the marker of its kind.

    Without a marker the output is a file.
    """
    if marker is None and path.exists() and not path.is_file():
        raise InputError(
            f"is {'a folder' if path.is_dir() else 'no ordinary file'}", file=path, do="choose another place"
        )
    above = next(parent for parent in path.absolute().parents if parent.exists())
    if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
        problem = f"cannot be written: {above} is {'read-only' if above.is_dir() else 'not a folder'}"
        raise InputError(problem, file=path, do="choose another place")
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
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


def sha256(path: str | Path) -> str:
    """The SHA-256 of a file's bytes."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class Sums(NamedTuple):
    """How many bytes of a file count, and the SHA-256 of each block of them, so that some can be checked at a time."""

    size: int
    blocks: list[str]

    @classmethod
    def of(cls, path: Path, size: int | None = None, before: Sums | None = None) -> Sums:
        """Those of a file, or of its first bytes; whole blocks that it had before are not read again."""
        size = path.stat().st_size if size is None else size
        known = before.blocks[: before.size // BLOCK] if before else []
        with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
            found = pool.map(lambda start: _block_sum(path, start, size), range(len(known) * BLOCK, size, BLOCK))
            return cls(size, [*known, *found])

    def verify(self, path: Path, remedy: str) -> None:
        """See that the bytes are as they were."""
        _check_size(path, self.size, at_least=True)
        try:
            found = Sums.of(path, self.size)
        except FileNotFoundError:  # another process has put a newer one in its place
            raise InputError("gone in this moment", file=path, do="try again") from None
        if found != self:
            raise InputError("damaged: not what was written", file=path, do=remedy)


def _block_sum(path: Path, start: int, end: int) -> str:
    with open(path, "rb") as file:
        file.seek(start)
        return hashlib.sha256(file.read(min(BLOCK, end - start))).hexdigest()


def write_header(path: Path, header: dict[str, Any]) -> None:
    """A JSON header with its own checksum, so that `read_header` notices any change. Replaces an older one at once."""
    content = json.dumps({**header, "checksum": _checksum(header)}, indent=1)
    with new_file(path, overwrite=True) as file:
        file.write(content.encode() + b"\n")


def read_header(path: Path, format: str, remedy: str) -> dict[str, Any]:
    """A header written by `write_header`, checked: intact, and of the format that the caller understands."""
    try:
        header = json.loads(path.read_text(encoding="utf-8"))
        checksum = header.pop("checksum")
    except FileNotFoundError:
        raise InputError("not found", file=path, do=remedy) from None
    except (OSError, ValueError, AttributeError, KeyError, TypeError):
        raise InputError("not a header that remargin wrote", file=path, do=remedy) from None
    if checksum != _checksum(header):
        raise InputError("header damaged: its checksum does not match", file=path, do=remedy)
    if header.get("format") != format:
        raise InputError(f"format {header.get('format')!r}, expected {format!r}", file=path, do=remedy)
    assert isinstance(header, dict)
    return header


def _checksum(header: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(header, sort_keys=True).encode()).hexdigest()


def write_array(file: IO[bytes], content: NDArray[Any]) -> None:
    """Write the bytes of an array, all of them or it is an error: `tofile` does not notice a full disk at its end."""
    file.write(np.ascontiguousarray(content).data)


def append_array(path: Path, place: int, content: NDArray[Any]) -> None:
    """Write an array at byte `place` of a file, cut off whatever was behind it, and wait until it is on disk."""
    if place:
        _check_size(path, place, at_least=True)
    with _naming(path), open(path, "ab") as file:
        file.truncate(place)
        write_array(file, content)
        file.flush()
        os.fsync(file.fileno())


def map_array(path: Path, dtype: DTypeLike, shape: tuple[int, ...], at_least: bool = False) -> NDArray[Any]:
    """A read-only array in a file, mapped into memory page by page as it is read.

    The file must be just as long, or with `at_least` may go on: what is behind the array was not finished.
    """
    _check_size(path, np.dtype(dtype).itemsize * math.prod(shape), at_least)
    if 0 in shape:  # nothing to map
        return np.empty(shape, dtype)
    return np.memmap(path, dtype, "r", shape=shape).view(np.ndarray)


class RangeReader:
    """Reads stretches of a large array in a file, at random, in constant memory.

    Not a memory map, because each page that a map touches counts as the process's own memory, and one touch may map two
    megabytes: with random access the whole file ends up resident. Reading costs a system call, about a microsecond.
    """

    def __init__(self, path: Path, dtype: DTypeLike, count: int) -> None:
        self._arguments = (path, dtype, count)
        self._dtype = np.dtype(dtype)
        _check_size(path, self._dtype.itemsize * count)
        self._file = os.open(path, os.O_RDONLY)
        weakref.finalize(self, os.close, self._file)

    def __reduce__(self) -> tuple[type[RangeReader], tuple[Any, ...]]:
        return RangeReader, self._arguments  # another process opens the file itself

    def read(self, starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[Any]:
        """The elements of all the stretches, end to end."""
        size = self._dtype.itemsize
        stretches = zip((starts * size).tolist(), (lengths * size).tolist(), strict=True)
        return np.frombuffer(b"".join([os.pread(self._file, n, start) for start, n in stretches]), self._dtype)


def _check_size(path: Path, expected: int, at_least: bool = False) -> None:
    size = path.stat().st_size if path.exists() else None
    if size is None or size < expected or (size > expected and not at_least):
        found = "missing" if size is None else f"{size:,} bytes long"
        raise InputError(f"{found}, its header says {expected:,} bytes", file=path, do="make it again")
