"""What a tokenisation that was cut off had done, so that it need not be done again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict, TypeVar, cast

import numpy as np

from remargin.errors import InputError
from remargin.files.shapes import Count, mismatch
from remargin.model.tokenizer import Tokenizer, Tokens

TOKENS, JOURNAL = "tokens.bin", "journal.jsonl"
T = TypeVar("T")


class Block(TypedDict):
    """A line of the journal: of which texts a block is, how many, how many of them were cut, and its bytes."""

    texts: str
    count: Count
    truncated: Count
    bytes: Count
    sum: str


class Restart:
    """Tokens of the blocks of texts that are done, in a hidden folder, until all of them are in the token store.

    A block is used again only for the very same texts, tokenizer and length, and only if its bytes are intact. So a run
    that was killed, even in the middle of a block, goes on with the next one.
    """

    def __init__(self, folder: Path, tokenizer: Tokenizer, length: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for name in (TOKENS, JOURNAL):
            (folder / name).touch()
        self._folder = folder
        self._tokenizer = tokenizer
        self._length = length
        self._salt = f"{tokenizer.fingerprint} {length}".encode()
        self._done = read_journal(folder / JOURNAL, Block)
        self._place = self._journal_end = 0
        self.used = 0

    def __call__(self, texts: Sequence[str]) -> tuple[Tokens, int]:
        """Tokens of a block, as the tokenizer makes them, and how many of its texts were cut."""
        digest = hashlib.blake2b(self._salt, digest_size=16)
        for text in texts:
            digest.update(text.encode() + b"\0")
        key = digest.hexdigest()
        if self._done:
            known = self._read(self._done.pop(0), key)
            if known is not None:
                self.used += 1
                return known
            self._done.clear()
        tokens, truncated = self._tokenizer(texts, self._length)
        content = tokens.lengths.astype(np.uint32).tobytes() + tokens.ids.astype(np.uint32).tobytes()
        about = {"texts": key, "count": len(texts), "truncated": truncated}
        block = {**about, "bytes": len(content), "sum": _sum(content)}
        self._place = self._write(TOKENS, self._place, content)
        line = journal_line(block)
        self._journal_end = self._write(JOURNAL, self._journal_end, line)  # not before the block is there
        return tokens, truncated

    def _read(self, block: Block, key: str) -> tuple[Tokens, int] | None:
        size = (self._folder / TOKENS).stat().st_size
        with open(self._folder / TOKENS, "rb") as file:
            file.seek(self._place)
            content = file.read(min(block["bytes"], size))
        if block["texts"] != key or _sum(content) != block["sum"]:
            return None
        numbers = np.frombuffer(content, np.uint32)
        lengths, ids = numbers[: block["count"]].astype(np.int64), numbers[block["count"] :]
        if len(lengths) != block["count"] or lengths.sum() != len(ids):
            return None
        self._place += len(content)
        self._journal_end += len(journal_line(block))
        return Tokens(ids, lengths), block["truncated"]

    def _write(self, name: str, place: int, content: bytes) -> int:
        """Cut a file at byte `place` and write from there on; returns where that ends."""
        with open(self._folder / name, "r+b") as file:
            file.truncate(place)
            file.seek(place)
            file.write(content)
        return place + len(content)


def journal_line(block: Mapping[str, Any]) -> bytes:
    """A line of a journal: a block that is done, after a checksum by which `read_journal` notices damage."""
    content = json.dumps(block).encode() + b"\n"
    return _sum(content).encode() + b" " + content


def read_journal(path: Path, shape: type[T]) -> list[T]:
    """The blocks that are done: those before the first line that is damaged or was not wholly written.

    Args:
        path: the file, which need not be there.
        shape: a TypedDict with the fields of a block; see `mismatch`.
    """
    blocks: list[T] = []
    if path.is_dir():
        raise InputError("is a folder", file=path, do="delete it")
    for line in path.read_bytes().splitlines(keepends=True) if path.exists() else []:
        found, _, content = line.partition(b" ")
        try:
            block = json.loads(content) if found == _sum(content).encode() else None
            if mismatch(block, shape):
                break
        except (RecursionError, ValueError):
            break
        blocks.append(cast(T, block))
    return blocks


def _sum(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=8).hexdigest()
