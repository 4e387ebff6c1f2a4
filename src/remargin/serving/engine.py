"""What searches and encodes, without any HTTP: the systems that are loaded, and how they answer several queries."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from remargin.errors import InputError
from remargin.evaluation.runs import Run
from remargin.model.encoder import BiEncoder
from remargin.model.tokenizer import Kind, Tokens
from remargin.retrieval.bm25 import BM25
from remargin.retrieval.dense import DenseIndex
from remargin.retrieval.fusion import weighted
from remargin.retrieval.hybrid import HybridSettings
from remargin.serving.known import Known
from remargin.serving.texts import Texts

Name = Literal["bm25", "before", "after", "hybrid"]
NAMES: tuple[Name, ...] = ("bm25", "before", "after", "hybrid")
T = TypeVar("T")


class Hit(NamedTuple):
    """A document that a system found, and its score."""

    id: str
    score: float


class Encoded(NamedTuple):
    """Vectors of texts, their tokens in all, and how many texts were truncated."""

    vectors: NDArray[np.float32]
    tokens: int
    truncated: int


@dataclass(frozen=True, eq=False)
class Engine:
    """The systems over one collection. An engine never changes: a new model or index is a new engine.

    Attributes:
        after: the encoder that is served, and its vectors; None for BM25 alone.
        before: the encoder that it was trained from, over the same documents, for comparison.
        bm25: the words.
        hybrid: how `bm25` and `after` are fused.
        texts: of the documents.
        known: the judged queries of the collection.
    """

    after: DenseIndex | None
    before: DenseIndex | None
    bm25: BM25 | None
    hybrid: HybridSettings | None
    texts: Texts = field(repr=False)
    known: Known = field(repr=False)

    @property
    def systems(self) -> list[Name]:
        """The names of the systems that are loaded."""
        fused = self.after is not None and self.bm25 is not None and self.hybrid is not None
        loaded = {"bm25": self.bm25, "before": self.before, "after": self.after, "hybrid": True if fused else None}
        return [name for name in NAMES if loaded[name] is not None]

    @property
    def default(self) -> Name:
        """The system that is asked if a request names none: the hybrid one, else the encoder, else BM25."""
        return self.systems[-1]

    def require(self, name: Name) -> None:
        """Refuse a system that is not loaded."""
        if name not in self.systems:
            raise InputError(f"no system {name!r} is loaded", do=f"use {', '.join(self.systems)}")

    @property
    def data(self) -> str:
        """The collection that was indexed, as it was named then."""
        index = self.after or self.bm25
        return "" if index is None else index.data

    def __len__(self) -> int:
        """How many documents are searched."""
        return len(self.after or self.bm25 or ())

    def encoder(self, name: Name) -> BiEncoder:
        """The encoder of a system.

        Raises:
            InputError: if the system has none, or is not loaded.
        """
        index = {"before": self.before, "after": self.after, "hybrid": self.after, "bm25": None}[name]
        if index is None:
            have = [system for system in ("before", "after") if system in self.systems]
            do = f"use {' or '.join(have)}" if have else "serve a model to encode texts"
            raise InputError(f"no encoder {name!r} is loaded", do=do)
        return index.model

    def encode(self, several: Sequence[Sequence[str]], kind: Kind = "queries", name: Name = "after") -> list[Encoded]:
        """Vectors of lists of texts, by the encoder of a system. All are computed together."""
        encoder = self.encoder(name)
        length, prefix = encoder.text_settings.of(kind)
        tokenised = [encoder.tokenizer([prefix + text for text in texts], length) for texts in several]
        vectors = encoder.encode_tokens(Tokens.together([tokens for tokens, _ in tokenised]))
        parts = np.split(vectors, np.cumsum([len(texts) for texts in several])[:-1])
        return [
            Encoded(part, len(tokens.ids), truncated)
            for part, (tokens, truncated) in zip(parts, tokenised, strict=True)
        ]

    def search(self, questions: Sequence[tuple[str, Name]], k: int) -> list[list[Hit]]:
        """The k best documents for each query and system. A query is encoded once for all systems that need it.

        Raises:
            InputError: for a system that is not loaded.
        """
        texts = {str(number): text for number, text in enumerate(dict.fromkeys(text for text, _ in questions))}
        numbers = {text: number for number, text in texts.items()}  # a run's ids may not have every character
        asked: dict[Name, list[str]] = {name: [] for name in NAMES}
        for text, name in dict.fromkeys(questions):
            asked[name].append(numbers[text])
        for name in (name for name in NAMES if asked[name]):
            self.require(name)
        depth = self.hybrid.depth if asked["hybrid"] and self.hybrid is not None else 0
        runs = {
            "bm25": self._by_words(_chosen(texts, asked["bm25"] + asked["hybrid"]), max(k, depth)),
            "before": self._by_vectors("before", _chosen(texts, asked["before"]), k),
            "after": self._by_vectors("after", _chosen(texts, asked["after"] + asked["hybrid"]), max(k, depth)),
        }
        if asked["hybrid"] and self.hybrid is not None:
            words, dense = (Run.of(_chosen(runs[part].rankings, asked["hybrid"]), depth) for part in ("bm25", "after"))
            runs["hybrid"] = weighted(words, dense, self.hybrid.weight, k)
        return [_best(runs[name].rankings[numbers[text]], k) for text, name in questions]

    def _by_words(self, queries: Mapping[str, str], k: int) -> Run:
        return Run({}) if self.bm25 is None else self.bm25.search(queries, k)

    def _by_vectors(self, name: Name, queries: Mapping[str, str], k: int) -> Run:
        """What `DenseIndex.search` returns, by vectors of `encode`."""
        index = self.before if name == "before" else self.after
        if index is None or not queries:
            return Run({})
        ids = index.vectors.ids
        (encoded,) = self.encode([list(queries.values())], "queries", name)
        rankings = index.search_vectors(encoded.vectors, k)
        return Run.of(
            {
                query: dict(zip([ids[row] for row in rows.tolist()], scores.tolist(), strict=True))
                for query, (rows, scores) in zip(queries, rankings, strict=True)
            }
        )


def _chosen(values: Mapping[str, T], names: Iterable[str]) -> dict[str, T]:
    return {name: values[name] for name in names}


def _best(ranking: Mapping[str, float], k: int) -> list[Hit]:
    return [Hit(id, score) for id, score in itertools.islice(ranking.items(), k)]
