"""remargin encode, index, update: vectors of texts and what searches them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from remargin.cli.options import (
    Compute,
    Config,
    Data,
    Model,
    Overwrite,
    RequiredData,
    SkipBad,
    Threads,
    counting_rejects,
    load_encoder,
    refuse_idle,
)
from remargin.errors import InputError
from remargin.progress import tell

if TYPE_CHECKING:
    from remargin.model.encoder import BiEncoder
    from remargin.retrieval.vectors import Made

Precision = Annotated[str, typer.Option(help="float32, or float16 for half the size.")]
Chunk = Annotated[
    int | None,
    typer.Option(
        help="Cut documents into overlapping passages of this many tokens; a document scores as its best one."
    ),
]
Overlap = Annotated[int | None, typer.Option(help="Tokens that neighbouring passages share; a quarter by default.")]
Length = Annotated[
    int | None, typer.Option(min=3, help="Read at most this many tokens of each text, instead of what the model says.")
]


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
    threads: Threads = None,
    config: Config = None,
) -> None:
    """Encode a collection's texts into a memory-mapped matrix. Killed in the middle, it goes on where it was."""
    from remargin.files.atomic import refuse_existing
    from remargin.retrieval.vectors import HEADER, encode_collection

    if what not in ("documents", "queries"):
        raise InputError(f"nothing called {what!r} to encode", do="use documents or queries")
    refuse_existing(out, overwrite, HEADER)
    encoder = _load(model, length, what, compute)
    with counting_rejects(skip_bad) as rejects:
        vectors = encode_collection(
            encoder,
            data,
            out,
            kind=what,  # type: ignore[arg-type]
            precision=precision,  # type: ignore[arg-type]
            chunk=chunk,
            overlap=overlap,
            rejects=rejects,
            overwrite=overwrite,
        )
    rows, dimension = vectors.matrix.shape
    tell(f"wrote {out}: {len(vectors.ids):,} {what}, {rows:,} vectors of {dimension} numbers ({precision})")
    _say_truncated(vectors.truncated, rows, vectors.made)


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
    threads: Threads = None,
    config: Config = None,
) -> None:
    """Build an index, from vectors or straight from a collection; `remargin search --index FOLDER` uses it."""
    _refuse_idle_options(context, index, vectors is not None, factory is not None, coding is not None)
    if index == "bm25":
        _index_words(data, out, k1, b, language, skip_bad, overwrite)
        return
    from remargin.files.atomic import refuse_existing
    from remargin.retrieval.building import build_index, index_collection
    from remargin.retrieval.index_folder import HEADER
    from remargin.retrieval.settings import BackendSettings
    from remargin.retrieval.vectors import Vectors

    settings = BackendSettings(
        backend=index,
        coding=coding,  # type: ignore[arg-type]
        over_fetch=over_fetch,
        factory=factory,
        links=links,
        ef_construction=ef_construction,
        code_bytes=code_bytes,
        search_parameters=search_parameters,
        uri=uri,
    )
    settings.check()
    refuse_existing(out, overwrite, HEADER)
    if vectors is not None and data is None and model is None:
        built = build_index(Vectors.load(vectors), out, settings, overwrite)
    elif vectors is None and data is not None and model is not None:
        encoder = _load(model, length, "documents")
        with counting_rejects(skip_bad) as rejects:
            built = index_collection(
                encoder,
                data,
                out,
                settings,
                precision=precision,  # type: ignore[arg-type]
                chunk=chunk,
                overlap=overlap,
                rejects=rejects,
                overwrite=overwrite,
            )
        _say_truncated(built.truncated, built.rows, built.made)
    else:
        raise InputError("an index is made of vectors, or of texts and a model", do="give --vectors, or --data --model")
    count = built.documents
    tell(f"wrote {out}: {index} index of {count:,} documents, built in {built.seconds:,.1f} s")
    of_vectors, of_index = built.vector_bytes / count, built.other_bytes / count
    tell(f"bytes of each document: {of_vectors:,.0f} of vectors, {of_index:,.0f} of the index")


def _index_words(
    data: str | None, out: Path, k1: float, b: float, language: str, skip_bad: bool, overwrite: bool
) -> None:
    """Write a BM25 index, and say how large it is."""
    from remargin.retrieval.bm25 import index_collection

    if data is None:
        raise InputError("a BM25 index is made of texts", do="give --data")
    with counting_rejects(skip_bad) as rejects:
        made = index_collection(data, out, k1, b, language, rejects, overwrite)
    size = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
    tell(f"wrote {out}: BM25 of {len(made):,} documents, {size / len(made):,.0f} bytes each")


def update(
    context: typer.Context,
    index: Annotated[Path, typer.Option(help="The index to change, a folder.")],
    data: Data = None,
    keep_others: Annotated[bool, typer.Option(help="Keep documents that are not in --data.")] = False,
    vectors: Annotated[Path | None, typer.Option(help="Add these, which `remargin encode` wrote.")] = None,
    replace: Annotated[bool, typer.Option(help="Let documents of --vectors replace those of the same id.")] = False,
    delete: Annotated[Path | None, typer.Option(help="Delete the documents in this file, one id a line.")] = None,
    model: Model = None,
    skip_bad: SkipBad = False,
    threads: Threads = None,
    config: Config = None,
) -> None:
    """Change an index in place: follow a collection (new and changed documents are encoded), add, or delete."""
    from remargin.retrieval.texts import collection_texts
    from remargin.retrieval.updating import add_documents, delete_documents, synchronise
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
        encoder = None if model is None else _load(model, None, "documents")
        with counting_rejects(skip_bad) as rejects:
            changes = synchronise(index, collection_texts(data, rejects=rejects), encoder, keep_others)
        tell(f"{index}: {changes.added:,} added, {changes.replaced:,} replaced, {changes.deleted:,} deleted")
    elif vectors is not None:
        changes = add_documents(index, Vectors.load(vectors), replace)
        tell(f"{index}: {changes.added:,} added, {changes.replaced:,} replaced")
    elif delete is not None:
        from remargin.data.tables import Rejects, read_lines

        ids = list(dict.fromkeys(line.strip() for _, line in read_lines(delete, Rejects()) if line.strip()))
        if not ids:
            raise InputError("no ids in it", file=delete, do="write one id a line")
        delete_documents(index, ids)
        tell(f"{index}: {len(ids):,} deleted")


_ENCODING = ("precision", "chunk", "overlap", "length")
_GRAPH = ("links", "ef_construction", "code_bytes", "search_parameters")


def _refuse_idle_options(context: typer.Context, index: str, vectors: bool, factory: bool, coding: bool) -> None:
    """Refuse options that have no effect on this kind of index: whoever gives one has misunderstood something."""
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


def _say_truncated(truncated: int, rows: int, made: Made) -> None:
    if truncated:
        advice = "; --chunk reads them whole" if made.kind == "documents" and made.chunk is None else ""
        tell(f"longer than {made.length} tokens and cut: {truncated:,} ({truncated / rows:.1%}){advice}")
