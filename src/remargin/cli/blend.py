"""remargin blend: a model between a trained encoder and its start."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from remargin.cli.options import (
    Config,
    Data,
    DocumentLength,
    DocumentPrefix,
    Overwrite,
    Pooling,
    QueryLength,
    QueryPrefix,
    Similarity,
    SkipBad,
    Threads,
)
from remargin.cli.screen import print_tables
from remargin.progress import tell


def blend(
    start: Annotated[str, typer.Argument(help="Encoder before training: a folder or a Hugging Face name.")],
    trained: Annotated[str, typer.Argument(help="The same encoder after training.")],
    out: Annotated[Path, typer.Option(help="Model folder to write.")],
    weight: Annotated[
        str | None,
        typer.Option(
            help="Weight of the trained model, 0 to 1, or auto: chosen on --data.", show_default="auto with --data"
        ),
    ] = None,
    data: Data = None,
    split: Annotated[str | None, typer.Option(help="Split to choose the weight on.", show_default="dev")] = None,
    measure: Annotated[
        str | None,
        typer.Option(
            "--measure",
            "--measures",
            help="Measure to choose the weight by, by its ir_measures name.",
            show_default="nDCG@10",
        ),
    ] = None,
    query_length: QueryLength = None,
    document_length: DocumentLength = None,
    query_prefix: QueryPrefix = None,
    document_prefix: DocumentPrefix = None,
    pooling: Pooling = None,
    similarity: Similarity = None,
    skip_bad: SkipBad = False,
    overwrite: Overwrite = False,
    threads: Threads = None,
    config: Config = None,
) -> dict[str, Any]:
    """Blend a trained encoder with its start: WEIGHT x trained + (1 - WEIGHT) x starting weights.

    Examples:
        remargin blend minilm runs/faq/last --weight 0.5 --out half
        remargin blend minilm runs/faq/last --data pairs:faq.csv --out blended
    """
    import remargin

    made = remargin.blend(
        start,
        trained,
        weight,
        out,
        data,
        split,
        measure,
        skip_bad,
        overwrite,
        query_length=query_length,
        document_length=document_length,
        query_prefix=query_prefix,
        document_prefix=document_prefix,
        pooling=pooling,
        similarity=similarity,
    )
    if made.path is not None:
        from remargin.reports.blend_file import path_table, path_words

        print_tables([path_table(made.path)])
        tell(path_words(made.path))
    elif data is not None:
        tell(f"{start} is a raw backbone, no start to go back to: the weight is 1", error=True)
    tell(f"wrote {out}: {made.weight:g} x {trained} + {round(1 - made.weight, 6):g} x {start}")
    return {"out": out, "weight": made.weight, "path": made.path}
