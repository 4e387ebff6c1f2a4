"""The terms of the documents of an index folder, and the BM25 index that is made of them.

BM25 weighs a term by the number of documents that have it, and a document by the mean length of all: when one document
comes or goes, the scores of all others change. So a changed index gets a new BM25 index. The texts are not at hand
then, but their terms are: numbers of a vocabulary in a file that only grows, as the vectors do.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

from remargin.data.ids import Ids, IdsSize, IdWriter
from remargin.data.tables import batches
from remargin.errors import InputError
from remargin.files.arrays import append_array, map_array
from remargin.files.shapes import FileName
from remargin.retrieval.bm25 import BM25, Terms, terms_of
from remargin.retrieval.hybrid import HybridSettings

TERMS, ENDS = "terms.bin", "term_ends.bin"  # numbers of terms, end to end, and where those of each document end
GROWING = (TERMS, ENDS)
VERSIONED = ("vocabulary.", "bm25.")
REMEDY = "make the index again"


class TermsState(TypedDict):
    """Which files of the terms of an index count. Without a term there is no BM25 index."""

    vocabulary: FileName
    vocabulary_size: IdsSize
    bm25: FileName | None


def append_terms(
    folder: Path, state: TermsState | None, documents: int, texts: Iterable[str], language: str, version: int
) -> TermsState:
    """Write the terms of more documents behind those of `documents` documents that are there.

    Args:
        folder: the index folder.
        state: of the terms that are there; None if there are none yet.
        documents: how many the index has had so far, deleted ones included.
        texts: of the documents to add.
        language: of stemmer and stop words.
        version: of the index, with these documents.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> state = append_terms(folder, None, 0, ["margins adapt", "adapting to it"], "english", 1)
        >>> state = append_terms(folder, state, 2, ["a margin"], "english", 2)
        >>> np.fromfile(folder / TERMS, "u4").tolist(), np.fromfile(folder / ENDS, "u8").tolist()
        ([0, 1, 1, 0], [2, 3, 4])
    """
    base = None if state is None else Ids(folder / state["vocabulary"], **state["vocabulary_size"])
    vocabulary = {term: number for number, term in enumerate(base or ())}
    known, place = len(vocabulary), 0
    if documents:
        place = int(map_array(folder / ENDS, np.uint64, (documents,), at_least=True)[-1])
    append_array(folder / TERMS, 4 * place, np.empty(0, np.uint32))  # they are there, even if no document has a term
    append_array(folder / ENDS, 8 * documents, np.empty(0, np.uint64))
    for batch in batches(texts):
        numbers, lengths = _numbered(terms_of(batch, language), vocabulary)
        append_array(folder / TERMS, 4 * place, numbers)
        append_array(folder / ENDS, 8 * documents, place + np.cumsum(lengths, dtype=np.uint64))
        place, documents = place + len(numbers), documents + len(batch)
    name = f"vocabulary.{version}"
    shutil.rmtree(folder / name, ignore_errors=True)  # of a change that did not come to its end
    (folder / name).mkdir()
    writer = IdWriter(folder / name, base)
    writer.add(list(vocabulary)[known:])
    return {"vocabulary": name, "vocabulary_size": writer.close(), "bm25": None if state is None else state["bm25"]}


def _numbered(terms: Terms, vocabulary: dict[str, int]) -> tuple[NDArray[np.uint32], NDArray[np.uint64]]:
    """All terms of some texts, end to end, as numbers of a vocabulary that grows with them; and how many of each text.

    bm25s numbers terms as Python's sets happen to order them. Here a term that is new gets the next number.
    """
    lengths = np.fromiter(map(len, terms.ids), np.uint64, len(terms.ids))
    theirs = np.fromiter((number for of_text in terms.ids for number in of_text), np.int64, int(lengths.sum()))
    names = {number: term for term, number in terms.vocab.items()}
    ours = np.zeros(max(names, default=0) + 1, np.uint32)
    for number in dict.fromkeys(theirs.tolist()):
        ours[number] = vocabulary.setdefault(names[number], len(vocabulary))
    return ours[theirs], lengths


def build_words(
    folder: Path,
    state: TermsState,
    ids: Sequence[str] | Ids,
    deleted: NDArray[np.bool_],
    settings: HybridSettings,
    data: str,
    version: int,
) -> TermsState:
    """Write a BM25 index of the documents that are not deleted, just as one of their texts would be.

    Args:
        folder: the index folder.
        state: of the terms.
        ids: of all documents.
        deleted: which of them were deleted.
        settings: of BM25.
        data: the name of the collection.
        version: of the index.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> state = append_terms(folder, None, 0, ["margins adapt", "queries", "adapting to it"], "english", 1)
        >>> deleted = np.array([True, False, False])
        >>> state = build_words(folder, state, ["a", "b", "c"], deleted, HybridSettings(0.5), "", 1)
        >>> BM25.load(folder / state["bm25"]).search({"q": "adapt"}).rankings["q"].keys()
        dict_keys(['c'])
    """
    ends = map_array(folder / ENDS, np.uint64, (len(deleted),), at_least=True).astype(np.int64)
    numbers = map_array(folder / TERMS, np.uint32, (int(ends[-1]) if len(ends) else 0,), at_least=True)
    lengths = np.diff(ends, prepend=0)
    live = np.flatnonzero(~deleted)
    used, numbers = np.unique(numbers[np.repeat(~deleted, lengths)], return_inverse=True)  # terms may be gone, too
    terms = Ids(folder / state["vocabulary"], **state["vocabulary_size"])
    if not len(used):
        return {**state, "bm25": None}
    if used[-1] >= len(terms):
        raise InputError("its terms and their vocabulary do not belong together", file=folder, do=REMEDY)
    parts = np.split(numbers, np.cumsum(lengths[live])[:-1])
    vocabulary = {terms[number]: place for place, number in enumerate(used.tolist())}
    of_documents = Terms([part.tolist() for part in parts], vocabulary)
    built = BM25.of_terms([ids[row] for row in live.tolist()], of_documents, settings.k1, settings.b, settings.language)
    name = f"bm25.{version}"
    built.save(folder / name, data, overwrite=True)
    return {**state, "bm25": name}
