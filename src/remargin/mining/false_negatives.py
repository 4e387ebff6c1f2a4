"""Negatives that may be relevant: those that an encoder scores as high as the positive, to leave out or to look at."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from remargin.data.collection import Collection, open_collection
from remargin.data.tables import Rejects
from remargin.data.triplets import read_id_triplets
from remargin.errors import InputError
from remargin.files.shapes import Finite
from remargin.progress import track
from remargin.reports.suspicious import Suspicious, score_ratio, shorten

if TYPE_CHECKING:
    from remargin.mining.similarity import DocumentVectors, Similarities
    from remargin.model.encoder import BiEncoder

SUSPICIOUS = 20  # suspicious negatives that are listed, one for a query
QUERIES_AT_ONCE = 2000  # are encoded

Scored = tuple[str, str, str, Finite, Finite]  # ids of query, positive and negative, and the scores of the two


def suspicious(
    data: str | Path | Collection,
    triplets: str | Path,
    model: str | Path | BiEncoder,
    count: int = SUSPICIOUS,
    vectors: DocumentVectors | None = None,
    split: str = "train",
    skip_bad: bool = False,
    queries: int | None = None,
    seed: int = 0,
) -> list[Suspicious]:
    """The negatives of a table of triplets that most look like false negatives, for people to read.

    These are negatives that the model scores at least as high as the best-scored positive of their query. Each query
    is listed once, with its highest negative; the first has the largest ratio of the two scores.

    Args:
        data: a collection, or what `Collection.load` takes.
        triplets: a table of ids, as `mine` writes it.
        model: an encoder, its folder or its hub name.
        count: how many to list at most.
        vectors: the documents' vectors by this model, if they were made before; see `mine`.
        split: the split to load; of a collection that is loaded already, its own.
        skip_bad: set bad input aside, count it, and continue.
        queries: look at this many queries at most, drawn with the seed, and encode only what they need.
        seed: draws them.

    Raises:
        InputError: for bad input, a cross-encoder, and vectors that are not the collection's.

    Example:
        >>> import tempfile
        >>> table = Path(tempfile.mkdtemp()) / "triplets.tsv"
        >>> _ = table.write_text("query_id\\tpositive_id\\tnegative_id\\nq\\td1\\td2\\n")
        >>> documents = {"d1": "a list of values", "d2": "how do I train a model", "d3": "a test"}
        >>> collection = Collection("faq", "train", documents, {"q": "how do I train a model"}, {"q": {"d1": 1}})
        >>> [(found.negative, found.negative_text) for found in suspicious(collection, table, model_folder)]
        [('d2', 'how do I train a model')]
    """
    if count < 1:
        raise InputError(f"{count} suspicious negatives to list", do="ask for 1 or more")
    from remargin.mining.similarity import Similarities
    from remargin.model.loading import load_encoder

    encoder = load_encoder(model)
    collection = open_collection(data, split, skip_bad)
    rejects = Rejects(skip=skip_bad)
    positives: dict[str, dict[str, None]] = {}
    negatives: dict[str, dict[str, None]] = {}
    for triplet in read_id_triplets(Path(triplets), rejects, collection):
        judged = collection.qrels.get(triplet.query, {})
        relevant = [document for document, grade in judged.items() if grade > 0]
        positives.setdefault(triplet.query, {}).update(dict.fromkeys([triplet.positive, *relevant]))
        negatives.setdefault(triplet.query, {}).update(dict.fromkeys(triplet.negatives))
    rejects.warn()
    if not negatives:
        raise InputError("no usable triplets in it", file=triplets, do=rejects.describe() or "mine some")
    chosen = list(negatives)
    if queries is not None and len(chosen) > queries:
        drawn = np.random.default_rng(seed).choice(len(chosen), queries, replace=False)
        chosen = [chosen[i] for i in sorted(drawn.tolist())]
    if vectors is None:
        needed = dict.fromkeys(document for query in chosen for document in (*positives[query], *negatives[query]))
        collection = replace(collection, documents={document: collection.documents[document] for document in needed})
    similar, found = Similarities(collection, encoder, vectors), list[Scored]()
    for start in track(range(0, len(chosen), QUERIES_AT_ONCE), "comparing"):
        some = chosen[start : start + QUERIES_AT_ONCE]
        for query, vector in zip(some, similar.encode([collection.queries[query] for query in some]), strict=True):
            pool = [document for document in negatives[query] if document not in positives[query]]
            found += Compared.of(similar, vector, list(positives[query]), pool).suspicious(query)
    return [with_texts(collection, scored) for scored in most_suspicious(found, count)]


def highest_allowed(positive: float, bound: float) -> float:
    """The similarity above which a candidate scores too much like a positive of this similarity to be its negative.

    It is `bound` times the positive's similarity. Where that is below 0, the product would lie above the similarity
    itself; so what counts is the distance, as a share of its size: at a bound of 0.95, a twentieth below the positive.

    >>> round(highest_allowed(0.8, 0.95), 3), round(highest_allowed(-0.8, 0.95), 3), highest_allowed(0.0, 0.95)
    (0.76, -0.84, 0.0)
    """
    return positive + (bound - 1) * abs(positive)


@dataclass
class Compared:
    """A query's positives and the candidates for its negatives, with their similarities to the query.

    Example:
        >>> compared = Compared(["p"], ["a", "b"], np.array([0.8]), np.array([0.79, 0.7]))
        >>> compared.allowed(0, bound=0.95), compared.allowed(0, bound=None)
        (['b'], ['a', 'b'])
    """

    positives: Sequence[str]
    pool: list[str]
    positive_scores: NDArray[np.floating]
    pool_scores: NDArray[np.floating]

    @classmethod
    def of(
        cls, similar: Similarities, query: NDArray[np.float32], positives: Sequence[str], pool: list[str]
    ) -> Compared:
        """From the query's vector."""
        scores = similar.scores(query, [*positives, *pool])
        return cls(positives, pool, scores[: len(positives)], scores[len(positives) :])

    def allowed(self, positive: int, bound: float | None) -> list[str]:
        """The candidates that do not score like the positive of this number; without a bound, all of them."""
        if bound is None:
            return self.pool
        highest = highest_allowed(float(self.positive_scores[positive]), bound)
        return [self.pool[i] for i in np.flatnonzero(self.pool_scores <= highest)]

    def suspicious(self, query: str) -> list[Scored]:
        """The candidate with the highest score, if no positive has a higher one; else nothing."""
        if not self.pool:
            return []
        positive, negative = int(self.positive_scores.argmax()), int(self.pool_scores.argmax())
        scores = float(self.positive_scores[positive]), float(self.pool_scores[negative])
        return [(query, self.positives[positive], self.pool[negative], *scores)] if scores[1] >= scores[0] else []


def most_suspicious(found: Iterable[Scored], count: int) -> list[Scored]:
    """Those with the largest ratio of the negative's score to the positive's, the largest first.

    >>> most_suspicious([("q1", "a", "b", 0.5, 0.6), ("q2", "a", "b", 0.5, 0.75), ("q3", "a", "b", 0.5, 0.5)], count=2)
    [('q2', 'a', 'b', 0.5, 0.75), ('q1', 'a', 'b', 0.5, 0.6)]
    """
    return heapq.nlargest(count, found, key=lambda scored: score_ratio(scored[3], scored[4]))


def with_texts(collection: Collection, scored: Scored) -> Suspicious:
    """A suspicious negative with the beginnings of the texts."""
    query, positive, negative, positive_score, negative_score = scored
    texts = collection.queries[query], collection.documents[positive], collection.documents[negative]
    return Suspicious(query, positive, negative, positive_score, negative_score, *map(shorten, texts))
