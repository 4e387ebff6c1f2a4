"""Long work in numbered parts that may be done in any order, each kept on disk once done: interrupted work resumes.

For work that appends to files, block after block, see `journal`.
"""

from __future__ import annotations

import contextlib
import glob
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypedDict, TypeVar, cast

from remargin.errors import InputError
from remargin.files.atomic import locked
from remargin.files.headers import read_header, write_header
from remargin.files.shapes import mismatch

T = TypeVar("T")


@contextlib.contextmanager
def resumable(out: str | Path, fingerprint: str, format: str, shape: type[T]) -> Iterator[Parts[T]]:
    """The parts of the work that leads to `out`, in a hidden folder beside it. One process at a time has them.

    When the block ends well, `out` has been written and the folder is removed. When it does not, the folder stays for
    the next run, unless nothing was done: a failure at the start leaves nothing behind.

    Args:
        out: the file that the work leads to.
        fingerprint: of all that the parts depend on; only work with the same one resumes with them.
        format: a name for what is in a part; a part of another format counts as not done.
        shape: what a part holds: a TypedDict, or another type that `mismatch` takes.

    Raises:
        InputError: if another process is at it.

    Example:
        >>> import tempfile
        >>> out = Path(tempfile.mkdtemp()) / "squares.txt"
        >>> work = (out, "squares", "example-1", dict[str, list[int]])
        >>> with contextlib.suppress(KeyboardInterrupt), resumable(*work) as parts:
        ...     parts.write(0, {"squares": [0, 1, 4]})
        ...     raise KeyboardInterrupt
        >>> with resumable(*work) as parts:
        ...     parts.find(0), parts.find(1)
        ({'squares': [0, 1, 4]}, None)
        >>> list(out.parent.iterdir())
        []
    """
    out = Path(out).absolute()
    folder = out.parent / f".{out.name}.{fingerprint}"
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder):
        try:
            yield Parts(folder, format, shape)
        except BaseException:
            if not any(folder.iterdir()):
                folder.rmdir()
            raise
        shutil.rmtree(folder)


def remove_parts(out: Path) -> None:
    """Remove parts that led to `out`, which is there: a process was killed after it had written it."""
    if out.exists():
        for folder in out.parent.glob(f".{glob.escape(out.name)}.*"):
            if re.fullmatch("[0-9a-f]+", folder.name.rpartition(".")[2]):
                shutil.rmtree(folder, ignore_errors=True)


class PartHeader(TypedDict):
    """A part on disk."""

    format: str
    part: Any


@dataclass(frozen=True)
class Parts(Generic[T]):
    """A folder of parts: JSON files with checksums, named by their numbers."""

    folder: Path
    format: str
    shape: type[T]

    def write(self, number: int, content: T) -> None:
        """Keep a part. Once this has returned, it is safely on disk."""
        write_header(self._file(number), {"format": self.format, "part": content})

    def read(self, number: int) -> T:
        """A part as it was written.

        Raises:
            InputError: if it is not there, or was damaged since.
        """
        path, remedy = self._file(number), "run the same again"
        content = read_header(path, PartHeader, self.format, remedy)["part"]
        if problem := mismatch(content, self.shape):
            raise InputError(f"not a part of this work: {problem}", file=path, do=remedy)
        return cast(T, content)

    def find(self, number: int) -> T | None:
        """A part as it was written; None if it is not done, or was damaged since and is to be done again."""
        try:
            return self.read(number)
        except InputError:
            return None

    def clear(self) -> None:
        """Forget all parts."""
        for file in self.folder.glob("*.json"):
            file.unlink()

    def _file(self, number: int) -> Path:
        return self.folder / f"{number}.json"
