"""The back ends of a dense index on disk: how each is built, extended by new vectors, and opened."""

from __future__ import annotations

import importlib.util
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, TypedDict, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from remargin.errors import InputError
from remargin.files.arrays import append_array, map_array
from remargin.files.shapes import FileName
from remargin.retrieval.codes import Coder, Coding
from remargin.retrieval.dense import Backend
from remargin.retrieval.exact import Exact
from remargin.retrieval.faiss import Faiss, longest, paper_factory

BackendName = Literal["exact", "faiss", "milvus"]
State = dict[str, Any]
VECTORS_AT_ONCE = 65_536


@dataclass(frozen=True)
class BackendSettings:
    """Which back end, and its parameters. Those of `faiss` are the paper's index: HNSW over 32-byte OPQ.

    Attributes:
        backend: "exact", "faiss" or "milvus".
        coding: for exact, compare codes of one byte ("int8") or bit ("binary") for each number instead of vectors.
        over_fetch: how many times as many vectors as wanted an approximate search fetches, so that exact scores can
            choose among them; if not given, what results/indexes.md shows to be enough: 2 for int8, 8 for the others.
        factory: any FAISS index, as its factory writes it, instead of the paper's; or an index type of Milvus.
        links: how many neighbours each vector has in the HNSW graph.
        ef_construction: how many candidates for these neighbours are looked at when the graph is built.
        code_bytes: how many bytes product quantisation makes of a vector.
        search_parameters: for FAISS, such as "nprobe=64".
        uri: for milvus, a server; without it, a file in the index folder.
    """

    backend: BackendName = "exact"
    coding: Coding | None = None
    over_fetch: int | None = None
    factory: str | None = None
    links: int = 32
    ef_construction: int = 200
    code_bytes: int = 32
    search_parameters: str = ""
    uri: str | None = None

    def __post_init__(self) -> None:
        if self.backend not in get_args(BackendName):
            raise InputError(f"unknown index {self.backend!r}", do=f"use bm25, {', '.join(get_args(BackendName))}")
        if self.coding is not None and self.coding not in get_args(Coding):
            raise InputError(f"unknown coding {self.coding!r}", do=f"use {' or '.join(get_args(Coding))}")
        if self.coding is not None and self.backend != "exact":
            raise InputError(f"a coding does not go with {self.backend}", do="use --index exact")
        if self.factory is not None and self.backend == "exact":
            raise InputError("a factory does not go with exact", do="use --index faiss")
        for name in ("over_fetch", "links", "ef_construction", "code_bytes"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, not {getattr(self, name)}", do="choose a larger number")

    def check(self) -> None:
        """Complain about a package that is missing now, not after hours of encoding."""
        package = {"faiss": "faiss", "milvus": "pymilvus"}.get(self.backend)
        if package is not None and importlib.util.find_spec(package) is None:
            raise InputError(f"index {self.backend} needs {package}", do=f"pip install 'remargin[{self.backend}]'")

    @property
    def candidates(self) -> int:
        """How many vectors to fetch for each document that is wanted."""
        return self.over_fetch or (2 if self.coding == "int8" else 8)


class NoState(TypedDict):
    """The state of a back end without files of its own."""


class CodesState(TypedDict):
    """Files of codes, and of the numbers that decode them."""

    codes: FileName
    coder: FileName


class FaissState(TypedDict):
    """The file of a FAISS index, and the length of its longest vector if they are not of unit length."""

    file: FileName
    radius: float | None


class MilvusState(TypedDict):
    """The name of a collection."""

    collection: str


class Storage:
    """Keeps the files of a back end in an index folder. This one has none: exact search needs only the vectors.

    `matrix` has the vectors; `unit` says whether they are of unit length. What must be remembered for later calls, such
    as the names of files, `build` and `extend` return as a state, and the header of the index keeps it; `STATE` has the
    fields of that state.
    """

    STATE: ClassVar[type] = NoState

    def __init__(self, folder: Path, matrix: NDArray[Any], unit: bool, settings: BackendSettings) -> None:
        self.folder = folder
        self.matrix = matrix
        self.unit = unit
        self.settings = settings

    def build(self) -> State:
        """Write the files."""
        return {}

    def extend(self, start: int, state: State) -> State:
        """Add the vectors from row `start` on. Files that the present state needs are not changed."""
        return state

    def discard(self, state: State) -> None:
        """Remove what lies outside the folder."""

    def open(self, state: State, device: torch.device) -> Backend:
        """The back end, ready to search."""
        return Exact(self.matrix, device)


class CodesStorage(Storage):
    """Codes of the vectors, and the numbers that decode them. Both are made again if a new vector is out of range."""

    STATE = CodesState

    def build(self) -> State:
        """Fit the codes to the vectors, and write them."""
        assert self.settings.coding is not None
        coder = Coder.fit(self.matrix, self.settings.coding)
        state = {"codes": f"codes.{len(self.matrix)}.bin", "coder": f"coder.{len(self.matrix)}.bin"}
        append_array(self.folder / state["coder"], 0, np.stack([coder.offset, coder.scale]))
        self._append(coder, 0, state)
        return state

    def extend(self, start: int, state: State) -> State:
        """Append codes."""
        coder = self._coder(state)
        if not all(coder.covers(self.matrix[place : place + VECTORS_AT_ONCE]) for place in self._places(start)):
            return self.build()
        self._append(coder, start, state)
        return state

    def open(self, state: State, device: torch.device) -> Backend:
        """An exact search of the codes."""
        coder = self._coder(state)
        dtype = np.int8 if coder.coding == "int8" else np.uint8
        shape = (len(self.matrix), coder.width())
        return Exact(map_array(self.folder / state["codes"], dtype, shape, at_least=True), device, coder)

    def _append(self, coder: Coder, start: int, state: State) -> None:
        for place in self._places(start):
            codes = coder.encode(self.matrix[place : place + VECTORS_AT_ONCE])
            append_array(self.folder / state["codes"], place * coder.width(), codes)

    def _places(self, start: int) -> range:
        return range(start, len(self.matrix), VECTORS_AT_ONCE)

    def _coder(self, state: State) -> Coder:
        assert self.settings.coding is not None
        numbers = map_array(self.folder / state["coder"], np.float32, (2, self.matrix.shape[1]))
        return Coder(self.settings.coding, *numbers)


class FaissStorage(Storage):
    """One file, as FAISS writes it. A change writes another."""

    STATE = FaissState

    def build(self) -> State:
        """Train the index and fill it."""
        given = self.settings
        factory = given.factory or paper_factory(self.matrix.shape[1], given.links, given.code_bytes)
        return self._save(Faiss.build(self.matrix, factory, self.unit, given.ef_construction, given.search_parameters))

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


class MilvusStorage(Storage):
    """A collection of its own, on a server or in a file of the folder."""

    STATE = MilvusState

    def build(self) -> State:
        """Make the collection and fill it."""
        from remargin.retrieval.milvus import Milvus

        name = f"remargin_{uuid.uuid4().hex[:12]}"
        Milvus.build(self._uri, name, self.matrix, self.settings.factory or "AUTOINDEX")
        return {"collection": name}

    def extend(self, start: int, state: State) -> State:
        """Insert vectors."""
        from remargin.retrieval.milvus import Milvus

        Milvus.extend(self._uri, state["collection"], self.matrix, start)
        return state

    def discard(self, state: State) -> None:
        """Drop a server's collection."""
        from remargin.retrieval.milvus import Milvus

        if self.settings.uri is not None:
            Milvus.drop(self.settings.uri, state["collection"])

    def open(self, state: State, device: torch.device) -> Backend:
        """The collection, loaded."""
        from remargin.retrieval.milvus import Milvus

        return Milvus(self._uri, state["collection"])

    @property
    def _uri(self) -> str:
        return self.settings.uri or str(self.folder / "milvus.db")


def storage(folder: Path, matrix: NDArray[Any], unit: bool, settings: BackendSettings) -> Storage:
    """The storage of the back end that the settings name."""
    return storage_kind(settings)(folder, matrix, unit, settings)


def storage_kind(settings: BackendSettings) -> type[Storage]:
    """The class of that storage."""
    kinds: dict[str, type[Storage]] = {
        "exact": Storage if settings.coding is None else CodesStorage,
        "faiss": FaissStorage,
        "milvus": MilvusStorage,
    }
    return kinds[settings.backend]
