"""remargin inspect: one training instance, explained."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from remargin.cli.options import BATCH_SIZE, INT, PER_TRIPLET, Config, Pooling, RequiredModel, Similarity
from remargin.cli.screen import print_tables, screen_width


def inspect(
    data: Annotated[
        Path, typer.Option(help="Prepared folder with triplets: of `remargin prepare`, or OUT/data of `remargin fit`.")
    ],
    model: RequiredModel,
    query: Annotated[
        str | None, typer.Option(help="Id of a query of the batch.", show_default="the first query")
    ] = None,
    batch: Annotated[int, typer.Option(min=0, metavar=INT, help="Number of the training batch, from 0.")] = 0,
    batch_size: Annotated[int, typer.Option(min=1, metavar=INT, help=BATCH_SIZE)] = 64,
    seed: Annotated[int, typer.Option(help="Random seed of the training run.")] = 0,
    per_triplet: Annotated[int, typer.Option(min=1, metavar=INT, help=PER_TRIPLET)] = 1,
    pooling: Pooling = None,
    similarity: Similarity = None,
    config: Config = None,
) -> dict[str, Any]:
    """Explain one training instance: a query, its positive, and negatives with a high, a middle and a low target.

    Examples:
        remargin inspect --data runs/faq/data --model runs/faq/model
    """
    import remargin
    from remargin.training.inspection import LONGEST, instance_table

    instance = remargin.inspect(data, model, query, batch, batch_size, seed, per_triplet, pooling, similarity)
    width = screen_width()
    longest = LONGEST if width is None else max(40, width - 56)  # beside the other columns
    print_tables([instance_table(instance, f"query {instance.query.id}, batch {batch}", longest)])
    return vars(instance)
