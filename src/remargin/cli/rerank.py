"""remargin rerank: new scores for the documents of a run file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from remargin.cli.options import Config, Overwrite, Precision, RequiredData, SkipBad, Split, Threads
from remargin.progress import tell


def rerank(
    data: RequiredData,
    model: Annotated[str, typer.Option(help="The encoder, or a cross-encoder: a folder or a Hugging Face name.")],
    run: Annotated[Path, typer.Option(help="The run file whose documents get new scores.")],
    out: Annotated[Path, typer.Option(help="The run file to write; a name in .gz compresses it.")],
    depth: Annotated[
        int | None, typer.Option(min=1, help="Documents of each query to re-rank; the others are left out.")
    ] = None,
    precision: Precision = "auto",
    split: Split = "test",
    skip_bad: SkipBad = False,
    overwrite: Overwrite = False,
    threads: Threads = None,
    config: Config = None,
) -> None:
    """Give the documents of a run new scores, by a model's similarity or a cross-encoder's score."""
    import remargin

    reranked = remargin.rerank(
        data,
        model,
        run,
        depth,
        precision=precision,  # type: ignore[arg-type]
        split=split,
        skip_bad=skip_bad,
        out=out,
        overwrite=overwrite,
    )
    tell(f"wrote {out}: {len(reranked):,} queries")
