"""What a source of collections is: it streams texts and judgments. And how these are checked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from remargin.data.tables import SKIP, Rejects
from remargin.errors import InputError

SPLITS = ("train", "dev", "test")
LARGEST_GRADE = 1_000_000  # trec_eval reserves memory by it, and wraps around at 2**32


class Text(NamedTuple):
    """A document or a query, and where it was read."""

    id: str
    text: str
    file: str | None = None
    line: int | None = None


class Judgment(NamedTuple):
    """How relevant a document is to a query, and where that was read. A grade above 0 means relevant."""

    query: str
    document: str
    grade: int
    file: str | None = None
    line: int | None = None


class Source(Protocol):
    """The source of a collection. Everything is streamed, so that large collections fit.

    Once all was read, `notes` counts what was merged or dropped, for people.
    """

    notes: dict[str, int]

    def documents(self) -> Iterator[Text]:
        """Every document once, in a fixed order."""

    def queries(self) -> Iterator[Text]:
        """Every query of every split once, in a fixed order."""

    def splits(self) -> list[str]:
        """The splits that have judgments."""

    def judgments(self, split: str) -> Iterator[Judgment]:
        """The judgments of one split."""


def checked_texts(texts: Iterator[Text], kind: str, rejects: Rejects) -> Iterator[Text]:
    """Texts without the repeated ones and empty queries, which go to `rejects`.

    Documents without text, which classic and BEIR corpora have, are kept and counted: judgments name them.
    """
    seen: set[int] = set()  # 64-bit hashes: a tenth of the memory that millions of ids would take
    for item in texts:
        problem = None
        if len(item.id.split()) != 1:
            problem = f"{kind} id is empty or has white space in it, which no run file could hold"
        elif "\0" in item.id:
            problem = f"{kind} id has a NUL byte in it, at which trec_eval would truncate it"
        elif kind != "document" and not item.text.strip():
            problem = f"{kind} has no text"
        elif hash(item.id) in seen:
            problem = f"{kind} id appears a second time"
        if problem:
            rejects.add(InputError(problem, file=item.file, line=item.line, id=item.id, do=SKIP))
            continue
        seen.add(hash(item.id))
        rejects.empty_documents += not item.text.strip()
        yield item


def unknown_id(judgment: Judgment, kind: str) -> InputError:
    """The error for a judgment whose query or document is not in the collection."""
    id = judgment.query if kind == "query" else judgment.document
    problem = f"judgment for a {kind} that is not in the collection"
    return InputError(problem, file=judgment.file, line=judgment.line, id=id, do=SKIP)
