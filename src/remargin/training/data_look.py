"""A look at the training data before training: what is wrong with it more often than not."""

from __future__ import annotations

import re
from collections.abc import Collection as Container
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from remargin.data.beir import BeirFolder
from remargin.data.preparation import read_prepared
from remargin.data.source import Text
from remargin.data.splits import normalised
from remargin.data.tables import Rejects
from remargin.data.training_data import TrainingData
from remargin.data.triplets import Triplets
from remargin.model.encoder import BiEncoder
from remargin.progress import track
from remargin.retrieval.languages import words_and_ngrams

FEW_PAIRS = 50  # with fewer, nothing can be learned or measured
ENOUGH_PAIRS = 300
POPULAR = (10, 0.05)  # a document for so many queries, and for this share of them, is named
PAIRS_READ = 10_000  # at most so many are compared word by word,
PAIRS_ENCODED = 300  # and so many as vectors, with this many random documents
RANDOM_DOCUMENTS = 100
EXAMPLES, SHOWN = 3, 70  # pairs that are shown, and characters of each text
STEM = 5  # words that begin with the same letters count as one: adapt, adapting
# Words that a query and any document share.
FUNCTION_WORDS = {
    "a", "about", "an", "and", "any", "are", "as", "at", "be", "by", "can", "do", "does",
    "for", "from", "has", "have", "how", "i", "if", "in", "is", "it", "its", "my", "not",
    "of", "on", "one", "or", "that", "the", "their", "there", "these", "this", "to", "was", "what",
    "when", "where", "which", "who", "why", "will", "with", "you", "your",
}  # fmt: skip
AT_ONCE = 1 << 20  # triplets

Rows = NDArray[np.int64]


@dataclass
class UnlikelyPair:
    """A training pair whose texts have little to do with each other; the texts are shortened."""

    query_id: str
    query: str
    document_id: str
    document: str


@dataclass
class UnlikelyPairs:
    """How many training pairs were compared, how many of them look unlikely, and some of those."""

    compared: int = 0
    count: int = 0
    examples: list[UnlikelyPair] = field(default_factory=list)

    @property
    def share(self) -> float:
        """The share of unlikely pairs among those that were compared."""
        return self.count / max(1, self.compared)


@dataclass
class SharedTexts:
    """How many queries of a held-out split have the text, a relevant document, or both of a training query."""

    queries: int
    same_query: int
    same_document: int
    same_pair: int


