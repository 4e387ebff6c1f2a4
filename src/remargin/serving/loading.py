"""What is served, and how to load it: a model and a collection, or an index folder. Both may change while served."""

from __future__ import annotations

import contextlib
import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from remargin.data.tables import Rejects
from remargin.errors import InputError, refuse_idle
from remargin.model.blend import similarity_trained
from remargin.model.encoder import BiEncoder
from remargin.model.names import two_names
from remargin.reports.run_files import CONFIG, GIVE, read_config
from remargin.retrieval import index_folder
from remargin.retrieval.bm25 import BM25
from remargin.retrieval.bm25 import HEADER as BM25_HEADER
from remargin.retrieval.dense import DenseIndex
from remargin.retrieval.encoders import as_encoder
from remargin.retrieval.hybrid import HybridSettings, chosen_hybrid, read_choice
from remargin.retrieval.searching import index_encoder, load_index
from remargin.retrieval.texts import collection_texts, counted_rejects
from remargin.retrieval.vectors import Vectors
from remargin.serving.engine import Engine
from remargin.serving.known import Known, read_known
from remargin.serving.texts import TextsInMemory, texts_of_index

log = logging.getLogger(__name__)
NONE = "none"  # as --before: no encoder to compare with


class Served(Protocol):
    """Something on disk that an engine is made of."""

    def state(self) -> object:
        """A value that is another one when what is on disk has changed. It costs next to nothing."""

    def load(self) -> Engine:
        """The engine of what is on disk now.

        Raises:
            InputError: if it is damaged or incomplete.
        """


@dataclass
class ServedModel:
    """A model folder and a collection, whose documents are encoded when it is loaded.

    Attributes:
        model: the encoder's folder, or its Hugging Face name.
        data: the collection, as `Collection.load` takes it.
        before: the encoder to compare with; by default the one that the training run of `model` started from, if the
            model lies in the folder of one; "none" for none.
        hybrid: as in `index`.
        skip_bad: skip bad input, and count it in a warning.
        used: pooling and similarity of the model, if its folder does not say them; and to how many numbers its vectors
            are truncated.
    """

    model: str
    data: str
    before: str | None = None
    hybrid: str | float = "auto"
    skip_bad: bool = False
    used: dict[str, Any] = field(default_factory=dict)
    _documents: dict[str, str] = field(default_factory=dict, repr=False)
    _fixed: tuple[BM25 | None, DenseIndex | None, Known] | None = field(default=None, repr=False)

    def state(self) -> object:
        """Names, sizes and times of the files in the model's folder."""
        return files_state(Path(self.model))

    def load(self) -> Engine:
        """Encode all documents. What does not depend on the model is kept from the first time."""
        model = in_memory(as_encoder(self.model, **self.used))
        fused = chosen_hybrid(read_choice(self.hybrid), self.model)
        if self._fixed is None:
            with counted_rejects(self.skip_bad) as rejects:
                self._documents = _read_documents(self.data, rejects)
            self._fixed = (_words(self._documents, fused), self._start(model), read_known(self.data))
        bm25, before, known = self._fixed
        after = _encoded(model, self._documents, self.data)
        return Engine(after, before, bm25, fused, TextsInMemory(self._documents), known)

    def _start(self, model: BiEncoder) -> DenseIndex | None:
        name = starting_encoder(self.model) if self.before is None else self.before
        if name is None or name == NONE:
            return None
        try:
            raw = self.before is None and two_names(name) is None and not similarity_trained(name)
            used: Any = {"pooling": model.pooling, "similarity": model.similarity} if raw else {}  # as it was trained
            encoder = in_memory(as_encoder(name, **used))
        except InputError as error:
            if self.before is not None:
                raise
            log.warning("the encoder before training is not shown (%s); say where it is (--before)", error)
            return None
        if self.before is None:  # as `fit` compares both: with the same lengths
            encoder.query_length, encoder.document_length = model.query_length, model.document_length
        return _encoded(encoder, self._documents, self.data)


