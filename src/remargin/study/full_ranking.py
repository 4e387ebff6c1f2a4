"""Full rankings of one collection by many models: its texts are tokenised once, and only what counts is evaluated."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from remargin.data.collection import Collection
from remargin.errors import InputError
from remargin.evaluation.measures import Evaluation, evaluate_from, relevant_grade
from remargin.evaluation.runs import Run
from remargin.model.encoder import BiEncoder
from remargin.model.packing import select
from remargin.model.tokenizer import Tokens
from remargin.retrieval.dense import DenseIndex, Ranking
from remargin.retrieval.exact import Matrix, Rows, top_k
from remargin.retrieval.searching import search
from remargin.retrieval.settings import BackendSettings
from remargin.retrieval.vectors import Made, Vectors
from remargin.study.plan import EXACT, FAISS

DEPTH = 1000
MEASURES = ("nDCG@10", "R@100", "R@1000")
RANKED = 100  # down to here the order may count, from here on only whether a document is there


AS_EXACT = "exact "  # before a measure that exact search has, beside that of an approximate index
# The paper's index: HNSW over 32-byte codes after OPQ; of the first documents, the exact scores decide.
PAPERS_INDEX = BackendSettings(FAISS, over_fetch=1)
CENTROIDS = 256  # of a byte of these codes, to learn from as many vectors


class FullRanking:
    """Measures models, or BM25, on every query of a collection.

    With the paper's index, a model also has the measures of exact search, under names that begin with `AS_EXACT`.

    Args:
        collection: documents, queries and judgments.
        relevant: the lowest grade that R counts, see `relevant_grade`.
        index: what searches: exact, or faiss, the paper's index.

    Example:
        >>> ranking = FullRanking(Collection.load("docstrings:json", "test"))
        >>> ranking.measure(BiEncoder.from_pretrained(model_folder), "tiny").means.keys()
        dict_keys(['nDCG@10', 'R@100', 'R@1000'])
    """

    def __init__(self, collection: Collection, relevant: int = 1, index: str = EXACT) -> None:
        self.collection, self._relevant = collection, relevant_grade(collection.qrels, relevant)
        self._index = index
        self._tokens: dict[str, tuple[Tokens, Tokens]] = {}
        self._ids = np.array(list(collection.documents), dtype=object)

    def measure(self, model: BiEncoder | None, backbone: str) -> Evaluation:
        """The scores of every query. Models of one backbone have one tokenizer, lengths and prefixes."""
        collection = self.collection
        if model is None:
            return self._evaluate(search(collection, "bm25", k=DEPTH))
        documents, queries = self._tokens_for(model, backbone)
        depth, encoded = DEPTH + bool(collection.self_matches), model.encode_tokens(queries)
        if self._index == EXACT:
            return self._exact(encoded, _Vectors(model, documents), depth, model)
        matrix = model.encode_tokens(documents)
        exact = self._exact(encoded, matrix, depth, model)
        made, hashes = Made.by(model, collection.name), np.zeros(len(matrix), np.uint64)
        index = DenseIndex.in_memory(model, Vectors(made, matrix, self._ids.tolist(), hashes), PAPERS_INDEX)
        found = self._evaluate(self._thinned(index.search_vectors(encoded, depth)))
        beside = {f"{AS_EXACT}{measure}": values for measure, values in exact.per_query.items()}
        return replace(found, per_query=found.per_query | beside)

    def require_index(self, dimension: int) -> None:
        """See that the index can be made of vectors with so many numbers.

        Raises:
            InputError: without FAISS, and for a collection with too few documents to train the index on.
        """
        if self._index == EXACT:
            return
        PAPERS_INDEX.check()
        if dimension < (least := PAPERS_INDEX.code_bytes):
            problem = f"vectors of {dimension} numbers, and the paper's index makes codes of {least} bytes of them"
            raise InputError(problem, do="rank with --index exact")
        if (count := len(self.collection.documents)) < (needed := max(dimension, CENTROIDS)):
            problem = f"has {count:,} documents, too few to train the paper's index, which takes {needed:,}"
            raise InputError(problem, file=self.collection.name, do="rank it with --index exact")

    def _exact(
        self, queries: NDArray[np.float32], documents: Matrix | Rows, depth: int, model: BiEncoder
    ) -> Evaluation:
        scores, rows = top_k(queries, documents, depth, model.device)
        return self._evaluate(self._thinned(map(Ranking, rows, scores)))

    def _evaluate(self, run: Run) -> Evaluation:
        return evaluate_from(self._relevant, run, self.collection.qrels, MEASURES)

    def _thinned(self, found: Iterable[Ranking]) -> Run:
        """The first documents, and of the others those that were judged: all other ranks change no measure here."""
        rankings = {}
        for query, (of_query, values) in zip(self.collection.queries, found, strict=True):
            ids = self._ids[of_query]
            own = query if query in self.collection.self_matches else None
            judged = self.collection.qrels[query]
            ranking = [(id, value) for id, value in zip(ids.tolist(), values.tolist(), strict=True) if id != own]
            least = ranking[min(RANKED, len(ranking)) - 1][1]  # what is tied with it counts as well
            kept = [(id, value) for id, value in ranking[:DEPTH] if value >= least or id in judged]
            rankings[query] = dict(kept)
        return Run.of(rankings)

    def _tokens_for(self, model: BiEncoder, backbone: str) -> tuple[Tokens, Tokens]:
        if backbone not in self._tokens:
            texts = (
                (self.collection.documents, model.document_prefix, model.document_length),
                (self.collection.queries, model.query_prefix, model.query_length),
            )
            documents, queries = (
                model.tokenizer([prefix + text for text in of_kind.values()], length)[0]
                for of_kind, prefix, length in texts
            )
            self._tokens[backbone] = documents, queries
        return self._tokens[backbone]


class _Vectors:
    """Vectors of texts, made when they are asked for: those of a large collection need not fit into memory."""

    dtype = np.dtype(np.float32)

    def __init__(self, model: BiEncoder, tokens: Tokens) -> None:
        self._model, self._tokens = model, tokens

    def __len__(self) -> int:
        return len(self._tokens.lengths)

    def __getitem__(self, part: slice, /) -> NDArray[np.float32]:
        return self._model.encode_tokens(select(self._tokens, np.arange(*part.indices(len(self)))))
