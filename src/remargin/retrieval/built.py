"""What is known of an index that was built."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from remargin.retrieval.hybrid import HybridSettings
    from remargin.retrieval.vectors import Made


SPARSE = "remargin_sparse.json"  # the header of an index of sparse vectors


@dataclass(frozen=True)
class Built:
    """An index that was built.

    Attributes:
        documents: how many are in it.
        rows: how many vectors they have: one each, or one for each passage; none in a BM25 index.
        truncated: how many texts were longer than the model reads, and were truncated before they were encoded.
        made: what made the vectors; None for a BM25 index.
        seconds: how long building took, without encoding.
        vector_bytes: the size of the vectors on disk.
        text_bytes: the size of the texts, compressed; 0 if they are not kept.
        other_bytes: the size of everything else in the folder.
        hybrid: how the index fuses BM25 and the encoder; None if it holds one of them.
        language: that BM25 splits texts into terms by; None without BM25.
        split: a line for people about documents that were split into passages; None if none was.
    """

    documents: int
    rows: int
    truncated: int
    made: Made | None
    seconds: float
    vector_bytes: int
    other_bytes: int
    hybrid: HybridSettings | None = None
    language: str | None = None
    text_bytes: int = 0
    split: str | None = None
