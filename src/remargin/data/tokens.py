"""Texts as tokens: the tokenizer, and a store on disk of texts that were tokenised once."""

from __future__ import annotations

import contextlib
import hashlib
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from itertools import chain
from pathlib import Path
from typing import Any, Literal, TypedDict

import numpy as np
import tokenizers
from numpy.typing import NDArray

from remargin.data.ids import Ids, IdsSize, IdWriter
from remargin.errors import InputError, first_line
from remargin.files.arrays import RangeReader, append_array, map_array, write_array
from remargin.files.checksums import sha256, verify_files
from remargin.files.headers import read_header, write_header
from remargin.files.shapes import Checksums, Count, Size
from remargin.model_folder import read_modules

LONGER = "give a longer length (--length)"
Kind = Literal["documents", "queries"]


@dataclass
class TextSettings:
    """How texts become tokens: lengths in tokens, and what is put before each text."""

    query_length: int = 30
    document_length: int = 200
    query_prefix: str = ""
    document_prefix: str = ""

    def of(self, kind: Kind) -> tuple[int, str]:
        """Length and prefix of documents or queries."""
        if kind == "documents":
            return self.document_length, self.document_prefix
        return self.query_length, self.query_prefix


@dataclass(frozen=True)
class Tokens:
    """Several texts' token ids end to end, and how many each text has."""

    ids: NDArray[Any]
    lengths: NDArray[np.int64]

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """Where each text begins."""
        return np.cumsum(self.lengths) - self.lengths


@dataclass(frozen=True)
class PairTokens:
    """Queries and documents read together: their tokens, which of the two each token is of, and how many were cut."""

    tokens: Tokens
    types: NDArray[Any]
    truncated: int


