"""What the tests of indexes share: documents, queries, and a setting of every back end."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from remargin import BiEncoder, Run
from remargin.data.source import Text
from remargin.retrieval.settings import BackendSettings
from remargin.retrieval.vectors import Made, Vectors

DOCUMENTS = {f"d{i}": f"text number {i} " + "words and " * (i % 7) for i in range(60)}
QUERIES = {f"q{i}": f"which number {i} words" for i in range(5)}
SETTINGS = {
    "exact": BackendSettings(),
    "int8": BackendSettings(coding="int8", over_fetch=4),
    "binary": BackendSettings(coding="binary", over_fetch=20),
    "flat": BackendSettings("faiss", factory="Flat", over_fetch=1),
    "milvus": BackendSettings("milvus", factory="FLAT", over_fetch=1),
    "hnsw": BackendSettings("faiss", factory="HNSW8", over_fetch=8),
}
APPROXIMATE = ("binary", "hnsw")  # all other settings find exactly what exact search does


def random_vectors(model: BiEncoder, count: int) -> Vectors:
    """As if the model had made them: of unit length if it makes such, else of very different lengths."""
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(count, model.dimension)).astype("f4")
    matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
    if model.similarity == "dot":
        matrix *= rng.uniform(0.1, 3, (count, 1)).astype("f4")
    return Vectors(Made.by(model), matrix, [f"d{i}" for i in range(count)], np.zeros(count, np.uint64))


def texts(documents: Mapping[str, str]) -> list[Text]:
    return [Text(id, text) for id, text in documents.items()]


def same(one: Run, other: Run) -> None:
    """The same scores at the same ranks; documents may only change places where scores are equal."""
    assert one.rankings.keys() == other.rankings.keys()
    for query in one.rankings:
        ours, theirs = one.rankings[query], other.rankings[query]
        assert len(ours) == len(theirs)
        np.testing.assert_allclose(list(ours.values()), list(theirs.values()), rtol=1e-5)
        for document in ours.keys() & theirs.keys():
            assert ours[document] == pytest.approx(theirs[document], rel=1e-5)
        last = min(ours.values(), default=0)
        assert all(ours[document] < last + 1e-5 for document in ours.keys() - theirs.keys())
