"""Indexes on disk: built from vectors, opened with the model that made them, changed without being built anew.

A folder holds the vectors (appended to, never rewritten), the ids, which documents were deleted, and the files of the
back end. Its header says which of these count, and what is in them. A change writes its files first and then the
header, at once: whoever opens the folder meanwhile, or after a crash, finds it as it was before or as it is after.
"""

from __future__ import annotations

import contextlib
import glob
import itertools
import logging
import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from remargin.data.ids import Ids, IdsSize, IdWriter
from remargin.data.source import Text
from remargin.data.tables import Rejects, batches
from remargin.errors import InputError
from remargin.files.arrays import append_array, map_array
from remargin.files.atomic import flush_to_disk, locked, naming, new_folder, refuse_existing, remove_folder, remove_left
from remargin.files.checksums import Sums
from remargin.files.headers import read_header, require_shape, write_header
from remargin.files.shapes import BlockSums, Count, FieldsOf, FileName
from remargin.model.encoder import BiEncoder
from remargin.progress import track
from remargin.retrieval import bm25
from remargin.retrieval.backends import VECTORS_AT_ONCE, BackendSettings, Storage, storage, storage_kind
from remargin.retrieval.dense import DenseIndex
from remargin.retrieval.vectors import Made, Precision, Vectors, encode, encode_collection, text_hash

log = logging.getLogger(__name__)
HEADER = "remargin_index.json"
FORMAT = "remargin-index-2"
REMEDY = "name a folder that `remargin index` wrote"
GROWING = ("vectors.bin", "owners.bin", "hashes.bin")
VERSIONED = ("ids.", "deleted.", "faiss.", "codes.", "coder.")
ATTEMPTS = 10  # to open an index that is being changed


@dataclass(frozen=True)
class Built:
    """An index that was built.

    Attributes:
        documents: how many are in it.
        rows: how many vectors they have: one each, or one for each passage.
        truncated: how many texts were longer than the model reads, and were cut before they were encoded.
        made: what made the vectors.
        seconds: how long building took, without encoding.
        vector_bytes: the size of the vectors on disk.
        other_bytes: the size of everything else in the folder.
    """

    documents: int
    rows: int
    truncated: int
    made: Made
    seconds: float
    vector_bytes: int
    other_bytes: int


def build_index(
    vectors: Vectors, out: str | Path, settings: BackendSettings | None = None, overwrite: bool = False
) -> Built:
    """Write an index of vectors to a folder.

    Args:
        vectors: what `encode` wrote; they are copied, so that the index can grow on its own.
        out: the folder.
        settings: the back end; exact search if not given.
        overwrite: replace `out` if it is there.

    Example:
        >>> import tempfile
        >>> model = BiEncoder.from_pretrained(model_folder)
        >>> folder = Path(tempfile.mkdtemp()) / "index"
        >>> build_index(Vectors.of(model, {"d1": "one text", "d2": "another"}), folder).documents
        2
        >>> delete_documents(folder, ["d1"])
        >>> list(open_index(folder, model).search({"q": "one text"}).rankings["q"])
        ['d2']
    """
    started = time.perf_counter()
    remove_left(Path(out).absolute().parent, f"{Path(out).name}.vectors")  # of one that was stopped at its very end
    replaced: tuple[Storage, dict[str, Any]] | None = None
    if overwrite and (Path(out) / HEADER).exists():
        with contextlib.suppress(InputError):  # one that is damaged is replaced as well
            before = _Folder.read(Path(out))
            replaced = before.storage(), before.state
    with new_folder(out, overwrite, HEADER) as folder:
        if not len(vectors.ids):
            raise InputError("there are no documents to index", do="encode some first")
        if vectors.made.kind != "documents":
            raise InputError(f"vectors of {vectors.made.kind}, not of documents", do="encode the documents")
        index = _Folder.empty(folder, vectors.made, settings or BackendSettings())
        index.append(vectors)
        index.commit()
    if replaced is not None:
        storage_before, state = replaced
        storage_before.discard(state)
    seconds = time.perf_counter() - started
    sizes = {path.relative_to(out): path.stat().st_size for path in Path(out).rglob("*") if path.is_file()}
    vector_bytes = sizes.pop(Path("vectors.bin"))
    return Built(
        documents=len(vectors.ids),
        rows=len(vectors.matrix),
        truncated=vectors.truncated,
        made=vectors.made,
        seconds=seconds,
        vector_bytes=vector_bytes,
        other_bytes=sum(sizes.values()),
    )


