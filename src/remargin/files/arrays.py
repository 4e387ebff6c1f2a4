"""Arrays in files, as plain bytes: written whole, mapped into memory, or read in stretches."""

from __future__ import annotations

import math
import os
import weakref
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from remargin.files.atomic import naming
from remargin.files.checksums import check_size


def write_array(file: IO[bytes], content: NDArray[Any]) -> None:
    """Write the bytes of an array, all of them or it is an error: `tofile` does not notice a full disk at its end."""
    file.write(np.ascontiguousarray(content).data)


def append_array(path: Path, place: int, content: NDArray[Any]) -> None:
    """Write an array at byte `place` of a file, truncate whatever was behind it, and wait until it is on disk."""
    if place:
        check_size(path, place, at_least=True)
    with naming(path), open(path, "ab") as file:
        file.truncate(place)
        write_array(file, content)
        file.flush()
        os.fsync(file.fileno())


def map_array(path: Path, dtype: DTypeLike, shape: tuple[int, ...], at_least: bool = False) -> NDArray[Any]:
    """A read-only array in a file, mapped into memory page by page as it is read.

    The file must be just as long, or with `at_least` may go on: what is behind the array was not finished.
    """
    check_size(path, np.dtype(dtype).itemsize * math.prod(shape), at_least)
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
        check_size(path, self._dtype.itemsize * count)
        self._file = os.open(path, os.O_RDONLY)
        weakref.finalize(self, os.close, self._file)

    def __reduce__(self) -> tuple[type[RangeReader], tuple[Any, ...]]:
        return RangeReader, self._arguments  # another process opens the file itself

    def read(self, starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[Any]:
        """The elements of all the stretches, end to end."""
        size = self._dtype.itemsize
        stretches = zip((starts * size).tolist(), (lengths * size).tolist(), strict=True)
        return np.frombuffer(b"".join([os.pread(self._file, n, start) for start, n in stretches]), self._dtype)
