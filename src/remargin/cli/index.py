"""remargin encode, index, update: vectors of texts and what searches them."""

from __future__ import annotations

import shutil
import sys
import time
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from remargin.cli.options import (
    Compute,
    Config,
    Data,
    Model,
    Overwrite,
    RequiredData,
    SkipBad,
    load_encoder,
    refuse_idle,
)
from remargin.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from remargin.data.source import Text
    from remargin.data.tables import Rejects
    from remargin.encoder import BiEncoder
    from remargin.retrieval.vectors import Vectors

Precision = Annotated[str, typer.Option(help="float32, or float16 for half the size.")]
Chunk = Annotated[
    int | None,
    typer.Option(help="Cut documents into overlapping passages of so many tokens; one scores as its best passage."),
]
Overlap = Annotated[int | None, typer.Option(help="Tokens that neighbouring passages share; a quarter by default.")]
Length = Annotated[int | None, typer.Option(min=3, help="Tokens to read of each text, if not what the model says.")]


def encode(
    data: RequiredData,
    model: Annotated[str, typer.Option(help="The encoder: a folder or a Hugging Face name.")],
    out: Annotated[Path, typer.Option(help="The folder to write.")],
    what: Annotated[str, typer.Option(help="documents, or queries.")] = "documents",
    precision: Precision = "float32",
    compute: Compute = "auto",
    chunk: Chunk = None,
    overlap: Overlap = None,
    length: Length = None,
    skip_bad: SkipBad = False,
    overwrite: Overwrite = False,
    config: Config = None,
) -> None:
    """Encode a collection's texts into a memory-mapped matrix. Killed in the middle, it goes on where it was."""
    from remargin.data.tables import Rejects
    from remargin.files import refuse_existing
    from remargin.retrieval.vectors import HEADER

    if what not in ("documents", "queries"):
        raise InputError(f"nothing called {what!r} to encode", do="use documents or queries")
    refuse_existing(out, overwrite, HEADER)
    rejects = Rejects(skip=skip_bad)
    encoder = _load(model, length, what, compute)
    vectors = _encode(data, encoder, out, rejects, overwrite, what, precision, chunk, overlap)
    rows, dimension = vectors.matrix.shape
    print(f"wrote {out}: {len(vectors.ids):,} {what}, {rows:,} vectors of {dimension} numbers ({precision})")
    _say_truncated(vectors, what)


