"""Changing an index in its folder: documents are added or deleted, or the index follows a collection."""

from __future__ import annotations

import contextlib
import glob
import logging
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from dataclasses import replace as replaced_fields
from pathlib import Path

import numpy as np

from remargin.data.source import Text
from remargin.data.tables import Rejects, batches, read_lines
from remargin.errors import InputError, refuse_idle
from remargin.files.atomic import locked, naming, remove_folder, remove_left
from remargin.model.encoder import BiEncoder
from remargin.progress import track
from remargin.retrieval import bm25
from remargin.retrieval.built import SPARSE
from remargin.retrieval.encoders import given_texts
from remargin.retrieval.encoding import encode_texts
from remargin.retrieval.index_folder import REMEDY, IndexFolder, load_model
from remargin.retrieval.searching import index_encoder
from remargin.retrieval.texts import collection_texts, counted_rejects
from remargin.retrieval.vectors import Vectors, text_hashes

log = logging.getLogger(__name__)


@dataclass
class Changes:
    """What an update did to an index."""

    added: int = 0
    replaced: int = 0
    deleted: int = 0


def update(
    index: str | Path,
    *,
    data: str | Path | None = None,
    vectors: str | Path | Vectors | None = None,
    delete: str | Path | Sequence[str] | None = None,
    model: str | Path | BiEncoder | None = None,
    keep_others: bool = False,
    replace: bool = False,
    skip_bad: bool = False,
    pooling: str | None = None,
    similarity: str | None = None,
) -> Changes:
    """Change an index in its folder, as `remargin update` does: follow a collection, add documents, or delete some.

    An update that is interrupted has not happened. A hybrid index gets a new BM25 index of all its documents.

    Args:
        index: the folder of a dense index.
        data: the collection to follow: new and changed documents are encoded, those that are gone are deleted.
        vectors: what `encode` wrote, or its folder: documents to add.
        delete: ids of documents to delete, or a file with one id on each line.
        model: with `data`, the encoder that made the index, if it is no longer where it was then.
        keep_others: with `data`, keep documents that are not in the collection.
        replace: with `vectors`, let documents replace those of the same id.
        skip_bad: with `data`, skip bad input, and count it in a warning.
        pooling, similarity: with `model`, how it is used, if its folder does not say it.

    Raises:
        InputError: unless exactly one of `data`, `vectors` and `delete` is given; for options that have no effect on
            that one; for vectors of another model, or without texts for a hybrid index; and for documents to add that
            are there, or to delete that are not.

    Example:
        >>> import tempfile
        >>> from remargin import index
        >>> folder = Path(tempfile.mkdtemp()) / "index"
        >>> built = index(folder, data="docstrings:json", model=model_folder)
        >>> update(folder, delete=["json.dumps"])
        Changes(added=0, replaced=0, deleted=1)
        >>> update(folder, data="docstrings:json")
        Changes(added=1, replaced=0, deleted=0)
    """
    if sum(given is not None for given in (data, vectors, delete)) != 1:
        raise InputError("nothing to do, or too much at once", do="give one of --data, --vectors and --delete")
    options = {"keep_others": keep_others, "model": model is not None, "skip_bad": skip_bad, "replace": replace}
    names = {name for name, given in options.items() if given}
    if data is not None:
        refuse_idle("--data", sorted(names & {"replace"}))
        if skip_bad and not keep_others:
            raise InputError("documents that cannot be read would be deleted", do="give --keep-others with --skip-bad")
        used = given_texts(None, None, None, None, pooling, similarity)
        if model is None:
            refuse_idle("an index that has its encoder", used)
        encoder = None if model is None else index_encoder(index, model, used)
        with counted_rejects(skip_bad) as rejects:
            return synchronise(index, collection_texts(data, rejects=rejects), encoder, keep_others, str(data))
    if vectors is not None:
        refuse_idle("--vectors", sorted(names - {"replace"}))
        return add_documents(index, vectors if isinstance(vectors, Vectors) else Vectors.load(vectors), replace)
    refuse_idle("--delete", sorted(names))
    ids = _read_ids(Path(delete)) if isinstance(delete, str | Path) else list(dict.fromkeys(delete or []))
    delete_documents(index, ids)
    return Changes(deleted=len(ids))


