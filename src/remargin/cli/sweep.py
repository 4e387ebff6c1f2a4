"""remargin sweep: a grid over a loss parameter."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from remargin.cli.options import Config, Threads, require_ours
from remargin.cli.screen import print_tables
from remargin.errors import InputError
from remargin.progress import tell


def sweep(
    data: Annotated[str, typer.Option(help="The collection: needs train, dev and test queries.")],
    model: Annotated[str, typer.Option(help="The encoder to start from: a folder or a Hugging Face name.")],
    out: Annotated[Path, typer.Option(help="The folder; one that was stopped goes on where it was.")],
    parameter: Annotated[str, typer.Option(help="margin (static targets) or temperature (contrastive).")] = "margin",
    values: Annotated[
        list[float] | None, typer.Option(help="The grid; without, the paper's 0, 0.1, ... 1. It may grow later.")
    ] = None,
    in_batch: Annotated[bool, typer.Option(help="With in-batch negatives.")] = False,
    run_triplets: Annotated[int, typer.Option(help="Triplets that each run sees, the same for all.")] = 25_600,
    batch_size: Annotated[int, typer.Option(help="Triplets in a batch.")] = 128,
    learning_rate: Annotated[float, typer.Option(help="At its highest.")] = 1e-4,
    triplets: Annotated[Path | None, typer.Option(help="Triplets of ids; without, BM25's negatives.")] = None,
    seed: Annotated[int, typer.Option(help="For everything that is random.")] = 0,
    threads: Threads = None,
    config: Config = None,
) -> None:
    """Train with each value on the same triplets, and choose on dev. What it costs is counted."""
    from remargin.experiments.plan import Plan
    from remargin.experiments.study import Study
    from remargin.experiments.sweeping import PARAMETERS, swept

    if (parameter, in_batch) not in PARAMETERS:
        raise InputError(f"no sweep over {parameter!r}{' with --in-batch' if in_batch else ''}",
                         do="use margin, with or without --in-batch, or temperature")  # fmt: skip
    grid = {f"{parameter}s": tuple(dict.fromkeys(values))} if values else {}
    plan = Plan.of(
        {
            "triplets": run_triplets,
            "sweep_triplets": run_triplets,
            "validate_every": max(1, run_triplets // 5),
            "patience": None,
            "batch_size": batch_size,
            "rates": (learning_rate,),
            "seeds": (seed,),
            "preset": "default",
            **grid,
        }
    )
    name = Path(model).absolute().name
    require_ours(out)
    study = Study(out, data, {name: model}, plan, (), triplets, say=lambda line: tell(line, error=True), own_grids=True)
    outcome = swept(study, parameter, in_batch)
    folder = outcome.save(out / outcome.section.name)
    print_tables(outcome.section.tables)
    tell("\n".join(["", *outcome.section.summary]))
    tell(f"wrote {folder}")
