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
from remargin.files.parts import Parts
from remargin.files.shapes import Size
from remargin.progress import track
from remargin.retrieval.base import Backend, State, Storage

if TYPE_CHECKING:
    import torch

    from remargin.retrieval.settings import BackendSettings

ROWS_AT_ONCE = 4096  # and no more than these bytes: a server refuses larger messages
BYTES_AT_ONCE = 1 << 24
ROWS_PER_PART = 1 << 16  # of an upload, which is not repeated once it is done
QUERIES_AT_ONCE = 256
DEEPEST = 16_384  # Milvus returns no more hits for a query


class Milvus:
    """A Milvus collection with a row number and a vector in each entity; scores are computed again from the vectors.

    Args:
        uri: of the server, or a file.
        collection: its name.
        rows: how many count: those that an update inserts meanwhile are not searched.
        temporary: a folder that the file lies in, which goes with this object.
    """

    approximate = True

    def __init__(self, uri: str, collection: str, rows: int, temporary: str | None = None) -> None:
        self._collection, self._rows = collection, rows
        with _told(uri):
            self._client = _connect(uri)
            weakref.finalize(self, _close, self._client, uri, temporary)
            self._client.load_collection(collection)

    @classmethod
    def build(cls, uri: str, matrix: NDArray[Any], kind: str, parts: Parts[UploadedPart] | None = None) -> str:
        """Make a collection, fill it, and then index it: Milvus wants it in this order. Returns its name.

        Args:
            uri: of the server, or a file.
            matrix: the vectors.
            kind: the index type.
            parts: where an upload is remembered: one that was interrupted is continued, and not dropped.
        """
        with _connected(uri) as client:
            name, place = _continued(client, parts)
            try:
                if not place:
                    _create(client, name, matrix.shape[1])
                for start in track(range(place, len(matrix), ROWS_PER_PART), "uploading vectors"):
                    end = min(start + ROWS_PER_PART, len(matrix))
                    _upsert(client, name, matrix[start:end], start)
                    if parts is not None:
                        parts.write(start // ROWS_PER_PART, {"collection": name, "end": end})
            except BaseException:
                if parts is None:
                    client.drop_collection(name)
                raise
            try:
                parameters = client.prepare_index_params()
                parameters.add_index("vector", index_type=kind, metric_type="IP")
                client.create_index(name, parameters)
                _verify(client, name, len(matrix), uri)
            except BaseException:
                client.drop_collection(name)  # so that the next upload does not continue with it
                raise
        return name

    @classmethod
    def extend(cls, uri: str, collection: str, matrix: NDArray[Any], start: int) -> None:
        """Insert the rows from `start` on. Those that an unfinished change left there are replaced."""
        with _connected(uri) as client:
            client.load_collection(collection)
            client.delete(collection, filter=f"row >= {start}")
            _upsert(client, collection, matrix[start:], start)
            _verify(client, collection, len(matrix), uri)

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
                self._collection,
                data=block,
                limit=limit,
                anns_field="vector",
                output_fields=["row"],
                filter=f"row < {self._rows}",
            )
            for place, hits in enumerate(rankings, first):
                scores[place, : len(hits)] = [hit["distance"] for hit in hits]
                rows[place, : len(hits)] = [hit["row"] for hit in hits]
        return scores, rows


class MilvusState(TypedDict):
    """The name of a collection."""

    collection: str


class UploadedPart(TypedDict):
    """The collection that rows were uploaded to, and where they end."""

    collection: str
    end: Size


class MilvusStorage(Storage):
    """A collection of its own, on a server or in a file of the folder."""

    package = "pymilvus"
    options = ("over_fetch", "factory", "uri")

    @classmethod
    def state_fields(cls, settings: BackendSettings) -> type:
        """The collection."""
        return MilvusState

    @classmethod
    def upload(cls, settings: BackendSettings) -> type | None:
        """To a server, rows are uploaded."""
        return None if settings.uri is None else UploadedPart

    @classmethod
    def in_memory(cls, matrix: NDArray[Any], unit: bool, settings: BackendSettings, device: torch.device) -> Backend:
        """A collection in a temporary file, as milvus-lite has none in memory. A server is not asked."""
        folder = tempfile.mkdtemp()
        try:
            uri = f"{folder}/milvus.db"
            return Milvus(uri, Milvus.build(uri, matrix, _kind(settings)), len(matrix), temporary=folder)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise

    def build(self) -> State:
        """Make the collection and fill it, or continue to fill it."""
        return {"collection": Milvus.build(self._uri, self.matrix, _kind(self.settings), self.parts)}

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
        return Milvus(self._uri, state["collection"], len(self.matrix))

    @property
    def _uri(self) -> str:
        return self.settings.uri or str(self.folder / "milvus.db")


def _kind(settings: BackendSettings) -> str:
    return settings.factory or "AUTOINDEX"


def _continued(client: Any, parts: Parts[UploadedPart] | None) -> tuple[str, int]:
    """The collection that an interrupted upload was filling, and the rows that it has; else a new name and none."""
    end, name = 0, None
    while parts is not None and (part := parts.find(end // ROWS_PER_PART)) is not None:
        if name not in (None, part["collection"]) or part["end"] <= end:
            break  # of an upload before that one
        end, name = part["end"], part["collection"]
        if end % ROWS_PER_PART:
            break
    if name is not None and client.has_collection(name):
        return name, end
    return f"remargin_{uuid.uuid4().hex[:12]}", 0


def _create(client: Any, name: str, dimension: int) -> None:
    kinds = _pymilvus().DataType
    schema = client.create_schema(auto_id=False)
    schema.add_field("row", kinds.INT64, is_primary=True)
    schema.add_field("vector", kinds.FLOAT_VECTOR, dim=dimension)
    client.create_collection(name, schema=schema, consistency_level="Strong")


def _upsert(client: Any, collection: str, matrix: NDArray[Any], start: int) -> None:
    """Insert vectors, the first of them as row `start`, or replace those that are there."""
    at_once = max(1, min(ROWS_AT_ONCE, BYTES_AT_ONCE // (4 * matrix.shape[1])))
    for place in range(0, len(matrix), at_once):
        block = matrix[place : place + at_once].astype(np.float32)
        client.upsert(collection, [{"row": start + place + i, "vector": vector} for i, vector in enumerate(block)])
    client.flush(collection)


def _verify(client: Any, collection: str, rows: int, uri: str) -> None:
    """See that a collection has each row once."""
    client.load_collection(collection)
    (found,) = client.query(collection, filter="", output_fields=["count(*)"], consistency_level="Strong")
    if found["count(*)"] != rows:
        problem = f"Milvus at {uri}: collection {collection} has {found['count(*)']:,} vectors of {rows:,}"
        raise InputError(problem, do="do the same again; if the server loses vectors, see its logs")


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
