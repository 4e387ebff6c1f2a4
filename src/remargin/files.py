"""Files that are either wholly there or not there, with checksums that say which bytes they should hold."""

from __future__ import annotations

import contextlib
import hashlib
import json
import mmap
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from remargin.errors import InputError


@contextlib.contextmanager
def new_folder(path: str | Path, overwrite: bool = False) -> Iterator[Path]:
    """A folder to fill beside `path`, which becomes `path` when the block ends well and vanishes when it does not.

    >>> import tempfile
    >>> target = Path(tempfile.mkdtemp()) / "out"
    >>> with new_folder(target) as folder:
    ...     _ = (folder / "data.txt").write_text("whole")
    ...     target.exists()
    False
    >>> (target / "data.txt").read_text()
    'whole'
    """
    path = Path(path).absolute()
    refuse_existing(path, overwrite)
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    try:
        folder = scratch / "new"  # made by mkdir, so that it has the permissions of any other folder
        folder.mkdir()
        yield folder
        for file in folder.rglob("*"):
            _flush_to_disk(file)
        refuse_existing(path, overwrite)
        if path.exists():
            path.rename(scratch / "old")
        folder.rename(path)
        _flush_to_disk(path.parent)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def refuse_existing(path: Path, overwrite: bool) -> None:
    """An existing output is never overwritten unless asked."""
    if path.exists() and not overwrite:
        raise InputError("already exists", file=path, do="choose another place, or ask for it to be overwritten")


def _flush_to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256(path: str | Path) -> str:
    """The SHA-256 of a file's bytes."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_header(path: Path, header: dict[str, Any]) -> None:
    """A JSON header with its own checksum, so that `read_header` notices any change."""
    path.write_text(json.dumps({**header, "checksum": _checksum(header)}, indent=1, ensure_ascii=False) + "\n")


def read_header(path: Path, format: str, remedy: str) -> dict[str, Any]:
    """A header written by `write_header`, checked: intact, and of the format that the caller understands."""
    try:
        header = json.loads(path.read_text())
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


class MappedArray:
    """A read-only array in a file, mapped into memory page by page as it is read.

    Reading at random touches ever more pages, and mapped pages count as the process's memory. So `take` lets go of them
    every now and then; the operating system keeps them cached for as long as it has room.
    """

    release_after = 1 << 28  # bytes of pages touched

    def __init__(self, path: Path, dtype: DTypeLike, shape: tuple[int, ...]) -> None:
        self.dtype = np.dtype(dtype)
        expected = self.dtype.itemsize * int(np.prod(shape))
        size = path.stat().st_size if path.exists() else None
        if size != expected:
            found = "missing" if size is None else f"{size:,} bytes long"
            raise InputError(f"{found}, its header says {expected:,} bytes", file=path, do="prepare the data again")
        self._touched = 0
        self._pages: mmap.mmap | None = None
        if expected:
            with open(path, "rb") as file:
                self._pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
                self._advise("MADV_RANDOM")
        self.array: NDArray[Any] = np.frombuffer(self._pages or b"", self.dtype).reshape(shape)

    def __len__(self) -> int:
        return len(self.array)

    def take(self, indices: NDArray[np.integer[Any]], places: int | None = None) -> NDArray[Any]:
        """A copy of some rows, which lie in so many separate places."""
        rows: NDArray[Any] = self.array[indices]
        self._touched += (len(indices) if places is None else places) * mmap.PAGESIZE
        if self._touched > self.release_after:
            self._advise("MADV_DONTNEED")
            self._touched = 0
        return rows

    def _advise(self, advice: str) -> None:
        if self._pages is not None and hasattr(mmap, advice):  # not on every system, and only ever a hint
            self._pages.madvise(getattr(mmap, advice))
