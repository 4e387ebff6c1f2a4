"""remargin rerank: new scores for the documents of a run file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from remargin.cli.options import (
    MODEL,
    RUN_FILE,
    Config,
    Dims,
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
    Similarity,
    SkipBad,
    Split,
    Threads,
)
from remargin.progress import tell


def rerank(
    data: RequiredData,
    model: Annotated[str, typer.Option(help=f"{MODEL} Or a cross-encoder, ColBERT or SPLADE.")],
    run: Annotated[Path, typer.Option(help="Run file to re-rank.")],
    out: Annotated[Path, typer.Option(help=RUN_FILE)],
    depth: Annotated[
        int | None,
        typer.Option(min=1, help="Documents to re-rank per query; the others are left out.", show_default="all"),
    ] = None,
    precision: Precision = "auto",
    split: Split = "test",
    skip_bad: SkipBad = False,
    overwrite: Overwrite = False,
    query_length: QueryLength = None,
    document_length: DocumentLength = None,
    query_prefix: QueryPrefix = None,
    document_prefix: DocumentPrefix = None,
    pooling: Pooling = None,
    similarity: Similarity = None,
    dims: Dims = None,
    passage_length: PassageLength = "auto",
    passage_overlap: PassageOverlap = None,
    threads: Threads = None,
    config: Config = None,
) -> dict[str, Any]:
    """Re-rank the documents of a run file, by an encoder's similarity or a cross-encoder's or ColBERT's score.

    Examples:
        remargin rerank --data faq --model runs/faq/model --run a.trec --out b.trec
    """
    import remargin

    reranked = remargin.rerank(
        data,
        model,
        run,
        depth,
        precision=precision,  # type: ignore[arg-type]
        split=split,
        skip_bad=skip_bad,
        out=out,
        overwrite=overwrite,
        query_length=query_length,
        document_length=document_length,
        query_prefix=query_prefix,
        document_prefix=document_prefix,
        pooling=pooling,
        similarity=similarity,
        dims=dims,
        passage_length=passage_length,
        passage_overlap=passage_overlap,
    )
    tell(f"wrote {out}: {len(reranked):,} queries")
    return {"out": out, "queries": len(reranked)}
