"""remargin benchmark: models as they are, on many collections."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from remargin.cli.options import BOUND, Config, Dims, Pooling, Similarity, SkipBad, Threads, model_names
from remargin.cli.screen import print_tables, table_data
from remargin.progress import say, tell


def benchmark(
    out: Annotated[Path, typer.Option(help="Folder for tables and scores. If interrupted, the same command resumes.")],
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="Encoders, ColBERT or SPLADE: folders or Hugging Face names; two encoders are QUERIES+DOCUMENTS. "
            "NAME=PATH sets the name of the row: before=PATH after=PATH."
        ),
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            help="Collections: BEIR folders, irds:NAME, or BEIR names such as scifact or SCF. NAME=DATA sets the name "
            "of the column.",
            show_default="the paper's BEIR collections, from ir_datasets",
        ),
    ] = None,
    in_domain: Annotated[
        str | None,
        typer.Option(
            help="In-domain collection, like the training data: has a column, but does not count in the mean."
        ),
    ] = None,
    bm25: Annotated[bool, typer.Option(help="Also measure BM25.")] = True,
    measure: Annotated[str, typer.Option(help="Measure, by its ir_measures name.")] = "nDCG@10",
    reference: Annotated[
        str | None,
        typer.Option(
            help="Published row to compare with, by a TOST over collections.",
            show_default="TAS-B, if three of the collections are published for it",
        ),
    ] = None,
    bound: Annotated[float, typer.Option(help=BOUND)] = 0.05,
    pooling: Pooling = None,
    similarity: Similarity = None,
    dims: Dims = None,
    skip_bad: SkipBad = False,
    overwrite: Annotated[bool, typer.Option(help="Measure everything again, and replace earlier results.")] = False,
    threads: Threads = None,
    config: Config = None,
) -> dict[str, Any]:
    """Measure models without training them, on several collections, beside BM25 and published results (table 5).

    Examples:
        remargin benchmark --model minilm after=runs/faq/model --out runs/beir
    """
    import remargin

    tables = remargin.benchmark(
        model_names(model or []),
        data or [],
        out,
        measure,
        bm25,
        in_domain,
        reference,
        bound,
        pooling,
        similarity,
        dims,
        skip_bad,
        overwrite,
        say,
    )
    print_tables(tables.values())
    tell(f"\nwrote {out}")
    return {"out": out, "tables": {name: table_data(table) for name, table in tables.items()}}