def _read_ids(path: Path) -> list[str]:
    ids = list(dict.fromkeys(line.strip() for _, line in read_lines(path, Rejects()) if line.strip()))
    if not ids:
        raise InputError("no ids in it", file=path, do="write one id a line")
    return ids


def add_documents(folder: str | Path, vectors: Vectors, replacing: bool = False) -> Changes:
    """Add documents to an index, made by the same model with the same settings.

    Raises:
        InputError: for vectors of another model or other settings, for a hybrid index, which takes texts, and, unless
            `replacing`, for a document that is already there.
    """
    with _changing(Path(folder)) as index:
        vectors = vectors.as_passages(index.made)
        made = vectors.made
        index.require(made.truncated(index.made.dimension) if made.dimension > index.made.dimension else made)
        if index.hybrid is not None:
            problem = "has BM25, too, which takes the texts, and vectors have none"
            raise InputError(
                problem, file=folder, do="give the collection: --data, with --keep-others to keep the rest"
            )
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
    folder: str | Path,
    texts: Iterable[Text],
    model: BiEncoder | None = None,
    keep_others: bool = False,
    data: str | None = None,
) -> Changes:
    """Make an index hold these documents: encode the new and the changed, delete those that are gone.

    Args:
        folder: the index.
        texts: all documents that the index should have, each with its own id. No documents at all is an error.
        model: the one that made the index; if not given, it is loaded by the name that the index keeps.
        keep_others: do not delete what is not among the texts.
        data: the name of the collection that the texts are from. If all documents are from it then, the index keeps it.
    """
    folder = Path(folder).absolute()
    with _changing(folder) as index:
        model = model or load_model(index.made)
        # As when the index was made, whatever this model's own lengths and prefixes are now.
        made = replaced_fields(index.made, model_fingerprint=model.fingerprint(), dimension=model.dimension)
        index.require(made)
        hashes, present = index.hashes, np.zeros(len(index.deleted), bool)
        changed: list[Text] = []
        count = replaced = 0
        for block in batches(track(texts, "comparing")):
            count += len(block)
            rows = index.rows_of([text.id for text in block]).tolist()
            for text, row, hash in zip(block, rows, text_hashes(block), strict=True):
                if row >= 0 and hashes[row] == hash:
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
        if data is not None and not keep_others and data != index.made.data:
            index.made, index.changed = replaced_fields(index.made, data=data), True
        gone = np.empty(0, np.int64) if keep_others else np.flatnonzero(~present & ~index.deleted)
        index.delete(np.concatenate([outdated[outdated >= 0], gone]))
        place = folder.parent / f".{folder.name}.new"
        shutil.rmtree(place, ignore_errors=True)  # of an update that was stopped
        if changed:
            vectors = encode_texts(model, changed, place, made)
            if vectors.truncated and made.passage_length is None:
                log.warning(
                    "%d of %d new documents are longer than %d tokens, and were truncated: the index has no passages; "
                    "make it again to split them",
                    *(vectors.truncated, len(changed), made.length),
                )
            try:
                index.append(vectors, [text.text for text in changed])
            finally:
                remove_folder(place)
        remove_left(place.parent, place.name)
        for unfinished in place.parent.glob(f".{glob.escape(place.name)}.*"):
            shutil.rmtree(unfinished, ignore_errors=True)
    return Changes(len(changed) - replaced, replaced, len(gone))


@contextlib.contextmanager
def _changing(folder: Path) -> Iterator[IndexFolder]:
    """The index, to be changed by one process at a time; the change counts once the block has ended well."""
    _existing(folder)
    with locked(folder), naming(folder):
        index = _existing(folder)
        index.verify()
        remove_left(folder)
        index.remove_unneeded()
        try:
            yield index
            if index.changed:
                index.commit()
        except BaseException:
            with contextlib.suppress(InputError, OSError):  # on a full disk, what does not count takes room
                _existing(folder).remove_unneeded()
            raise


def _existing(folder: Path) -> IndexFolder:
    if not folder.is_dir():
        raise InputError("no such folder", file=folder, do=REMEDY)
    if (folder / bm25.HEADER).is_file():
        raise InputError("a BM25 index cannot be changed", file=folder, do=bm25.REMEDY)
    if (folder / SPARSE).is_file():
        raise InputError("an index of sparse vectors cannot be changed", file=folder, do="build it again")
    return IndexFolder.read(folder)
