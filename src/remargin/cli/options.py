"""Options that several verbs share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from remargin.config import read_config


def _load(context: typer.Context, path: Path | None) -> Path | None:
    if path is not None:
        names = [p.name for p in context.command.params if p.name and p.name not in ("config", "help")]
        context.default_map = read_config(path, known=names)
    return path


Config = Annotated[
    Path | None,
    typer.Option(callback=_load, is_eager=True, help="A YAML file of the options below; flags override it."),
]
Data = Annotated[
    str | None,
    typer.Option(
        help="The collection: a BEIR folder, irds:NAME, docstrings:PACKAGE,PACKAGE (or stdlib, or a folder of code), "
        "or pairs:FILE (CSV, TSV, JSONL or Parquet; pairs:FILE?query=COLUMN&document=COLUMN names the columns)."
    ),
]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Count bad input, set it aside in rejects.jsonl, and go on.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the output if it is already there.")]
