"""remargin encode: vectors of texts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from remargin.cli.engines import engine_executor
from remargin.cli.options import (
    INT,
    OF_RAY,
    Config,
    Dims,
    DocumentLength,
    DocumentPrefix,
    Engine,
    Overwrite,
    PassageLength,
    PassageOverlap,
    Pooling,
    Precision,
    QueryLength,
    QueryPrefix,
    RayAddress,
    RequiredData,
    RequiredModel,
    Similarity,
    SkipBad,
    Threads,
    Workers,
)
from remargin.progress import tell

if TYPE_CHECKING:
    from remargin.retrieval.vectors import Made

SHARD_SIZE = "ray: texts in a shard, which one worker encodes at a time; a multiple of 4,096."
DTYPE = "Data type of the stored vectors: float32, or float16 for half the size."


def encode(
    data: RequiredData,
    model: RequiredModel,
    out: Annotated[Path, typer.Option(help="Folder to write the vectors to.")],
    kind: Annotated[str, typer.Option(help="Texts to encode: documents or queries.")] = "documents",
    dtype: Annotated[str, typer.Option(help=DTYPE)] = "float32",
    precision: Precision = "auto",
    passage_length: PassageLength = "auto",
    passage_overlap: PassageOverlap = None,
    query_length: QueryLength = None,
    document_length: DocumentLength = None,
    query_prefix: QueryPrefix = None,
    document_prefix: DocumentPrefix = None,
    pooling: Pooling = None,
    similarity: Similarity = None,
    dims: Dims = None,
    skip_bad: SkipBad = False,
    overwrite: Overwrite = False,
    threads: Threads = None,
    config: Config = None,
    engine: Engine = "local",
    ray_address: RayAddress = None,
    workers: Workers = None,
    shard_size: Annotated[
        int | None,
        typer.Option(metavar=INT, help=SHARD_SIZE, show_default="65,536", rich_help_panel=OF_RAY),
    ] = None,
) -> dict[str, Any]:
    """Encode a collection's texts as vectors, in a memory-mapped matrix. If interrupted, the same command resumes.

    Examples:
        remargin encode --data pairs:faq.csv --model runs/faq/model --out vectors
        remargin encode --data faq --model minilm --out vectors --engine ray
    """
    import remargin

    with engine_executor(engine, ray_address, workers) as executor:
        vectors = remargin.encode(
            data,
            model,
            out,
            kind=kind,  # type: ignore[arg-type]
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
            skip_bad=skip_bad,
            overwrite=overwrite,
            executor=executor,
            shard_size=shard_size,
        )
    rows, dimension = vectors.matrix.shape
    tell(f"wrote {out}: {len(vectors.ids):,} {kind}, {rows:,} vectors of {dimension} numbers ({dtype})")
    tell_lengths(vectors.truncated, rows, vectors.made, vectors.passages_line())
    counts = {kind: len(vectors.ids), "vectors": rows, "dimension": dimension, "truncated": vectors.truncated}
    return {"out": out, **counts}


def tell_lengths(truncated: int, rows: int, made: Made, split: str | None) -> None:
    """Say how many texts were split into passages, and how many were truncated, if any were."""
    if split is not None:
        tell(split)
    if truncated:
        whole = made.kind != "documents" or made.passage_length is not None
        advice = "" if whole else "; --passage-length auto reads them whole"
        tell(f"longer than {made.length} tokens and truncated: {truncated:,} ({truncated / rows:.1%}){advice}")
