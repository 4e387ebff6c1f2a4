"""remargin update: an index that follows its collection."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from remargin.cli.options import Config, Data, IndexModel, Pooling, Similarity, SkipBad, Threads
from remargin.progress import tell


def update(
    index: Annotated[Path, typer.Option(help="Index folder to update.")],
    data: Data = None,
    keep_others: Annotated[
        bool, typer.Option(help="Keep documents of the index that are not in --data, instead of deleting them.")
    ] = False,
    vectors: Annotated[Path | None, typer.Option(help="Vectors to add, as `remargin encode` wrote them.")] = None,
    replace: Annotated[
        bool, typer.Option(help="Replace documents of the index that have the same ids as --vectors.")
    ] = False,
    delete: Annotated[Path | None, typer.Option(help="File with the ids of documents to delete, one per line.")] = None,
    model: IndexModel = None,
    pooling: Pooling = None,
    similarity: Similarity = None,
    skip_bad: SkipBad = False,
    threads: Threads = None,
    config: Config = None,
) -> dict[str, Any]:
    """Update an index in place: follow a collection (--data), add vectors (--vectors), or delete (--delete).

    Examples:
        remargin update --index faq.index --data pairs:faq.csv
        remargin update --index faq.index --delete ids.txt
    """
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
        pooling=pooling,
        similarity=similarity,
    )
    tell(f"{index}: {changes.added:,} added, {changes.replaced:,} replaced, {changes.deleted:,} deleted")
    return {"index": index, **vars(changes)}
