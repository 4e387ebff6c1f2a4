"""Building an index in a folder, from vectors or straight from a collection."""

from __future__ import annotations

import contextlib
import logging
import time
from dataclasses import dataclass
from pathlib import Path

from remargin.data.tables import Rejects
from remargin.errors import InputError
from remargin.files.atomic import new_folder, refuse_existing, remove_folder, remove_left
from remargin.model.encoder import BiEncoder
from remargin.retrieval.base import State, Storage
from remargin.retrieval.index_folder import HEADER, IndexFolder
from remargin.retrieval.settings import BackendSettings
from remargin.retrieval.vectors import Made, Precision, Vectors, encode_collection

log = logging.getLogger(__name__)


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
    remove_left(Path(out).absolute().parent, f"{Path(out).name}.vectors")  # of one that was stopped at its very end
    replaced: tuple[Storage, State] | None = None
    if overwrite and (Path(out) / HEADER).exists():
        with contextlib.suppress(InputError):  # one that is damaged is replaced as well
            before = IndexFolder.read(Path(out))
            replaced = before.storage(), before.state
    with new_folder(out, overwrite, HEADER) as folder:
        if not len(vectors.ids):
            raise InputError("there are no documents to index", do="encode some first")
        if vectors.made.kind != "documents":
            raise InputError(f"vectors of {vectors.made.kind}, not of documents", do="encode the documents")
        index = IndexFolder.empty(folder, vectors.made, settings or BackendSettings())
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
        >>> from remargin.retrieval.index_folder import open_index
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
