"""Files as bytes, unpacked if they are gzipped, and only as much of them as can be meant."""

from __future__ import annotations

import gzip
import io
from pathlib import Path
from typing import IO, Any

from remargin.errors import InputError

# Text packs to a tenth, tables of ids to a hundredth at best; gzip can pack one letter to a thousandth. So a small file
# cannot fill memory or a disk. What is smaller than the first number is harmless.
HARMLESS = 1 << 26  # bytes
LARGEST_RATIO = 200  # of unpacked bytes to packed ones
CHUNK = 1 << 17  # bytes read at once
LARGEST_JSON = 1 << 28  # bytes; the checksums of an index of a billion vectors take a tenth of it
LARGEST_YAML = 1 << 18  # bytes, which take some seconds to parse; configs have some thousand


def open_binary(path: Path) -> IO[bytes]:
    """The bytes of a file, unpacked if its name ends in .gz.

    Raises:
        InputError: if there is no such file; and when it is read, if it unpacks to far more than text would.
    """
    try:
        if path.suffix == ".gz":
            return io.BufferedReader(_Unpacked(path), CHUNK)
        return open(path, "rb")
    except FileNotFoundError:
        raise InputError("no such file", file=path, do="check the path") from None
    except IsADirectoryError:
        raise InputError("is a folder, not a file", file=path, do="name a file inside it") from None


class _Unpacked(io.RawIOBase):
    """Unpacks a gzipped file, and counts what comes out of it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._packed = open(path, "rb")  # noqa: SIM115, closed with this
        self._file = gzip.GzipFile(fileobj=self._packed, mode="rb")
        self._size = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        content = self._file.read1(len(buffer))
        buffer[: len(content)] = content
        self._size += len(content)
        if self._size > HARMLESS and self._size > LARGEST_RATIO * self._packed.tell():
            problem = f"unpacks to more than {self._size >> 20:,} MiB, over {LARGEST_RATIO} times its size"
            raise InputError(problem, file=self._path, do="unpack it and give the unpacked file, if you trust it")
        return len(content)

    def close(self) -> None:
        self._file.close()
        self._packed.close()
        super().close()


def read_small(path: Path, largest: int) -> bytes:
    """All bytes of a file that is to be parsed as a whole.

    Raises:
        InputError: if it is larger than that. Errors of the system are not translated.

    Example:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp()) / "a.json"
        >>> _ = file.write_text("{}")
        >>> read_small(file, LARGEST_JSON)
        b'{}'
    """
    with open(path, "rb") as file:
        content = file.read(largest + 1)  # not its size, which says nothing of a pipe
    if len(content) > largest:
        raise InputError(f"is larger than {largest >> 10:,} KiB", file=path, do="give the file that is meant")
    return content
