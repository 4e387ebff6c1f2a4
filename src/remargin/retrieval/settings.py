"""Which back end a dense index has, and its parameters."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import Annotated, Literal, get_args

from remargin.errors import InputError
from remargin.files.shapes import Check
from remargin.retrieval.base import BACKENDS, storage_class

Coding = Literal["int8", "binary"]


@dataclass(frozen=True)
class BackendSettings:
    """Which back end, and its parameters. The defaults of `faiss` are the paper's index: HNSW over 32-byte OPQ codes.

    Attributes:
        backend: a name of `BACKENDS`: "exact", "faiss" or "milvus".
        coding: for exact, quantisation of the vectors that are compared: scalar ("int8", a byte for each number) or
            binary ("binary", a bit for each number).
        over_fetch: how many times as many vectors as wanted an approximate search fetches, so that exact scores can
            choose among them; if not given, what results/indexes.md shows to be enough: 2 for int8, 8 for the others.
        factory: any FAISS index, as its factory writes it, instead of the paper's; or an index type of Milvus.
        links: HNSW neighbours per vector (M).
        ef_construction: HNSW candidates for these neighbours while the graph is built.
        code_bytes: bytes of the product-quantisation code of a vector.
        search_parameters: for FAISS, such as "nprobe=64".
        uri: for Milvus, the address of a server; without it, a file in the index folder.
    """

    backend: Annotated[str, Check("a back end", BACKENDS.__contains__)] = "exact"
    coding: Coding | None = None
    over_fetch: int | None = None
    factory: str | None = None
    links: int = 32
    ef_construction: int = 200
    code_bytes: int = 32
    search_parameters: str = ""
    uri: str | None = None

    def __post_init__(self) -> None:
        if self.backend not in BACKENDS:
            raise InputError(f"unknown index {self.backend!r}", do=f"use bm25, {', '.join(BACKENDS)}")
        if self.coding is not None and self.coding not in get_args(Coding):
            raise InputError(f"unknown coding {self.coding!r}", do=f"use {' or '.join(get_args(Coding))}")
        for name in ("coding", "factory"):
            if getattr(self, name) is not None and name not in storage_class(self.backend).options:
                takes_it = next(other for other in BACKENDS if name in storage_class(other).options)
                raise InputError(f"a {name} does not go with {self.backend}", do=f"use --index {takes_it}")
        for name in ("over_fetch", "links", "ef_construction", "code_bytes"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, not {getattr(self, name)}", do="choose a larger number")

    def check(self) -> None:
        """Complain about a package that is missing now, not after hours of encoding."""
        package = storage_class(self.backend).package
        if package is not None and importlib.util.find_spec(package) is None:
            raise InputError(f"index {self.backend} needs {package}", do=f"pip install 'remargin[{self.backend}]'")

    @property
    def fetch_factor(self) -> int:
        """How many vectors an approximate search fetches for each document that is wanted."""
        return self.over_fetch or (2 if self.coding == "int8" else 8)
