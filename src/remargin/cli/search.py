"""remargin search: a run file by any index."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from remargin.cli.options import (
    HYBRID,
    LANGUAGE,
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
    QueryLength,
    QueryPrefix,
    RequiredData,
    Similarity,
    SkipBad,
    Split,
    Threads,
)
from remargin.progress import tell
from remargin.retrieval.base import BACKENDS

if TYPE_CHECKING:
    from remargin.retrieval.hybrid import HybridSettings


def search(
    data: RequiredData,
    out: Annotated[Path, typer.Option(help=RUN_FILE)],
    index: Annotated[
        str, typer.Option(help=f"Kind of index: bm25, {', '.join(BACKENDS)}; or a folder that `remargin index` wrote.")
    ] = "exact",
    model: Annotated[
        str | None, typer.Option(help=f"{MODEL} bm25 needs none, and an index folder has its own.")
    ] = None,
    k: Annotated[int, typer.Option(min=1, help="Maximum number of documents per query.")] = 1000,
    split: Split = "test",
    skip_bad: SkipBad = False,
    overwrite: Overwrite = False,
    hybrid: Annotated[
        str | None, typer.Option(help=HYBRID, show_default="as an index folder was made; off for a kind of index")
    ] = None,
    language: Annotated[
        str | None, typer.Option(help=LANGUAGE, show_default="auto; an index folder has its own")
    ] = None,
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
    """Rank a collection's documents for each of its queries, and write a TREC run file.

    Examples:
        remargin search --data pairs:faq.csv --index faq.index --out dense.trec
        remargin search --data pairs:faq.csv --index bm25 --out bm25.trec
    """
    import remargin

    run = remargin.search(
        data,
        index,
        model,
        k,
        split=split,
        skip_bad=skip_bad,
        out=out,
        overwrite=overwrite,
        hybrid=hybrid,
        language=language,
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
    fusion = tell_fusion(index, model, hybrid)
    tell(f"wrote {out}: {len(run):,} queries")
    return {"out": out, "queries": len(run), "fusion": fusion}


def tell_fusion(index: str | Path, model: str | None, hybrid: str | None) -> HybridSettings | None:
    """Say that BM25 and the encoder were fused, and with which weight, if they were. Returns it."""
    from remargin.retrieval.searching import fusion_of

    if (fusion := fusion_of(index, model, hybrid)) is not None:
        tell(str(fusion))
    return fusion
