"""remargin mine: judgments -> triplets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from remargin.cli.options import (
    Config,
    Model,
    Overwrite,
    RequiredData,
    SkipBad,
    Split,
    Threads,
    load_collection,
    load_encoder,
)
from remargin.progress import tell


def mine(
    data: RequiredData,
    out: Annotated[Path, typer.Option(help="The table to write: .tsv or .tsv.gz.")],
    negatives: Annotated[str, typer.Option(help="Where they come from: bm25, random, or model.")] = "bm25",
    model: Model = None,
    depth: Annotated[int, typer.Option(help="Draw from the first this many documents of the ranking.")] = 1000,
    triplets: Annotated[int, typer.Option(help="Triplets for each query and positive.")] = 1,
    per_triplet: Annotated[int, typer.Option(help="Negatives in each triplet.")] = 1,
    seed: Annotated[int, typer.Option(help="The same seed gives the same triplets.")] = 0,
    split: Split = "train",
    skip_bad: SkipBad = False,
    overwrite: Overwrite = False,
    threads: Threads = None,
    config: Config = None,
) -> None:
    """Make training triplets from judgments; a document known to be relevant is never a negative."""
    from remargin.mining.negatives import MiningSettings
    from remargin.mining.negatives import mine as run

    settings = MiningSettings(negatives, depth, triplets, per_triplet, seed)  # type: ignore[arg-type]
    encoder = None if model is None else load_encoder(model)
    mined = run(load_collection(data, split, skip_bad), out, settings, encoder, overwrite)
    tell(f"wrote {out}: {mined.triplets:,} triplets for {mined.queries:,} queries")
    if mined.without_ranking:
        tell(f"queries for which nothing was found, with negatives at random: {mined.without_ranking:,}", error=True)
    if mined.filled_at_random:
        tell(f"negatives drawn at random because the ranking had too few: {mined.filled_at_random:,}")