class Tokenizer:
    """A Hugging Face fast tokenizer that pads nothing, cuts at the length it is asked for, and knows what it cut.

    It carries its own copy of the tokenizer, so no setting of a shared one can change its output.
    """

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        self._backend = tokenizers.Tokenizer.from_str(backend.to_str())
        self._backend.no_padding()
        self._backend.no_truncation()
        self._cutting = lru_cache(maxsize=8)(partial(_cutting, self._backend))

    def __reduce__(self) -> tuple[type[Tokenizer], tuple[tokenizers.Tokenizer]]:
        return Tokenizer, (self._backend,)  # the copies that cut are made again

    @classmethod
    def from_pretrained(cls, name: str | Path) -> Tokenizer:
        """The tokenizer of a model: a folder or a hub name. Loads no weights."""
        return cls.of(load_tokenizer(name))

    @classmethod
    def of(cls, tokenizer: Any) -> Tokenizer:
        """From a transformers tokenizer."""
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if backend is None:
            do = "use a model with a tokenizer.json"
            raise InputError(f"{type(tokenizer).__name__} is not a fast tokenizer", do=do)
        return cls(backend)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of everything that decides which tokens a text becomes."""
        clean = tokenizers.Tokenizer.from_str(self._backend.to_str())
        clean.no_truncation()
        return hashlib.sha256(clean.to_str().encode()).hexdigest()

    @property
    def vocabulary(self) -> int:
        """One more than the largest token id."""
        return 1 + max(self._backend.get_vocab(with_added_tokens=True).values())

    def __call__(self, texts: Sequence[str], length: int) -> tuple[Tokens, int]:
        """The texts' tokens, special tokens included, at most `length` each; and how many texts were cut for that."""
        shortest = self.special_tokens + 1
        if length < shortest:
            do = f"this tokenizer needs at least {shortest}"
            raise InputError(f"a length of {length} tokens leaves no room for text", do=do)
        encodings = self._cutting(length).encode_batch_fast(list(texts))
        lengths = np.fromiter((len(e) for e in encodings), np.int64, len(encodings))
        ids = np.fromiter(chain.from_iterable(e.ids for e in encodings), np.uint32, int(lengths.sum()))
        return Tokens(ids, lengths), sum(bool(e.overflowing) for e in encodings)

    def pairs(self, pairs: Sequence[tuple[str, str]], length: int) -> PairTokens:
        """Each query and its document as one text of at most `length` tokens. Only the document is cut for that.

        >>> found = tokenizer.pairs([("how do margins adapt", "the value of the text")], length=9)
        >>> found.tokens.lengths.tolist(), found.types.tolist(), found.truncated
        ([9], [0, 0, 0, 0, 0, 0, 1, 1, 1], 1)
        """
        queries = list(dict.fromkeys(query for query, _ in pairs))
        for query, room in zip(queries, self.room(queries, length).tolist(), strict=True):
            if room < 1:
                shown = query if len(query) < 50 else f"{query[:45]}..."
                raise InputError(f"query {shown!r} leaves no room for a document in {length} tokens", do=LONGER)
        encodings = self._cutting(length, "only_second").encode_batch_fast(list(pairs))
        lengths = np.fromiter((len(e) for e in encodings), np.int64, len(encodings))
        ids = np.fromiter(chain.from_iterable(e.ids for e in encodings), np.uint32, int(lengths.sum()))
        types = np.fromiter(chain.from_iterable(e.type_ids for e in encodings), np.uint8, int(lengths.sum()))
        return PairTokens(Tokens(ids, lengths), types, sum(bool(e.overflowing) for e in encodings))

    def room(self, queries: Sequence[str], length: int) -> NDArray[np.int64]:
        """How many tokens of a document fit beside each query into `length` tokens; none if it is below 1."""
        encodings = self._backend.encode_batch_fast(list(queries), add_special_tokens=False)
        taken = np.fromiter((len(e) for e in encodings), np.int64, len(encodings))
        return length - self._backend.num_special_tokens_to_add(is_pair=True) - taken

    def passages(self, text: str, length: int, overlap: int) -> list[str]:
        """A text as stretches of at most `length` tokens, each `overlap` tokens into the one before, cut at words.

        >>> tokenizer.passages("a b c d e", length=3, overlap=1)
        ['a b c', 'c d e']
        """
        if not 0 <= overlap < length:
            raise InputError(f"an overlap of {overlap} tokens in passages of {length}", do="make it smaller")
        encoding = self._backend.encode(text, add_special_tokens=False)
        words, offsets, count = encoding.word_ids, encoding.offsets, len(encoding)
        firsts = [i for i in range(1, count) if words[i] is None or words[i] != words[i - 1]]  # where words begin
        passages, start = [], 0
        while start + length < count:
            end = _last_between(firsts, start, start + length) or start + length  # a word too long is cut after all
            passages.append(text[offsets[start][0] : offsets[end - 1][1]])
            start = _last_between(firsts, start, end - overlap) or end
        return [*passages, text[offsets[start][0] :]] if passages else [text]

    @property
    def special_tokens(self) -> int:
        """How many tokens are added to every text."""
        return self._backend.num_special_tokens_to_add(is_pair=False)


def _cutting(backend: tokenizers.Tokenizer, length: int, strategy: str = "longest_first") -> tokenizers.Tokenizer:
    """A copy that cuts at a length. Another thread that cuts at another length has a copy of its own."""
    copy = tokenizers.Tokenizer.from_str(backend.to_str())
    copy.enable_truncation(length, strategy=strategy)
    return copy


def _last_between(places: list[int], low: int, high: int) -> int | None:
    """The largest of some ascending places that is above `low` and at most `high`."""
    place = bisect_right(places, high)
    return places[place - 1] if place and places[place - 1] > low else None


