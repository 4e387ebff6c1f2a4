"""Building a dense index in a folder, from vectors, or from the texts of a collection."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from remargin.data.source import Text
from remargin.data.tables import Rejects, batches
from remargin.errors import InputError
from remargin.files.atomic import new_folder, remove_folder, remove_left
from remargin.files.parts import Parts, resumable
from remargin.model.encoder import BiEncoder
from remargin.retrieval.base import State, Storage, storage_class
from remargin.retrieval.built import Built
from remargin.retrieval.collection_vectors import encode
from remargin.retrieval.hybrid import HybridSettings
from remargin.retrieval.index_folder import HEADER, IndexFolder
from remargin.retrieval.kept_texts import GROWING
from remargin.retrieval.settings import BackendSettings
from remargin.retrieval.texts import collection_texts
from remargin.retrieval.vectors import Made, Vectors, text_hashes

log = logging.getLogger(__name__)
UPLOAD = "remargin-upload-1"


def build_index(
    vectors: Vectors,
    out: str | Path,
    settings: BackendSettings | None = None,
    overwrite: bool = False,
    hybrid: HybridSettings | None = None,
    texts: Iterable[Text] | None = None,
    keep_texts: bool = True,
    dims: int | None = None,
) -> Built:
    """Write an index of vectors to a folder.

    Args:
        vectors: what `encode` wrote; they are copied, so that the index can grow on its own.
        out: the folder.
        settings: the back end; exact search if not given.
        overwrite: replace `out` if it is there.
        hybrid: how to fuse with BM25, which is then in the folder, too.
        texts: the documents that the vectors were made of, in the same order. A hybrid index needs them.
        keep_texts: keep the texts in the folder, if they are given, so that `ask` can show them.
        dims: truncate the vectors to so many numbers.

    Example:
        >>> import tempfile
        >>> from remargin.retrieval.index_folder import open_index
        >>> from remargin.retrieval.updating import delete_documents
        >>> model = BiEncoder.from_pretrained(model_folder)
        >>> folder = Path(tempfile.mkdtemp()) / "index"
        >>> build_index(Vectors.of(model, {"d1": "one text", "d2": "another"}), folder).documents
        2
        >>> delete_documents(folder, ["d1"])
        >>> list(open_index(folder, model).search({"q": "one text"}).rankings["q"])
        ['d2']
    """
    started = time.perf_counter()
    made = vectors.made if dims is None else vectors.made.truncated(dims)
    remove_left(Path(out).absolute().parent, f"{Path(out).name}.vectors")  # of one that was stopped at its very end
    replaced: tuple[Storage, State] | None = None
    if overwrite and (Path(out) / HEADER).exists():
        with contextlib.suppress(InputError):  # one that is damaged is replaced as well
            before = IndexFolder.read(Path(out))
            replaced = before.storage(), before.state
    settings = settings or BackendSettings()
    in_use = {} if replaced is None else replaced[1]
    with _upload(Path(out), vectors, made, settings, in_use) as parts, new_folder(out, overwrite, HEADER) as folder:
        if not len(vectors.ids):
            raise InputError("there are no documents to index", do="encode some first")
        if made.kind != "documents":
            raise InputError(f"vectors of {made.kind}, not of documents", do="encode the documents")
        kept = keep_texts and texts is not None
        index = IndexFolder.empty(folder, made, settings, hybrid, kept)
        index.parts = parts
        index.append(vectors, matching_texts(texts or (), vectors) if kept or hybrid is not None else None)
        index.commit()
        if index.terms is not None and index.terms["bm25"] is None:
            do = "check the texts and the language, or index the encoder alone (--hybrid off)"
            raise InputError("the documents have no words but stop words", do=do)
    if replaced is not None:
        storage_before, state = replaced
        storage_before.discard(state)
    seconds = time.perf_counter() - started
    sizes = {path.relative_to(out): path.stat().st_size for path in Path(out).rglob("*") if path.is_file()}
    vector_bytes = sizes.pop(Path("vectors.bin"))
    text_bytes = sum(sizes.pop(Path(name)) for name in GROWING if Path(name) in sizes)
    return Built(
        documents=len(vectors.ids),
        rows=len(vectors.matrix),
        truncated=vectors.truncated,
        made=made,
        seconds=seconds,
        vector_bytes=vector_bytes,
        other_bytes=sum(sizes.values()),
        hybrid=hybrid,
        language=None if hybrid is None else hybrid.language,
        text_bytes=text_bytes,
        split=vectors.passages_line(),
    )


@contextlib.contextmanager
def _upload(
    out: Path, vectors: Vectors, made: Made, settings: BackendSettings, in_use: State
) -> Iterator[Parts[Any] | None]:
    """Where a build remembers what it has uploaded, if it uploads: the same build goes on after what is there.

    Nothing is taken over that the state of the index which is to be replaced names.
    """
    shape = storage_class(settings.backend).upload(settings)
    if shape is None:
        yield None
        return
    digest = hashlib.blake2b(json.dumps([made.on_disk(), asdict(settings)]).encode(), digest_size=8)
    digest.update(np.ascontiguousarray(vectors.hashes).data)
    digest.update(np.ascontiguousarray(vectors.matrix[:: max(1, len(vectors.matrix) // 1000)]).data)
    parts: Parts[Any]
    with resumable(out, digest.hexdigest(), UPLOAD, shape) as parts:
        first = parts.find(0)
        if first is not None and not {*first.values()}.isdisjoint(in_use.values()):
            parts.clear()  # of a build that was killed when it was done: what it uploaded is in use
        yield parts


def matching_texts(texts: Iterable[Text], vectors: Vectors) -> Iterator[str]:
    """The texts that vectors were made of, one after the other.

    Raises:
        InputError: for a text that is not the one that was encoded, one too few or one too many.

    Example:
        >>> model = BiEncoder.from_pretrained(model_folder)
        >>> vectors = Vectors.of(model, {"d1": "one text"})
        >>> list(matching_texts([Text("d1", "one text")], vectors))
        ['one text']
        >>> list(matching_texts([Text("d1", "another")], vectors))
        Traceback (most recent call last):
        remargin.errors.InputError: id 'd1': not the text that was encoded; encode the documents again
    """
    do, count = "encode the documents again", 0
    for block in batches(texts):
        encoded = vectors.hashes[count : count + len(block)].tolist()
        for text, hash, before in itertools.zip_longest(block, text_hashes(block).tolist(), encoded):
            if hash != before:
                raise InputError("not the text that was encoded", id=text.id, do=do)
            yield text.text
        count += len(block)
    if count < len(vectors.ids):
        raise InputError(f"{count:,} texts for the vectors of {len(vectors.ids):,}", do=do)


def index_texts(
    data: str | Path,
    model: str | Path | BiEncoder,
    out: Path,
    settings: BackendSettings,
    encoding: Mapping[str, Any],
    skip_bad: bool,
    overwrite: bool,
    hybrid: HybridSettings | None = None,
    keep_texts: bool = True,
) -> Built:
    """Encode a collection's documents into a folder beside `out`, and write an index of them."""
    folder = out.absolute().with_name(f"{out.name}.vectors")
    read_again = keep_texts or hybrid is not None
    given = f"--vectors {folder}" + (f" --data {data}" if read_again else "")
    if folder.exists():
        do = f"give {given} to continue with these vectors, or remove them"
        raise InputError("is there already, perhaps from a build that was stopped", file=folder, do=do)
    vectors = encode(data, model, folder, skip_bad=skip_bad, **encoding)
    try:
        texts = collection_texts(data, rejects=Rejects(skip=skip_bad)) if read_again else None  # rejects counted before
        built = build_index(vectors, out, settings, overwrite, hybrid, texts, keep_texts)
    except InputError as error:
        do = "; ".join([*([error.do] if error.do else []), f"the vectors stay: give {given}"])
        raise InputError(error.problem, file=error.file, id=error.id, do=do) from None
    except OSError as error:
        do = f"the vectors stay: to continue with them, give {given}"
        raise InputError(error.strerror or str(error), file=error.filename or out, do=do) from error
    except BaseException:
        log.warning("the vectors are in %s: to continue with them, give %s", folder, given)
        raise
    remove_folder(folder)
    return built