@dataclass
class DataLook:
    """What was seen in a prepared folder. Texts are compared without case and spacing.

    Attributes:
        pairs, queries, documents: training pairs (a query and its positive), training queries, and all documents.
        repeated_queries, repeated_documents: training queries and documents that have the text of an earlier one.
        repeats: ids of two that are alike, the first ones, for "queries" and for "documents".
        shared: what each held-out split has in common with the training pairs.
        in_training: whether the document length is that of training alone.
        query_length, document_length, queries_truncated, documents_truncated: maximum lengths in tokens, and how many
            are longer, of all documents and of `all_queries`.
        popular, popular_queries: the document that is the positive of most training queries, and of how many.
        no_shared_word: training pairs whose texts share no word but function words.
        less_similar: training pairs less similar than half of some random documents, as vectors; without a model, none
            are compared.
    """

    pairs: int
    queries: int
    documents: int
    repeated_queries: int = 0
    repeated_documents: int = 0
    repeats: dict[str, tuple[str, str]] = field(default_factory=dict)
    shared: dict[str, SharedTexts] = field(default_factory=dict)
    query_length: int = 0
    document_length: int = 0
    in_training: bool = False
    queries_truncated: int = 0
    documents_truncated: int = 0
    all_queries: int = 0
    popular: str = ""
    popular_queries: int = 0
    no_shared_word: UnlikelyPairs = field(default_factory=UnlikelyPairs)
    less_similar: UnlikelyPairs = field(default_factory=UnlikelyPairs)

    @property
    def unlikely_share(self) -> float:
        """The share of unlikely pairs, by vectors if these were compared."""
        return (self.less_similar if self.less_similar.compared else self.no_shared_word).share

    @property
    def truncated_share(self) -> float:
        """The share of documents that are truncated."""
        return self.documents_truncated / max(1, self.documents)

    def lines(self, passages: bool = False) -> list[str]:
        """What there is to say, in a few lines; none where nothing is the matter.

        Args:
            passages: whether searches split what is longer than the document length.

        >>> seen = DataLook(pairs=10, queries=10, documents=80, documents_truncated=20, document_length=200)
        >>> for line in seen.lines():
        ...     print(line)
        10 training pairs: too few to learn from or to measure; expect noise. 300 or more are a start
        25% of documents are longer than 200 tokens and will be truncated (--document-length)
        >>> print(seen.lines(passages=True)[-1])
        documents have up to 200 tokens; 25% are longer: truncated in training, split into passages in search
        """
        return list(self._lines(passages))

    def _lines(self, passages: bool) -> Iterator[str]:
        if self.pairs < FEW_PAIRS:
            pairs = f"{self.pairs:,} training pair{'' if self.pairs == 1 else 's'}"
            yield f"{pairs}: too few to learn from or to measure; expect noise. {ENOUGH_PAIRS} or more are a start"
        for kind, count, of in (
            ("documents", self.repeated_documents, self.documents),
            ("training queries", self.repeated_queries, self.queries),
        ):
            if count:
                first, second = self.repeats[kind.split()[-1]]
                yield f"{count:,} of {of:,} {kind} repeat the text of an earlier one, as {second} that of {first}"
        for split, shared in self.shared.items():
            parts = [
                f"{count:,} {what}"
                for count, what in (
                    (shared.same_query, "have the text of a training query"),
                    (shared.same_document, "have a relevant document of a training query"),
                    (shared.same_pair, "have both"),
                )
                if count
            ]
            if parts:
                yield f"{split}: of {shared.queries:,} queries {', '.join(parts)}; what they measure was partly learned"
        for kind, count, of, length in (
            ("documents", self.documents_truncated, self.documents, self.document_length),
            ("queries", self.queries_truncated, self.all_queries, self.query_length),
        ):
            if not count:
                continue
            share = f"{count / of:.0%}" if count / of >= 0.01 else f"{count:,} of {of:,}"
            flag, when = f"--{kind.removesuffix('s').replace('querie', 'query')}-length", "will be truncated"
            if kind == "documents" and self.in_training:
                flag, when = "--training-length", "will be truncated while training"
            elif kind == "documents" and passages:
                how = "truncated in training, split into passages in search"
                yield f"documents have up to {length:,} tokens; {share} are longer: {how}"
                continue
            yield f"{share}{' of' if '%' in share else ''} {kind} are longer than {length:,} tokens and {when} ({flag})"
        if self.popular_queries >= max(POPULAR[0], POPULAR[1] * self.queries):
            yield f"document {self.popular} is the answer to {self.popular_queries:,} of {self.queries:,} queries"
        for unlikely, why, shown in (
            (self.less_similar, "are less similar to their query than most random documents", True),
            (self.no_shared_word, "share no word with their query", not self.less_similar.count),
        ):
            if unlikely.count:
                such_as = ", such as" if shown else ""
                yield f"unlikely positives: {unlikely.count:,} of {unlikely.compared:,} {why}{such_as}"
            for pair in unlikely.examples if shown else ():
                yield f"  {pair.query_id} {pair.query!r} -> {pair.document_id} {pair.document!r}"