def index(
    context: typer.Context,
    out: Annotated[Path, typer.Option(help="The folder to write.")],
    vectors: Annotated[Path | None, typer.Option(help="What `remargin encode` wrote.")] = None,
    data: Data = None,
    model: Model = None,
    index: Annotated[str, typer.Option(help="exact, faiss (the paper's HNSW over OPQ), milvus, or bm25.")] = "exact",
    precision: Precision = "float32",
    chunk: Chunk = None,
    overlap: Overlap = None,
    length: Length = None,
    coding: Annotated[str | None, typer.Option(help="exact: compare codes, int8 or binary, then re-score.")] = None,
    over_fetch: Annotated[
        int | None, typer.Option(help="Candidates to re-score exactly for each wanted document: 8, or 2 for int8.")
    ] = None,
    factory: Annotated[
        str | None, typer.Option(help="faiss: any index, as its factory writes it; milvus: an index type.")
    ] = None,
    links: Annotated[int, typer.Option(help="faiss: links of each vector in the HNSW graph.")] = 32,
    ef_construction: Annotated[int, typer.Option(help="faiss: candidates for links while building.")] = 200,
    code_bytes: Annotated[int, typer.Option(help="faiss: bytes of each vector's quantised code.")] = 32,
    search_parameters: Annotated[str, typer.Option(help="faiss: such as nprobe=64 for IVF indexes.")] = "",
    uri: Annotated[str | None, typer.Option(help="milvus: a server; without it, a file in the folder.")] = None,
    k1: Annotated[float, typer.Option(help="bm25: how soon repeated words stop counting.")] = 0.9,
    b: Annotated[float, typer.Option(help="bm25: how much long documents are held back, 0 to 1.")] = 0.4,
    language: Annotated[str, typer.Option(help="bm25: of the stemmer and the stop words.")] = "english",
    skip_bad: SkipBad = False,
    overwrite: Overwrite = False,
    config: Config = None,
) -> None:
    """Build an index, from vectors or straight from a collection; `remargin search --index FOLDER` uses it."""
    from remargin.data.tables import Rejects
    from remargin.files import refuse_existing

    _refuse_idle_options(context, index, vectors is not None, factory is not None, coding is not None)
    rejects = Rejects(skip=skip_bad)
    if index == "bm25":
        _index_words(data, out, rejects, overwrite, k1, b, language)
        return
    from remargin.retrieval.backends import BackendSettings
    from remargin.retrieval.index import HEADER, build_index
    from remargin.retrieval.vectors import Vectors

    given: Any = (index, coding, over_fetch, factory, links, ef_construction, code_bytes, search_parameters, uri)
    settings = BackendSettings(*given)
    settings.check()
    refuse_existing(out, overwrite, HEADER)
    if (vectors is None) == (data is None) or (data is None) != (model is None):
        raise InputError("an index is made of vectors, or of texts and a model", do="give --vectors, or --data --model")
    if vectors is not None:
        source: AbstractContextManager[Vectors] = nullcontext(Vectors.load(vectors))
    else:
        encoder = _load(str(model), length, "documents")
        source = _vectors_between(str(data), encoder, out, rejects, precision, chunk, overlap)
    with source as made:
        start = time.perf_counter()
        build_index(made, out, settings, overwrite)
        seconds = time.perf_counter() - start
    count, stored = len(made.ids), (out / "vectors.bin").stat().st_size
    extra = (_size(out) - stored) / count
    print(f"wrote {out}: {index} index of {count:,} documents, built in {seconds:,.1f} s")
    print(f"bytes of each document: {stored / count:,.0f} of vectors, {extra:,.0f} of the index")


def _index_words(data: str | None, out: Path, rejects: Rejects, overwrite: bool, *settings: Any) -> None:
    """A BM25 index."""
    from remargin.files import refuse_existing
    from remargin.retrieval.bm25 import BM25, HEADER

    if data is None:
        raise InputError("a BM25 index is made of texts", do="give --data")
    refuse_existing(out, overwrite, HEADER)
    index = BM25({text.id: text.text for text in _texts(data, "documents", rejects)}, *settings)
    index.save(out, data, overwrite)
    print(f"wrote {out}: BM25 of {len(index):,} documents, {_size(out) / len(index):,.0f} bytes each")


@contextmanager
def _vectors_between(data: str, encoder: BiEncoder, out: Path, rejects: Rejects, *settings: Any) -> Iterator[Vectors]:
    """A collection's vectors in a folder beside `out`, which stays if the index could not be built from them."""
    folder = out.absolute().with_name(f"{out.name}.vectors")
    if folder.exists():
        do = f"give --vectors {folder} to go on with them, or remove them"
        raise InputError("is there already, perhaps from a build that was stopped", file=folder, do=do)
    made = _encode(data, encoder, folder, rejects, False, "documents", *settings)
    _say_truncated(made, "documents")
    try:
        yield made
    except BaseException:
        print(f"the vectors are in {folder}: to go on with them, give --vectors", file=sys.stderr)
        raise
    shutil.rmtree(folder)