def load_tokenizer(name: str | Path) -> Any:
    """A model's tokenizer as transformers loads it, without the padding or cutting that was saved with it."""
    from transformers import AutoTokenizer

    do = "name a folder with a tokenizer.json, or a model of the Hugging Face hub"
    if not Path(name).is_dir() and (str(name).startswith((".", "/", "~")) or str(name).count("/") > 1):
        raise InputError("no such folder", file=name, do=do)
    folder = _transformer_folder(name)
    try:
        with quiet_transformers():
            tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    except Exception as error:  # transformers raises whatever its parts raise
        reason = first_line(error)
        raise InputError(f"no tokenizer found for model {str(name)!r} ({reason})", do=do) from None
    if not set(tokenizer.get_vocab()) - set(tokenizer.all_special_tokens):
        raise InputError(f"the tokenizer of model {str(name)!r} has no vocabulary", do=do)
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        backend.no_padding()
        backend.no_truncation()
        _try(backend, name, do)
    return tokenizer


def _try(backend: tokenizers.Tokenizer, name: str | Path, do: str) -> None:
    """See that a tokenizer works at all: one that is damaged panics when it is used, not when it is loaded."""
    try:
        backend.encode_batch_fast(["a text"])
        backend.encode_batch_fast([("a query", "a text")])
    except BaseException as error:  # a panic of Rust is no Exception
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        raise InputError(f"the tokenizer of model {str(name)!r} is damaged ({first_line(error)})", do=do) from None


def _transformer_folder(name: str | Path) -> str:
    """Where a model keeps its tokenizer: older sentence-transformers folders have it one level down."""
    return str((read_modules(Path(name)) or {}).get("Transformer", name))


@contextlib.contextmanager
def quiet_transformers() -> Iterator[None]:
    """Without transformers' progress bars and load reports: we check and say what matters ourselves."""
    from transformers.utils import logging as their_logging

    verbosity, bars = their_logging.get_verbosity(), their_logging.is_progress_bar_enabled()
    their_logging.set_verbosity_error()
    their_logging.disable_progress_bar()
    try:
        yield
    finally:
        their_logging.set_verbosity(verbosity)
        if bars:
            their_logging.enable_progress_bar()


class TokensHeader(TypedDict):
    """How a `TokenStore` was made."""

    format: str
    ids: IdsSize
    tokens: Count
    truncated: Count
    dtype: Literal["uint16", "uint32"]
    tokenizer: str
    length: Size
    prefix: str
    sha256: Checksums


