"""Re-ranking: new scores for the documents of a run."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from remargin.data.collection import Collection, open_collection
from remargin.errors import InputError, refuse_idle
from remargin.evaluation.runs import Run
from remargin.files.atomic import refuse_existing
from remargin.model.cross_encoder import CrossEncoder
from remargin.model.ranker import Ranker
from remargin.retrieval.encoders import as_reranker, given_texts
from remargin.retrieval.exhaustive import rescored

if TYPE_CHECKING:
    from remargin.model.encoder import BiEncoder, EncodingPrecision
    from remargin.retrieval.vectors import Vectors

log = logging.getLogger(__name__)


def rerank(
    data: str | Path | Collection,
    model: str | Path | BiEncoder | Ranker | CrossEncoder,
    run: str | Path | Run,
    depth: int | None = None,
    precision: EncodingPrecision = "auto",
    split: str = "test",
    skip_bad: bool = False,
    out: str | Path | None = None,
    overwrite: bool = False,
    query_length: int | None = None,
    document_length: int | None = None,
    query_prefix: str | None = None,
    document_prefix: str | None = None,
    pooling: str | None = None,
    similarity: str | None = None,
    dims: int | None = None,
    passage_length: int | str = "auto",
    passage_overlap: int | None = None,
) -> Run:
    """Rank the documents of a run by a model's score, as `remargin rerank` does.

    An encoder, ColBERT and SPLADE encode each text once; a cross-encoder reads each query with each of its documents.

    Args:
        data: the collection of the run, or what `Collection.load` takes.
        model: an encoder, a ColBERT or SPLADE model, or a cross-encoder; its folder, or its Hugging Face name; of two
            encoders, QUERIES+DOCUMENTS.
        run: the run, or its file.
        depth: re-rank only the first this many documents of each query, and leave the others out.
        precision: the numeric precision to compute in: "auto" (bf16 on a GPU, 32 on a CPU), "32" or "bf16".
        split: whose queries, if `data` is not loaded yet.
        skip_bad: skip bad input, and count it in a warning, if `data` is not loaded yet.
        out: a TREC run file to write; its name may end in .gz.
        overwrite: replace `out` if it is there.
        query_length, document_length, query_prefix, document_prefix: of an encoder, instead of its own.
        pooling, similarity, dims: of an encoder, as in `search`.
        passage_length, passage_overlap: of an encoder, as in `search`: documents that are longer than it reads are
            split into passages, of which the best counts. Other models truncate.

    Raises:
        InputError: for bad input, and for a run and a collection that do not belong together.

    Example:
        >>> from remargin import search
        >>> collection = Collection.load("docstrings:json")
        >>> run = rerank(collection, model_folder, search(collection, "bm25"), depth=3)
        >>> max(map(len, run.rankings.values()))
        3
    """
    if out is not None:
        refuse_existing(Path(out), overwrite)
    first = run if isinstance(run, Run) else Run.load(run)
    collection = open_collection(data, split, skip_bad)
    texts = given_texts(query_length, document_length, query_prefix, document_prefix, pooling, similarity, dims)
    loaded = as_reranker(model, precision, **texts)
    passages: Any = {"passage_length": passage_length, "passage_overlap": passage_overlap}
    if isinstance(loaded, CrossEncoder | Ranker):
        kind = loaded.kind if isinstance(loaded, Ranker) else "a cross-encoder"
        refuse_idle(kind, [name for name, value in passages.items() if value not in (None, "auto", "off")])
    reranked = _rescored(loaded, first, collection, depth, passages)
    if out is not None:
        reranked.save(out, tag="rerank", overwrite=overwrite)
    return reranked


def _rescored(
    model: BiEncoder | Ranker | CrossEncoder,
    run: Run,
    collection: Collection,
    depth: int | None,
    passages: dict[str, Any],
) -> Run:
    documents, queries = collection.documents, collection.queries
    candidates = {
        query: run.top(query, depth or len(run.rankings[query])) for query in run.rankings if query in queries
    }
    if not candidates:
        raise InputError(
            "the run has none of the collection's queries", do="check that run and collection belong together"
        )
    if missing := len(run.rankings) - len(candidates):
        log.warning("%d queries of the run are not in the collection, and are left out", missing)
    needed = sorted({document for ranking in candidates.values() for document in ranking})
    unknown = next((document for document in needed if document not in documents), None)
    if unknown is not None:
        do = "check that run and collection belong together"
        raise InputError("the run has a document that is not in the collection", id=unknown, do=do)
    if isinstance(model, CrossEncoder):
        if unfit := model.too_long({query: queries[query] for query in candidates}):
            problem = f"query leaves no room for a document in {model.length} tokens"
            raise InputError(problem, id=unfit[0], do="give the cross-encoder a longer length")
        pairs = [(queries[query], documents[document]) for query, ranking in candidates.items() for document in ranking]
        values = iter(model.score(pairs).tolist())
        return Run.of({query: dict(zip(ranking, values, strict=False)) for query, ranking in candidates.items()})
    if isinstance(model, Ranker):
        return Run.of(
            rescored(model, queries, {query: list(ranking) for query, ranking in candidates.items()}, documents)
        )
    from remargin.retrieval.vectors import Vectors

    vectors = Vectors.of(model, {document: documents[document] for document in needed}, collection.name, **passages)
    if (line := vectors.passages_line()) is not None:
        log.warning(line)
    rows = {document: row for row, document in enumerate(needed)}
    query_vectors = model.encode_queries([queries[query] for query in candidates])
    scores = {}
    for vector, (query, ranking) in zip(query_vectors, candidates.items(), strict=True):
        similarities = _similarities(vectors, vector, np.array([rows[document] for document in ranking], np.int64))
        scores[query] = dict(zip(ranking, similarities.tolist(), strict=True))
    return Run.of(scores)


def _similarities(vectors: Vectors, query: NDArray[np.float32], documents: NDArray[np.int64]) -> NDArray[Any]:
    """The similarity of each of some documents to a query: that of its best passage, if documents were split."""
    if vectors.owners is None:
        return np.asarray(vectors.matrix[documents] @ query)
    bounds = np.searchsorted(vectors.owners, np.arange(len(vectors.ids) + 1))
    first, count = bounds[documents], np.diff(bounds)[documents]
    starts = np.cumsum(count) - count
    passages = np.repeat(first - starts, count) + np.arange(count.sum())
    return np.asarray(np.maximum.reduceat(vectors.matrix[passages] @ query, starts))