@dataclass
class ServedIndex:
    """An index folder, which `index --overwrite` and `update` may change meanwhile.

    Attributes:
        index: the folder.
        model: the encoder that made it, if that is no longer where it was.
        data: where the texts and judgments are, if the index does not keep texts and the collection has moved.
        before: an encoder to compare with. It encodes all documents, which takes their texts.
        hybrid: as in `ask`.
        used: pooling and similarity of the model, if it is given and its folder does not say them.
    """

    index: str
    model: str | None = None
    data: str | None = None
    before: str | None = None
    hybrid: str | float = "auto"
    used: dict[str, Any] = field(default_factory=dict)

    def state(self) -> object:
        """The header's file: a change of the index writes it last."""
        folder = Path(self.index)
        return [file_state(folder / name) for name in (index_folder.HEADER, BM25_HEADER)]

    def load(self) -> Engine:
        """Open the index, with its model."""
        if (Path(self.index) / BM25_HEADER).is_file():
            refuse_idle("a BM25 index", ["model"] if self.model is not None else [])
            bm25: Any = load_index(self.index, None, None if self.hybrid == "auto" else self.hybrid)
            if self.before not in (None, NONE):
                raise InputError("a BM25 index has no encoder to compare with", do="leave --before out")
            data, kept = self.data or bm25.data, bm25.texts if self.data is None else None
            return Engine(None, None, bm25, None, texts_of_index(kept, data), read_known(data))
        choice = read_choice(self.hybrid)
        parts = index_folder.open_parts(self.index, in_memory(index_encoder(self.index, self.model, self.used)))
        fused = parts.hybrid
        if fused is not None:
            fused = None if choice == "off" else fused.weighing(choice)
        elif choice not in ("auto", "off"):
            problem = "holds the encoder's vectors alone, and no BM25 to fuse with them"
            raise InputError(problem, file=self.index, do="make the index again with `remargin index --hybrid`")
        data = self.data or parts.dense.data
        texts, before = texts_of_index(parts.texts if self.data is None else None, data), None
        if self.before not in (None, NONE):
            found = texts.of(list(parts.dense.vectors.ids))
            if not found:
                raise InputError("the documents' texts are not at hand, and --before encodes them", do="give --data")
            before = _encoded(in_memory(as_encoder(str(self.before))), found, data)
        return Engine(parts.dense, before, parts.bm25, fused, texts, read_known(data))


def in_memory(model: BiEncoder) -> BiEncoder:
    """The model with weights of its own: they may be mapped from a file, and whoever writes into that changes them."""
    for weights in (*model.parameters(), *model.buffers()):
        weights.data = weights.data.clone()
    return model


def _read_documents(data: str, rejects: Rejects) -> dict[str, str]:
    documents = {text.id: text.text for text in collection_texts(data, rejects=rejects)}
    if not documents:
        raise InputError("there are no documents in it", file=data, do=rejects.describe() or "choose another")
    return documents


def _words(documents: dict[str, str], fused: HybridSettings | None) -> BM25 | None:
    try:
        if fused is None:
            return BM25(documents)
        return BM25(documents, k1=fused.k1, b=fused.b, language=fused.language)
    except InputError as error:
        log.warning("there is no BM25 (%s)", error)
        return None


def _encoded(model: BiEncoder, documents: dict[str, str], data: str) -> DenseIndex:
    return DenseIndex(model, Vectors.of(model, documents, data))


def starting_encoder(model: str | Path) -> str | None:
    """The encoder that a training run started from, if a model lies in the folder of one; None if it does not.

    >>> starting_encoder(model_folder) is None
    True
    """
    folder = Path(model).absolute().parent
    if not Path(model).is_dir() or not (folder / CONFIG).is_file():
        return None
    with contextlib.suppress(InputError):
        name = read_config(folder, GIVE)["asked"].get("model")
        if isinstance(name, str):
            return name
    return None


def file_state(path: Path) -> object:
    """A value that is another one when a file was written, replaced or removed."""
    try:
        about = path.stat()
    except OSError:
        return None
    return about.st_ino, about.st_mtime_ns, about.st_size


def files_state(folder: Path) -> object:
    """A value that is another one when a file in a folder was; None if there is no such folder."""
    try:
        return sorted((path.name, file_state(path)) for path in folder.iterdir() if path.is_file())
    except OSError:
        return None
