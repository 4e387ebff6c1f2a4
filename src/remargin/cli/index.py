"""remargin index: what searches vectors, or words."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from remargin.cli.encode import DTYPE, tell_lengths
from remargin.cli.options import (
    HYBRID,
    LANGUAGE,
    MODEL,
    PRECISION,
    Config,
    Data,
    Dims,
    DocumentLength,
    DocumentPrefix,
    Overwrite,
    PassageLength,
    PassageOverlap,
    Pooling,
    QueryLength,
    QueryPrefix,
    Similarity,
    SkipBad,
    Threads,
)
from remargin.progress import tell
from remargin.retrieval.base import BACKENDS
from remargin.retrieval.languages import describe_choice


def index(
    out: Annotated[Path, typer.Option(help="Index folder to write.")],
    vectors: Annotated[
        Path | None,
        typer.Option(help="Vectors that `remargin encode` wrote, instead of --model and, without BM25, --data."),
    ] = None,
    data: Data = None,
    model: Annotated[str | None, typer.Option(help=f"{MODEL} bm25 needs none.")] = None,
    index: Annotated[
        str, typer.Option(help=f"Kind of index: {', '.join(BACKENDS)} or bm25. faiss is the paper's HNSW over OPQ.")
    ] = "exact",
    dtype: Annotated[
        str | None,
        typer.Option(help=DTYPE, show_default="float32"),
    ] = None,
    precision: Annotated[
        str | None,
        typer.Option(help=PRECISION, show_default="auto"),
    ] = None,
    passage_length: PassageLength = "auto",
    passage_overlap: PassageOverlap = None,
    query_length: QueryLength = None,
    document_length: DocumentLength = None,
    query_prefix: QueryPrefix = None,
    document_prefix: DocumentPrefix = None,
    pooling: Pooling = None,
    similarity: Similarity = None,
    dims: Dims = None,
    coding: Annotated[
        str | None, typer.Option(help="exact: quantisation of the vectors to search, int8 (scalar) or binary.")
    ] = None,
    over_fetch: Annotated[
        int | None,
        typer.Option(help="Candidates to re-score exactly per document to return.", show_default="8, or 2 for int8"),
    ] = None,
    factory: Annotated[
        str | None, typer.Option(help="faiss: factory string of another index; milvus: index type.")
    ] = None,
    links: Annotated[int | None, typer.Option(help="faiss: HNSW neighbours per vector (M).", show_default="32")] = None,
    ef_construction: Annotated[
        int | None, typer.Option(help="faiss: HNSW candidate neighbours per vector while building.", show_default="200")
    ] = None,
    code_bytes: Annotated[
        int | None,
        typer.Option(help="faiss: bytes per vector of the product-quantisation (OPQ) code.", show_default="32"),
    ] = None,
    search_parameters: Annotated[
        str | None, typer.Option(help="faiss: search parameters, such as nprobe=64 for IVF indexes.")
    ] = None,
    uri: Annotated[
        str | None, typer.Option(help="milvus: address of the server.", show_default="a file in the index folder")
    ] = None,
    hybrid: Annotated[str, typer.Option(help=HYBRID)] = "auto",
    k1: Annotated[float | None, typer.Option(help="bm25: term-frequency saturation (k1).", show_default="0.9")] = None,
    b: Annotated[float | None, typer.Option(help="bm25: length normalisation (b), 0 to 1.", show_default="0.4")] = None,
    language: Annotated[
        str | None, typer.Option(help=LANGUAGE, show_default="the one of the fusion that `remargin fit` chose, or auto")
    ] = None,
    texts: Annotated[
        bool, typer.Option(help="Keep the texts in the index, compressed, so that `remargin ask` can show them.")
    ] = True,
    skip_bad: SkipBad = False,
    overwrite: Overwrite = False,
    threads: Threads = None,
    config: Config = None,
) -> dict[str, Any]:
    """Build an index of a collection or of vectors, for `remargin search --index FOLDER` and `remargin ask`.

    Examples:
        remargin index --data pairs:faq.csv --model runs/faq/model --out faq.index
        remargin index --data pairs:faq.csv --index bm25 --out words.index
    """
    import remargin

    built = remargin.index(
        out,
        vectors=vectors,
        data=data,
        model=model,
        index=index,
        dtype=dtype,  # type: ignore[arg-type]
        precision=precision,  # type: ignore[arg-type]
        passage_length=passage_length,
        passage_overlap=passage_overlap,
        query_length=query_length,
        document_length=document_length,
        query_prefix=query_prefix,
        document_prefix=document_prefix,
        pooling=pooling,
        similarity=similarity,
        dims=dims,
        coding=coding,  # type: ignore[arg-type]
        over_fetch=over_fetch,
        factory=factory,
        links=links,
        ef_construction=ef_construction,
        code_bytes=code_bytes,
        search_parameters=search_parameters,
        uri=uri,
        k1=k1,
        b=b,
        language=language,
        hybrid=hybrid,
        texts=texts,
        skip_bad=skip_bad,
        overwrite=overwrite,
    )
    count = built.documents
    wrote = f"wrote {out}: {index} index of {count:,} documents, built in {built.seconds:,.1f} s"
    if built.made is not None and vectors is None:
        tell_lengths(built.truncated, built.rows, built.made, built.split)
        wrote += " after encoding"
    tell(wrote)
    if built.hybrid is not None:
        tell(str(built.hybrid))
    if chosen := describe_choice(built.language, language):
        tell(chosen)
    of_vectors, of_index = built.vector_bytes / count, built.other_bytes / count
    of_texts = f"{built.text_bytes / count:,.0f} of texts, " if built.text_bytes else ""
    tell(f"bytes of each document: {of_vectors:,.0f} of vectors, {of_texts}{of_index:,.0f} of the index")
    return {"out": out, "index": index, **vars(built)}