def index_collection(
    model: BiEncoder,
    data: str | Path,
    out: str | Path,
    settings: BackendSettings | None = None,
    precision: Precision = "float32",
    chunk: int | None = None,
    overlap: int | None = None,
    rejects: Rejects | None = None,
    overwrite: bool = False,
) -> Built:
    """Encode a collection's documents and write an index of them to a folder.

    The vectors are in a folder beside `out` until the index has its own copy. If it cannot be built, they stay there,
    and a warning says where: `build_index` takes them, so that nothing has to be encoded again.

    Args:
        model: the encoder.
        data: the collection, as `Collection.load` takes it. Its texts are never in memory all at once.
        out: the folder.
        settings: the back end; exact search if not given.
        precision: of the vectors; this and the next two as in `encode_collection`.
        chunk: cut documents into passages of this many tokens. A document scores as its best passage.
        overlap: how many tokens neighbouring passages share.
        rejects: where bad input goes; without it, bad input is an error.
        overwrite: replace `out` if it is there.

    Raises:
        InputError: for bad input, and if the folder for the vectors is there already.

    Example:
        >>> import tempfile
        >>> model, folder = BiEncoder.from_pretrained(model_folder), Path(tempfile.mkdtemp()) / "index"
        >>> built = index_collection(model, "docstrings:json", folder)
        >>> len(open_index(folder, model).search({"q": "parse a text"}, k=3).rankings["q"])
        3
    """
    (settings or BackendSettings()).check()
    out = Path(out)
    refuse_existing(out, overwrite, HEADER)
    folder = out.absolute().with_name(f"{out.name}.vectors")
    if folder.exists():
        do = f"give --vectors {folder} to go on with them, or remove them"
        raise InputError("is there already, perhaps from a build that was stopped", file=folder, do=do)
    vectors = encode_collection(model, data, folder, precision=precision, chunk=chunk, overlap=overlap, rejects=rejects)
    try:
        built = build_index(vectors, out, settings, overwrite)
    except InputError as error:
        do = "; ".join([*([error.do] if error.do else []), f"the vectors stay: give --vectors {folder}"])
        raise InputError(error.problem, file=error.file, id=error.id, do=do) from None
    except OSError as error:
        do = f"the vectors stay: to go on with them, give --vectors {folder}"
        raise InputError(error.strerror or str(error), file=error.filename or out, do=do) from error
    except BaseException:
        log.warning("the vectors are in %s: to go on with them, give --vectors", folder)
        raise
    remove_folder(folder)
    return built


def open_index(folder: str | Path, model: BiEncoder | None = None) -> DenseIndex:
    """Open an index for searching; without a model, with the one whose name the index keeps.

    Raises:
        InputError: if the folder is no index, or another model made it.
    """
    folder = Path(folder)
    for attempt in itertools.count(1):
        version = _version(folder)
        try:
            index = _Folder.read(folder)
            index.verify()
            model = model or _load_model(index.made)
            backend = index.storage().open(index.state, model.device)
            return DenseIndex(model, index.vectors(), backend, index.settings.candidates, index.deleted)
        except InputError as error:
            if _version(folder) != version and attempt < ATTEMPTS:
                continue  # changed by another process meanwhile: the files that we looked for are gone
            if error.file is not None:
                raise
            raise InputError(error.problem, file=folder, do=error.do) from None
    raise AssertionError  # never: the last attempt returns or raises


