"""Vectors as a Parquet file that databases load: ids, texts, and vectors as lists of float32."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from remargin.data.source import Text
from remargin.data.tables import Rejects, batches
from remargin.errors import InputError
from remargin.files.atomic import new_file
from remargin.integrations.model_card import shareable
from remargin.integrations.onnx import needed
from remargin.model.tokenizer import Tokenizer
from remargin.progress import track
from remargin.retrieval import bm25
from remargin.retrieval.index_folder import IndexFolder
from remargin.retrieval.kept_texts import KeptTexts
from remargin.retrieval.texts import collection_texts
from remargin.retrieval.vectors import Made, Vectors, text_hashes

FORMAT = "remargin-parquet-1"
METADATA = "remargin"  # the key of the file's metadata
AT_ONCE = 4096  # texts, whose vectors are a row group
WITHOUT = "or leave the texts out (--no-texts)"


@dataclass(frozen=True)
class Written:
    """How many rows and texts were written, and how many texts of the collection have no vector."""

    rows: int
    texts: int
    not_encoded: int


class _Block(NamedTuple):
    """Some texts: their ids, their places among the vectors' texts, and what they are, if that is wanted."""

    ids: list[str]
    places: NDArray[np.int64]
    texts: list[str] | None


class Opened(NamedTuple):
    """Vectors with ids on disk, True for each text that was deleted since, and the texts if an index keeps them."""

    vectors: Vectors
    deleted: NDArray[np.bool_]
    kept: KeptTexts | None = None


def open_vectors(vectors: str | Path | None, index: str | Path | None) -> Opened:
    """The vectors that `encode` wrote, or those of an index."""
    if vectors is not None:
        of_folder = Vectors.load(vectors)
        return Opened(of_folder, np.zeros(len(of_folder.ids), bool))
    assert index is not None
    if (Path(index) / bm25.HEADER).is_file():
        raise InputError("a BM25 index, which has no vectors", file=index, do="export an index of a model")
    folder = IndexFolder.read(Path(index))
    folder.verify()
    return Opened(folder.vectors(), folder.deleted, folder.texts())


def write_parquet(
    opened: Opened,
    out: str | Path,
    data: str | None = None,
    texts: bool = True,
    skip_bad: bool = False,
    overwrite: bool = False,
) -> Written:
    """Write a Parquet file with a row for each vector: `id`, `passage` if texts were split, `text` and `vector`.

    Rows are in the order of the collection, or, without texts, in that of the vectors. Nothing but one row group is
    in memory at a time. Texts are those that an index keeps, or are read from the collection: then every text is
    compared with the hash of the text that was encoded.

    Args:
        opened: the vectors.
        out: the file.
        data: where the collection is now; without it, where it was when it was encoded.
        texts: whether texts are written.
        skip_bad: skip bad input in the collection.
        overwrite: replace `out` if it is there.

    Raises:
        InputError: if a text is missing in the collection, or was changed since it was encoded.

    Example:
        >>> import tempfile
        >>> from remargin import encode
        >>> folder = Path(tempfile.mkdtemp())
        >>> vectors = encode("docstrings:json", model_folder, folder / "vectors")
        >>> written = write_parquet(open_vectors(folder / "vectors", None), folder / "json.parquet")
        >>> written.rows == len(vectors.matrix), written.not_encoded
        (True, 0)
    """
    arrow, parquet = needed("pyarrow", "parquet"), needed("pyarrow.parquet", "parquet")
    vectors, made, rejects = opened.vectors, opened.vectors.made, Rejects(skip=skip_bad)
    source = _Source(vectors, opened.deleted)
    splitter = _Passages(made) if texts else None
    if not texts or (opened.kept is not None and data is None):
        blocks = source.in_order(opened.kept if texts else None)
    else:
        blocks = source.of_collection(data or made.data, rejects)
    rows = 0
    with new_file(out, overwrite) as file, parquet.ParquetWriter(file, _schema(arrow, made, texts)) as writer:
        for block in track(blocks, "writing"):
            table = _table(arrow, vectors, block, writer.schema, splitter)
            writer.write_table(table, row_group_size=max(1, len(table)))
            rows += len(table)
    rejects.warn()
    return Written(rows, source.texts, source.not_encoded)


def _schema(arrow: Any, made: Made, texts: bool) -> Any:
    fields = [("id", arrow.string())]
    fields += [("passage", arrow.int32())] if made.passage_length is not None else []
    fields += [("text", arrow.string())] if texts else []
    fields += [("vector", arrow.list_(arrow.float32(), made.dimension))]
    about = {name: value for name, value in made.on_disk().items() if name not in ("data", "model", "precision")}
    about = {"format": FORMAT, "model": shareable(made.model), "data": shareable(made.data), **about}
    return arrow.schema(fields, metadata={METADATA: json.dumps(about)})


