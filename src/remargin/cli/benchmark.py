"""remargin benchmark: models as they are, on many collections."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from remargin.cli.options import Config, SkipBad, Threads, model_names
from remargin.cli.screen import print_tables, say
from remargin.progress import tell


def benchmark(
    out: Annotated[Path, typer.Option(help="Folder for tables and scores. An interrupted benchmark resumes.")],
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="Encoders, folders or Hugging Face names; NAME=PATH names their rows: before=PATH after=PATH."
        ),
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            help="Collections: BEIR folders, irds:NAME, a BEIR name such as scifact or SCF; also NAME=DATA. "
            "Without any, all of BEIR that the paper has, from ir_datasets."
        ),
    ] = None,
    in_domain: Annotated[
        str | None, typer.Option(help="Collection like the training data; it has its own column, outside the mean.")
    ] = None,
    bm25: Annotated[bool, typer.Option(help="Measure BM25 as well.")] = True,
    measure: Annotated[str, typer.Option(help="Measure, as ir_measures names it.")] = "nDCG@10",
    reference: Annotated[
        str | None,
        typer.Option(help="Published row for the TOST over data sets; TAS-B if it has three of the collections."),
    ] = None,
    bound: Annotated[float, typer.Option(help="Equivalence bound of the TOST.")] = 0.05,
    skip_bad: SkipBad = False,
    overwrite: Annotated[bool, typer.Option(help="Measure everything again.")] = False,
    threads: Threads = None,
    config: Config = None,
) -> None:
    """Measure models on collections that they were not trained on, beside BM25 and published results (table 5)."""
    import remargin

    tables = remargin.benchmark(
        model_names(model or []), data or [], out, measure, bm25, in_domain, reference, bound, skip_bad, overwrite, say
    )
    print_tables(tables.values())
    tell(f"\nwrote {out}")
