"""Building a dense index in a folder, from vectors, or from the texts of a collection."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from remargin.errors import InputError
from remargin.files.atomic import new_folder, remove_folder, remove_left
from remargin.model.encoder import BiEncoder
from remargin.retrieval.base import State, Storage
from remargin.retrieval.built import Built
from remargin.retrieval.encoding import encode
from remargin.retrieval.index_folder import HEADER, IndexFolder
from remargin.retrieval.settings import BackendSettings
from remargin.retrieval.vectors import Vectors

log = logging.getLogger(__name__)


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


def index_texts(
    data: str | Path,
    model: str | Path | BiEncoder,
    out: Path,
    settings: BackendSettings,
    encoding: Mapping[str, Any],
    skip_bad: bool,
    overwrite: bool,
) -> Built:
    """Encode a collection's documents into a folder beside `out`, and write an index of them."""
    folder = out.absolute().with_name(f"{out.name}.vectors")
    if folder.exists():
        do = f"give --vectors {folder} to continue with these vectors, or remove them"
        raise InputError("is there already, perhaps from a build that was stopped", file=folder, do=do)
    vectors = encode(data, model, folder, skip_bad=skip_bad, **encoding)
    try:
        built = build_index(vectors, out, settings, overwrite)
    except InputError as error:
        do = "; ".join([*([error.do] if error.do else []), f"the vectors stay: give --vectors {folder}"])
        raise InputError(error.problem, file=error.file, id=error.id, do=do) from None
    except OSError as error:
        do = f"the vectors stay: to continue with them, give --vectors {folder}"
        raise InputError(error.strerror or str(error), file=error.filename or out, do=do) from error
    except BaseException:
        log.warning("the vectors are in %s: to continue with them, give --vectors", folder)
        raise
    remove_folder(folder)
    return built
