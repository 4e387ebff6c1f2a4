"""How similar a model finds queries and documents of a collection, from vectors that are made once."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from remargin.data.collection import Collection
from remargin.data.source import Text
from remargin.errors import InputError
from remargin.evaluation.runs import Run
from remargin.model.encoder import BiEncoder
from remargin.retrieval.dense import DenseIndex
from remargin.retrieval.vectors import Made, Vectors, finite, text_hashes

DocumentVectors = Vectors | tuple[Sequence[str], NDArray[Any]]
ROWS_AT_ONCE = 65_536  # are hashed


class Similarities:
    """A model's similarities over a collection: of queries with all documents, best first, or with some of them.

    Args:
        collection: whose documents they are.
        model: the encoder.
        vectors: of the documents, as `model.encode_documents` gives them: `Vectors`, or ids and an array with a row
            for each of them. Without it, the documents are encoded.

    Raises:
        InputError: for vectors of other documents, of another model, or of passages.

    Example:
        >>> collection = Collection("", "train", {"d1": "one text", "d2": "another"}, {"q": "one text"}, {})
        >>> model = BiEncoder.from_pretrained(model_folder)
        >>> similar = Similarities(collection, model, (["d1", "d2"], model.encode_documents(["one text", "another"])))
        >>> query = similar.encode(["one text"])
        >>> similar.search(["q"], query, depth=1).top("q", 1), similar.scores(query[0], ["d1"]).round(3).tolist()
        (['d1'], [1.0])
    """

    def __init__(self, collection: Collection, model: BiEncoder, vectors: DocumentVectors | None = None) -> None:
        self._model = model
        self._index = DenseIndex(model, _checked(collection, model, vectors))
        self._rows = {id: row for row, id in enumerate(self._index.vectors.ids)}

    def encode(self, queries: Sequence[str]) -> NDArray[np.float32]:
        """The vectors of queries."""
        return self._model.encode_queries(queries)

    def search(self, queries: Sequence[str], vectors: NDArray[np.float32], depth: int) -> Run:
        """The best documents of queries, which are given by their ids and their vectors."""
        ids = self._index.vectors.ids
        rankings = self._index.search_vectors(vectors, depth)
        return Run.of(
            {
                query: dict(zip([ids[row] for row in rows.tolist()], scores.tolist(), strict=True))
                for query, (rows, scores) in zip(queries, rankings, strict=True)
            }
        )

    def scores(self, query: NDArray[np.float32], documents: Sequence[str]) -> NDArray[np.float32]:
        """The similarities of a query, given by its vector, and some documents, given by their ids."""
        rows = [self._rows[document] for document in documents]
        product: NDArray[np.float32] = self._index.vectors.matrix[rows].astype(np.float32) @ query
        return product


def vectors_fingerprint(vectors: DocumentVectors) -> str:
    """A hash of given vectors: mining that was interrupted does not continue with others, however small the difference.

    >>> vectors_fingerprint((["d"], np.zeros((1, 2)))) == vectors_fingerprint((["d"], np.ones((1, 2))))
    False
    """
    ids, matrix = (vectors.ids, vectors.matrix) if isinstance(vectors, Vectors) else vectors
    digest = hashlib.blake2b("\0".join(ids).encode(), digest_size=16)
    for start in range(0, len(matrix), ROWS_AT_ONCE):
        digest.update(np.ascontiguousarray(matrix[start : start + ROWS_AT_ONCE]).data)
    return digest.hexdigest()


def _checked(collection: Collection, model: BiEncoder, vectors: DocumentVectors | None) -> Vectors:
    """The vectors of the collection's documents: those given, or new ones."""
    documents: Mapping[str, str] = collection.documents
    if vectors is None:
        return Vectors.of(model, documents, collection.name)
    do = "give one vector for each document of the collection, as the model makes them"
    if isinstance(vectors, Vectors):
        if vectors.owners is not None:
            raise InputError("the vectors are of passages, not of whole documents", do=do)
        ids, matrix = vectors.ids, vectors.matrix
    else:
        ids, matrix = vectors
    if matrix.ndim != 2 or len(ids) != len(matrix):
        raise InputError(f"vectors of shape {matrix.shape} for {len(ids):,} ids", do=do)
    if len(ids) != len(documents) or not all(id in documents for id in ids):
        raise InputError(f"the vectors are of other documents than those of {collection.name}", do=do)
    if isinstance(vectors, Vectors):
        return vectors
    if matrix.shape[1] != model.dimension:
        raise InputError(f"the vectors have {matrix.shape[1]} numbers, those of the model {model.dimension}", do=do)
    made = Made.by(model, collection.name)
    hashes = text_hashes([Text(id, documents[id]) for id in ids])
    return Vectors(made, finite(matrix, made), list(ids), hashes)
