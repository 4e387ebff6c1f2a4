"""Hashes of texts. Three are on disk, in files that people have, so none of them can become another.

All are BLAKE2b. They differ in what is hashed: one text, many texts, or the documents and queries of a collection.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

Texts = Mapping[str, str] | Iterable[tuple[str, str]]  # ids and texts


def text_hash(id: str, text: str) -> int:
    """A 64-bit hash of one text and its id: vectors and indexes keep one of each text, to see which of them changed.

    >>> text_hash("d1", "a text") == text_hash("d1", "another text")
    False
    """
    return int.from_bytes(hashlib.blake2b(f"{id}\0{text}".encode(), digest_size=8).digest(), "little")


def texts_fingerprint(texts: Texts) -> str:
    """A 128-bit hash of ids and texts, in their order: headers keep it, to see whether anything changed.

    >>> texts_fingerprint({"d1": "a text"}) == texts_fingerprint([("d1", "a text")])
    True
    >>> texts_fingerprint({"d1": "a text"}) == texts_fingerprint({"d1": "another text"})
    False
    """
    digest = hashlib.blake2b(digest_size=16)
    for id, text in texts.items() if isinstance(texts, Mapping) else texts:
        digest.update(f"{id}\0{text}\0".encode())
    return digest.hexdigest()


def collection_fingerprint(documents: Texts, queries: Texts) -> str:
    """A 128-bit hash of a collection's documents and queries: studies keep it. It knows where the queries begin.

    >>> collection_fingerprint({"d1": "a text"}, {}) == collection_fingerprint({}, {"d1": "a text"})
    False
    """
    digest = hashlib.blake2b(digest_size=16)
    for texts in (documents, queries):
        for id, text in texts.items() if isinstance(texts, Mapping) else texts:
            digest.update(f"{id}\0{text}\0".encode())
        digest.update(b"\0")
    return digest.hexdigest()
