"""A new back end is a class that searches, a storage, and a line in `BACKENDS`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypedDict

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from remargin import BiEncoder, InputError
from remargin.retrieval.base import BACKENDS, Backend, State, Storage
from remargin.retrieval.building import build_index
from remargin.retrieval.dense import DenseIndex
from remargin.retrieval.index_folder import open_index
from remargin.retrieval.settings import BackendSettings
from remargin.retrieval.updating import add_documents, delete_documents
from remargin.retrieval.vectors import Vectors

from .indexes import DOCUMENTS, QUERIES, same


class Sorted:
    """Sorts all dot products."""

    approximate = False

    def __init__(self, matrix: NDArray[Any]) -> None:
        self._matrix = matrix

    def search(self, queries: NDArray[np.float32], k: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        scores = queries @ self._matrix.T
        rows = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        return np.take_along_axis(scores, rows, 1), rows


class NoState(TypedDict):
    pass


class SortedStorage(Storage):
    @classmethod
    def state_fields(cls, settings: BackendSettings) -> type:
        return NoState

    @classmethod
    def in_memory(cls, matrix: NDArray[Any], unit: bool, settings: BackendSettings, device: torch.device) -> Backend:
        return Sorted(matrix)

    def build(self) -> State:
        return {}

    def extend(self, start: int, state: State) -> State:
        return state

    def open(self, state: State, device: torch.device) -> Backend:
        return Sorted(self.matrix)


def test_a_new_back_end_is_two_classes_and_a_line(
    model: BiEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(BACKENDS, "sorted", f"{__name__}:SortedStorage")
    vectors, settings = Vectors.of(model, DOCUMENTS), BackendSettings("sorted")
    exact = DenseIndex(model, vectors).search(QUERIES, 7)
    same(DenseIndex.in_memory(model, vectors, settings).search(QUERIES, 7), exact)
    build_index(vectors, tmp_path / "index", settings)
    add_documents(tmp_path / "index", Vectors.of(model, {"new": "which number 1 words"}))
    delete_documents(tmp_path / "index", ["new"])
    same(open_index(tmp_path / "index", model).search(QUERIES, 7), exact)
    with pytest.raises(InputError, match="a coding does not go with sorted; use --index exact"):
        BackendSettings("sorted", coding="int8")
