"""Checksums of files, whole or block by block."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from remargin.errors import InputError

BLOCK = 1 << 24


def verify_files(folder: Path, checksums: Mapping[str, str], remedy: str) -> None:
    """See that files are as they were written, by the SHA-256 of each.

    Raises:
        InputError: for one that is missing, or was changed since.
    """
    for name, before in checksums.items():
        if not (folder / name).is_file() or sha256(folder / name) != before:
            raise InputError("damaged or missing", file=folder / name, do=remedy)


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
            sums = pool.map(lambda start: _block_sum(path, start, size), range(len(known) * BLOCK, size, BLOCK))
            return cls(size, [*known, *sums])

    def verify(self, path: Path, remedy: str) -> None:
        """See that the bytes are as they were."""
        check_size(path, self.size, at_least=True)
        try:
            now = Sums.of(path, self.size)
        except FileNotFoundError:  # another process has put a newer one in its place
            raise InputError("gone in this moment", file=path, do="try again") from None
        if now != self:
            raise InputError("damaged: not what was written", file=path, do=remedy)


def _block_sum(path: Path, start: int, end: int) -> str:
    with open(path, "rb") as file:
        file.seek(start)
        return hashlib.sha256(file.read(min(BLOCK, end - start))).hexdigest()


def check_size(path: Path, expected: int, at_least: bool = False) -> None:
    """See that a file is as long as its header says, or with `at_least` no shorter.

    Raises:
        InputError: if it is not, or not there.
    """
    size = path.stat().st_size if path.is_file() else None
    if size is None or size < expected or (size > expected and not at_least):
        actual = "missing" if size is None else f"{size:,} bytes long"
        raise InputError(f"{actual}, its header says {expected:,} bytes", file=path, do="make it again")
