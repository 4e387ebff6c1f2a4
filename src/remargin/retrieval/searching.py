"""Searching a collection, or asking one question, with whichever index."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from remargin.data.collection import Collection, open_collection, open_source
from remargin.data.tables import Rejects
from remargin.errors import InputError
from remargin.evaluation.inputs import without_self_matches
from remargin.evaluation.runs import Run
from remargin.files.atomic import refuse_existing
from remargin.files.shapes import encodable
from remargin.retrieval.base import BACKENDS, Index
from remargin.retrieval.bm25 import BM25, NO_SPACES
from remargin.retrieval.bm25 import HEADER as BM25_HEADER
from remargin.retrieval.encoders import as_encoder

if TYPE_CHECKING:
    from remargin.model.encoder import BiEncoder
    from remargin.retrieval.dense import DenseIndex


log = logging.getLogger(__name__)
KINDS = ("bm25", *BACKENDS)


def search(
    data: str | Path | Collection,
    index: str | Path | Index = "exact",
    model: str | Path | BiEncoder | None = None,
    k: int = 1000,
    split: str = "test",
    skip_bad: bool = False,
    out: str | Path | None = None,
    overwrite: bool = False,
) -> Run:
    """Rank documents for each of a collection's queries, as `remargin search` does.

    A query that is itself a document does not find itself.

    Args:
        data: the collection, or what `Collection.load` takes: queries, and documents if the index is made on the way.
        index: "bm25"; "exact", "faiss" or "milvus" with a model; a folder that `index` wrote; an open index.
        model: the encoder, its folder, or its Hugging Face name. An index folder knows its own, and refuses another.
        k: how many documents for each query.
        split: whose queries, if `data` is not loaded yet.
        skip_bad: skip bad input, and count it in a warning, if `data` is not loaded yet.
        out: a TREC run file to write; its name may end in .gz.
        overwrite: replace `out` if it is there.

    Raises:
        InputError: for bad input, an unknown index or one of another collection, and a model that is missing or does
            not fit the index.

    Example:
        >>> collection = Collection.load("docstrings:json", split="test")
        >>> run = search(collection, "bm25", k=3)
        >>> list(run.rankings) == list(collection.queries)
        True
    """
    if out is not None:
        refuse_existing(Path(out), overwrite)
    named = isinstance(index, str | Path)
    if index in KINDS and not isinstance(data, Collection) and any(Path(str(index)).glob("remargin_*.json")):
        problem = f"{str(index)!r} is both a kind of index and a folder here"
        raise InputError(problem, do=f"write ./{index} for the folder, or search elsewhere")
    encoder = None if model is None else as_encoder(model)
    collection = open_collection(data, split, skip_bad)
    opened = _open(collection, index, encoder) if isinstance(index, str | Path) else index
    depth = k + bool(collection.self_matches)
    run = opened.search(collection.queries, depth)
    if collection.self_matches:
        run = Run.of(without_self_matches(run, collection)[0].rankings, depth=k)
    if named and index not in KINDS:
        _check_documents(opened, run, collection, Path(str(index)))
    if named and (empty := run.empty()):
        reason = "; no word of theirs is in a document" if isinstance(opened, BM25) else ""
        reason += f", and {NO_SPACES}: search with a model (--index exact)" if reason and len(empty) == len(run) else ""
        log.warning("nothing was found for %d of %d queries, such as %r%s", len(empty), len(run), empty[0], reason)
    if out is not None:
        run.save(out, tag=Path(str(index)).name if named else "search", overwrite=overwrite)
    return run


class Answer(NamedTuple):
    """A document that answers a question, its score, and its text if that could be read."""

    id: str
    score: float
    text: str | None


def ask(
    question: str,
    index: str | Path,
    k: int = 5,
    model: str | Path | BiEncoder | None = None,
    data: str | Path | None = None,
) -> list[Answer]:
    """The best documents of an index for one question, as `remargin ask` shows them.

    Args:
        question: what to look for.
        index: a folder that `index` wrote.
        k: how many documents.
        model: the encoder that made the index, if it is no longer where it was then.
        data: where the texts are, if the collection that the index was made of is no longer there. A warning says if
            they cannot be read.

    Raises:
        InputError: for an empty question, and for a folder that is no index.

    Example:
        >>> import tempfile
        >>> from remargin import index
        >>> folder = Path(tempfile.mkdtemp()) / "index"
        >>> built = index(folder, data="docstrings:json", index="bm25")
        >>> [answer.id for answer in ask("serialize obj to a JSON formatted str", folder, k=1)]
        ['json.dumps']
    """
    if not question.strip():
        raise InputError("the question is empty", do="write it in quotes")
    if not encodable(question):
        raise InputError("the question is not UTF-8", do="set the terminal, or LC_ALL, to UTF-8")
    opened = load_index(index, None if model is None else as_encoder(model))
    ranking = opened.search({"": question}, k).rankings[""]
    texts = _texts(data or opened.data, set(ranking))
    return [Answer(id, score, texts.get(id)) for id, score in ranking.items()]


def _texts(data: str | Path, wanted: set[str]) -> dict[str, str]:
    """The texts of some documents; none if the collection cannot be read, and a warning says why."""
    texts: dict[str, str] = {}
    try:
        for text in open_source(data, Rejects(skip=True)).documents():
            if text.id in wanted:
                texts[text.id] = text.text
            if len(texts) == len(wanted):
                break
    except InputError as error:
        log.warning("texts are not shown (%s); say where they are (--data)", error)
    return texts


def _check_documents(index: Index, run: Run, collection: Collection, folder: Path) -> None:
    """Refuse the index of another collection, and warn if the collection has changed since the index was made."""
    ranked = {id for ranking in run.rankings.values() for id in ranking}
    unknown = ranked.difference(collection.documents)
    if ranked and unknown == ranked:
        problem = f"is not a document of {collection.name}, nor is any other that the index finds"
        raise InputError(problem, file=folder, id=min(ranked), do="search the index of this collection")
    lacking = index.lacking(list(collection.documents))
    if lacking or unknown:
        log.warning(
            "%s lacks %d of %d documents of %s, and found %d that are not among them: see `remargin update`",
            *(folder, lacking, len(collection.documents), collection.name, len(unknown)),
        )


def _open(collection: Collection, index: str | Path, model: BiEncoder | None) -> BM25 | DenseIndex:
    if index == "bm25":
        if model is not None:
            raise InputError("index 'bm25' takes no model", do="leave --model out")
        return BM25(collection.documents)
    if index in KINDS:
        if model is None:
            raise InputError(f"index {index!r} needs a model", do="give --model")
        from remargin.retrieval.dense import DenseIndex
        from remargin.retrieval.settings import BackendSettings
        from remargin.retrieval.vectors import Vectors

        settings = BackendSettings(str(index))
        settings.check()
        return DenseIndex.in_memory(model, Vectors.of(model, collection.documents, collection.name), settings)
    if not Path(index).is_dir():
        do = f"use {', '.join(KINDS)}, or a folder that `remargin index` wrote"
        raise InputError(f"unknown index {str(index)!r}", do=do)
    return load_index(index, model)


def load_index(folder: str | Path, model: BiEncoder | None = None) -> BM25 | DenseIndex:
    """Open the index in a folder: BM25's, or a dense one with its model."""
    if (Path(folder) / BM25_HEADER).is_file():
        if model is not None:
            raise InputError("a BM25 index takes no model", file=folder, do="leave --model out")
        return BM25.load(folder)
    from remargin.retrieval.index_folder import open_index

    return open_index(folder, model)
