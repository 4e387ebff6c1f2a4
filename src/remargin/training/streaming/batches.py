"""Batches of a stream's examples, with negatives that are mined on arrival where a line has none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from remargin.data.splits import normalised
from remargin.errors import InputError
from remargin.mining.recipe import RECIPE
from remargin.model.encoder import BiEncoder
from remargin.model.tokenizer import Tokens
from remargin.retrieval.base import Index
from remargin.retrieval.bm25 import BM25
from remargin.retrieval.dense import DenseIndex
from remargin.retrieval.languages import AUTO
from remargin.retrieval.vectors import Vectors
from remargin.training.batches import TripletBatch
from remargin.training.streaming.journal import Taken

NegativesOf = Literal["bm25", "model"]


class Miner:
    """Draws negatives for queries from the best documents of the current index of a collection.

    Documents that are known to be relevant are left out: the positive itself, other positives of the same query, and
    what the collection judges relevant for it. What a ranking lacks is drawn from the whole collection.

    Args:
        documents: the collection's texts by id.
        relevant: the documents that are judged relevant, by normalised query.
        by: what ranks: "bm25", or "model", the last accepted one.
        seed: for what is drawn: a line of the journal always gets the same negatives from the same index.
        language: of the texts, for BM25.
        depth: negatives are drawn from so many best documents.

    Example:
        >>> miner = Miner({"d1": "margins adapt", "d2": "margins stay", "d3": "margins grow"}, {}, "bm25")
        >>> miner.rank({7: "margins"})
        >>> sorted(miner.draw(7, 2, known={"margins stay"}))
        ['margins adapt', 'margins grow']
    """

    def __init__(
        self,
        documents: Mapping[str, str],
        relevant: Mapping[str, set[str]],
        by: NegativesOf = "bm25",
        seed: int = 0,
        language: str = AUTO,
        depth: int = RECIPE.depth,
    ) -> None:
        self._documents = {id: text for id, text in documents.items() if text.strip()}
        self._ids = list(self._documents)
        self._relevant, self.by, self._seed, self._depth = relevant, by, seed, depth
        self._index: Index | None = BM25(self._documents, language=language) if by == "bm25" else None
        self._ranked: dict[int, list[str]] = {}

    def take(self, model: BiEncoder) -> None:
        """Search with another model from now on, if it is a model that ranks."""
        if self.by == "model":
            self._index = DenseIndex(model, Vectors.of(model, self._documents))

    def rank(self, queries: Mapping[int, str]) -> None:
        """Rank documents for the queries of some lines, by their numbers in the journal."""
        assert self._index is not None
        run = self._index.search({str(number): text for number, text in queries.items()}, self._depth)
        self._ranked = {}
        for number, text in queries.items():
            known = self._relevant.get(normalised(text), set())
            self._ranked[number] = [id for id in run.top(str(number), self._depth) if id not in known]

    def draw(self, number: int, count: int, known: set[str], positive_id: str | None = None) -> list[str]:
        """Texts of negatives for a line that was ranked.

        Args:
            number: of the line in the journal.
            count: how many.
            known: normalised texts of the query's positives.
            positive_id: the positive's id, if that is known.
        """
        chosen: dict[str, str] = {}
        for id in self._candidates(number):
            text = self._documents[id]
            if id != positive_id and normalised(text) not in known:
                chosen.setdefault(text, id)
            if len(chosen) == count:
                return list(chosen)
        problem = "the collection has too few documents to draw negatives from"
        raise InputError(problem, do="add documents (--data), or give triplets")

    def _candidates(self, number: int) -> Iterator[str]:
        """Documents in the order in which they come into question: drawn from the ranking, then from all."""
        rng = np.random.default_rng([self._seed, number])
        ranking = self._ranked[number]
        yield from (ranking[place] for place in rng.permutation(len(ranking)).tolist())
        for _ in range(20 * len(self._ids)):
            yield self._ids[int(rng.integers(len(self._ids)))]


class StreamBatches:
    """Makes batches of examples.

    Args:
        model: whose tokenizer, lengths and prefixes the texts are made tokens with.
        miner: draws the negatives of pairs, if there is a collection.
        per_triplet: negatives of each example. Of several that a line has, the first ones; of fewer, they take turns.
        longest: the maximum document length in tokens.
    """

    def __init__(self, model: BiEncoder, miner: Miner | None, per_triplet: int, longest: int) -> None:
        self._model, self._miner, self._per_triplet = model, miner, per_triplet
        self._document_length = min(longest, model.document_length)
        self._query_length = min(longest, model.query_length)
        self.truncated = 0  # documents

    def take(self, model: BiEncoder) -> None:
        """Mine with a newly accepted model, if it is a model that ranks."""
        if self._miner is not None:
            self._miner.take(model)

    def batch(self, lines: Sequence[Taken]) -> TripletBatch:
        """The batch of some lines. Its rows are numbers of distinct texts, so that the loss sees which are the same."""
        negatives = self._negatives(lines)
        queries = [taken.example.query for taken in lines]
        documents = [taken.example.positive for taken in lines] + [text for of_line in negatives for text in of_line]
        rows = _rows(documents)
        of_negatives = rows[len(lines) :]
        if self._per_triplet > 1:
            of_negatives = of_negatives.reshape(len(lines), -1)
        tokens = self._tokens(queries, documents)
        return TripletBatch(_rows(queries), rows[: len(lines)], of_negatives, tokens, None)

    def _negatives(self, lines: Sequence[Taken]) -> list[list[str]]:
        pairs = {taken.number: taken.example.query for taken in lines if not taken.example.negatives}
        if pairs and self._miner is not None:
            self._miner.rank(pairs)
        known: dict[str, set[str]] = {}
        for taken in lines:
            known.setdefault(normalised(taken.example.query), set()).add(normalised(taken.example.positive))
        made = []
        for taken in lines:
            own = taken.example.negatives
            if own:
                made.append([own[place % len(own)] for place in range(self._per_triplet)])
                continue
            assert self._miner is not None  # else the line was refused
            positives = known[normalised(taken.example.query)]
            made.append(self._miner.draw(taken.number, self._per_triplet, positives, taken.example.positive_id))
        return made

    def _tokens(self, queries: list[str], documents: list[str]) -> Tokens:
        model = self._model
        of_queries, _ = model.tokenizer([model.query_prefix + text for text in queries], self._query_length)
        of_documents, truncated = model.tokenizer(
            [model.document_prefix + text for text in documents], self._document_length
        )
        self.truncated += truncated
        return Tokens.together([of_queries, of_documents])


def _rows(texts: Sequence[str]) -> NDArray[np.int64]:
    """A number for each text, the same one for texts that differ in case and white space alone."""
    numbers: dict[str, int] = {}
    return np.array([numbers.setdefault(normalised(text), len(numbers)) for text in texts], np.int64)
