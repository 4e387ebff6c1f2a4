"""remargin sweep: a grid over a loss parameter."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from remargin.cli.options import BATCH_SIZE, DATA_WITH_SPLITS, IN_BATCH, START, TRIPLETS, Config, Threads
from remargin.cli.screen import print_tables, table_data
from remargin.progress import say, show, tell


def sweep(
    data: Annotated[str, typer.Option(help=DATA_WITH_SPLITS)],
    model: Annotated[str, typer.Option(help=START)],
    out: Annotated[Path, typer.Option(help="Folder for the results. If interrupted, the same command resumes.")],
    parameter: Annotated[
        str, typer.Option(help="Loss parameter: margin (static targets) or temperature (contrastive loss).")
    ] = "margin",
    values: Annotated[
        list[float] | None,
        typer.Option(
            help="Values of the grid. A later sweep into the same folder can add values.",
            show_default="margins 0, 0.1, ... 1, or temperatures 0.01, 0.02, 0.05, 0.1, 0.2",
        ),
    ] = None,
    in_batch: Annotated[bool, typer.Option(help=IN_BATCH)] = False,
    run_triplets: Annotated[int, typer.Option(help="Triplets per training run.")] = 25_600,
    batch_size: Annotated[int, typer.Option(help=BATCH_SIZE)] = 128,
    learning_rate: Annotated[float, typer.Option(help="Peak learning rate.")] = 1e-4,
    triplets: Annotated[Path | None, typer.Option(help=TRIPLETS, show_default="mined with BM25")] = None,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
    threads: Threads = None,
    config: Config = None,
) -> dict[str, Any]:
    """Train with each value of a loss parameter, choose the best value on dev, and report the cost.

    Examples:
        remargin sweep --data pairs:faq.csv --model minilm --out runs/margins
    """
    import remargin

    section = remargin.sweep(
        data, model, out, parameter, values, in_batch, run_triplets, batch_size, learning_rate, triplets, seed, say=say
    )
    print_tables(section.tables)
    show("\n".join(["", *section.summary]))
    tell(f"wrote {out / section.name}")
    return {
        "out": out / section.name,
        "summary": section.summary,
        "tables": [table_data(table) for table in section.tables],
    }
