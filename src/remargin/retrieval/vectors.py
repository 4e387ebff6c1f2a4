"""Vectors of texts on disk: encoded once, memory-mapped, with the ids of the texts and what made them."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypedDict, get_args

import numpy as np
from numpy.typing import NDArray

from remargin.data.ids import Ids, IdsSize, IdWriter
from remargin.data.restart import JOURNAL, journal_line, read_journal
from remargin.data.source import Text
from remargin.data.tables import Rejects, batches
from remargin.errors import InputError
from remargin.files.arrays import append_array, map_array
from remargin.files.atomic import locked, naming, put_in_place, refuse_existing
from remargin.files.checksums import Sums
from remargin.files.headers import read_header, write_header
from remargin.files.shapes import BlockSums, Count, FieldsOf, Size
from remargin.losses.inputs import Similarity
from remargin.model.ahead import ahead
from remargin.model.encoder import BiEncoder, encoding_dtype
from remargin.model.tokenizer import Tokens
from remargin.progress import track
from remargin.retrieval.texts import Kind, collection_texts

Precision = Literal["float32", "float16"]
TEXTS_AT_ONCE = 4096
HEADER = "remargin_vectors.json"
FORMAT = "remargin-vectors-2"
REMEDY = "name a folder that `remargin encode` wrote"


@dataclass(frozen=True)
class Made:
    """How vectors were made. Vectors can be in one index if this is the same for them, apart from `data` and `model`.

    `chunk` is the length of passages in tokens, if documents were cut into passages; neighbours share `overlap` tokens.
    """

    data: str
    model: str
    model_fingerprint: str
    similarity: Similarity
    dimension: Size
    length: Size
    prefix: str
    precision: Precision = "float32"
    chunk: Size | None = None
    overlap: Count = 0
    kind: Kind = "documents"

    @classmethod
    def by(
        cls,
        model: BiEncoder,
        data: str = "",
        kind: Kind = "documents",
        precision: Precision = "float32",
        chunk: int | None = None,
        overlap: int | None = None,
    ) -> Made:
        """The settings for vectors by a model. If `overlap` is not given, passages share a quarter of their length."""
        length = model.document_length if kind == "documents" else model.query_length
        prefix = model.document_prefix if kind == "documents" else model.query_prefix
        if precision not in get_args(Precision):
            raise InputError(f"unknown precision {precision!r}", do=f"use {' or '.join(get_args(Precision))}")
        if chunk is not None and kind == "queries":
            raise InputError("queries are not cut into passages", do="leave --chunk out")
        if overlap is not None and chunk is None:
            raise InputError("an overlap, but no passages", do="give --chunk too")
        if chunk is not None:
            room = length - len(model.tokenizer([prefix], length)[0].ids)  # special tokens are among those
            if not 1 <= chunk <= room:
                problem = f"passages of {chunk} tokens, but the model reads {length}, its own and the prefix included"
                raise InputError(problem, do=f"use 1 to {room}")
            overlap = chunk // 4 if overlap is None else overlap
            if not 0 <= overlap < chunk:
                raise InputError(f"an overlap of {overlap} tokens in passages of {chunk}", do="make it smaller")
        name = str(Path(model.name).absolute()) if Path(model.name).is_dir() else model.name
        return cls(
            data, name, model.fingerprint(), model.similarity, model.dimension, length, prefix,
            precision, chunk, overlap or 0, kind,
        )  # fmt: skip


@dataclass
class Vectors:
    """A matrix with a row for each text, or for each passage of each text, in memory or on disk.

    Attributes:
        matrix: (rows, dimension).
        ids: of the texts.
        hashes: of the texts, to see which of them changed since.
        owners: for each row the text that it belongs to; None if every text has one row.
        truncated: how many texts were longer than the model reads, and were cut.
    """

    made: Made
    matrix: NDArray[Any] = field(repr=False)
    ids: Sequence[str] | Ids = field(repr=False)
    hashes: NDArray[np.uint64] = field(repr=False)
    owners: NDArray[np.uint32] | None = field(default=None, repr=False)
    truncated: int = 0

    @classmethod
    def load(cls, folder: str | Path) -> Vectors:
        """What `encode` wrote, memory-mapped.

        Raises:
            InputError: if that folder holds no vectors, or files are damaged.
        """
        folder = Path(folder)
        for name, sums in _header(folder)["sums"].items():
            Sums(*sums).verify(folder / name, "encode again")
        return cls._mapped(folder)

    @classmethod
    def _mapped(cls, folder: Path) -> Vectors:
        header = _header(folder)
        made, texts = Made(**header["made"]), header["ids"]["count"]
        return cls(
            made,
            map_array(folder / "vectors.bin", made.precision, (header["rows"], made.dimension)),
            Ids(folder, **header["ids"]),
            map_array(folder / "hashes.bin", np.uint64, (texts,)),
            map_array(folder / "owners.bin", np.uint32, (header["rows"],)) if made.chunk else None,
            header["truncated"],
        )

    @classmethod
    def of(cls, model: BiEncoder, documents: Mapping[str, str], data: str = "") -> Vectors:
        """Encode documents into memory, one vector each."""
        made = Made.by(model, data)
        hashes = np.array([text_hash(Text(id, text)) for id, text in documents.items()], np.uint64)
        matrix = finite(model.encode_documents(list(documents.values())), made)
        return cls(made, matrix, list(documents), hashes)


class VectorsHeader(TypedDict):
    """How vectors were made, and the checksums of their files."""

    format: str
    made: Annotated[dict[str, Any], FieldsOf(Made)]
    rows: Count
    truncated: Count
    ids: IdsSize
    sums: BlockSums


def _header(folder: Path) -> VectorsHeader:
    return read_header(folder / HEADER, VectorsHeader, FORMAT, REMEDY)


def finite(vectors: NDArray[Any], made: Made) -> NDArray[Any]:
    """The vectors, if all their numbers are finite; else an InputError."""
    if not np.isfinite(vectors).all():
        do = "use float32, or another model"
        raise InputError(f"model {made.model} makes vectors with numbers that {made.precision} cannot hold", do=do)
    return vectors


def text_hash(text: Text) -> int:
    """A hash of a text and its id."""
    if not isinstance(text, Text) or not isinstance(text.id, str) or not isinstance(text.text, str):
        raise InputError(f"{text!r:.60} is no Text with an id and a text, both strings", do="pass Text(id, text)")
    content = f"{text.id}\0{text.text}".encode()
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little")


def encode(
    model: BiEncoder, texts: Iterable[Text], out: str | Path, made: Made | None = None, overwrite: bool = False
) -> Vectors:
    """Write the vectors of texts to a folder. After a kill, the same call goes on where it was, to the same bytes.

    What is done lies in a hidden folder beside `out` until all is there. It is used again only for the same model,
    settings and texts, and if its bytes are intact: blocks before the first that changed or was damaged are kept.

    Args:
        model: the encoder.
        texts: each with its own id; see `remargin.data.source.checked_texts`.
        out: the folder.
        made: settings, as `Made.by(model, ...)` gives them.
        overwrite: replace `out` if it is there.

    Example:
        >>> import tempfile
        >>> model = BiEncoder.from_pretrained(model_folder)
        >>> texts = [Text("d1", "one text"), Text("d2", "another")]
        >>> vectors = encode(model, texts, Path(tempfile.mkdtemp()) / "vectors")
        >>> vectors.matrix.shape == (2, model.dimension), list(vectors.ids)
        (True, ['d1', 'd2'])
    """
    out = Path(out).resolve()
    refuse_existing(out, overwrite, HEADER)
    made = made or Made.by(model)
    if made.model_fingerprint != model.fingerprint():
        raise InputError("these settings were made for another model", do="use Made.by(model, ...)")
    computed_in = str(encoding_dtype(model.precision, model.device))
    name = hashlib.blake2b(json.dumps([asdict(made), computed_in]).encode(), digest_size=8).hexdigest()
    folder = out.parent / f".{out.name}.{name}"
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder), naming(out):
        work = _Work(folder, made)
        blocks = batches(track(texts, "encoding"), TEXTS_AT_ONCE)
        try:
            for block in ahead(work.plan(block, model) for block in blocks):  # tokenised while others are encoded
                work.write(block, model)
            work.close()
        except BaseException:
            if not (folder / JOURNAL).exists():  # there is nothing to go on from
                shutil.rmtree(folder)
            raise
        put_in_place(folder, out, overwrite, HEADER)
        (out / JOURNAL).unlink()  # not before all is in place: with it, nothing has to be encoded again
    return Vectors._mapped(out)


def encode_collection(
    model: BiEncoder,
    data: str | Path,
    out: str | Path,
    kind: Kind = "documents",
    precision: Precision = "float32",
    chunk: int | None = None,
    overlap: int | None = None,
    rejects: Rejects | None = None,
    overwrite: bool = False,
) -> Vectors:
    """Write the vectors of a collection's documents, or of its queries, to a folder; see `encode`.

    Args:
        model: the encoder.
        data: the collection, as `Collection.load` takes it. Its texts are never in memory all at once.
        out: the folder.
        kind: "documents", or "queries" for those of all splits.
        precision: of the numbers on disk: "float32", or "float16" for half the size.
        chunk: cut documents into passages of this many tokens, with a vector for each.
        overlap: how many tokens neighbouring passages share; a quarter of `chunk` if not given.
        rejects: where bad input goes; without it, bad input is an error.
        overwrite: replace `out` if it is there.

    Example:
        >>> import tempfile
        >>> model = BiEncoder.from_pretrained(model_folder)
        >>> vectors = encode_collection(model, "docstrings:json", Path(tempfile.mkdtemp()) / "vectors")
        >>> vectors.made.data, len(vectors.ids) == len(vectors.matrix) > 0
        ('docstrings:json', True)
    """
    made = Made.by(model, str(data), kind, precision, chunk, overlap)
    return encode(model, collection_texts(data, kind, rejects), out, made, overwrite)


class JournalBlock(TypedDict):
    """A line of the journal: of which texts a block is, its rows, how many of its texts were cut, and their bytes."""

    texts: str
    rows: Count
    truncated: Count
    sum: str


class _Block(NamedTuple):
    """Some texts, their line of the journal, and, if they are yet to be encoded, their tokens."""

    texts: list[Text]
    hashes: NDArray[np.uint64]
    journal: JournalBlock
    tokens: Tokens | None = None
    owners: NDArray[np.uint32] | None = None


class _Work:
    """A folder that is being filled.

    Its journal has a line for each block whose vectors are safely on disk, with a sum of their bytes.
    """

    def __init__(self, folder: Path, made: Made) -> None:
        self._folder = folder
        self._made = made
        for name in Ids.FILES:
            (folder / name).unlink(missing_ok=True)
        self._ids = IdWriter(folder)
        self._hashes: list[NDArray[np.uint64]] = []
        self._row_bytes = {"vectors.bin": made.dimension * np.dtype(made.precision).itemsize}
        if made.chunk is not None:
            self._row_bytes["owners.bin"] = np.dtype(np.uint32).itemsize
        for name in self._row_bytes:
            (folder / name).touch()
        self._done = read_journal(folder / JOURNAL, JournalBlock)
        self._texts = self._rows = self._truncated = self._journal_end = self._rows_kept = 0

    def plan(self, texts: list[Text], model: BiEncoder) -> _Block:
        """Prepare the next block: make its tokens, unless the journal says that it was encoded before."""
        hashes = np.fromiter(map(text_hash, texts), np.uint64, len(texts))
        digest = hashlib.blake2b(hashes.tobytes(), digest_size=16).hexdigest()
        if self._done:
            done = self._done.pop(0)
            if done["texts"] == digest and done["sum"] == self._sum_on_disk(done["rows"]):
                self._rows_kept += done["rows"]
                return _Block(texts, hashes, done)
            self._done.clear()
        tokens, owners, truncated = _tokens(model, [text.text for text in texts], self._made)
        journal: JournalBlock = {"texts": digest, "rows": len(tokens.lengths), "truncated": truncated, "sum": ""}
        return _Block(texts, hashes, journal, tokens, owners)

    def _sum_on_disk(self, rows: int) -> str:
        """The checksum of the next `rows` rows on disk, which follow those that are kept."""
        contents = []
        for name, size in self._row_bytes.items():
            with open(self._folder / name, "rb") as file:
                file.seek(self._rows_kept * size)
                contents.append(file.read(min(rows * size, os.fstat(file.fileno()).st_size)))
        return _sum(contents)

    def write(self, block: _Block, model: BiEncoder) -> None:
        """Encode a block and write it, unless that was done before."""
        if block.tokens is not None and block.owners is not None:
            with np.errstate(over="ignore"):
                vectors = finite(model.encode_tokens(block.tokens).astype(self._made.precision), self._made)
            contents = {"vectors.bin": vectors, "owners.bin": block.owners + np.uint32(self._texts)}
            for name, size in self._row_bytes.items():
                self._write(name, self._rows * size, contents[name])
            block.journal["sum"] = _sum(contents[name] for name in self._row_bytes)
            self._write(JOURNAL, self._journal_end, np.frombuffer(journal_line(block.journal), np.uint8))
        self._journal_end += len(journal_line(block.journal))
        self._texts += len(block.texts)
        self._rows += block.journal["rows"]
        self._truncated += block.journal["truncated"]
        self._ids.add([text.id for text in block.texts])
        self._hashes.append(block.hashes)

    def _write(self, name: str, place: int, content: NDArray[Any]) -> None:
        append_array(self._folder / name, place, content)

    def close(self) -> None:
        """Write the ids and the header; the folder is then complete."""
        if not self._texts:
            raise InputError("there are no texts to encode", do="name another collection")
        for name, size in self._row_bytes.items():
            self._write(name, self._rows * size, np.empty(0, np.uint8))
        self._write("hashes.bin", 0, np.concatenate(self._hashes))
        header = {"format": FORMAT, "made": asdict(self._made), "rows": self._rows, "truncated": self._truncated}
        header |= {"ids": self._ids.close()}
        files = [self._folder / name for name in (*self._row_bytes, "hashes.bin", *Ids.FILES)]
        write_header(self._folder / HEADER, {**header, "sums": {file.name: Sums.of(file) for file in files}})


def _sum(contents: Iterable[Any]) -> str:
    digest = hashlib.sha256()  # where CPUs have it, twice as fast as BLAKE2
    for content in contents:
        digest.update(content)
    return digest.hexdigest()


def _tokens(model: BiEncoder, texts: list[str], made: Made) -> tuple[Tokens, NDArray[np.uint32], int]:
    """Tokens of texts or their passages, the text that each belongs to, and how many texts were cut short."""
    owners = np.arange(len(texts), dtype=np.uint32)
    if made.chunk is not None:
        passages = [model.tokenizer.passages(text, made.chunk, made.overlap) for text in texts]
        owners = np.repeat(owners, [len(p) for p in passages])
        texts = list(itertools.chain.from_iterable(passages))
    tokens, truncated = model.tokenizer([made.prefix + text for text in texts], made.length)
    return tokens, owners, truncated