def _version(folder: Path) -> int | None:
    try:
        return read_header(folder / HEADER, IndexHeader, FORMAT, REMEDY)["version"]
    except InputError:
        return None


@dataclass
class Changes:
    """What an update did to an index."""

    added: int = 0
    replaced: int = 0
    deleted: int = 0


def add_documents(folder: str | Path, vectors: Vectors, replacing: bool = False) -> Changes:
    """Add documents to an index, made by the same model with the same settings.

    Raises:
        InputError: for vectors of another model or other settings, and, unless `replacing`, for a document that is
            already there.
    """
    with _changing(Path(folder)) as index:
        index.require(vectors.made)
        if not len(vectors.ids):
            return Changes()
        before = np.concatenate([index.rows_of(batch) for batch in batches(vectors.ids)])
        if not replacing and (before >= 0).any():
            known = vectors.ids[int((before >= 0).argmax())]
            do = "delete it first, or ask to replace it (--replace)"
            raise InputError("document is in the index already", file=folder, id=known, do=do)
        index.delete(before[before >= 0])
        index.append(vectors)
    replaced = int((before >= 0).sum())
    return Changes(len(before) - replaced, replaced, 0)


def delete_documents(folder: str | Path, ids: Sequence[str]) -> None:
    """Delete documents from an index. All of them must be in it, or nothing is deleted."""
    if isinstance(ids, str):
        raise TypeError("pass a list of ids, not one string")
    with _changing(Path(folder)) as index:
        rows = index.rows_of(ids)
        if (rows < 0).any():
            unknown = ids[int((rows < 0).argmax())]
            raise InputError("document is not in the index", file=folder, id=unknown, do="leave it out")
        index.delete(rows)


def synchronise(
    folder: str | Path, texts: Iterable[Text], model: BiEncoder | None = None, keep_others: bool = False
) -> Changes:
    """Make an index hold these documents: encode the new and the changed, delete those that are gone.

    Args:
        folder: the index.
        texts: all documents that the index should have, each with its own id. No documents at all is an error.
        model: the one that made the index; if not given, it is loaded by the name that the index keeps.
        keep_others: do not delete what is not among the texts.
    """
    folder = Path(folder).absolute()
    with _changing(folder) as index:
        model = model or _load_model(index.made)
        # As when the index was made, whatever this model's own lengths and prefixes are now.
        made = replace(index.made, model_fingerprint=model.fingerprint(), dimension=model.dimension)
        index.require(made)
        hashes, present = index.hashes, np.zeros(len(index.deleted), bool)
        changed: list[Text] = []
        count = replaced = 0
        for block in batches(track(texts, "comparing")):
            count += len(block)
            for text, row in zip(block, index.rows_of([text.id for text in block]).tolist(), strict=True):
                if row >= 0 and hashes[row] == text_hash(text):
                    present[row] = True
                else:
                    replaced += row >= 0
                    changed.append(text)
        if not count:
            raise InputError("there are no documents to follow", do="delete the index instead, if that is meant")
        outdated = index.rows_of([text.id for text in changed])
        present[outdated[outdated >= 0]] = True
        if not keep_others and not present.any() and not index.deleted.all():
            do = "name the collection that it was made of, or keep what it has (--keep-others)"
            raise InputError("has none of these documents, so all of its own would be deleted", file=folder, do=do)
        gone = np.empty(0, np.int64) if keep_others else np.flatnonzero(~present & ~index.deleted)
        index.delete(np.concatenate([outdated[outdated >= 0], gone]))
        place = folder.parent / f".{folder.name}.new"
        shutil.rmtree(place, ignore_errors=True)  # of an update that was stopped
        if changed:
            index.append(encode(model, changed, place, made))
            remove_folder(place)
        remove_left(place.parent, place.name)
        for unfinished in place.parent.glob(f".{glob.escape(place.name)}.*"):
            shutil.rmtree(unfinished, ignore_errors=True)
    return Changes(len(changed) - replaced, replaced, len(gone))


