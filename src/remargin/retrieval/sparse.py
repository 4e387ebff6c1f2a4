"""An index of sparse vectors, such as SPLADE's: for each term, the documents that have it, as one sparse matrix."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
import scipy.sparse

from remargin.data.ids import Ids, IdsSize, IdWriter
from remargin.data.source import Text
from remargin.data.tables import batches
from remargin.errors import InputError
from remargin.evaluation.runs import Run
from remargin.files.arrays import append_array, map_array
from remargin.files.atomic import new_folder
from remargin.files.checksums import Sums
from remargin.files.headers import read_header, write_header
from remargin.files.shapes import BlockSums, Count, Size
from remargin.model.layouts.splade import Splade
from remargin.model.loading import load_model
from remargin.model.names import lasting_name
from remargin.model.ranker import Ranker
from remargin.progress import track
from remargin.retrieval.built import SPARSE as HEADER
from remargin.retrieval.built import Built
from remargin.retrieval.kept_texts import GROWING, KeptTexts, keep_texts

log = logging.getLogger(__name__)
FORMAT = "remargin-sparse-1"
REMEDY = "build it again with `remargin index`"
ARRAYS = {"indptr": np.int64, "indices": np.int32, "data": np.float32}
TEXTS, IDS = "texts", "ids"
DOCUMENTS_AT_ONCE = 1024
QUERIES_AT_ONCE = 64


class TextsOnDisk(TypedDict):
    """The fields of `TextSettings`."""

    query_length: Size
    document_length: Size
    query_prefix: str
    document_prefix: str


class SparseHeader(TypedDict):
    """How a sparse index was made, and the checksums of its files."""

    format: str
    data: str
    model: str
    model_fingerprint: str
    text_settings: TextsOnDisk
    terms: Size
    weights: Count
    ids: IdsSize
    texts: bool
    sums: BlockSums


class SparseIndex:
    """Documents by the terms that a model gives them, to be searched with that model.

    Args:
        model: which made the sparse vectors.
        ids: of the documents.
        lists: for each term a row with its weights in the documents.
        data: the name of their collection.
        texts: of the documents, if they are kept.
    """

    def __init__(
        self,
        model: Ranker,
        ids: Sequence[str] | Ids,
        lists: scipy.sparse.csr_array,
        data: str = "",
        texts: KeptTexts | None = None,
    ) -> None:
        self.model = model
        self.data = data
        self.texts = texts
        self._ids = ids
        self._lists = lists

    def __len__(self) -> int:
        return len(self._ids)

    def lacking(self, documents: Sequence[str]) -> int:
        """How many of these documents are not in it."""
        return len(set(documents).difference(self._ids))

    def search(self, queries: Mapping[str, str], k: int = 1000) -> Run:
        """The k best documents of each query; fewer, where fewer share a term with it."""
        vectors, names = self.model.encode_queries(list(queries.values())), list(queries)
        rankings: dict[str, dict[str, float]] = {}
        for start in range(0, len(names), QUERIES_AT_ONCE):
            scores = (vectors[start : start + QUERIES_AT_ONCE] @ self._lists).tocsr()
            for query, first, end in zip(names[start:], scores.indptr[:-1], scores.indptr[1:], strict=False):
                values, rows = scores.data[first:end], scores.indices[first:end]
                best = np.lexsort((rows, -values))[:k]
                ids = [self._ids[row] for row in rows[best].tolist()]
                rankings[query] = dict(zip(ids, values[best].tolist(), strict=True))
        return Run.of(rankings)

    @classmethod
    def load(cls, folder: str | Path, model: Ranker | None = None) -> SparseIndex:
        """An index that `index_sparse` wrote, memory-mapped; without a model, with the one whose name it keeps.

        Raises:
            InputError: if the folder holds none, or it is damaged, or another model made it.
        """
        folder = Path(folder)
        header = read_header(folder / HEADER, SparseHeader, FORMAT, REMEDY)
        for name, sums in header["sums"].items():
            Sums(*sums).verify(folder / name, REMEDY)
        loaded = model or load_model(header["model"], **header["text_settings"])
        if not isinstance(loaded, Ranker) or loaded.fingerprint() != header["model_fingerprint"]:
            problem = f"was made by another model than {loaded.name}"
            raise InputError(problem, file=folder, do=f"search with {header['model']} as it was, or make it again")
        ids = Ids(folder / IDS, **header["ids"])
        sizes = {"indptr": header["terms"] + 1, "indices": header["weights"], "data": header["weights"]}
        arrays = {name: map_array(folder / f"{name}.bin", ARRAYS[name], (size,)) for name, size in sizes.items()}
        shape = (header["terms"], len(ids))
        lists = scipy.sparse.csr_array((arrays["data"], arrays["indices"], arrays["indptr"]), shape)
        return cls(loaded, ids, lists, header["data"], KeptTexts(folder / TEXTS, ids) if header["texts"] else None)


def index_sparse(
    model: Splade, texts: Iterable[Text], out: str | Path, data: str = "", keep: bool = True, overwrite: bool = False
) -> Built:
    """Encode documents, and write their index to a folder.

    Args:
        model: which makes the sparse vectors.
        texts: the documents, each with its own id.
        out: the folder.
        data: the name of their collection.
        keep: keep the texts in the folder, so that `ask` can show them.
        overwrite: replace `out` if it is there.
    """
    started = time.perf_counter()
    rows: list[scipy.sparse.csr_array] = []
    with new_folder(out, overwrite, HEADER) as folder:
        for name in (IDS, TEXTS):
            (folder / name).mkdir()
        ids, count = IdWriter(folder / IDS), 0
        for block in batches(track(texts, "encoding"), DOCUMENTS_AT_ONCE):
            rows.append(model.encode_documents([text.text for text in block]))
            ids.add([text.id for text in block])
            if keep:
                for _ in keep_texts(folder / TEXTS, count, [text.text for text in block]):
                    pass
            count += len(block)
        if not rows:
            raise InputError("there are no documents to index", do="name another collection")
        lists = scipy.sparse.vstack(rows, "csr").T.tocsr()
        for name, dtype in ARRAYS.items():
            append_array(folder / f"{name}.bin", 0, getattr(lists, name).astype(dtype, copy=False))
        header: dict[str, Any] = {"format": FORMAT, "data": data, "model": lasting_name(model.name)}
        header |= {"model_fingerprint": model.fingerprint(), "text_settings": asdict(model.text_settings)}
        header |= {"terms": lists.shape[0], "weights": lists.nnz, "ids": ids.close(), "texts": keep}
        files = sorted(file for file in folder.rglob("*") if file.is_file())
        write_header(folder / HEADER, {**header, "sums": {str(f.relative_to(folder)): Sums.of(f) for f in files}})
    sizes = {file: file.stat().st_size for file in Path(out).rglob("*") if file.is_file()}
    of_texts = sum(size for file, size in sizes.items() if file.name in GROWING)
    rest = sum(sizes.values()) - of_texts
    if model.truncated:
        length = model.text_settings.document_length
        log.warning("%d of %d documents were truncated to %d tokens", model.truncated, count, length)
    return Built(count, 0, model.truncated, None, time.perf_counter() - started, 0, rest, text_bytes=of_texts)
