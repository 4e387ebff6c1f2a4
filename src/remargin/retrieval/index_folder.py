"""Index folders: vectors, ids, marks of deleted documents, the files of a back end, and a header over all of them.

A folder holds the vectors (appended to, never rewritten), the ids, which documents were deleted, and the files of the
back end. The texts are there as well, unless they were left out; see `kept_texts.py`. A hybrid index has the documents'
terms and a BM25 index, too; see `terms.py`. The header says which of these count, and what is in them. A change writes
its files first and then the header, at once: whoever opens the folder meanwhile, or after a crash, finds it as it was
before or as it is after.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, NamedTuple, NotRequired, TypedDict

import numpy as np
from numpy.typing import NDArray

from remargin.data.ids import Ids, IdsSize, IdWriter
from remargin.data.tables import batches
from remargin.errors import InputError
from remargin.files.arrays import append_array, map_array
from remargin.files.atomic import flush_to_disk, remove_folder
from remargin.files.checksums import Sums
from remargin.files.headers import format_of, read_header, require_shape, write_header
from remargin.files.parts import Parts
from remargin.files.shapes import BlockSums, Count, FieldsOf, FileName
from remargin.model.encoder import BiEncoder
from remargin.model.loading import load_encoder
from remargin.retrieval import kept_texts, terms
from remargin.retrieval.base import State, Storage, storage_class
from remargin.retrieval.bm25 import BM25
from remargin.retrieval.built import SPARSE
from remargin.retrieval.dense import DenseIndex
from remargin.retrieval.encoders import AS_GIVEN
from remargin.retrieval.hybrid import HybridSettings
from remargin.retrieval.kept_texts import KeptTexts, keep_texts
from remargin.retrieval.settings import BackendSettings
from remargin.retrieval.terms import TermsState, append_terms, build_words
from remargin.retrieval.vectors import Made, MadeOnDisk, Vectors

HEADER = "remargin_index.json"
FORMAT = "remargin-index-4"
BEFORE = ("remargin-index-2", "remargin-index-3")  # without texts; the second with BM25
REMEDY = "name a folder that `remargin index` wrote"
GROWING = ("vectors.bin", "owners.bin", "hashes.bin", *terms.GROWING, *kept_texts.GROWING)
VERSIONED = ("ids.", "deleted.", *terms.VERSIONED)  # and the files of the back end
VECTORS_AT_ONCE = 65_536
ATTEMPTS = 10  # to open an index that is being changed


class IndexHeader(TypedDict):
    """What is in an index folder, and the checksums of the files that count."""

    format: str
    version: Count
    made: MadeOnDisk
    rows: Count
    settings: Annotated[dict[str, Any], FieldsOf(BackendSettings)]
    state: dict[str, Any]
    documents: Count
    ids_folder: FileName
    ids_size: IdsSize
    sums: BlockSums
    texts: NotRequired[bool]  # whether the folder has them
    hybrid: NotRequired[Annotated[dict[str, Any], FieldsOf(HybridSettings)]]
    terms: NotRequired[TermsState]


def read_index_header(folder: Path) -> IndexHeader:
    """The header of an index folder, of whichever format."""
    path = folder / HEADER
    if (folder / SPARSE).is_file():
        raise InputError("is an index of sparse vectors", file=folder, do="give it to `remargin search` or `ask`")
    before = format_of(path)
    header = read_header(path, IndexHeader, before if before in BEFORE else FORMAT, REMEDY)
    if ("hybrid" in header) != ("terms" in header):
        raise InputError("hybrid and terms go together, and one of them is missing", file=path, do=REMEDY)
    return header


@dataclass
class IndexFolder:
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
    state: State
    version: int
    sums: dict[str, Sums]
    keeps_texts: bool = False
    hybrid: HybridSettings | None = None
    terms: TermsState | None = None
    changed: bool = False
    grown: bool = False
    parts: Parts[Any] | None = None  # of a build that writes outside the folder

    @classmethod
    def empty(
        cls,
        folder: Path,
        made: Made,
        settings: BackendSettings,
        hybrid: HybridSettings | None = None,
        keeps_texts: bool = False,
    ) -> IndexFolder:
        """A new folder without documents."""
        (folder / "ids.0").mkdir()
        size = IdWriter(folder / "ids.0").close()
        return cls(folder, made, settings, 0, "ids.0", size, np.zeros(0, bool), {}, 0, {}, keeps_texts, hybrid)

    @classmethod
    def read(cls, folder: Path) -> IndexFolder:
        """The folder as its header describes it."""
        header = read_index_header(folder)
        settings = BackendSettings(**header["settings"])
        fields = storage_class(settings.backend).state_fields(settings)
        require_shape(header["state"], fields, header["format"], folder / HEADER, REMEDY)
        fused: dict[str, Any] = {}
        if "hybrid" in header:
            fused = {"hybrid": HybridSettings(**header["hybrid"]), "terms": header["terms"]}
        return cls(
            folder,
            Made.from_disk(header["made"]),
            settings,
            header["rows"],
            header["ids_folder"],
            header["ids_size"],
            map_array(folder / f"deleted.{header['version']}.bin", np.bool_, (header["ids_size"]["count"],)).copy(),
            header["state"],
            header["version"],
            {name: Sums(*sums) for name, sums in header["sums"].items()},
            header.get("texts", False),
            **fused,
        )

    def verify(self) -> None:
        """Check that every file is as it was written: one wrong bit can make a vector the nearest of all."""
        for name, sums in self.sums.items():
            sums.verify(self.folder / name, terms.REMEDY)

    @cached_property
    def ids(self) -> Ids:
        """The ids of all documents, those of deleted ones included."""
        return Ids(self.folder / self.ids_folder, **self.ids_size)

    @property
    def hashes(self) -> NDArray[np.uint64]:
        """A hash of each document's text, to see which of them changed."""
        return map_array(self.folder / "hashes.bin", np.uint64, (len(self.deleted),), at_least=True)

    def vectors(self) -> Vectors:
        """The vectors of all documents, memory-mapped."""
        shape = (self.rows, self.made.dimension)
        matrix = map_array(self.folder / "vectors.bin", self.made.dtype, shape, at_least=True)
        owners = None
        if self.made.passage_length is not None:
            owners = map_array(self.folder / "owners.bin", np.uint32, (self.rows,), at_least=True)
        return Vectors(self.made, matrix, self.ids, self.hashes, owners)

    def storage(self) -> Storage:
        """The storage of the back end that the settings name."""
        kind = storage_class(self.settings.backend)
        storage = kind(self.folder, self.vectors().matrix, self.made.similarity == "cosine", self.settings)
        storage.parts = self.parts
        return storage

    def bm25(self) -> BM25 | None:
        """The BM25 index of a hybrid index; None if no document has a term, or the index is not hybrid."""
        name = None if self.terms is None else self.terms["bm25"]
        return None if name is None else BM25.load(self.folder / name, terms.REMEDY)

    def texts(self) -> KeptTexts | None:
        """The texts of the documents; None if the index does not keep them."""
        return KeptTexts(self.folder, self.ids) if self.keeps_texts else None

    def rows_of(self, ids: Sequence[str]) -> NDArray[np.int64]:
        """The row of each document, -1 if it is not there or was deleted."""
        rows = self.ids.rows(ids)
        rows[rows >= 0] = np.where(self.deleted[rows[rows >= 0]], -1, rows[rows >= 0])
        return rows

    def require(self, made: Made) -> None:
        """Refuse vectors that do not go with those of the index."""
        for name, ours in asdict(self.made).items():
            theirs = getattr(made, name)
            if name not in ("data", "model", *AS_GIVEN) and theirs != ours:
                difference = "another model" if name == "model_fingerprint" else f"{name} {theirs!r}, not {ours!r}"
                do = "encode the documents as those of the index"
                do += f" (--passage-length {ours or 'off'})" if name == "passage_length" else ""
                raise InputError(f"the new vectors were made with {difference}", file=self.folder, do=do)

    def delete(self, rows: NDArray[np.int64]) -> None:
        """Mark documents as deleted."""
        self.deleted[rows] = True
        self.changed |= len(rows) > 0

    def append(self, vectors: Vectors, texts: Iterable[str] | None = None) -> None:
        """Take in more vectors and their ids, their texts if the index keeps them, and their terms if it is hybrid."""
        self.changed = self.grown = True
        first_row, first_text = self.rows, len(self.deleted)
        for place in range(0, len(vectors.matrix), VECTORS_AT_ONCE):
            block = self.made.first_numbers(vectors.matrix[place : place + VECTORS_AT_ONCE])
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
        read: Iterable[str | None] = itertools.repeat(None, len(vectors.ids)) if texts is None else texts
        if self.keeps_texts:
            read = keep_texts(self.folder, first_text, read)
        if self.hybrid is not None:
            words = (text for text in read if text is not None)
            language, version = self.hybrid.language, self.version + 1
            self.terms = append_terms(self.folder, self.terms, first_text, words, language, version)
        for _ in read:  # if BM25 has not read them
            pass
        self.ids_folder, self.ids_size = name, writer.close()
        del self.ids  # it is read again
        self.deleted = np.concatenate([self.deleted, np.zeros(len(vectors.ids), bool)])
        self.rows += len(vectors.matrix)
        self.state = self.storage().extend(first_row, self.state) if first_row else self.storage().build()

    def commit(self) -> None:
        """Make the change count, and remove what it replaced."""
        self.version += 1
        append_array(self.folder / f"deleted.{self.version}.bin", 0, self.deleted)
        fused: dict[str, Any] = {}
        if self.hybrid is not None and self.terms is not None:
            self.terms = build_words(
                self.folder, self.terms, self.ids, self.deleted, self.hybrid, self.made.data, self.version
            )
            fused = {"hybrid": asdict(self.hybrid), "terms": self.terms}
        flush_to_disk(*self.folder.rglob("*"))
        header = {"format": FORMAT, "version": self.version, "made": self.made.on_disk(), "rows": self.rows}
        header |= {"settings": asdict(self.settings), "state": self.state, "documents": int((~self.deleted).sum())}
        header |= {"ids_folder": self.ids_folder, "ids_size": self.ids_size, "sums": self._sums(self._needed())}
        header |= {"texts": self.keeps_texts}
        write_header(self.folder / HEADER, header | fused)
        self.remove_unneeded()

    def remove_unneeded(self) -> None:
        """Remove what a change replaced, or wrote before it was stopped."""
        versioned = VERSIONED + storage_class(self.settings.backend).files
        for path in self.folder.iterdir():
            if path.name.startswith(versioned) and path.name not in self._needed():
                remove_folder(path) if path.is_dir() else path.unlink()

    def _needed(self) -> set[Any]:
        """The names of files and folders that count, beside those that only grow."""
        of_terms = {} if self.terms is None else {self.terms["vocabulary"], self.terms["bm25"]}
        return {self.ids_folder, f"deleted.{self.version}.bin", *self.state.values(), *of_terms}

    def _sums(self, needed: set[Any]) -> dict[str, Sums]:
        """Checksums of every file in use. If nothing was appended, the old ones hold, even if a file is longer now.

        Of BM25's files it is the header that has the others' checksums.
        """
        ours = [path for path in self.folder.iterdir() if path.name in needed or path.name in GROWING]
        inside = [file for path in ours for file in (path.iterdir() if path.is_dir() else [path])]
        paths = [path for path in inside if path.is_file()]
        names = {str(path.relative_to(self.folder)): path for path in paths}
        known = {} if self.grown else self.sums
        return {name: known.get(name) or Sums.of(path, before=self.sums.get(name)) for name, path in names.items()}


