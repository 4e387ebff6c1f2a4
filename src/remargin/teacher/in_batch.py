"""The second teacher of TAS-B's dual supervision: an encoder whose vectors score every pair of a batch at no cost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from remargin.data.tokens import TokenStore
from remargin.data.training_data import TrainingData
from remargin.errors import InputError
from remargin.files.arrays import map_array
from remargin.files.atomic import flush_to_disk, refuse_existing
from remargin.files.headers import checksum, read_header, write_header
from remargin.files.journal import Journal
from remargin.files.shapes import Checksums, Count, Size
from remargin.losses.inputs import Similarity
from remargin.model.encoder import BiEncoder
from remargin.progress import track

FORMAT = "remargin-in-batch-teacher-1"
TEXTS_AT_ONCE = 16_384


class VectorsOnDisk(TypedDict):
    """What vectors of a teacher were made of, and how many texts have theirs: all, once this is written."""

    format: str
    teacher: str
    texts: Checksums
    shape: tuple[Count, Size]
    done: Count


class InBatchTeacher:
    """Vectors of all queries and documents, from which the margins of all pairs of a batch follow.

    >>> teacher = InBatchTeacher(np.eye(2, dtype="f4"), np.eye(2, dtype="f4"))
    >>> teacher.margins(np.array([0, 1]), np.array([0, 1]), np.array([1, 0]))
    tensor([[0., 1., 1., 0.],
            [1., 0., 0., 1.]])
    """

    def __init__(self, queries: NDArray[Any], documents: NDArray[Any]) -> None:
        self._queries, self._documents = queries, documents

    @classmethod
    def load(
        cls,
        model: str | Path,
        data: TrainingData,
        similarity: Similarity,
        out: Path,
        device: torch.device,
        resume: bool,
        say: Callable[[str], None],
    ) -> InBatchTeacher:
        """Encode a prepared collection into `out/teacher`; a resumed training run encodes only the rest.

        Raises:
            InputError: for a teacher with another tokenizer or other prefixes than the collection's, with too few
                positions for it, or with another similarity than the student's: its margins are of another scale.
        """
        queries, documents = (store.header["length"] for store in (data.queries, data.documents))
        teacher = BiEncoder.from_pretrained(model, query_length=queries, document_length=documents, device=device)
        if teacher.similarity != similarity:
            problem = f"the in-batch teacher {model} has {teacher.similarity} similarity, the model has {similarity}"
            raise InputError(problem, do="use a teacher with the model's similarity")
        say(f"in-batch teacher: {model}")
        data.require(teacher)
        folder = out / "teacher"
        folder.mkdir(parents=True, exist_ok=True)
        stores = {"queries": data.queries, "documents": data.documents}
        return cls(*(_vectors(teacher, store, folder / f"{name}.bin", resume) for name, store in stores.items()))

    def margins(self, queries: NDArray[np.int64], positives: NDArray[np.int64], negatives: NDArray[np.int64]) -> Tensor:
        """How much more similar query i is to its positive than to document j, (B, 2B): positives, then negatives."""
        q = torch.from_numpy(np.asarray(self._queries[queries], np.float32))
        rows = np.concatenate([positives, negatives])
        scores = q @ torch.from_numpy(np.asarray(self._documents[rows], np.float32)).T
        return scores.diagonal()[:, None] - scores


def _vectors(teacher: BiEncoder, store: TokenStore, file: Path, resume: bool) -> NDArray[Any]:
    """A store's vectors, written block by block. A header says that all of them are there, a journal which are."""
    header, progress, shape = file.with_suffix(".json"), file.with_suffix(".journal"), (len(store), teacher.dimension)
    made = {"format": FORMAT, "teacher": teacher.fingerprint(), "texts": store.header["sha256"], "shape": list(shape)}
    whole = {**made, "done": len(store)}
    vectors = _finished(file, header, whole) if resume else None
    if vectors is not None:
        progress.unlink(missing_ok=True)  # of a process that was killed after it had written the header
        return vectors
    for old in (header, *([] if resume else [progress])):
        refuse_existing(old, overwrite=True)  # if it is a folder
        old.unlink(missing_ok=True)
    journal = Journal(progress, [file])
    starts = range(0, len(store), TEXTS_AT_ONCE)
    for start in track(starts, "encoding for the teacher", total=len(starts)):
        rows = np.arange(start, min(start + TEXTS_AT_ONCE, len(store)))
        key = checksum({**made, "rows": [start, len(rows)]})
        if journal.find(key) is None:
            journal.add(key, [_half(teacher.encode_tokens(store.take(rows)))])
    journal.close()
    flush_to_disk(file)
    write_header(header, whole)
    progress.unlink()
    return map_array(file, np.float16, shape)


def _half(vectors: NDArray[np.float32]) -> NDArray[np.float16]:
    with np.errstate(over="ignore"):
        half = vectors.astype(np.float16)
    if not np.isfinite(half).all():
        raise InputError("the in-batch teacher gives vectors that are not numbers", do="use another model")
    return half


def _finished(file: Path, header: Path, whole: dict[str, Any]) -> NDArray[Any] | None:
    """The vectors of all texts; None if they are not all there, are damaged, or were made in another way."""
    try:
        if read_header(header, VectorsOnDisk, FORMAT, "it is made again") != whole:
            return None
        return map_array(file, np.float16, tuple(whole["shape"]))
    except InputError:
        return None