class _Source:
    """Texts that have vectors, block by block; counts them, and those of the collection that have none."""

    def __init__(self, vectors: Vectors, deleted: NDArray[np.bool_]) -> None:
        self._vectors, self._deleted = vectors, deleted
        self.texts = self.not_encoded = 0

    def in_order(self, kept: KeptTexts | None) -> Iterator[_Block]:
        ids: Any = self._vectors.ids
        live = np.flatnonzero(~self._deleted)
        for start in range(0, len(live), AT_ONCE):
            places = live[start : start + AT_ONCE]
            self.texts += len(places)
            named = [ids[place] for place in places.tolist()]
            yield _Block(named, places, None if kept is None else _texts_of(kept, named))

    def of_collection(self, data: str, rejects: Rejects) -> Iterator[_Block]:
        try:
            yield from self._in(data, rejects)
        except InputError as error:
            do = f"{error.do}, {WITHOUT}" if error.do else f"say where the collection is now (--data), {WITHOUT}"
            raise InputError(error.problem, file=error.file, line=error.line, id=error.id, do=do) from None
        missing = int((~self._deleted).sum()) - self.texts
        if missing:
            problem = f"{missing:,} of the {self._vectors.made.kind} are not in it any more"
            do = f"encode the collection again, or update the index, {WITHOUT}"
            raise InputError(problem, file=data, do=do)

    def _in(self, data: str, rejects: Rejects) -> Iterator[_Block]:
        ids: Any = self._vectors.ids
        for block in batches(collection_texts(data, self._vectors.made.kind, rejects), AT_ONCE):
            places = ids.rows([text.id for text in block])
            places[(places >= 0) & self._deleted[places]] = -1
            kept = places >= 0
            texts = [text for text, is_kept in zip(block, kept.tolist(), strict=True) if is_kept]
            places = places[kept]
            self._require_same(texts, places, data)
            self.texts += len(texts)
            self.not_encoded += len(block) - len(texts)
            if texts:
                yield _Block([text.id for text in texts], places, [text.text for text in texts])

    def _require_same(self, texts: list[Text], places: NDArray[np.int64], data: str) -> None:
        changed = np.flatnonzero(text_hashes(texts) != self._vectors.hashes[places])
        if len(changed):
            do = "encode the collection again, or update the index"
            raise InputError("was changed since it was encoded", file=data, id=texts[changed[0]].id, do=do)


def _texts_of(kept: KeptTexts, ids: list[str]) -> list[str]:
    texts = kept.of(ids)
    for id in ids:
        if id not in texts:
            do = f"say where the collection is (--data), {WITHOUT}"
            raise InputError("was added to the index without its text", id=id, do=do)
    return [texts[id] for id in ids]


class _Passages:
    """Splits texts as they were split when they were encoded."""

    def __init__(self, made: Made) -> None:
        self._made = made
        self._tokenizer: Tokenizer | None = None
        if made.passage_length is not None:
            try:
                self._tokenizer = Tokenizer.from_pretrained(made.model)
            except InputError as error:
                problem = f"passages need the tokenizer of the model, which is gone ({error.problem})"
                raise InputError(problem, do=f"put the model back, {WITHOUT}") from None

    def __call__(self, text: str, vectors: int) -> list[str]:
        if self._tokenizer is None or self._made.passage_length is None or vectors == 1:
            return [text]
        return self._tokenizer.passages(text, self._made.passage_length, self._made.passage_overlap)


def _table(arrow: Any, vectors: Vectors, block: _Block, schema: Any, split: _Passages | None) -> Any:
    """The rows of some texts: one each, or one for each passage."""
    counts, rows = np.ones(len(block.places), np.int64), block.places
    if vectors.owners is not None:
        first, last = (np.searchsorted(vectors.owners, block.places, side) for side in ("left", "right"))
        counts = last - first
        rows = np.concatenate([np.arange(a, b) for a, b in zip(first.tolist(), last.tolist(), strict=True)])
    columns: dict[str, Any] = {"id": np.repeat(np.array(block.ids, object), counts)}
    if vectors.owners is not None:
        columns["passage"] = np.concatenate([np.arange(count, dtype=np.int32) for count in counts.tolist()])
    if block.texts is not None and split is not None:
        passages = [split(text, count) for text, count in zip(block.texts, counts.tolist(), strict=True)]
        for id, of_text, count in zip(block.ids, passages, counts.tolist(), strict=True):
            if len(of_text) != count:
                problem = f"{count} vectors, but {len(of_text)} passages: the model's tokenizer is another now"
                raise InputError(problem, id=id, do=f"encode the collection again, {WITHOUT}")
        columns["text"] = [passage for of_text in passages for passage in of_text]
    numbers = np.ascontiguousarray(vectors.matrix[rows], np.float32)
    columns["vector"] = arrow.FixedSizeListArray.from_arrays(arrow.array(numbers.ravel()), vectors.made.dimension)
    return arrow.table(columns, schema=schema)
