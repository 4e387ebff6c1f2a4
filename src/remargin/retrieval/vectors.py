"""Vectors of texts, in memory or memory-mapped from disk, with the ids of the texts and what made them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict, get_args

import numpy as np
from numpy.typing import NDArray

from remargin.data.ids import Ids, IdsSize
from remargin.data.source import Text
from remargin.errors import InputError
from remargin.files.arrays import map_array
from remargin.files.checksums import Sums
from remargin.files.hashes import text_hash
from remargin.files.headers import read_header
from remargin.files.shapes import BlockSums, Count, Size
from remargin.losses.inputs import Similarity
from remargin.model.encoder import BiEncoder
from remargin.model.names import lasting_name
from remargin.model.tokenizer import Kind

Dtype = Literal["float32", "float16"]
HEADER = "remargin_vectors.json"
FORMAT = "remargin-vectors-2"
REMEDY = "name a folder that `remargin encode` wrote"
NAMES_ON_DISK = {"dtype": "precision", "passage_length": "chunk", "passage_overlap": "overlap"}


class MadeOnDisk(TypedDict):
    """The fields of `Made` as headers of vectors and indexes have them, some under other names."""

    data: str
    model: str
    model_fingerprint: str
    similarity: Similarity
    dimension: Size
    length: Size
    prefix: str
    precision: NotRequired[Dtype]
    chunk: NotRequired[Size | None]
    overlap: NotRequired[Count]
    kind: NotRequired[Kind]


@dataclass(frozen=True)
class Made:
    """How vectors were made. Vectors can be in one index if this is the same for them, apart from `data` and `model`.

    `dtype` is that of the numbers on disk. `passage_length` is in tokens, if documents were split into passages;
    neighbouring passages share `passage_overlap` tokens.
    """

    data: str
    model: str
    model_fingerprint: str
    similarity: Similarity
    dimension: int
    length: int
    prefix: str
    dtype: Dtype = "float32"
    passage_length: int | None = None
    passage_overlap: int = 0
    kind: Kind = "documents"

    @classmethod
    def by(
        cls,
        model: BiEncoder,
        data: str = "",
        kind: Kind = "documents",
        dtype: Dtype = "float32",
        passage_length: int | None = None,
        passage_overlap: int | None = None,
    ) -> Made:
        """The settings for vectors by a model. Without a `passage_overlap`, it is a quarter of the passages' length."""
        length = model.document_length if kind == "documents" else model.query_length
        prefix = model.document_prefix if kind == "documents" else model.query_prefix
        if dtype not in get_args(Dtype):
            raise InputError(f"unknown dtype {dtype!r}", do=f"use {' or '.join(get_args(Dtype))}")
        if passage_length is not None and kind == "queries":
            raise InputError("queries are not split into passages", do="leave --passage-length out")
        if passage_overlap is not None and passage_length is None:
            raise InputError("an overlap, but no passages", do="give --passage-length too")
        if passage_length is not None:
            room = length - len(model.tokenizer([prefix], length)[0].ids)  # special tokens are among those
            if not 1 <= passage_length <= room:
                problem = f"passages of {passage_length} tokens, but the model reads {length}"
                raise InputError(f"{problem}, its own and the prefix included", do=f"use 1 to {room}")
            passage_overlap = passage_length // 4 if passage_overlap is None else passage_overlap
            if not 0 <= passage_overlap < passage_length:
                problem = f"an overlap of {passage_overlap} tokens in passages of {passage_length}"
                raise InputError(problem, do="make it smaller")
        name = lasting_name(model.name)
        return cls(
            data, name, model.fingerprint(), model.similarity, model.dimension, length, prefix,
            dtype, passage_length, passage_overlap or 0, kind,
        )  # fmt: skip

    @classmethod
    def from_disk(cls, fields: MadeOnDisk) -> Made:
        """From the fields in a header."""
        names = {on_disk: name for name, on_disk in NAMES_ON_DISK.items()}
        return cls(**{names.get(name, name): value for name, value in fields.items()})  # type: ignore[arg-type]

    def on_disk(self) -> dict[str, Any]:
        """The fields for a header."""
        return {NAMES_ON_DISK.get(name, name): value for name, value in asdict(self).items()}


@dataclass
class Vectors:
    """A matrix with a row for each text, or for each passage of each text, in memory or on disk.

    Attributes:
        matrix: (rows, dimension).
        ids: of the texts.
        hashes: of the texts, to see which of them changed since.
        owners: for each row the text that it belongs to; None if every text has one row.
        truncated: how many texts were longer than the model reads, and were truncated.
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
        for name, sums in read_vectors_header(folder)["sums"].items():
            Sums(*sums).verify(folder / name, "encode again")
        return cls.mapped(folder)

    @classmethod
    def mapped(cls, folder: Path) -> Vectors:
        """The same without a look at every byte."""
        header = read_vectors_header(folder)
        made, texts = Made.from_disk(header["made"]), header["ids"]["count"]
        return cls(
            made,
            map_array(folder / "vectors.bin", made.dtype, (header["rows"], made.dimension)),
            Ids(folder, **header["ids"]),
            map_array(folder / "hashes.bin", np.uint64, (texts,)),
            map_array(folder / "owners.bin", np.uint32, (header["rows"],)) if made.passage_length else None,
            header["truncated"],
        )

    @classmethod
    def of(cls, model: BiEncoder, documents: Mapping[str, str], data: str = "") -> Vectors:
        """Encode documents into memory, one vector each."""
        made = Made.by(model, data)
        hashes = text_hashes([Text(id, text) for id, text in documents.items()])
        matrix = finite(model.encode_documents(list(documents.values())), made)
        return cls(made, matrix, list(documents), hashes)


class VectorsHeader(TypedDict):
    """How vectors were made, and the checksums of their files."""

    format: str
    made: MadeOnDisk
    rows: Count
    truncated: Count
    ids: IdsSize
    sums: BlockSums


def read_vectors_header(folder: Path) -> VectorsHeader:
    """The header of a folder of vectors."""
    return read_header(folder / HEADER, VectorsHeader, FORMAT, REMEDY)


def finite(vectors: NDArray[Any], made: Made) -> NDArray[Any]:
    """The vectors, if all their numbers are finite; else an InputError."""
    if not np.isfinite(vectors).all():
        do = "use float32, or another model"
        raise InputError(f"model {made.model} makes vectors with numbers that {made.dtype} cannot hold", do=do)
    return vectors


def text_hashes(texts: Sequence[Text]) -> NDArray[np.uint64]:
    """A hash of each text and its id.

    Raises:
        InputError: for what is no `Text`, or one without strings.
    """
    for text in texts:
        if not isinstance(text, Text) or not isinstance(text.id, str) or not isinstance(text.text, str):
            raise InputError(f"{text!r:.60} is no Text with an id and a text, both strings", do="pass Text(id, text)")
    return np.fromiter((text_hash(text.id, text.text) for text in texts), np.uint64, len(texts))