def look(data: str | Path, model: BiEncoder | None = None, seed: int = 0) -> DataLook:
    """Look at what `prepare` wrote, in one pass: duplicates, pairs across splits, truncated texts, unlikely positives.

    Args:
        data: the prepared folder, with triplets.
        model: compares queries with their positives as vectors, too: a sample of them.
        seed: draws the pairs and the random documents that are compared.

    Raises:
        InputError: if there is no such folder, or it has no triplets.

    Example:
        >>> import tempfile
        >>> from remargin import mine, prepare
        >>> folder = Path(tempfile.mkdtemp())
        >>> _ = mine("docstrings:json,csv", folder / "triplets.tsv")
        >>> _ = prepare("docstrings:json,csv", model_folder, folder / "data", folder / "triplets.tsv")
        >>> seen = look(folder / "data")
        >>> seen.pairs < FEW_PAIRS, seen.lines()[0].partition(": ")[2][:7]
        (True, 'too few')
    """
    folder, training = Path(data), TrainingData(data)
    header, source = read_prepared(folder), BeirFolder(folder, Rejects())
    pairs = training_pairs(training.triplets)
    trained, positives = np.unique(pairs[:, 0]), pairs[:, 1]
    rng = np.random.default_rng(seed)
    sample = pairs[np.sort(rng.choice(len(pairs), min(PAIRS_READ, len(pairs)), replace=False))]
    queries = _read(source.queries(), set(sample[:, 0].tolist()), len(training.queries), "queries")
    documents = _read(source.documents(), set(sample[:, 1].tolist()), len(training.documents), "documents")
    seen = DataLook(
        pairs=len(pairs),
        queries=len(trained),
        documents=len(documents.keys),
        query_length=training.queries.header["length"],
        document_length=training.documents.header["length"],
        queries_truncated=header["queries_truncated"],
        documents_truncated=header["documents_truncated"],
        all_queries=len(queries.keys),
    )
    if again := repeats(queries.keys[trained]):
        seen.repeated_queries = len(again)
        seen.repeats["queries"] = training.queries.ids[trained[again[0][0]]], training.queries.ids[trained[again[0][1]]]
    if again := [pair for pair in repeats(documents.keys) if documents.keys[pair[0]] != hash("")]:  # empty ones are not
        seen.repeated_documents = len(again)
        seen.repeats["documents"] = training.documents.ids[again[0][0]], training.documents.ids[again[0][1]]
    known = _Keys.of(queries.keys[pairs[:, 0]], documents.keys[positives])
    for split in header["judgments"]:
        if split != "train":
            judged = [(j.query, j.document) for j in source.judgments(split) if j.grade > 0]
            of_queries = queries.keys[training.queries.ids.rows([query for query, _ in judged])]
            of_documents = documents.keys[training.documents.ids.rows([document for _, document in judged])]
            seen.shared[split] = known.shared([query for query, _ in judged], of_queries, of_documents)
    places, counts = np.unique(positives, return_counts=True)
    seen.popular, seen.popular_queries = training.documents.ids[int(places[counts.argmax()])], int(counts.max())

    def unlikely(compared: int, rows: list[tuple[int, int]]) -> UnlikelyPairs:
        examples = []
        for query, document in rows[:EXAMPLES]:
            texts = _shortened(queries.texts[query]), _shortened(documents.texts[document])
            examples.append(
                UnlikelyPair(training.queries.ids[query], texts[0], training.documents.ids[document], texts[1])
            )
        return UnlikelyPairs(compared, len(rows), examples)

    seen.no_shared_word = unlikely(*_without_a_word(sample, queries.texts, documents.texts))
    if model is not None:
        seen.less_similar = unlikely(*_less_similar(sample, training, model, rng))
    return seen


def training_pairs(triplets: Triplets) -> Rows:
    """The distinct pairs of a query and a positive in triplets, as rows: (n, 2), by query.

    >>> import tempfile
    >>> triplets = Triplets.write(Path(tempfile.mkdtemp()) / "t", [[1, 5, 3], [0, 2, 4], [1, 5, 9], [1, 6, 3]])
    >>> training_pairs(triplets).tolist()
    [[0, 2], [1, 5], [1, 6]]
    """
    joined = np.empty(0, np.uint64)
    for start in range(0, len(triplets), AT_ONCE):
        part = triplets.take(np.arange(start, min(start + AT_ONCE, len(triplets))))
        keys = part.queries.astype(np.uint64) << np.uint64(32) | part.positives.astype(np.uint64)
        joined = np.union1d(joined, keys)
    return np.stack([joined >> np.uint64(32), joined & np.uint64(0xFFFFFFFF)], 1).astype(np.int64)


