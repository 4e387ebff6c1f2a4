"""Millions of string ids on disk, and a lookup from an id to its row."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from remargin.files.arrays import append_array, map_array
from remargin.files.shapes import Count


class IdsSize(TypedDict):
    """The sizes that `Ids` needs to open its files."""

    count: Count
    text_bytes: Count


class Ids:
    """Ids in the order of their rows, memory-mapped: one text, where each id ends, and a table of sorted hashes.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> writer = IdWriter(folder)
    >>> writer.add(["d7", "d1", "d4"])
    >>> ids = Ids(folder, **writer.close())
    >>> ids[1], ids.rows(["d4", "nobody", "d7"]).tolist()
    ('d1', [2, -1, 0])
    """

    FILES = ("ids.bin", "id_ends.bin", "id_hashes.bin", "id_rows.bin")

    def __init__(self, folder: Path, count: int, text_bytes: int) -> None:
        text, ends, hashes, rows = (folder / name for name in self.FILES)
        self._text = map_array(text, np.uint8, (text_bytes,))
        self._ends = map_array(ends, np.uint64, (count,))
        self._hashes = map_array(hashes, np.uint64, (count,))
        self._rows = map_array(rows, np.uint32, (count,))

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, row: int) -> str:
        if not 0 <= row < len(self):
            raise IndexError(f"row {row} of {len(self)}")
        start = int(self._ends[row - 1]) if row else 0
        return self._text[start : int(self._ends[row])].tobytes().decode()

    def __iter__(self) -> Iterator[str]:
        return (self[row] for row in range(len(self)))

    def rows(self, ids: Sequence[str]) -> NDArray[np.int64]:
        """The row of each id, the last if it is there several times, -1 if it is not."""
        wanted = _hashes(ids)
        rows = np.full(len(ids), -1, np.int64)
        places = np.searchsorted(self._hashes, wanted)
        for i, place in enumerate(places.tolist()):
            while place < len(self) and self._hashes[place] == wanted[i]:  # more than once if hashes collide
                row = int(self._rows[place])
                if self[row] == ids[i]:
                    rows[i] = row
                place += 1
        return rows


class IdWriter:
    """Writes the files of `Ids` batch by batch, after those of `base`. Only hashes and lengths stay in memory."""

    def __init__(self, folder: Path, base: Ids | None = None) -> None:
        self._folder = folder
        (folder / Ids.FILES[0]).touch(exist_ok=False)
        self._lengths: list[NDArray[np.uint64]] = []
        self._hashes: list[NDArray[np.uint64]] = []
        if base is not None:
            append_array(folder / Ids.FILES[0], 0, base._text)
            self._lengths.append(np.diff(base._ends, prepend=np.uint64(0)))
            hashes = np.empty(len(base), np.uint64)
            hashes[base._rows] = base._hashes
            self._hashes.append(hashes)

    def add(self, ids: Sequence[str]) -> None:
        """Append a batch."""
        encoded = [id.encode() for id in ids]
        with open(self._folder / Ids.FILES[0], "ab") as text:
            text.write(b"".join(encoded))
        self._lengths.append(np.fromiter(map(len, encoded), np.uint64, len(encoded)))
        self._hashes.append(_hashes(ids))

    def close(self) -> IdsSize:
        """Write the remaining files; returns the sizes that `Ids` needs to open them."""
        none = np.empty(0, np.uint64)
        ends = np.cumsum(np.concatenate([none, *self._lengths]), dtype=np.uint64)
        hashes = np.concatenate([none, *self._hashes])
        order = np.argsort(hashes, kind="stable")
        _, ends_file, hashes_file, rows_file = (self._folder / name for name in Ids.FILES)
        append_array(ends_file, 0, ends)
        append_array(hashes_file, 0, hashes[order])
        append_array(rows_file, 0, order.astype(np.uint32))
        return {"count": len(ends), "text_bytes": int(ends[-1]) if len(ends) else 0}


def _hashes(ids: Sequence[str]) -> NDArray[np.uint64]:
    digests = b"".join(hashlib.blake2b(id.encode(), digest_size=8).digest() for id in ids)
    hashes: NDArray[Any] = np.frombuffer(digests, np.uint64)
    return hashes
