"""Long work in numbered parts, each kept on disk once it is done: work that was stopped goes on with the rest."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remargin.errors import InputError
from remargin.files import locked, read_header, write_header


@contextlib.contextmanager
def resumable(out: str | Path, fingerprint: str, format: str) -> Iterator[Parts]:
    """The parts of the work that leads to `out`, in a hidden folder beside it. One process at a time has them.

    When the block ends well, `out` has been written and the folder is removed. When it does not, the folder stays for
    the next run, unless nothing was done: a failure at the start leaves nothing behind.

    Args:
        out: the file that the work leads to.
        fingerprint: of all that the parts depend on; only work with the same one goes on with them.
        format: a name for what is in a part; a part of another format counts as not done.

    Raises:
        InputError: if another process is at it.

    Example:
        >>> import tempfile
        >>> out = Path(tempfile.mkdtemp()) / "squares.txt"
        >>> with contextlib.suppress(KeyboardInterrupt), resumable(out, "squares", "example-1") as parts:
        ...     parts.write(0, {"squares": [0, 1, 4]})
        ...     raise KeyboardInterrupt
        >>> with resumable(out, "squares", "example-1") as parts:
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
            yield Parts(folder, format)
        except BaseException:
            if not any(folder.iterdir()):
                folder.rmdir()
            raise
        shutil.rmtree(folder)


@dataclass(frozen=True)
class Parts:
    """A folder of parts: JSON files with checksums, named by their numbers."""

    folder: Path
    format: str

    def write(self, number: int, content: dict[str, Any]) -> None:
        """Keep a part. Once this has returned, it is safely on disk."""
        write_header(self._file(number), {"format": self.format, **content})

    def read(self, number: int) -> dict[str, Any]:
        """A part as it was written.

        Raises:
            InputError: if it is not there, or was damaged since.
        """
        content = read_header(self._file(number), self.format, "run the same again")
        del content["format"]
        return content

    def find(self, number: int) -> dict[str, Any] | None:
        """A part as it was written; None if it is not done, or was damaged since and is to be done again."""
        try:
            return self.read(number)
        except InputError:
            return None

    def _file(self, number: int) -> Path:
        return self.folder / f"{number}.json"
