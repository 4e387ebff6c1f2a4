"""remargin demo."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from remargin.cli.options import Config, Threads


def demo(
    data: Annotated[
        str, typer.Option(help="Any collection, as for the other verbs.")
    ] = "docstrings:stdlib,numpy,scipy",
    model: Annotated[str | None, typer.Option(help="The encoder; without, MiniLM from its PyPI package.")] = None,
    out: Annotated[Path, typer.Option(help="The folder to write.")] = Path("runs/demo"),
    steps: Annotated[int, typer.Option(min=1, help="Steps of training.")] = 40,
    batch_size: Annotated[int, typer.Option(min=2, help="Triplets in a step.")] = 32,
    learning_rate: Annotated[float, typer.Option(help="At its highest.")] = 5e-5,
    document_length: Annotated[int, typer.Option(min=3, help="Longest document, in tokens.")] = 128,
    seed: Annotated[int, typer.Option(help="For everything that is random.")] = 0,
    threads: Threads = None,
    config: Config = None,
) -> None:
    """Fine-tune a real encoder on docstrings, or on your own texts, and see what it gains. No GPU, no download."""
    from remargin.demo.demo import DemoSettings
    from remargin.demo.demo import demo as run

    run(DemoSettings(data, model, out, steps, batch_size, learning_rate, document_length, seed))
