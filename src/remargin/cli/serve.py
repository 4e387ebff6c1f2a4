"""remargin serve: search and embeddings over HTTP, with a page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from remargin.cli.options import DATA, HYBRID, INT, MODEL, Config, Dims, Pooling, Similarity, SkipBad, Threads


def serve(
    model: Annotated[str | None, typer.Option(help=MODEL, show_default="the encoder of the index")] = None,
    data: Annotated[str | None, typer.Option(help=DATA, show_default="the collection of the index")] = None,
    index: Annotated[
        Path | None, typer.Option(help="Index folder that `remargin index` wrote, instead of --model and --data.")
    ] = None,
    before: Annotated[
        str | None,
        typer.Option(
            help="Encoder to compare with: a folder, a Hugging Face name, or none.",
            show_default="with --model, the one that its training run started from",
        ),
    ] = None,
    hybrid: Annotated[str, typer.Option(help=HYBRID)] = "auto",
    host: Annotated[str, typer.Option(help="Address to bind to; one that other machines reach needs a token.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(min=0, max=65535, metavar=INT, help="Port; 0 for any that is free.")] = 8000,
    token_file: Annotated[
        Path | None,
        typer.Option(
            help="File with the bearer token that requests must have.",
            show_default="the environment variable REMARGIN_TOKEN",
        ),
    ] = None,
    collect: Annotated[
        Path | None, typer.Option(help="JSONL file for votes on results, to train on: --data pairs:FILE.")
    ] = None,
    batch_size: Annotated[
        int, typer.Option(min=1, metavar=INT, help="Maximum number of queries to encode together.")
    ] = 64,
    batch_wait: Annotated[
        float, typer.Option(min=0, metavar="<float>", help="Milliseconds that a query waits for others.")
    ] = 4.0,
    queue: Annotated[
        int, typer.Option(min=1, metavar=INT, help="Maximum number of queries that wait; more get status 429.")
    ] = 512,
    pooling: Pooling = None,
    similarity: Similarity = None,
    dims: Dims = None,
    skip_bad: SkipBad = False,
    threads: Threads = None,
    config: Config = None,
) -> None:
    """Serve search and embeddings over HTTP, with a page that compares the systems side by side.

    Examples:
        remargin serve --model runs/faq/model --data pairs:faq.csv
        remargin serve --index faq.index --collect votes.jsonl
    """
    import remargin

    remargin.serve(
        model,
        data,
        index,
        before,
        hybrid,
        host,
        port,
        token_file,
        collect,
        batch_size,
        batch_wait,
        queue,
        skip_bad,
        pooling,
        similarity,
        dims,
    )
