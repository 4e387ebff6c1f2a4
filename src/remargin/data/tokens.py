"""A store of tokenised texts on disk."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, TypedDict

import numpy as np
from numpy.typing import NDArray

from remargin.data.ids import Ids, IdsSize, IdWriter
from remargin.errors import InputError
from remargin.files.arrays import RangeReader, append_array, map_array, write_array
from remargin.files.checksums import sha256, verify_files
from remargin.files.hashes import texts_fingerprint
from remargin.files.headers import read_header, write_header
from remargin.files.journal import Journal
from remargin.files.shapes import Checksums, Count, Size
from remargin.model.tokenizer import Tokenizer, Tokens


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
                difference = "another tokenizer" if name == "tokenizer" else f"{name} {made[name]!r}, not {value!r}"
                raise InputError(f"the token store was made with {difference}", file=self.folder, do=self.REMEDY)

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
        journal: Journal | None = None,
    ) -> None:
        """Begin a store. A journal keeps the tokens of each batch, so that interrupted work resumes."""
        folder.mkdir(parents=True)
        self._journal = journal
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
        """Tokens of texts, prefix included, and how many were truncated. May run in a thread, ahead of `append`."""
        texts = [self._prefix + text for text in texts] if self._prefix else texts
        if self._journal is None:
            return self._tokenizer(texts, self._length)
        made = f"{self._tokenizer.fingerprint} {self._length}"
        key = texts_fingerprint((made, text) for text in texts)
        block = self._journal.find(key)
        if block is None:
            tokens, truncated = self._tokenizer(texts, self._length)
            contents = [tokens.lengths.astype(np.uint32), tokens.ids.astype(np.uint32)]
            self._journal.add(key, contents, truncated=truncated)
            return tokens, truncated
        lengths, ids = (np.frombuffer(content, np.uint32) for content in block.contents)
        return Tokens(ids, lengths.astype(np.int64)), block.numbers.get("truncated", 0)

    def append(self, ids: Sequence[str], tokens: Tokens, truncated: int) -> None:
        """Append a batch of texts that are tokens already."""
        with open(self._folder / "tokens.bin", "ab") as file:
            write_array(file, tokens.ids.astype(self._dtype))
        self._ids.add(ids)
        self._lengths.append(tokens.lengths)
        self.truncated += truncated

    def close(self) -> TokensHeader:
        """Write the ends and the header; returns the header."""
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
