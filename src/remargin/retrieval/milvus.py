"""Milvus as a back end: a server by its address, or a file with milvus-lite."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import uuid
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from remargin.errors import InputError
from remargin.progress import track
from remargin.retrieval.base import Backend, State, Storage

if TYPE_CHECKING:
    import torch

    from remargin.retrieval.settings import BackendSettings

ROWS_AT_ONCE = 4096
QUERIES_AT_ONCE = 256
DEEPEST = 16_384  # Milvus returns no more hits for a query


class Milvus:
    """A Milvus collection with a row number and a vector in each entity; scores are computed again from the vectors."""

    approximate = True

    def __init__(self, uri: str, collection: str, temporary: str | None = None) -> None:
        """Load a collection; a temporary folder that it lies in goes with this object."""
        self._collection = collection
        with _told(uri):
            self._client = _connect(uri)
            weakref.finalize(self, _close, self._client, uri, temporary)
            self._client.load_collection(collection)

    @classmethod
    def build(cls, uri: str, collection: str, matrix: NDArray[Any], kind: str) -> None:
        """Make a collection, fill it, and then index it: Milvus wants it in this order."""
        with _connected(uri) as client:
            kinds = _pymilvus().DataType
            schema = client.create_schema(auto_id=False)
            schema.add_field("row", kinds.INT64, is_primary=True)
            schema.add_field("vector", kinds.FLOAT_VECTOR, dim=matrix.shape[1])
            client.create_collection(collection, schema=schema, consistency_level="Strong")
            try:
                _insert(client, collection, matrix, 0)
                parameters = client.prepare_index_params()
                parameters.add_index("vector", index_type=kind, metric_type="IP")
                client.create_index(collection, parameters)
            except BaseException:
                client.drop_collection(collection)
                raise

    @classmethod
    def extend(cls, uri: str, collection: str, matrix: NDArray[Any], start: int) -> None:
        """Insert the rows from `start` on. Those that an unfinished change left there are replaced."""
        with _connected(uri) as client:
            client.load_collection(collection)
            client.delete(collection, filter=f"row >= {start}")
            _insert(client, collection, matrix, start)

    @classmethod
    def drop(cls, uri: str, collection: str) -> None:
        """Delete a collection, if it is there."""
        with _connected(uri) as client:
            client.drop_collection(collection)

    def search(self, queries: NDArray[np.float32], k: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Scores and rows of the k nearest vectors of each query."""
        scores = np.full((len(queries), k), -np.inf, np.float32)
        rows = np.full((len(queries), k), -1, np.int64)
        for first in range(0, len(queries), QUERIES_AT_ONCE):
            block = list(queries[first : first + QUERIES_AT_ONCE])
            limit = min(k, DEEPEST)
            rankings = self._client.search(
                self._collection, data=block, limit=limit, anns_field="vector", output_fields=["row"]
            )
            for place, hits in enumerate(rankings, first):
                scores[place, : len(hits)] = [hit["distance"] for hit in hits]
                rows[place, : len(hits)] = [hit["row"] for hit in hits]
        return scores, rows


class MilvusState(TypedDict):
    """The name of a collection."""

    collection: str


class MilvusStorage(Storage):
    """A collection of its own, on a server or in a file of the folder."""

    package = "pymilvus"
    options = ("over_fetch", "factory", "uri")

    @classmethod
    def state_fields(cls, settings: BackendSettings) -> type:
        """The collection."""
        return MilvusState

    @classmethod
    def in_memory(cls, matrix: NDArray[Any], unit: bool, settings: BackendSettings, device: torch.device) -> Backend:
        """A collection in a temporary file, as milvus-lite has none in memory. A server is not asked."""
        folder = tempfile.mkdtemp()
        try:
            uri = f"{folder}/milvus.db"
            return Milvus(uri, _filled(uri, matrix, settings), temporary=folder)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise

    def build(self) -> State:
        """Make the collection and fill it."""
        return {"collection": _filled(self._uri, self.matrix, self.settings)}

    def extend(self, start: int, state: State) -> State:
        """Insert vectors."""
        Milvus.extend(self._uri, state["collection"], self.matrix, start)
        return state

    def discard(self, state: State) -> None:
        """Drop a server's collection."""
        if self.settings.uri is not None:
            Milvus.drop(self.settings.uri, state["collection"])

    def open(self, state: State, device: torch.device) -> Backend:
        """The collection, loaded."""
        return Milvus(self._uri, state["collection"])

    @property
    def _uri(self) -> str:
        return self.settings.uri or str(self.folder / "milvus.db")


def _filled(uri: str, matrix: NDArray[Any], settings: BackendSettings) -> str:
    """The name of a new collection with the vectors in it."""
    name = f"remargin_{uuid.uuid4().hex[:12]}"
    Milvus.build(uri, name, matrix, settings.factory or "AUTOINDEX")
    return name


def _insert(client: Any, collection: str, matrix: NDArray[Any], start: int) -> None:
    places = range(start, len(matrix), ROWS_AT_ONCE)
    for place in track(places, "indexing", total=len(places)):
        block = matrix[place : place + ROWS_AT_ONCE].astype(np.float32)
        client.insert(collection, [{"row": place + i, "vector": vector} for i, vector in enumerate(block)])
    client.flush(collection)


@contextlib.contextmanager
def _connected(uri: str) -> Iterator[Any]:
    with _told(uri):
        client = _connect(uri)
        try:
            yield client
        finally:
            _disconnect(client, uri)


def _close(client: Any, uri: str, temporary: str | None) -> None:
    _disconnect(client, uri)
    if temporary is not None:
        shutil.rmtree(temporary, ignore_errors=True)


def _disconnect(client: Any, uri: str) -> None:
    """Close the connection, and the file with it: milvus-lite would keep it locked until the process ends."""
    client.close()
    if "://" not in uri:
        from milvus_lite.server_manager import server_manager_instance

        server_manager_instance.release_server(uri)


def _connect(uri: str) -> Any:
    return _pymilvus().MilvusClient(uri)


def _pymilvus() -> Any:
    try:
        import pymilvus
    except ImportError:
        raise InputError("this index needs Milvus", do="pip install 'remargin[milvus]'") from None
    return pymilvus


@contextlib.contextmanager
def _told(uri: str) -> Iterator[None]:
    """Turn any error of Milvus into an InputError of one line."""
    failure = _pymilvus().MilvusException
    try:
        yield
    except failure as error:
        reason = error.message.strip().splitlines()[0] if error.message.strip() else type(error).__name__
        raise InputError(f"Milvus at {uri}: {reason}", do="check the address and the index type") from None
