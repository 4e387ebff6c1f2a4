"""Encoding: the vectors of texts, written to a folder block by block. Interrupted encoding resumes."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from remargin.data.ids import Ids, IdWriter
from remargin.data.source import Text
from remargin.data.tables import batches
from remargin.errors import InputError
from remargin.files.arrays import append_array
from remargin.files.atomic import locked, naming, put_in_place, refuse_existing
from remargin.files.checksums import Sums
from remargin.files.hashes import texts_fingerprint
from remargin.files.headers import write_header
from remargin.files.journal import JOURNAL, Block, Journal
from remargin.model.ahead import ahead
from remargin.model.encoder import BiEncoder, encoding_dtype
from remargin.model.tokenizer import Tokens
from remargin.progress import track
from remargin.retrieval.vectors import FORMAT, HEADER, Made, Vectors, finite, text_hashes

TEXTS_AT_ONCE = 4096
OWNERS = "owners.bin"
MOST = 1 << 32  # rows are kept in 32 bits


def encode_texts(
    model: BiEncoder,
    texts: Iterable[Text],
    out: str | Path,
    made: Made | None = None,
    overwrite: bool = False,
    only_longer: bool = False,
) -> Vectors:
    """Write the vectors of texts to a folder. If interrupted, the same call resumes, to the same bytes.

    What is done lies in a hidden folder beside `out` until all is there. It is used again only for the same model,
    settings and texts, and if its bytes are intact: blocks before the first that changed or was damaged are kept.

    Args:
        model: the encoder.
        texts: each with its own id; see `remargin.data.source.checked_texts`.
        out: the folder.
        made: settings, as `Made.by(model, ...)` gives them.
        overwrite: replace `out` if it is there.
        only_longer: write no passages, if `made` asks for some, where no text is longer than a passage.

    Example:
        >>> import tempfile
        >>> model = BiEncoder.from_pretrained(model_folder)
        >>> texts = [Text("d1", "one text"), Text("d2", "another")]
        >>> vectors = encode_texts(model, texts, Path(tempfile.mkdtemp()) / "vectors")
        >>> vectors.matrix.shape == (2, model.dimension), list(vectors.ids)
        (True, ['d1', 'd2'])
    """
    out = Path(out).resolve()
    refuse_existing(out, overwrite, HEADER)
    made = made or Made.by(model)
    if made.model_fingerprint != model.fingerprint():
        raise InputError("these settings were made for another model", do="use Made.by(model, ...)")
    computed_in = str(encoding_dtype(model.precision, model.device))
    name = hashlib.blake2b(json.dumps([made.on_disk(), computed_in]).encode(), digest_size=8).hexdigest()
    folder = out.parent / f".{out.name}.{name}"
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder), naming(out):
        try:
            fill(folder, model, track(texts, "encoding"), made, only_longer)
        except BaseException:
            if not (folder / JOURNAL).stat().st_size:  # there is nothing to resume
                shutil.rmtree(folder)
            raise
        put_in_place(folder, out, overwrite, HEADER)
        (out / JOURNAL).unlink()  # not before all is in place: with it, nothing has to be encoded again
        vectors = Vectors.mapped(out)
        if vectors.owners is None:
            (out / OWNERS).unlink(missing_ok=True)
    return vectors


def fill(
    folder: Path,
    model: BiEncoder,
    texts: Iterable[Text],
    made: Made,
    only_longer: bool = False,
    at_once: int | None = None,
) -> None:
    """Encode texts into a folder of our own, with a journal in it: blocks that the folder has already are kept.

    Args:
        folder: where to write.
        model: the encoder that `made` is of.
        texts: each with its own id.
        made: the settings.
        only_longer: as in `encode_texts`.
        at_once: how many texts a block has; the vectors are the same to the last bit where the blocks are.
    """
    work = _Work(folder, made)
    by = model if made.kind == "documents" else model.of_queries
    blocks = batches(texts, at_once or TEXTS_AT_ONCE)
    for planned in ahead(work.plan(block, by) for block in blocks):  # tokenised while others are encoded
        work.write(planned, by)
    work.close(only_longer)


class Filling:
    """The texts of a folder of vectors that is being filled, and its header once it is.

    `names` are those of the files that hold the vectors and, if there are passages, the text that each belongs to.
    """

    def __init__(self, folder: Path, made: Made) -> None:
        self.folder, self.made = folder, made
        self.names = ["vectors.bin"] if made.passage_length is None else ["vectors.bin", OWNERS]
        self.texts = self.rows = self.truncated = 0
        self._ids = IdWriter(folder)
        self._hashes: list[NDArray[np.uint64]] = []

    def add(self, ids: Sequence[str], hashes: NDArray[np.uint64], rows: int, truncated: int) -> None:
        """Count the next texts, the vectors that they have, and how many of them were truncated."""
        if self.rows + rows >= MOST:
            raise InputError(f"more than {MOST - 1:,} vectors for one folder", do="encode parts of the collection")
        self._ids.add(ids)
        self._hashes.append(hashes)
        self.texts += len(ids)
        self.rows += rows
        self.truncated += truncated

    def close(self, only_longer: bool) -> None:
        """Write the ids and the header; the folder is then complete."""
        if not self.texts:
            raise InputError("there are no texts to encode", do="name another collection")
        fits: dict[str, int] = {}
        if only_longer and self.rows == self.texts and self.made.passage_length is not None:
            fits = {"fits": self.made.passage_length}
            self.made, self.names = self.made.whole, self.names[:1]
        append_array(self.folder / "hashes.bin", 0, np.concatenate(self._hashes))
        header = {"format": FORMAT, "made": self.made.on_disk(), "rows": self.rows, "truncated": self.truncated}
        header |= {"ids": self._ids.close(), **fits}
        files = [self.folder / name for name in (*self.names, "hashes.bin", *Ids.FILES)]
        write_header(self.folder / HEADER, {**header, "sums": {file.name: Sums.of(file) for file in files}})


class _Planned(NamedTuple):
    """Some texts, and either their block as it was encoded before, or their tokens."""

    texts: list[Text]
    hashes: NDArray[np.uint64]
    key: str
    done: Block | None
    tokens: Tokens | None = None
    owners: NDArray[np.uint32] | None = None
    truncated: int = 0


class _Work:
    """A folder that is being filled block by block, and a journal of the blocks."""

    def __init__(self, folder: Path, made: Made) -> None:
        for name in Ids.FILES:
            (folder / name).unlink(missing_ok=True)
        self._made = made
        self._filling = Filling(folder, made)
        self._journal = Journal(folder / JOURNAL, [folder / name for name in self._filling.names])

    def plan(self, texts: list[Text], model: BiEncoder) -> _Planned:
        """Look up the next block in the journal, or make its tokens."""
        hashes = text_hashes(texts)
        key = texts_fingerprint((text.id, text.text) for text in texts)
        done = self._journal.find(key)
        if done is not None:
            return _Planned(texts, hashes, key, done, truncated=done.numbers.get("truncated", 0))
        return _Planned(texts, hashes, key, None, *_tokens(model, [text.text for text in texts], self._made))

    def write(self, block: _Planned, model: BiEncoder) -> None:
        """Encode a block and write it, unless that was done before."""
        rows = 0
        if block.done is not None:
            rows = len(block.done.contents[0]) // (self._made.dimension * np.dtype(self._made.dtype).itemsize)
        elif block.tokens is not None and block.owners is not None:
            with np.errstate(over="ignore"):
                vectors = finite(model.encode_tokens(block.tokens).astype(self._made.dtype), self._made)
            owners = block.owners + np.uint32(self._filling.texts)
            contents = [vectors, owners][: len(self._filling.names)]
            self._journal.add(block.key, contents, truncated=block.truncated)
            rows = len(vectors)
        self._filling.add([text.id for text in block.texts], block.hashes, rows, block.truncated)

    def close(self, only_longer: bool) -> None:
        """Write what is beside the vectors; the folder is then complete."""
        self._journal.close()
        self._filling.close(only_longer)


def _tokens(model: BiEncoder, texts: list[str], made: Made) -> tuple[Tokens, NDArray[np.uint32], int]:
    """Tokens of texts or their passages, the text that each belongs to, and how many texts were truncated."""
    if made.passage_length is not None:
        how = made.prefix, made.length, made.passage_length, made.passage_overlap
        return model.tokenizer.in_passages(texts, *how)
    tokens, truncated = model.tokenizer([made.prefix + text for text in texts], made.length)
    return tokens, np.arange(len(texts), dtype=np.uint32), truncated
