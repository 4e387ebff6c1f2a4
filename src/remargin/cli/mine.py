"""remargin mine: judgments -> triplets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from remargin.cli.engines import engine_executor
from remargin.cli.options import (
    MODEL,
    Config,
    DocumentLength,
    DocumentPrefix,
    Engine,
    Language,
    Overwrite,
    Pooling,
    QueryLength,
    QueryPrefix,
    RayAddress,
    RequiredData,
    Similarity,
    SkipBad,
    Split,
    Threads,
    Workers,
)
from remargin.progress import tell
from remargin.retrieval.languages import OTHER_TERMS, describe_choice


def mine(
    data: RequiredData,
    out: Annotated[Path, typer.Option(help="Table of triplets to write: .tsv or .tsv.gz.")],
    negatives: Annotated[
        str, typer.Option(help="Source of the negatives: bm25, random, or model (the ranking of --model).")
    ] = "bm25",
    model: Annotated[str | None, typer.Option(help=MODEL)] = None,
    depth: Annotated[int, typer.Option(help="Depth of the ranking that negatives are drawn from.")] = 1000,
    triplets: Annotated[int, typer.Option(help="Triplets per pair of query and positive.")] = 1,
    per_triplet: Annotated[int, typer.Option(help="Negatives per triplet.")] = 1,
    bound: Annotated[
        float | None,
        typer.Option(
            help="Skip candidates that --model scores above this share of the positive's similarity, such as 0.95.",
            show_default="skip none",
        ),
    ] = None,
    suspicious: Annotated[
        Path | None,
        typer.Option(
            help="JSON file to write: candidates that --model scores at least as high as the positive, which may be "
            "false negatives."
        ),
    ] = None,
    language: Language = "auto",
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
    split: Split = "train",
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
    engine: Engine = "local",
    ray_address: RayAddress = None,
    workers: Workers = None,
) -> dict[str, Any]:
    """Mine training triplets from relevance judgments. A document that is judged relevant is never a negative.

    Examples:
        remargin mine --data pairs:faq.csv --out mined.tsv
        remargin mine --data faq --negatives model --model minilm --out hard.tsv
    """
    import remargin

    source: Any = negatives  # checked by `mine` itself
    with engine_executor(engine, ray_address, workers) as executor:
        mined = remargin.mine(
            data,
            out,
            source,
            model,
            depth,
            triplets,
            per_triplet,
            seed,
            split,
            skip_bad,
            overwrite,
            bound,
            suspicious,
            language=language,
            query_length=query_length,
            document_length=document_length,
            query_prefix=query_prefix,
            document_prefix=document_prefix,
            pooling=pooling,
            similarity=similarity,
            executor=executor,
        )
    if chosen := describe_choice(mined.language, language):
        tell(chosen)
    tell(f"wrote {out}: {mined.triplets:,} triplets for {mined.queries:,} queries")
    if mined.without_ranking:
        found = f"queries for which nothing was found, with negatives at random: {mined.without_ranking:,}"
        all_of_them = mined.language is not None and mined.without_ranking == mined.queries
        tell(f"{found}, all of them; {OTHER_TERMS}" if all_of_them else found, error=True)
    if bound is not None:
        tell(f"candidates skipped because they score like the positive: {mined.skipped:,}")
    if suspicious is not None:
        tell(f"wrote {suspicious}: {len(mined.suspicious):,} possible false negatives")
    if mined.filled_at_random:
        tell(f"negatives drawn at random because the ranking had too few: {mined.filled_at_random:,}")
    return {"out": out, **vars(mined), "suspicious": len(mined.suspicious)}
