"""remargin demo."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from remargin.cli.options import BATCH_SIZE, DATA, INT, MODEL, Config, Language, Threads


def demo(
    data: Annotated[str, typer.Option(help=DATA)] = "docstrings:stdlib,numpy,scipy",
    model: Annotated[
        str | None,
        typer.Option(help=MODEL, show_default="all-MiniLM-L6-v2 from its PyPI package"),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder to write.")] = Path("runs/demo"),
    steps: Annotated[int, typer.Option(min=1, metavar=INT, help="Number of optimiser steps.")] = 80,
    batch_size: Annotated[int, typer.Option(min=2, metavar=INT, help=BATCH_SIZE)] = 64,
    document_length: Annotated[int, typer.Option(min=3, metavar=INT, help="Maximum document length in tokens.")] = 128,
    training_length: Annotated[
        int, typer.Option(min=3, metavar=INT, help="Maximum document length in tokens while training.")
    ] = 64,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
    language: Language = "auto",
    serve: Annotated[bool, typer.Option("--serve", help="End in a search page on the model, until stopped.")] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, metavar=INT, help="Port of that page.")] = 8000,
    threads: Threads = None,
    config: Config = None,
) -> dict[str, Any]:
    """Fine-tune a real encoder on docstrings or on your own texts, and measure the gain. Needs no GPU, no download.

    Examples:
        remargin demo
        remargin demo --data pairs:faq.csv --out runs/faq-demo
    """
    import remargin

    options = (data, model, out, steps, batch_size, document_length, training_length, seed, language)
    metrics = remargin.demo(*options, serve=serve, port=port)
    return {"out": out, "model": out / "model", **metrics}
