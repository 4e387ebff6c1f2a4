"""remargin index: what searches vectors, or words."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from remargin.cli.encode import Length, PassageLength, PassageOverlap, tell_truncated
from remargin.cli.options import Config, Data, Model, Overwrite, SkipBad, Threads
from remargin.progress import tell


def index(
    out: Annotated[Path, typer.Option(help="The folder to write.")],
    vectors: Annotated[
        Path | None, typer.Option(help="Vectors that `remargin encode` wrote, instead of --data.")
    ] = None,
    data: Data = None,
    model: Model = None,
    index: Annotated[str, typer.Option(help="exact, faiss (the paper's HNSW over OPQ), milvus, or bm25.")] = "exact",
    dtype: Annotated[
        str | None,
        typer.Option(help="Type of the stored numbers: float32, or float16 of half the size.", show_default="float32"),
    ] = None,
    precision: Annotated[
        str | None,
        typer.Option(help="Numeric precision to compute in: 32, bf16, or auto.", show_default="auto"),
    ] = None,
    passage_length: PassageLength = None,
    passage_overlap: PassageOverlap = None,
    length: Length = None,
    coding: Annotated[
        str | None, typer.Option(help="exact: scalar (int8) or binary quantisation, with exact re-scoring.")
    ] = None,
    over_fetch: Annotated[
        int | None,
        typer.Option(help="Candidates to re-score exactly for each wanted document.", show_default="8, or 2 for int8"),
    ] = None,
    factory: Annotated[
        str | None, typer.Option(help="faiss: any index, as a factory string; milvus: an index type.")
    ] = None,
    links: Annotated[int | None, typer.Option(help="faiss: HNSW neighbours per vector (M).", show_default="32")] = None,
    ef_construction: Annotated[
        int | None, typer.Option(help="faiss: HNSW candidates for neighbours while building.", show_default="200")
    ] = None,
    code_bytes: Annotated[
        int | None, typer.Option(help="faiss: bytes of the product-quantisation code.", show_default="32")
    ] = None,
    search_parameters: Annotated[
        str | None, typer.Option(help="faiss: search parameters, such as nprobe=64 for IVF indexes.")
    ] = None,
    uri: Annotated[
        str | None, typer.Option(help="milvus: address of a server.", show_default="a file in the folder")
    ] = None,
    k1: Annotated[float | None, typer.Option(help="bm25: term-frequency saturation.", show_default="0.9")] = None,
    b: Annotated[float | None, typer.Option(help="bm25: length normalisation, 0 to 1.", show_default="0.4")] = None,
    language: Annotated[
        str | None, typer.Option(help="bm25: language of the stemmer and the stop words.", show_default="english")
    ] = None,
    skip_bad: SkipBad = False,
    overwrite: Overwrite = False,
    threads: Threads = None,
    config: Config = None,
) -> None:
    """Build an index, from vectors or straight from a collection; `remargin search --index FOLDER` uses it."""
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
        length=length,
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
        skip_bad=skip_bad,
        overwrite=overwrite,
    )
    if built.made is not None and vectors is None:
        tell_truncated(built.truncated, built.rows, built.made)
    count = built.documents
    tell(f"wrote {out}: {index} index of {count:,} documents, built in {built.seconds:,.1f} s")
    of_vectors, of_index = built.vector_bytes / count, built.other_bytes / count
    tell(f"bytes of each document: {of_vectors:,.0f} of vectors, {of_index:,.0f} of the index")
