"""remargin sweep: a grid over a loss parameter."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from remargin.cli.options import Config, Threads
from remargin.cli.screen import print_tables, say
from remargin.progress import tell


def sweep(
    data: Annotated[str, typer.Option(help="Collection with train, dev and test queries.")],
    model: Annotated[str, typer.Option(help="Encoder to start from: a folder or a Hugging Face name.")],
    out: Annotated[Path, typer.Option(help="Folder for the results. An interrupted sweep resumes.")],
    parameter: Annotated[str, typer.Option(help="margin (static targets) or temperature (contrastive).")] = "margin",
    values: Annotated[
        list[float] | None, typer.Option(help="Grid of values; the paper's 0, 0.1, ... 1 if not given. It may grow.")
    ] = None,
    in_batch: Annotated[bool, typer.Option(help="Use in-batch negatives.")] = False,
    run_triplets: Annotated[int, typer.Option(help="Triplets that each training run sees.")] = 25_600,
    batch_size: Annotated[int, typer.Option(help="Triplets in a batch.")] = 128,
    learning_rate: Annotated[float, typer.Option(help="Peak learning rate.")] = 1e-4,
    triplets: Annotated[Path | None, typer.Option(help="Triplets of ids; BM25's negatives if not given.")] = None,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
    threads: Threads = None,
    config: Config = None,
) -> None:
    """Train with each value of a loss parameter on the same triplets, and choose on dev. The cost is counted."""
    import remargin

    section = remargin.sweep(
        data, model, out, parameter, values, in_batch, run_triplets, batch_size, learning_rate, triplets, seed, say=say
    )
    print_tables(section.tables)
    tell("\n".join(["", *section.summary]))
    tell(f"wrote {out / section.name}")
