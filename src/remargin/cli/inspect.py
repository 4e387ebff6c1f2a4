"""remargin inspect: one training instance, explained."""

from __future__ import annotations

from typing import Annotated

import typer

from remargin.cli.options import Config, load_encoder
from remargin.cli.screen import print_tables, screen_width


def inspect(
    data: Annotated[str, typer.Option(help="A folder that `prepare` or `fit` (OUT/data) wrote, with triplets.")],
    model: Annotated[str, typer.Option(help="The encoder: a folder or a Hugging Face name.")],
    query: Annotated[str | None, typer.Option(help="The id of a query in the batch; without, the first.")] = None,
    batch: Annotated[int, typer.Option(min=0, help="Which batch, as `fit` counts them, from 0.")] = 0,
    batch_size: Annotated[int, typer.Option(min=1, help="Triplets in a batch.")] = 64,
    seed: Annotated[int, typer.Option(help="Of the run.")] = 0,
    config: Config = None,
) -> None:
    """Show a query of a batch, its positive, and the negatives with the highest, a middle and the lowest target."""
    from remargin.paper.instance import LONGEST, instance_table
    from remargin.training.inspection import inspect as look

    found = look(load_encoder(model), data, query, batch, batch_size, seed)
    width = screen_width()
    longest = LONGEST if width is None else max(40, width - 56)  # beside the other columns
    print_tables([instance_table(found, f"query {found.query.id}, batch {batch}", longest)])
