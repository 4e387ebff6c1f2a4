"""The texts of an index's documents, kept in its folder, so that `ask` can show them wherever the collection is now.

Two files that only grow, as the vectors do: the compressed texts, end to end, and where each of them ends. A document
that was added without its text, as a vector, has no bytes there.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from remargin.data.ids import Ids
from remargin.data.tables import batches
from remargin.errors import InputError
from remargin.files.arrays import append_array, map_array

TEXTS, ENDS = "texts.bin", "text_ends.bin"
GROWING = (TEXTS, ENDS)


def keep_texts(folder: Path, documents: int, texts: Iterable[str | None]) -> Iterator[str | None]:
    """Write texts behind those of `documents` documents that are there, and hand them on, one after the other.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> list(keep_texts(folder, 0, ["margins adapt", None])), np.fromfile(folder / ENDS, "u8").tolist()
        (['margins adapt', None], [21, 21])
    """
    place = int(map_array(folder / ENDS, np.uint64, (documents,), at_least=True)[-1]) if documents else 0
    append_array(folder / TEXTS, place, np.empty(0, np.uint8))  # they are there, even if no document is
    append_array(folder / ENDS, 8 * documents, np.empty(0, np.uint64))
    for batch in batches(texts):
        packed = [b"" if text is None else zlib.compress(text.encode()) for text in batch]
        lengths = np.fromiter(map(len, packed), np.uint64, len(packed))
        append_array(folder / TEXTS, place, np.frombuffer(b"".join(packed), np.uint8))
        append_array(folder / ENDS, 8 * documents, place + np.cumsum(lengths, dtype=np.uint64))
        place, documents = place + int(lengths.sum()), documents + len(batch)
        yield from batch


class KeptTexts:
    """The texts that `keep_texts` wrote, memory-mapped, by the ids of their documents.

    Example:
        >>> import tempfile
        >>> from remargin.data.ids import IdWriter
        >>> folder = Path(tempfile.mkdtemp())
        >>> writer = IdWriter(folder)
        >>> writer.add(["d1", "d2"])
        >>> _ = list(keep_texts(folder, 0, ["margins adapt", None]))
        >>> KeptTexts(folder, Ids(folder, **writer.close())).of(["d1", "d2", "d3"])
        {'d1': 'margins adapt'}
    """

    def __init__(self, folder: Path, ids: Ids) -> None:
        self._ids, self._file = ids, folder / TEXTS
        self._ends = map_array(folder / ENDS, np.uint64, (len(ids),), at_least=True)
        size = int(self._ends[-1]) if len(ids) else 0
        self._texts = map_array(self._file, np.uint8, (size,), at_least=True)

    def of(self, ids: Sequence[str]) -> dict[str, str]:
        """The texts of these documents, without those that have none.

        Raises:
            InputError: for a text that is damaged.
        """
        texts = {}
        for id, row in zip(ids, self._ids.rows(ids).tolist(), strict=True):
            if row < 0:
                continue
            start = int(self._ends[row - 1]) if row else 0
            packed = self._texts[start : int(self._ends[row])].tobytes()
            if packed:
                try:
                    texts[id] = zlib.decompress(packed).decode()
                except (zlib.error, UnicodeDecodeError):
                    raise InputError("damaged text", file=self._file, id=id, do="make the index again") from None
        return texts
