"""remargin encode: vectors of texts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from remargin.cli.options import (
    Config,
    DocumentLength,
    DocumentPrefix,
    Overwrite,
    PassageLength,
    PassageOverlap,
    Pooling,
    Precision,
    QueryLength,
    QueryPrefix,
    RequiredData,
    RequiredModel,
    Similarity,
    SkipBad,
    Threads,
)
from remargin.progress import tell

if TYPE_CHECKING:
    from remargin.retrieval.vectors import Made

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
    skip_bad: SkipBad = False,
    overwrite: Overwrite = False,
    threads: Threads = None,
    config: Config = None,
) -> dict[str, Any]:
    """Encode a collection's texts as vectors, in a memory-mapped matrix. If interrupted, the same command resumes.

    Examples:
        remargin encode --data pairs:faq.csv --model runs/faq/model --out vectors
    """
    import remargin

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
        skip_bad=skip_bad,
        overwrite=overwrite,
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