class Opened(NamedTuple):
    """What is in an index folder, ready to search: the dense index, BM25 if the index is hybrid, and texts it keeps."""

    dense: DenseIndex
    bm25: BM25 | None
    hybrid: HybridSettings | None
    texts: KeptTexts | None


def open_index(folder: str | Path, model: BiEncoder | None = None) -> DenseIndex:
    """Open the dense part of an index for searching; without a model, with the one whose name the index keeps.

    Raises:
        InputError: if the folder is no index, or another model made it.
    """
    return open_parts(folder, model, words=False).dense


def open_parts(folder: str | Path, model: BiEncoder | None = None, words: bool = True) -> Opened:
    """Open all parts of an index for searching, as one change left them; without `words`, BM25 is not read."""
    folder = Path(folder)
    for attempt in itertools.count(1):
        version = _version(folder)
        try:
            index = IndexFolder.read(folder)
            index.verify()
            model = model or load_model(index.made)
            backend = index.storage().open(index.state, model.device)
            dense = DenseIndex(model, index.vectors(), backend, index.settings.fetch_factor, index.deleted)
            return Opened(dense, index.bm25() if words else None, index.hybrid, index.texts())
        except InputError as error:
            if _version(folder) != version and attempt < ATTEMPTS:
                continue  # changed by another process meanwhile: the files that we looked for are gone
            if error.file is not None:
                raise
            raise InputError(error.problem, file=folder, do=error.do) from None
    raise AssertionError  # never: the last attempt returns or raises


def _version(folder: Path) -> int | None:
    try:
        return read_index_header(folder)["version"]
    except InputError:
        return None


def load_model(made: Made) -> BiEncoder:
    """The model that made vectors, by the name that they keep, with their lengths, prefixes and dimension."""
    try:
        given: Any = {name: getattr(made, name) for name in AS_GIVEN}
        texts: Any = {"document_length": made.length, "document_prefix": made.prefix}
        return made.truncating(load_encoder(made.model, said=False, similarity=made.similarity, **texts, **given))
    except InputError as error:
        do = "say where it is now (--model)"
        raise InputError(f"the index was made by model {made.model!r}, which is gone ({error})", do=do) from None