def update(
    context: typer.Context,
    index: Annotated[Path, typer.Option(help="The index to change, a folder.")],
    data: Data = None,
    keep_others: Annotated[bool, typer.Option(help="Keep documents that are not in --data.")] = False,
    vectors: Annotated[Path | None, typer.Option(help="Add these, which `remargin encode` wrote.")] = None,
    replace: Annotated[bool, typer.Option(help="Documents of --vectors may take the place of older ones.")] = False,
    delete: Annotated[Path | None, typer.Option(help="Delete the documents in this file, one id a line.")] = None,
    model: Model = None,
    skip_bad: SkipBad = False,
    config: Config = None,
) -> None:
    """Change an index in place: follow a collection (new and changed documents are encoded), add, or delete."""
    from remargin.data.tables import Rejects
    from remargin.retrieval.index import add_documents, delete_documents, synchronise
    from remargin.retrieval.vectors import Vectors

    if sum(given is not None for given in (data, vectors, delete)) != 1:
        raise InputError("nothing to do, or too much at once", do="give one of --data, --vectors and --delete")
    refuse_idle(
        context,
        {
            "--data": ("replace",) if data is not None else (),
            "--vectors": ("keep_others", "model", "skip_bad") if vectors is not None else (),
            "--delete": ("keep_others", "model", "skip_bad", "replace") if delete is not None else (),
        },
    )
    if data is not None:
        if skip_bad and not keep_others:
            raise InputError("documents that cannot be read would be deleted", do="give --keep-others with --skip-bad")
        rejects = Rejects(skip=skip_bad)
        encoder = None if model is None else _load(model, None, "documents")
        changes = synchronise(index, _texts(data, "documents", rejects), encoder, keep_others)
        print(f"{index}: {changes.added:,} added, {changes.replaced:,} replaced, {changes.deleted:,} deleted")
    elif vectors is not None:
        changes = add_documents(index, Vectors.load(vectors), replace)
        print(f"{index}: {changes.added:,} added, {changes.replaced:,} replaced")
    elif delete is not None:
        from remargin.data.tables import read_lines

        ids = list(dict.fromkeys(line.strip() for _, line in read_lines(delete, Rejects()) if line.strip()))
        if not ids:
            raise InputError("no ids in it", file=delete, do="write one id a line")
        delete_documents(index, ids)
        print(f"{index}: {len(ids):,} deleted")


_ENCODING = ("precision", "chunk", "overlap", "length")
_GRAPH = ("links", "ef_construction", "code_bytes", "search_parameters")


def _refuse_idle_options(context: typer.Context, index: str, vectors: bool, factory: bool, coding: bool) -> None:
    """An option that the index would not even look at is a misunderstanding: say so."""
    idle: dict[str, tuple[str, ...]] = {}
    if index == "bm25":
        dense = ("vectors", "model", "coding", "over_fetch", "factory", "uri", *_GRAPH, *_ENCODING)
        idle["a BM25 index"] = dense
    else:
        idle[f"index {index}"] = ("k1", "b", "language")
        idle["vectors that are encoded already"] = (*_ENCODING, "skip_bad") if vectors else ()
        idle[f"index {index}, which is not faiss,"] = _GRAPH if index != "faiss" else ()
        idle["a --factory of your own"] = ("links", "code_bytes") if factory and index == "faiss" else ()
        idle[f"index {index}, which is not milvus,"] = ("uri",) if index != "milvus" else ()
        idle["exact search without --coding"] = ("over_fetch",) if index == "exact" and not coding else ()
    refuse_idle(context, idle)


def _load(model: str, length: int | None, what: str, compute: str = "auto") -> BiEncoder:
    return load_encoder(model, compute, **{"query_length" if what == "queries" else "document_length": length})


def _texts(data: str, what: str, rejects: Rejects) -> Iterator[Text]:
    """A collection's texts, streamed; what was skipped is counted on standard error at the end."""
    from remargin.data.collection import open_source
    from remargin.data.source import checked_texts

    source = open_source(data, rejects)
    if what == "documents":
        yield from checked_texts(source.documents(), "document", rejects)
    else:
        yield from checked_texts(source.queries(), "query", rejects)
    if rejects.count:
        print(f"skipped bad input: {rejects.describe()}", file=sys.stderr)


def _encode(
    data: str, encoder: BiEncoder, out: Path, rejects: Rejects, overwrite: bool, what: Any, *settings: Any
) -> Vectors:
    from remargin.retrieval.vectors import Made
    from remargin.retrieval.vectors import encode as write_vectors

    made = Made.by(encoder, data, what, *settings)
    return write_vectors(encoder, _texts(data, what, rejects), out, made, overwrite)


def _say_truncated(vectors: Vectors, what: str) -> None:
    if vectors.truncated:
        share = vectors.truncated / len(vectors.matrix)
        advice = "; --chunk reads them whole" if what == "documents" and vectors.made.chunk is None else ""
        print(f"longer than {vectors.made.length} tokens and cut: {vectors.truncated:,} ({share:.1%}){advice}")


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