@contextlib.contextmanager
def _changing(folder: Path) -> Iterator[_Folder]:
    """The index, to be changed by one process at a time; the change counts once the block has ended well."""
    _existing(folder)
    with locked(folder), naming(folder):
        index = _existing(folder)
        index.verify()
        remove_left(folder)
        index.remove_unneeded()
        yield index
        if index.changed:
            index.commit()


def _existing(folder: Path) -> _Folder:
    if not folder.is_dir():
        raise InputError("no such folder", file=folder, do=REMEDY)
    if (folder / bm25.HEADER).is_file():
        raise InputError("a BM25 index cannot be changed", file=folder, do=bm25.REMEDY)
    return _Folder.read(folder)


def _load_model(made: Made) -> BiEncoder:
    try:
        return BiEncoder.from_pretrained(made.model)
    except InputError as error:
        do = "say where it is now (--model)"
        raise InputError(f"the index was made by model {made.model!r}, which is gone ({error})", do=do) from None


class IndexHeader(TypedDict):
    """What is in an index folder, and the checksums of the files that count."""

    format: str
    version: Count
    made: Annotated[dict[str, Any], FieldsOf(Made)]
    rows: Count
    settings: Annotated[dict[str, Any], FieldsOf(BackendSettings)]
    state: dict[str, Any]
    documents: Count
    ids_folder: FileName
    ids_size: IdsSize
    sums: BlockSums