def repeats(keys: NDArray[np.int64]) -> list[tuple[int, int]]:
    """For each key that came before, the place where it came first, and its own place.

    >>> repeats(np.array([7, 3, 7, 5, 3, 7]))
    [(0, 2), (1, 4), (0, 5)]
    """
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    firsts = first[inverse]
    later = np.flatnonzero(firsts != np.arange(len(keys)))
    return list(zip(firsts[later].tolist(), later.tolist(), strict=True))


def words(text: str) -> set[str]:
    """The beginnings of a text's words, without function words; n-grams of characters in scripts without spaces.

    >>> sorted(words("How do the margins adapt?")), sorted(words("图书馆 opening hours"))
    (['adapt', 'margi'], ['hours', 'openi', '书馆', '图书'])
    """
    split = re.findall(r"\w+", text.lower()) if text.isascii() else words_and_ngrams(text)
    return {word[:STEM] for word in split if word not in FUNCTION_WORDS}


class _Texts(NamedTuple):
    """A hash of every normalised text, by row, and the texts of some rows."""

    keys: NDArray[np.int64]
    texts: dict[int, str]


def _read(source: Iterable[Text], kept: Container[int], count: int, kind: str) -> _Texts:
    keys, texts = np.empty(count, np.int64), {}
    for row, item in enumerate(track(source, f"looking at {kind}", total=count)):
        keys[row] = hash(normalised(item.text))  # 64 bits: among millions of texts, no two are equal by chance
        if row in kept:
            texts[row] = item.text
    return _Texts(keys, texts)


@dataclass
class _Keys:
    """The training pairs' texts, as hashes."""

    queries: set[int]
    documents: set[int]
    pairs: set[tuple[int, int]]

    @classmethod
    def of(cls, queries: NDArray[np.int64], documents: NDArray[np.int64]) -> _Keys:
        first, second = queries.tolist(), documents.tolist()
        return cls(set(first), set(second), set(zip(first, second, strict=True)))

    def shared(self, ids: list[str], queries: NDArray[np.int64], documents: NDArray[np.int64]) -> SharedTexts:
        """How many of a split's queries, each with one or several relevant documents, are among the training pairs."""
        rows = list(zip(ids, queries.tolist(), documents.tolist(), strict=True))
        return SharedTexts(
            queries=len(set(ids)),
            same_query=len({id for id, query, _ in rows if query in self.queries}),
            same_document=len({id for id, _, document in rows if document in self.documents}),
            same_pair=len({id for id, query, document in rows if (query, document) in self.pairs}),
        )


def _without_a_word(
    pairs: Rows, queries: dict[int, str], documents: dict[int, str]
) -> tuple[int, list[tuple[int, int]]]:
    """How many pairs were compared, and those that share no word. A query of function words alone is not compared."""
    compared, unlikely, of_document = 0, [], dict[int, set[str]]()
    for query, document in pairs.tolist():
        asked = words(queries[query])
        if not asked:
            continue
        compared += 1
        if document not in of_document:
            of_document[document] = words(documents[document])
        if not asked & of_document[document]:
            unlikely.append((query, document))
    return compared, unlikely


def _less_similar(
    pairs: Rows, training: TrainingData, model: BiEncoder, rng: np.random.Generator
) -> tuple[int, list[tuple[int, int]]]:
    """How many pairs were compared, and those less similar than half of some random documents, the least first."""
    training.require(model)
    some = pairs[np.sort(rng.choice(len(pairs), min(PAIRS_ENCODED, len(pairs)), replace=False))]
    count = len(training.documents)
    drawn = np.sort(rng.choice(count, min(RANDOM_DOCUMENTS, count), replace=False))
    queries = model.encode_tokens(training.queries.take(some[:, 0]))
    positives = model.encode_tokens(training.documents.take(some[:, 1]))
    others = model.encode_tokens(training.documents.take(drawn))
    lead = (queries * positives).sum(1) - np.median(queries @ others.T, axis=1)
    order = np.argsort(lead, kind="stable")
    return len(some), [(int(some[i, 0]), int(some[i, 1])) for i in order if lead[i] < 0]


def _shortened(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."
