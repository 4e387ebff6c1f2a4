"""FAISS indexes. The paper's is an HNSW graph over optimised product quantisation, 32 bytes for each vector.

FAISS always gets squared Euclidean distances, because some of its indexes (HNSW over PQ) silently ignore any other
metric. On vectors of one length they give the order of the dot product, and so they do on vectors of any length that
have one more coordinate, which makes them all equally long (Bachrach et al., RecSys 2014).
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np
import torch
from numpy.typing import NDArray

from remargin.errors import InputError
from remargin.files.shapes import FileName
from remargin.progress import track
from remargin.retrieval.base import Backend, State, Storage

if TYPE_CHECKING:
    from remargin.retrieval.settings import BackendSettings

log = logging.getLogger(__name__)

VECTORS_AT_ONCE = 65_536
WRITTEN_AT_ONCE = 1 << 20  # bytes
TRAINING_VECTORS = 262_144
SMALLER = "use a smaller index, such as --factory Flat or HNSW32"


def paper_factory(dimension: int, links: int = 32, code_bytes: int = 32) -> str:
    """The paper's index as a FAISS factory string.

    >>> paper_factory(768)
    'OPQ32_768,HNSW32_PQ32'
    """
    if dimension < code_bytes:
        do = f"use at most {dimension} bytes, or name an index with --factory"
        raise InputError(f"codes of {code_bytes} bytes for vectors of {dimension} numbers", do=do)
    return f"OPQ{code_bytes}_{dimension - dimension % code_bytes},HNSW{links}_PQ{code_bytes}"


class Faiss:
    """A FAISS index over vectors whose scores are computed again from the vectors themselves.

    Example:
        >>> vectors = np.eye(4, dtype="f4")
        >>> index = Faiss.build(vectors, "Flat", unit=True)
        >>> index.search(vectors[1:2], 2)[1][0, 0]
        np.int64(1)
    """

    approximate = True

    def __init__(self, index: Any, radius: float | None = None, parameters: str = "") -> None:
        self._index = index
        self.radius = radius
        if parameters:
            try:
                _faiss().ParameterSpace().set_index_parameters(index, parameters)
            except RuntimeError as error:
                problem = f"FAISS does not take {parameters!r} for this index ({_reason(error)})"
                raise InputError(problem, do="write it as nprobe=64") from None
        graph = _graph(index)
        self._ef_search = 0 if graph is None else int(graph.efSearch)

    @classmethod
    def build(
        cls, matrix: NDArray[Any], factory: str, unit: bool, ef_construction: int = 200, parameters: str = ""
    ) -> Faiss:
        """Train and fill the index that a factory string names, for vectors of unit length or of any."""
        faiss = _faiss()
        radius = None if unit else longest(matrix)
        try:
            index = faiss.index_factory(matrix.shape[1] + (not unit), factory, faiss.METRIC_L2)
        except RuntimeError as error:
            raise InputError(f"FAISS cannot make an index {factory!r} ({_reason(error)})", do="correct it") from None
        self = cls(index, radius, parameters)  # parameters that it does not take are an error before the work
        if (graph := _graph(self._index)) is not None:
            graph.efConstruction = ef_construction
        if not self._index.is_trained:
            rng = np.random.default_rng(0)
            chosen = np.sort(rng.permutation(len(matrix))[:TRAINING_VECTORS])
            try:
                with _training(self._index, len(chosen)):
                    for rows in track([chosen], f"training on {len(chosen):,} vectors", total=1):
                        self._index.train(self._lifted(matrix[rows].astype(np.float32)))
            except RuntimeError as error:
                problem = f"FAISS cannot train {factory!r} on {len(chosen):,} vectors ({_reason(error)})"
                raise InputError(problem, do=SMALLER) from None
        try:
            self.add(matrix, 0)
        except RuntimeError as error:
            raise InputError(f"FAISS cannot fill {factory!r} ({_reason(error)})", do="name another index") from None
        return self

    @classmethod
    def load(cls, path: Path, radius: float | None = None, parameters: str = "") -> Faiss:
        """An index that `save` wrote, with search parameters as FAISS writes them: nprobe=64."""
        try:
            return cls(_faiss().read_index(str(path)), radius, parameters)
        except RuntimeError as error:
            problem = f"FAISS cannot read it ({_reason(error)})"
            raise InputError(problem, file=path, do="build the index again") from None

    def save(self, path: Path) -> None:
        """Write a file that FAISS reads."""
        faiss, failed = _faiss(), []
        with open(path, "wb") as file:

            def write(content: bytes) -> None:
                try:
                    file.write(content)
                except OSError as error:
                    failed.append(error)  # FAISS would say no more than that it could not write
                    raise

            try:
                faiss.write_index(self._index, faiss.PyCallbackIOWriter(write, WRITTEN_AT_ONCE))
            except RuntimeError as error:
                raise failed[0] if failed else error from None

    def __len__(self) -> int:
        return int(self._index.ntotal)

    def add(self, matrix: NDArray[Any], start: int) -> None:
        """Add the rows of a matrix from `start` on."""
        total = -(-(len(matrix) - start) // VECTORS_AT_ONCE)
        for block in track(_blocks(matrix, start), "indexing", total=total):
            self._index.add(self._lifted(block))

    def search(self, queries: NDArray[np.float32], k: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Rows of the k nearest vectors of each query, and their distances, negative."""
        if (graph := _graph(self._index)) is not None:
            graph.efSearch = max(k, self._ef_search)
        if self.radius is not None:
            queries = np.pad(queries, ((0, 0), (0, 1)))
        distances, rows = self._index.search(np.ascontiguousarray(queries), k)
        return -distances, rows

    def _lifted(self, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        """The vectors with one more coordinate that makes them all equally long, unless they are so already."""
        if self.radius is None:
            return np.ascontiguousarray(vectors)
        rest = np.maximum(self.radius**2 - (vectors**2).sum(1, keepdims=True), 0)
        return np.hstack([vectors, np.sqrt(rest)])


class FaissState(TypedDict):
    """The file of a FAISS index, and the length of its longest vector if they are not of unit length."""

    file: FileName
    radius: float | None


class FaissStorage(Storage):
    """One file, as FAISS writes it. A change writes another."""

    package = "faiss"
    options = ("over_fetch", "factory", "links", "ef_construction", "code_bytes", "search_parameters")
    files = ("faiss.",)

    @classmethod
    def state_fields(cls, settings: BackendSettings) -> type:
        """The file, and the longest vector."""
        return FaissState

    @classmethod
    def in_memory(cls, matrix: NDArray[Any], unit: bool, settings: BackendSettings, device: torch.device) -> Faiss:
        """The index, trained and filled, on the CPU."""
        factory = settings.factory or paper_factory(matrix.shape[1], settings.links, settings.code_bytes)
        return Faiss.build(matrix, factory, unit, settings.ef_construction, settings.search_parameters)

    def build(self) -> State:
        """Train the index, fill it, and write it."""
        return self._save(self.in_memory(self.matrix, self.unit, self.settings, torch.device("cpu")))

    def extend(self, start: int, state: State) -> State:
        """Add vectors to the trained index; build it anew if one is longer than any before, which dot products need."""
        if state["radius"] is not None and longest(self.matrix, start) > state["radius"]:
            return self.build()
        index = Faiss.load(self.folder / state["file"], state["radius"])
        index.add(self.matrix, start)
        return self._save(index)

    def open(self, state: State, device: torch.device) -> Backend:
        """The index, on the CPU."""
        file = self.folder / state["file"]
        index = Faiss.load(file, state["radius"], self.settings.search_parameters)
        if len(index) != len(self.matrix):
            problem = f"{len(index):,} vectors, the header says {len(self.matrix):,}"
            raise InputError(problem, file=file, do="build the index again")
        return index

    def _save(self, index: Faiss) -> State:
        name = f"faiss.{len(index)}.bin"
        index.save(self.folder / name)
        return {"file": name, "radius": index.radius}


def longest(matrix: NDArray[Any], start: int = 0) -> float:
    """The largest length of a vector from row `start` on."""
    return max(float(np.linalg.norm(block, axis=1).max()) for block in _blocks(matrix, start))


def _blocks(matrix: NDArray[Any], start: int) -> Iterator[NDArray[np.float32]]:
    for place in range(start, len(matrix), VECTORS_AT_ONCE):
        yield matrix[place : place + VECTORS_AT_ONCE].astype(np.float32)


def _graph(index: Any) -> Any:
    """The HNSW graph in an index, if there is one."""
    inner = _faiss().downcast_index(index)
    if hasattr(inner, "index") and hasattr(inner, "chain"):  # behind a transformation
        inner = _faiss().downcast_index(inner.index)
    return getattr(inner, "hnsw", None)


@contextlib.contextmanager
def _training(index: Any, vectors: int) -> Iterator[None]:
    """Trains OPQ with fewer vectors and rounds than FAISS would: as good on 64,000 vectors, in a third of the time.

    Says once if there are few vectors to train with, which FAISS says hundreds of times.
    """
    faiss = _faiss()
    inner, chain = index, getattr(faiss.downcast_index(index), "chain", None)
    if chain is not None:
        inner = faiss.downcast_index(index).index
    inner = faiss.downcast_index(inner)
    quantiser = getattr(faiss.downcast_index(inner.storage) if hasattr(inner, "storage") else inner, "pq", None)
    places = range(0 if chain is None else chain.size())
    transforms = [faiss.downcast_VectorTransform(chain.at(i)) for i in places]  # type: ignore[union-attr]
    rotations = [transform for transform in transforms if isinstance(transform, faiss.OPQMatrix)]
    needed = max((rotation.d_in for rotation in rotations), default=0)
    if vectors < needed:  # FAISS would write beyond its memory
        raise InputError(f"{vectors:,} vectors are too few to train OPQ, which takes {needed:,}", do=SMALLER)
    if quantiser is not None:
        wanted = quantiser.cp.min_points_per_centroid * quantiser.ksub
        if vectors < wanted:
            log.warning("%d vectors are few to train this index with; at least %d would be better", vectors, wanted)
        quantiser.cp.min_points_per_centroid = 1
    own = [faiss.ProductQuantizer(rotation.d_out, rotation.M, 8) for rotation in rotations]
    for rotation, codes in zip(rotations, own, strict=True):
        codes.cp.min_points_per_centroid = 1
        rotation.max_train_points, rotation.niter, rotation.pq = 256 * 64, 25, codes
    try:
        yield
    finally:
        for rotation in rotations:
            rotation.pq = None  # it must not outlive our own


def _reason(error: Exception) -> str:
    """The last line of what FAISS says, without its own functions and file names.

    >>> _reason(RuntimeError("Error in void faiss::f(int) at /faiss/AutoTune.cpp:444: could not set foo"))
    'could not set foo'
    """
    return re.sub(r"^Error in .*? at \S+:\d+: ", "", str(error).strip().splitlines()[-1].strip())


def _faiss() -> Any:
    try:
        import faiss
    except ImportError:
        raise InputError("this index needs FAISS", do="pip install 'remargin[faiss]'") from None
    return faiss