@dataclass
class _Folder:
    """An index folder with the content of its header; after a change, that of the header to be written.

    vectors.bin, owners.bin and hashes.bin only grow, so an older header still describes their beginning. Ids and the
    marks of deleted documents are written anew under a new name, and so are files of the back end that change.
    """

    folder: Path
    made: Made
    settings: BackendSettings
    rows: int
    ids_folder: str
    ids_size: IdsSize
    deleted: NDArray[np.bool_]
    state: dict[str, Any]
    version: int
    sums: dict[str, Sums]
    changed: bool = False
    grown: bool = False

    @classmethod
    def empty(cls, folder: Path, made: Made, settings: BackendSettings) -> _Folder:
        (folder / "ids.0").mkdir()
        size = IdWriter(folder / "ids.0").close()
        return cls(folder, made, settings, 0, "ids.0", size, np.zeros(0, bool), {}, 0, {})

    @classmethod
    def read(cls, folder: Path) -> _Folder:
        header = read_header(folder / HEADER, IndexHeader, FORMAT, REMEDY)
        settings = BackendSettings(**header["settings"])
        require_shape(header["state"], storage_kind(settings).STATE, FORMAT, folder / HEADER, REMEDY)
        return cls(
            folder,
            Made(**header["made"]),
            settings,
            header["rows"],
            header["ids_folder"],
            header["ids_size"],
            map_array(folder / f"deleted.{header['version']}.bin", np.bool_, (header["ids_size"]["count"],)).copy(),
            header["state"],
            header["version"],
            {name: Sums(*sums) for name, sums in header["sums"].items()},
        )

    def verify(self) -> None:
        """Check that every file is as it was written: one wrong bit can make a vector the nearest of all."""
        for name, sums in self.sums.items():
            sums.verify(self.folder / name, "make the index again")

    @cached_property
    def ids(self) -> Ids:
        return Ids(self.folder / self.ids_folder, **self.ids_size)

    @property
    def hashes(self) -> NDArray[np.uint64]:
        return map_array(self.folder / "hashes.bin", np.uint64, (len(self.deleted),), at_least=True)

    def vectors(self) -> Vectors:
        shape = (self.rows, self.made.dimension)
        matrix = map_array(self.folder / "vectors.bin", self.made.precision, shape, at_least=True)
        owners = None
        if self.made.chunk is not None:
            owners = map_array(self.folder / "owners.bin", np.uint32, (self.rows,), at_least=True)
        return Vectors(self.made, matrix, self.ids, self.hashes, owners)

    def storage(self) -> Storage:
        return storage(self.folder, self.vectors().matrix, self.made.similarity == "cosine", self.settings)

    def rows_of(self, ids: Sequence[str]) -> NDArray[np.int64]:
        """The row of each document, -1 if it is not there or was deleted."""
        rows = self.ids.rows(ids)
        rows[rows >= 0] = np.where(self.deleted[rows[rows >= 0]], -1, rows[rows >= 0])
        return rows

    def require(self, made: Made) -> None:
        """Refuse vectors that do not go with those of the index."""
        for name, ours in asdict(self.made).items():
            theirs = getattr(made, name)
            if name not in ("data", "model") and theirs != ours:
                what = "another model" if name == "model_fingerprint" else f"{name} {theirs!r}, not {ours!r}"
                do = "encode the documents as those of the index"
                raise InputError(f"the new vectors were made with {what}", file=self.folder, do=do)

    def delete(self, rows: NDArray[np.int64]) -> None:
        """Mark documents as deleted."""
        self.deleted[rows] = True
        self.changed |= len(rows) > 0

    def append(self, vectors: Vectors) -> None:
        """Take in more vectors and their ids."""
        self.changed = self.grown = True
        first_row, first_text = self.rows, len(self.deleted)
        for place in range(0, len(vectors.matrix), VECTORS_AT_ONCE):
            block = vectors.matrix[place : place + VECTORS_AT_ONCE]
            append_array(self.folder / "vectors.bin", (first_row + place) * block.itemsize * block.shape[1], block)
        append_array(self.folder / "hashes.bin", first_text * vectors.hashes.itemsize, vectors.hashes)
        if vectors.owners is not None:
            append_array(self.folder / "owners.bin", first_row * 4, vectors.owners + np.uint32(first_text))
        name = f"ids.{self.version + 1}"
        shutil.rmtree(self.folder / name, ignore_errors=True)  # of a change that did not come to its end
        (self.folder / name).mkdir()
        writer = IdWriter(self.folder / name, self.ids)
        for batch in batches(vectors.ids):
            writer.add(batch)
        self.ids_folder, self.ids_size = name, writer.close()
        del self.ids  # it is read again
        self.deleted = np.concatenate([self.deleted, np.zeros(len(vectors.ids), bool)])
        self.rows += len(vectors.matrix)
        self.state = self.storage().extend(first_row, self.state) if first_row else self.storage().build()

    def commit(self) -> None:
        """Make the change count, and remove what it replaced."""
        self.version += 1
        append_array(self.folder / f"deleted.{self.version}.bin", 0, self.deleted)
        flush_to_disk(*self.folder.rglob("*"))
        header = {"format": FORMAT, "version": self.version, "made": asdict(self.made), "rows": self.rows}
        header |= {"settings": asdict(self.settings), "state": self.state, "documents": int((~self.deleted).sum())}
        header |= {"ids_folder": self.ids_folder, "ids_size": self.ids_size, "sums": self._sums(self._needed())}
        write_header(self.folder / HEADER, header)
        self.remove_unneeded()

    def remove_unneeded(self) -> None:
        """Remove what a change replaced, or wrote before it was stopped."""
        for path in self.folder.iterdir():
            if path.name.startswith(VERSIONED) and path.name not in self._needed():
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    def _needed(self) -> set[Any]:
        """The names of files and folders that count, beside those that only grow."""
        return {self.ids_folder, f"deleted.{self.version}.bin", *self.state.values()}

    def _sums(self, needed: set[Any]) -> dict[str, Sums]:
        """Checksums of every file in use. If nothing was appended, the old ones hold, even if a file is longer now."""
        ours = [path for path in self.folder.iterdir() if path.name in needed or path.name in GROWING]
        paths = [file for path in ours for file in (path.iterdir() if path.is_dir() else [path])]
        names = {str(path.relative_to(self.folder)): path for path in paths}
        known = {} if self.grown else self.sums
        return {name: known.get(name) or Sums.of(path, before=self.sums.get(name)) for name, path in names.items()}
