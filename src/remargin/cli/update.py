"""remargin update: an index that follows its collection."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from remargin.cli.options import Config, Data, Model, SkipBad, Threads
from remargin.progress import tell


def update(
    index: Annotated[Path, typer.Option(help="The index to change, a folder.")],
    data: Data = None,
    keep_others: Annotated[bool, typer.Option(help="Keep documents that are not in --data.")] = False,
    vectors: Annotated[Path | None, typer.Option(help="Vectors to add, which `remargin encode` wrote.")] = None,
    replace: Annotated[bool, typer.Option(help="Let documents of --vectors replace those of the same id.")] = False,
    delete: Annotated[Path | None, typer.Option(help="File of documents to delete, one id on each line.")] = None,
    model: Model = None,
    skip_bad: SkipBad = False,
    threads: Threads = None,
    config: Config = None,
) -> None:
    """Change an index in place: follow a collection (new and changed documents are encoded), add, or delete."""
    import remargin

    changes = remargin.update(
        index,
        data=data,
        vectors=vectors,
        delete=delete,
        model=model,
        keep_others=keep_others,
        replace=replace,
        skip_bad=skip_bad,
    )
    tell(f"{index}: {changes.added:,} added, {changes.replaced:,} replaced, {changes.deleted:,} deleted")