class TokenStore:
    """Texts tokenised once, read at random from disk in constant memory; the header remembers how they were made.

    Example:
        >>> import tempfile
        >>> store = TokenStore.write(Path(tempfile.mkdtemp()) / "documents", ["d1", "d2"], ["one text", "and another"],
        ...                          tokenizer, length=200)
        >>> len(store), store.ids[1], store.ids.rows(["d1"]).tolist()
        (2, 'd2', [0])
        >>> tokens, truncated = tokenizer(["and another"], length=200)
        >>> store.take([1]).ids.tolist() == tokens.ids.tolist()
        True
    """

    FORMAT = "remargin-tokens-1"
    REMEDY = "run `remargin prepare` again"

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.header = read_header(self.folder / "header.json", TokensHeader, self.FORMAT, self.REMEDY)
        self._tokens = RangeReader(self.folder / "tokens.bin", self.header["dtype"], self.header["tokens"])
        self._ends = map_array(self.folder / "ends.bin", np.uint64, (self.header["ids"]["count"],))
        self.ids = Ids(self.folder, **self.header["ids"])

    @classmethod
    def write(
        cls, folder: Path, ids: Sequence[str], texts: Sequence[str], tokenizer: Tokenizer, length: int, prefix: str = ""
    ) -> TokenStore:
        """A store for texts that fit into memory; `TokenWriter` takes them batch by batch."""
        writer = TokenWriter(folder, tokenizer, length, prefix)
        writer.add(ids, texts)
        writer.close()
        return cls(folder)

    def __len__(self) -> int:
        return len(self._ends)

    def require(self, tokenizer: Tokenizer, length: int, prefix: str) -> None:
        """Refuse a store that was made with another tokenizer, length or prefix."""
        made = {"tokenizer": self.header["tokenizer"], "length": self.header["length"], "prefix": self.header["prefix"]}
        for name, value in {"tokenizer": tokenizer.fingerprint, "length": length, "prefix": prefix}.items():
            if made[name] != value:
                what = "another tokenizer" if name == "tokenizer" else f"{name} {made[name]!r}, not {value!r}"
                raise InputError(f"the token store was made with {what}", file=self.folder, do=self.REMEDY)

    def verify(self) -> None:
        """Read every byte and compare with the checksums in the header."""
        verify_files(self.folder, self.header["sha256"], self.REMEDY)

    def lengths(self, rows: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
        """How many tokens some rows have."""
        starts, ends = self._bounds(np.asarray(rows, np.int64))
        return ends - starts

    def take(self, rows: Sequence[int] | NDArray[np.integer[Any]]) -> Tokens:
        """The tokens of some rows, in that order, end to end."""
        starts, ends = self._bounds(np.asarray(rows, np.int64))
        return Tokens(self._tokens.read(starts, ends - starts), ends - starts)

    def _bounds(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        if len(rows) and not (rows.min() >= 0 and rows.max() < len(self)):
            raise IndexError(f"rows {rows.min()}..{rows.max()} of {len(self)}")
        ends = self._ends[rows].astype(np.int64)
        return np.where(rows > 0, self._ends[rows - 1], 0).astype(np.int64), ends


class TokenWriter:
    """Fills a folder with a `TokenStore`, batch by batch. Only numbers stay in memory until `close`."""

    def __init__(
        self,
        folder: Path,
        tokenizer: Tokenizer,
        length: int,
        prefix: str = "",
        tokenise: Callable[[Sequence[str]], tuple[Tokens, int]] | None = None,
    ) -> None:
        folder.mkdir(parents=True)
        self._tokenise = tokenise or (lambda texts: tokenizer(texts, length))
        self._folder = folder
        self._tokenizer = tokenizer
        self._length = length
        self._prefix = prefix
        self._dtype = np.dtype(np.uint16 if tokenizer.vocabulary <= 1 << 16 else np.uint32)
        (folder / "tokens.bin").touch()
        self._ids = IdWriter(folder)
        self._lengths: list[NDArray[np.int64]] = []
        self.truncated = 0

    def add(self, ids: Sequence[str], texts: Sequence[str]) -> None:
        """Tokenise and append a batch."""
        self.append(ids, *self.tokenise(texts))

    def tokenise(self, texts: Sequence[str]) -> tuple[Tokens, int]:
        """Tokens of texts, prefix included, and how many were cut. May run in another thread, ahead of `append`."""
        return self._tokenise([self._prefix + text for text in texts] if self._prefix else texts)

    def append(self, ids: Sequence[str], tokens: Tokens, truncated: int) -> None:
        """Append a batch of texts that are tokens already."""
        with open(self._folder / "tokens.bin", "ab") as file:
            write_array(file, tokens.ids.astype(self._dtype))
        self._ids.add(ids)
        self._lengths.append(tokens.lengths)
        self.truncated += truncated

    def close(self) -> TokensHeader:
        """Write what is left and the header; returns the header."""
        lengths = np.concatenate(self._lengths) if self._lengths else np.empty(0, np.int64)
        append_array(self._folder / "ends.bin", 0, np.cumsum(lengths, dtype=np.uint64))
        header: TokensHeader = {
            "format": TokenStore.FORMAT,
            "ids": self._ids.close(),
            "tokens": int(lengths.sum()),
            "truncated": self.truncated,
            "dtype": "uint16" if self._dtype == np.uint16 else "uint32",
            "tokenizer": self._tokenizer.fingerprint,
            "length": self._length,
            "prefix": self._prefix,
            "sha256": {name: sha256(self._folder / name) for name in ("tokens.bin", "ends.bin", *Ids.FILES)},
        }
        write_header(self._folder / "header.json", header)
        return header
