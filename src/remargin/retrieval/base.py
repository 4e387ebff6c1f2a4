"""What a back end, an index and a storage are, and which back ends there are. Read this first.

- A *back end* finds the nearest vectors: `Exact`, `Faiss`, `Milvus`.
- An *index* ranks documents for queries: by words (`BM25`), by a model's vectors and a back end (`DenseIndex`), or by
  both (`HybridIndex`).
- A *storage* keeps the files of a back end in an index folder, beside the vectors themselves (`IndexFolder`).

To add a back end, write one file with a class that searches and a `Storage`, and add a line to `BACKENDS`.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypedDict, cast

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import numpy as np
    import torch
    from numpy.typing import NDArray

    from remargin.evaluation.runs import Run
    from remargin.files.parts import Parts
    from remargin.retrieval.settings import BackendSettings

BACKENDS = {
    "exact": "remargin.retrieval.exact:ExactStorage",
    "faiss": "remargin.retrieval.faiss:FaissStorage",
    "milvus": "remargin.retrieval.milvus:MilvusStorage",
}
State = dict[str, Any]


class NoState(TypedDict):
    """The state of a search of the vectors themselves, which needs no other files."""


class Backend(Protocol):
    """Finds the vectors with the largest dot product."""

    @property
    def approximate(self) -> bool:
        """Whether scores are only approximate, so that more vectors than wanted must be fetched and scored again."""

    def search(self, queries: NDArray[np.float32], k: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Scores and rows of the k best vectors of each query, (n, k), best first; row -1 where the search found fewer.

        There are at least k vectors.
        """


class Index(Protocol):
    """Ranks its documents for queries."""

    @property
    def data(self) -> str:
        """The collection that the index was made of, as it was named then."""

    def __len__(self) -> int:
        """How many documents are in the index."""

    def search(self, queries: Mapping[str, str], k: int = 1000) -> Run:
        """The k best documents of each query."""

    def lacking(self, documents: Sequence[str]) -> int:
        """How many of these documents are not in the index."""


class Storage(ABC):
    """Keeps the files of a back end in an index folder.

    What later calls need, such as the names of files, `build` and `extend` return as a state, which the header keeps.

    Attributes:
        folder: the index folder.
        matrix: the vectors, float32 or float16, possibly a memory map.
        unit: whether all vectors are of unit length.
        package: what has to be installed for the back end, if anything; an extra of the back end's name installs it.
        options: the fields of `BackendSettings` that the back end reads.
        files: what the names of its files begin with. A file of that name that the state does not name is removed.
        parts: for a build that writes outside the folder: remembers what is done, so that it can be continued.
    """

    package: ClassVar[str | None] = None
    options: ClassVar[tuple[str, ...]] = ()
    files: ClassVar[tuple[str, ...]] = ()
    parts: Parts[Any] | None = None

    def __init__(self, folder: Path, matrix: NDArray[Any], unit: bool, settings: BackendSettings) -> None:
        self.folder = folder
        self.matrix = matrix
        self.unit = unit
        self.settings = settings

    @classmethod
    @abstractmethod
    def state_fields(cls, settings: BackendSettings) -> type:
        """A TypedDict with the fields of the state."""

    @classmethod
    @abstractmethod
    def in_memory(cls, matrix: NDArray[Any], unit: bool, settings: BackendSettings, device: torch.device) -> Backend:
        """The back end of vectors that are searched once, without a folder."""

    @abstractmethod
    def build(self) -> State:
        """Write the files."""

    @abstractmethod
    def extend(self, start: int, state: State) -> State:
        """Add the vectors from row `start` on. Files that the present state needs are not changed."""

    @abstractmethod
    def open(self, state: State, device: torch.device) -> Backend:
        """The back end, ready to search."""

    @classmethod
    def upload(cls, settings: BackendSettings) -> type | None:
        """What a part of `parts` holds, if a build writes outside the folder; most do not."""
        return None

    def discard(self, state: State) -> None:  # noqa: B027 (most have nothing there)
        """Remove what lies outside the folder."""


def storage_class(backend: str) -> type[Storage]:
    """The storage of a back end, whose module is imported here, at its first use.

    >>> storage_class("faiss").package
    'faiss'
    """
    module, _, name = BACKENDS[backend].partition(":")
    return cast(type[Storage], getattr(importlib.import_module(module), name))
