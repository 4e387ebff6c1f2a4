"""Options that several verbs share."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from remargin.config import read_config

if TYPE_CHECKING:
    from remargin.data.collection import Collection


def _load(context: typer.Context, path: Path | None) -> Path | None:
    if path is not None:
        names = [p.name for p in context.command.params if p.name and p.name not in ("config", "help")]
        context.default_map = read_config(path, known=names)
    return path


def load_collection(data: str, split: str, skip_bad: bool) -> Collection:
    """The collection; what was skipped is counted on standard error."""
    from remargin.data.collection import Collection

    collection = Collection.load(data, split, skip_bad)
    if collection.rejects.errors:
        first = collection.rejects.errors[0]
        print(f"skipped bad input: {len(collection.rejects.errors):,}, the first is {first}", file=sys.stderr)
    return collection


Config = Annotated[
    Path | None,
    typer.Option(callback=_load, is_eager=True, help="A YAML file of these options; flags override it."),
]
_DATA = typer.Option(
    help="The collection: a BEIR folder, irds:NAME, docstrings:PACKAGE,PACKAGE (or stdlib, or a folder of code), "
    "or pairs:FILE (CSV, TSV, JSONL or Parquet; pairs:FILE?query=COLUMN&document=COLUMN names the columns)."
)
Data = Annotated[str | None, _DATA]
RequiredData = Annotated[str, _DATA]
Model = Annotated[str | None, typer.Option(help="The encoder: a folder or a Hugging Face name.")]
Split = Annotated[str, typer.Option(help="Which of the collection's splits.")]
SkipBad = Annotated[bool, typer.Option(help="Set bad input aside, count it, and go on.")]
Overwrite = Annotated[bool, typer.Option(help="Replace the output if it is already there.")]
