"""Ids that people recognise and run files can hold: the first words of a text with a hash, and ids from tables."""

from __future__ import annotations

import hashlib
import unicodedata
from typing import Any

from remargin.data.splits import normalised

WORDS = 4
CHARACTERS = 32
DIGITS = 8  # of the hash


def slug(text: str, words: int = WORDS, characters: int = CHARACTERS) -> str:
    """The first words of a text as part of an id: lower case, joined by hyphens, letters and digits of any script.

    >>> slug("How do I get a refund?"), slug("Wo ist mein Paket?!"), slug("...")
    ('how-do-i-get', 'wo-ist-mein-paket', '')
    """
    cleaned = (_letters(word) for word in text.lower().replace("-", " ").split())
    joined = ""
    for word in [word for word in cleaned if word][:words]:
        if joined and len(joined) + 1 + len(word) > characters:
            break
        joined = f"{joined}-{word}" if joined else word[:characters]
    return joined


def _letters(word: str) -> str:
    """A word without punctuation; marks stay, of which words in Hindi or Thai consist as well."""
    return "".join(c for c in word if c.isalnum() or c == "_" or unicodedata.category(c).startswith("M"))


def readable_id(kind: str, text: str, digits: int = DIGITS) -> str:
    """An id made of a text: its first words, and a hash of all of it. It depends on nothing but the text.

    Row numbers would be shorter, but a row that is inserted above would give every document below another id.

    >>> readable_id("document", "Write to us within 14 days."), readable_id("query", "?!")
    ('write-to-us-within-32d0a276', 'query-8a572129')
    """
    digest = hashlib.blake2b(f"{kind} {normalised(text)}".encode(), digest_size=16).hexdigest()
    return f"{slug(text) or kind}-{digest[:digits]}"


def cell_id(value: Any) -> str | None:
    """An id as a cell of a table has it, on one line; None if the cell is empty or cannot be an id.

    Numbers may come as 12.0 where other cells of the column are empty.

    >>> cell_id(" A 12 "), cell_id(12.0), cell_id(""), cell_id(True)
    ('A 12', '12', None, None)
    """
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None
    return str(value).strip() or None


def without_spaces(id: str) -> str:
    """An id with underscores for white space, which separates the columns of a run file.

    >>> without_spaces("FAQ 12")
    'FAQ_12'
    """
    return "_".join(id.split())
