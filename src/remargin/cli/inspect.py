"""remargin inspect: one training instance, explained."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from remargin.cli.options import INT, Config
from remargin.cli.screen import print_tables, screen_width


def inspect(
    data: Annotated[Path, typer.Option(help="Folder that `prepare` or `fit` (OUT/data) wrote, with triplets.")],
    model: Annotated[str, typer.Option(help="Encoder: a folder or a Hugging Face name.")],
    query: Annotated[str | None, typer.Option(help="Id of a query in the batch.", show_default="the first")] = None,
    batch: Annotated[int, typer.Option(min=0, metavar=INT, help="Number of the batch in training, from 0.")] = 0,
    batch_size: Annotated[int, typer.Option(min=1, metavar=INT, help="Triplets in a batch.")] = 64,
    seed: Annotated[int, typer.Option(help="Random seed of the training run.")] = 0,
    config: Config = None,
) -> None:
    """Show a query of a batch, its positive, and the negatives with the highest, a middle and the lowest target."""
    import remargin
    from remargin.training.inspection import LONGEST, instance_table

    instance = remargin.inspect(data, model, query, batch, batch_size, seed)
    width = screen_width()
    longest = LONGEST if width is None else max(40, width - 56)  # beside the other columns
    print_tables([instance_table(instance, f"query {instance.query.id}, batch {batch}", longest)])
