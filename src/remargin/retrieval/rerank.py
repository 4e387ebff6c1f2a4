"""Re-ranking: new scores for the documents that another search found."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import numpy as np

from remargin.errors import InputError
from remargin.evaluation.runs import Run
from remargin.model.cross_encoder import CrossEncoder
from remargin.model.encoder import BiEncoder

log = logging.getLogger(__name__)


def rerank(
    model: BiEncoder | CrossEncoder,
    run: Run,
    documents: Mapping[str, str],
    queries: Mapping[str, str],
    depth: int | None = None,
) -> Run:
    """The first `depth` documents of each query of a run, ranked by an encoder's similarity or a cross-encoder's score.

    A bi-encoder encodes each text once; a cross-encoder reads each query with each of its documents.
    """
    candidates = {
        query: run.top(query, depth or len(run.rankings[query])) for query in run.rankings if query in queries
    }
    if not candidates:
        raise InputError(
            "the run has none of the collection's queries", do="check that run and collection belong together"
        )
    if missing := len(run.rankings) - len(candidates):
        log.warning("%d queries of the run are not in the collection, and are left out", missing)
    needed = sorted({document for found in candidates.values() for document in found})
    unknown = next((document for document in needed if document not in documents), None)
    if unknown is not None:
        do = "check that run and collection belong together"
        raise InputError("the run has a document that is not in the collection", id=unknown, do=do)
    if isinstance(model, CrossEncoder):
        if unfit := model.too_long({query: queries[query] for query in candidates}):
            problem = f"query leaves no room for a document in {model.length} tokens"
            raise InputError(problem, id=unfit[0], do="give the cross-encoder a longer length")
        pairs = [(queries[query], documents[document]) for query, found in candidates.items() for document in found]
        values = iter(model.score(pairs).tolist())
        return Run.of({query: dict(zip(found, values, strict=False)) for query, found in candidates.items()})
    rows = {document: row for row, document in enumerate(needed)}
    document_vectors = model.encode_documents([documents[document] for document in needed])
    query_vectors = model.encode_queries([queries[query] for query in candidates])
    scores = {}
    for vector, (query, found) in zip(query_vectors, candidates.items(), strict=True):
        similarities = document_vectors[[rows[document] for document in found]] @ vector
        scores[query] = dict(zip(found, np.asarray(similarities).tolist(), strict=True))
    return Run.of(scores)
