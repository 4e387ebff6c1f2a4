"""remargin mine: judgments -> triplets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from remargin.cli.options import Config, Model, Overwrite, RequiredData, SkipBad, Split, Threads
from remargin.progress import tell


def mine(
    data: RequiredData,
    out: Annotated[Path, typer.Option(help="The table to write: .tsv or .tsv.gz.")],
    negatives: Annotated[str, typer.Option(help="Source of the negatives: bm25, random, or model.")] = "bm25",
    model: Model = None,
    depth: Annotated[int, typer.Option(help="Rank down to which negatives are drawn from a ranking.")] = 1000,
    triplets: Annotated[int, typer.Option(help="Triplets for each query and positive.")] = 1,
    per_triplet: Annotated[int, typer.Option(help="Negatives in each triplet.")] = 1,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
    split: Split = "train",
    skip_bad: SkipBad = False,
    overwrite: Overwrite = False,
    threads: Threads = None,
    config: Config = None,
) -> None:
    """Mine training triplets from judgments; a document known to be relevant is never a negative."""
    import remargin

    source: Any = negatives  # checked by `mine` itself
    mined = remargin.mine(data, out, source, model, depth, triplets, per_triplet, seed, split, skip_bad, overwrite)
    tell(f"wrote {out}: {mined.triplets:,} triplets for {mined.queries:,} queries")
    if mined.without_ranking:
        tell(f"queries for which nothing was found, with negatives at random: {mined.without_ranking:,}", error=True)
    if mined.filled_at_random:
        tell(f"negatives drawn at random because the ranking had too few: {mined.filled_at_random:,}")
