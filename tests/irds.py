"""Data sets registered with ir_datasets from files made here: they need no network."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple


class Part(NamedTuple):
    """A part of a data set: its queries, the lines of its TREC qrels, its docpairs (ids), and those of its run."""

    queries: Mapping[str, str] | None = None
    qrels: str | None = None
    docpairs: Sequence[Sequence[str]] | None = None
    run: str | None = None


@contextmanager
def registered_with(name: str, folder: Path, documents: Mapping[str, str], parts: Mapping[str, Part]) -> Iterator[None]:
    """Parts of a data set, by what follows its name, as ir_datasets has them; afterwards, all is as it was."""
    from ir_datasets import registry
    from ir_datasets.datasets.base import Dataset
    from ir_datasets.formats import TrecQrels, TrecScoredDocs, TsvDocPairs, TsvDocs, TsvQueries
    from ir_datasets.util import LocalDownload

    def written(file: str, text: str) -> Any:
        path = folder / f"{name.replace('/', '-')}-{file}"
        path.write_text(text)
        return LocalDownload(path)

    def table(rows: Sequence[Sequence[str]]) -> str:
        return "".join("\t".join(row) + "\n" for row in rows)

    docs = TsvDocs(written("docs.tsv", table(list(documents.items()))), namespace=name, count_hint=len(documents))
    before: dict[str, Any] = dict(registry._registered)
    try:
        for part, (queries, qrels, docpairs, run) in parts.items():
            file = part.replace("/", "-")
            provided: list[Any] = [docs]
            if queries is not None:
                provided.append(TsvQueries(written(f"{file}-queries.tsv", table(list(queries.items())))))
            if qrels is not None:
                provided.append(TrecQrels(written(f"{file}.qrels", qrels), dict.fromkeys(range(4), "")))
            if docpairs is not None:
                provided.append(TsvDocPairs(written(f"{file}-docpairs.tsv", table(docpairs))))
            if run is not None:
                provided.append(TrecScoredDocs(written(f"{file}.run", run)))
            full = f"{name}/{part}" if part else name
            registry._registered.pop(full, None)
            registry.register(full, Dataset(*provided))
        yield
    finally:
        registry._registered.clear()
        registry._registered.update(before)
