"""Vectors of texts, in memory or memory-mapped from disk, with the ids of the texts and what made them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, NotRequired, TypedDict, get_args

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
from remargin.retrieval.encoders import AS_GIVEN

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
    query_length: NotRequired[Size]
    query_prefix: NotRequired[str]
    pooling: NotRequired[str]


def read_passage_length(given: int | str | None) -> int | Literal["auto"] | None:
    """What `--passage-length` says: "auto", a number of tokens, or None for "off".

    >>> read_passage_length("auto"), read_passage_length("128"), read_passage_length("off")
    ('auto', 128, None)
    """
    if given in ("auto", "off", None):
        return "auto" if given == "auto" else None
    try:
        return int(given)
    except ValueError:
        raise InputError(f"passages of {given!r} tokens", do="use auto, off, or a number of tokens") from None


@dataclass(frozen=True)
class Made:
    """How vectors were made. Vectors can be in one index if this is the same for them, apart from `data` and `model`.

    `dtype` is that of the numbers on disk. `passage_length` is in tokens, if documents were split into passages;
    neighbouring passages share `passage_overlap` tokens. `query_length` and `query_prefix` are those to search with,
    where they are not the model's own; `pooling` is the encoder's, if it was given.
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
    query_length: int | None = None
    query_prefix: str | None = None
    pooling: str | None = None

    @classmethod
    def by(
        cls,
        model: BiEncoder,
        data: str = "",
        kind: Kind = "documents",
        dtype: Dtype = "float32",
        passage_length: int | str | None = None,
        passage_overlap: int | None = None,
    ) -> Made:
        """The settings for vectors by a model, for which documents are split or, with None or "off", truncated.

        With "auto", passages are as long as the model reads. Without a `passage_overlap`, it is a quarter of that.
        """
        length = model.document_length if kind == "documents" else model.query_length
        prefix = model.document_prefix if kind == "documents" else model.query_prefix
        if dtype not in get_args(Dtype):
            raise InputError(f"unknown dtype {dtype!r}", do=f"use {' or '.join(get_args(Dtype))}")
        passage_length = read_passage_length(passage_length)
        room = model.tokenizer.passage_lengths(prefix, length)[0]  # without special tokens and the prefix
        if passage_length == "auto":
            passage_length = room if kind == "documents" and room > 0 else None
        if passage_length is not None and kind == "queries":
            raise InputError("queries are not split into passages", do="leave --passage-length out")
        if passage_overlap is not None and passage_length is None:
            raise InputError("an overlap, but no passages", do="give --passage-length too")
        if passage_length is not None:
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

    @property
    def whole(self) -> Made:
        """The same for documents of which none was split."""
        return replace(self, passage_length=None, passage_overlap=0)

    def truncated(self, dims: int) -> Made:
        """The settings of the same vectors, truncated to so many numbers."""
        if not 1 <= dims <= self.dimension:
            problem = f"dims is {dims}: the vectors have {self.dimension} numbers"
            raise InputError(problem, do=f"use 1 to {self.dimension}")
        return replace(self, dimension=dims)

    def truncating(self, model: BiEncoder) -> BiEncoder:
        """The model, with its vectors truncated as these are."""
        if self.dimension < model.dimension:
            model.truncate(self.dimension)
        return model

    def first_numbers(self, matrix: NDArray[Any]) -> NDArray[Any]:
        """Longer vectors by the same model, truncated as these are.

        >>> made = Made("faq", "m", "0", "cosine", 2, 256, "")
        >>> made.first_numbers(np.array([[3, 4, 12]], np.float32))
        array([[0.6, 0.8]], dtype=float32)
        """
        if matrix.shape[1] == self.dimension:
            return matrix
        first = matrix[:, : self.dimension].astype(np.float32)
        if self.similarity == "cosine":
            first /= np.linalg.norm(first, axis=1, keepdims=True).clip(1e-12)
        return first.astype(matrix.dtype)

    @classmethod
    def from_disk(cls, fields: MadeOnDisk) -> Made:
        """From the fields in a header."""
        names = {on_disk: name for name, on_disk in NAMES_ON_DISK.items()}
        return cls(**{names.get(name, name): value for name, value in fields.items()})  # type: ignore[arg-type]

    def on_disk(self) -> dict[str, Any]:
        """The fields for a header."""
        given = {name: value for name, value in asdict(self).items() if value is not None or name not in AS_GIVEN}
        return {NAMES_ON_DISK.get(name, name): value for name, value in given.items()}


