"""What a model is to re-rank: the documents of a first stage."""

from __future__ import annotations

from itertools import islice

from remargin.data.collection import Collection
from remargin.errors import InputError
from remargin.evaluation.runs import Run
from remargin.retrieval.languages import AUTO, choose_language
from remargin.retrieval.searching import search


def candidates(
    collection: Collection, depth: int, first_stage: Run | None = None, language: str = AUTO
) -> dict[str, dict[str, float]]:
    """What a model is to re-rank for each query of a collection: documents and their first-stage scores, best first.

    Args:
        collection: the validation queries, and all documents.
        depth: how many documents of each query at most.
        first_stage: a run of these queries; without one, BM25's.
        language: of the texts, for BM25.

    Raises:
        InputError: if the run has none of the queries, or a document that the collection lacks.

    Example:
        >>> some = Collection.load("docstrings:json", split="train").sample(2, seed=0)
        >>> ranked = candidates(some, depth=3)
        >>> list(ranked) == list(some.queries), max(map(len, ranked.values()))
        (True, 3)
    """
    run = first_stage
    if run is None:
        run = search(collection, "bm25", k=depth, language=choose_language(language, collection.documents.values()))
    ranked = {query: dict(islice(run.rankings.get(query, {}).items(), depth)) for query in collection.queries}
    if not any(ranked.values()):
        if first_stage is None:
            problem = f"BM25 finds nothing for any of the {len(ranked):,} validation queries"
            do = "give a run to re-rank (--validation-run), as `remargin search --index exact` writes it"
            raise InputError(problem, do=f"name the language of the texts (--language), or {do}")
        raise InputError("the first-stage run has none of the validation queries", do="give a run of that split")
    documents = (document for ranking in ranked.values() for document in ranking)
    unknown = next((document for document in documents if document not in collection.documents), None)
    if unknown is not None:
        problem = "the first-stage run has a document that is not in the collection"
        raise InputError(problem, id=unknown, do="check that run and collection belong together")
    return ranked
