"""What a tokenisation that was cut off had done, so that it need not be done again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from remargin.data.tokens import Tokenizer, Tokens

TOKENS, JOURNAL = "tokens.bin", "journal.jsonl"


class Restart:
    """Tokens of blocks of texts in a hidden folder, in the order in which they come, until all are in their place.

    A block is used again only for the very same texts, tokenizer and length, and only if its bytes are intact. So a run
    that was killed, even in the middle of a block, goes on with the next one.
    """

    def __init__(self, folder: Path, tokenizer: Tokenizer, length: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / TOKENS).touch()
        self._folder = folder
        self._tokenizer = tokenizer
        self._length = length
        self._salt = f"{tokenizer.fingerprint} {length}".encode()
        self._done = _read_journal(folder / JOURNAL)
        self._place = 0
        self._kept: list[str] = []
        self.used = 0
        if not self._done:
            self._cut_off()

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
            self._cut_off()
        tokens, truncated = self._tokenizer(texts, self._length)
        content = tokens.lengths.astype(np.uint32).tobytes() + tokens.ids.astype(np.uint32).tobytes()
        block = {"texts": key, "count": len(texts), "truncated": truncated, "bytes": len(content), "sum": _sum(content)}
        with open(self._folder / TOKENS, "r+b") as file:
            file.seek(self._place)
            file.write(content)
        with open(self._folder / JOURNAL, "a") as journal:  # not before the block is there
            journal.write(json.dumps(block) + "\n")
        self._place += len(content)
        return tokens, truncated

    def _read(self, block: dict[str, Any], key: str) -> tuple[Tokens, int] | None:
        with open(self._folder / TOKENS, "rb") as file:
            file.seek(self._place)
            content = file.read(block["bytes"])
        if block["texts"] != key or _sum(content) != block["sum"]:
            return None
        self._place += len(content)
        self._kept.append(json.dumps(block) + "\n")
        numbers = np.frombuffer(content, np.uint32)
        return Tokens(numbers[block["count"] :], numbers[: block["count"]].astype(np.int64)), int(block["truncated"])

    def _cut_off(self) -> None:
        """What was done differs from here on."""
        self._done = []
        (self._folder / JOURNAL).write_text("".join(self._kept))
        with open(self._folder / TOKENS, "ab") as file:
            file.truncate(self._place)


def _sum(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=8).hexdigest()


def _read_journal(path: Path) -> list[dict[str, Any]]:
    """The blocks that are done. A last line that was not wholly written does not count."""
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    whole = [line for line in lines if line.endswith("\n")]
    if whole != lines:
        path.write_text("".join(whole))
    return [json.loads(line) for line in whole]