@dataclass
class Vectors:
    """A matrix with a row for each text, or for each passage of each text, in memory or on disk.

    Attributes:
        matrix: (rows, dimension).
        ids: of the texts.
        hashes: of the texts, to see which of them changed since.
        owners: for each row the text that it belongs to; None if every text has one row.
        truncated: how many texts were longer than the model reads, and were truncated.
        fits: if no text is longer than this many tokens, a passage's length that was asked for, so that none was split.
    """

    made: Made
    matrix: NDArray[Any] = field(repr=False)
    ids: Sequence[str] | Ids = field(repr=False)
    hashes: NDArray[np.uint64] = field(repr=False)
    owners: NDArray[np.uint32] | None = field(default=None, repr=False)
    truncated: int = 0
    fits: int | None = None

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
            header.get("fits"),
        )

    @classmethod
    def of(
        cls,
        model: BiEncoder,
        documents: Mapping[str, str],
        data: str = "",
        passage_length: int | str = "off",
        passage_overlap: int | None = None,
    ) -> Vectors:
        """Encode documents into memory, one vector each, or one for each passage; these two as in `Made.by`."""
        made = Made.by(model, data, passage_length=passage_length, passage_overlap=passage_overlap)
        texts, owners, fits = list(documents.values()), None, None
        hashes = text_hashes([Text(id, text) for id, text in documents.items()])
        if made.passage_length is None:
            matrix = model.encode_documents(texts)
        else:
            matrix, owners = model.encode_passages(texts, made.passage_length, made.passage_overlap)
            if passage_length == "auto" and len(matrix) == len(texts):
                made, owners, fits = made.whole, None, made.passage_length
        return cls(made, finite(matrix, made), list(documents), hashes, owners, fits=fits)

    def as_passages(self, of: Made) -> Vectors:
        """The same beside passages of an index, if no text is longer than they are: each is a passage of its own."""
        if (
            of.passage_length is None
            or self.owners is not None
            or (self.fits or of.passage_length + 1) > of.passage_length
        ):
            return self
        made = replace(self.made, passage_length=of.passage_length, passage_overlap=of.passage_overlap)
        return replace(self, made=made, owners=np.arange(len(self.ids), dtype=np.uint32))

    @property
    def split(self) -> Split:
        """How many documents were split, and into how many passages."""
        if self.owners is None:
            return Split(0, 0)
        counts = np.bincount(self.owners)
        return Split(int((counts > 1).sum()), int(counts[counts > 1].sum()))

    def passages_line(self) -> str | None:
        """A line for people if documents were split."""
        return self.split.line(len(self.ids), self.made)


class Split(NamedTuple):
    """How many documents were split, and into how many passages."""

    documents: int
    passages: int

    def line(self, documents: int, made: Made) -> str | None:
        """A line for people, if some of the documents were split.

        >>> made = Made("faq", "m", "0", "cosine", 384, 256, "", passage_length=254)
        >>> print(Split(12, 40).line(4000, made))
        12 of 4,000 documents have more than 254 tokens: split into 40 passages; a document scores as its best passage
        """
        if not self.documents:
            return None
        longer = f"{self.documents:,} of {documents:,} documents have more than {made.passage_length} tokens"
        return f"{longer}: split into {self.passages:,} passages; a document scores as its best passage"


class VectorsHeader(TypedDict):
    """How vectors were made, and the checksums of their files."""

    format: str
    made: MadeOnDisk
    rows: Count
    truncated: Count
    fits: NotRequired[Size]
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
