"""remargin search, rerank: run files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from remargin.cli.options import (
    Compute,
    Config,
    Model,
    Overwrite,
    RequiredData,
    SkipBad,
    Split,
    Threads,
    load_collection,
    load_encoder,
)
from remargin.errors import InputError
from remargin.progress import tell

if TYPE_CHECKING:
    from remargin.model.encoder import BiEncoder


def search(
    data: RequiredData,
    out: Annotated[Path, typer.Option(help="The run file to write; .gz packs it.")],
    index: Annotated[
        str, typer.Option(help="bm25, exact, faiss or milvus; or a folder that `remargin index` wrote.")
    ] = "exact",
    model: Model = None,
    k: Annotated[int, typer.Option(min=1, help="Documents for each query.")] = 1000,
    split: Split = "test",
    skip_bad: SkipBad = False,
    overwrite: Overwrite = False,
    threads: Threads = None,
    config: Config = None,
) -> None:
    """Search a collection with each of its queries and write a TREC run file."""
    from remargin.files.atomic import refuse_existing
    from remargin.retrieval.search import KINDS
    from remargin.retrieval.search import search as run_search

    refuse_existing(out, overwrite)
    if index in KINDS and any(Path(index).glob("remargin_*.json")):
        problem = f"{index!r} is both a kind of index and a folder here"
        raise InputError(problem, do=f"write ./{index} for the folder, or search elsewhere")
    encoder = None if model is None else load_encoder(model)
    run = run_search(load_collection(data, split, skip_bad), index, encoder, k)
    run.save(out, tag=Path(index).name, overwrite=overwrite)
    tell(f"wrote {out}: {len(run):,} queries")


def rerank(
    data: RequiredData,
    model: Annotated[str, typer.Option(help="The encoder, or a cross-encoder: a folder or a Hugging Face name.")],
    run: Annotated[Path, typer.Option(help="The run file whose documents get new scores.")],
    out: Annotated[Path, typer.Option(help="The run file to write; .gz packs it.")],
    depth: Annotated[
        int | None, typer.Option(min=1, help="Re-rank only the first this many documents of each query.")
    ] = None,
    compute: Compute = "auto",
    split: Split = "test",
    skip_bad: SkipBad = False,
    overwrite: Overwrite = False,
    threads: Threads = None,
    config: Config = None,
) -> None:
    """Give the documents of a run new scores, by a model's similarity or a cross-encoder's score."""
    from remargin.evaluation.runs import Run
    from remargin.files.atomic import refuse_existing
    from remargin.model.cross_encoder import CrossEncoder, is_cross_encoder
    from remargin.retrieval.rerank import rerank as run_rerank

    refuse_existing(out, overwrite)
    first, collection = Run.load(run), load_collection(data, split, skip_bad)
    encoder: BiEncoder | CrossEncoder
    if is_cross_encoder(model):
        encoder = CrossEncoder.from_pretrained(model, precision=compute)  # type: ignore[arg-type]
    else:
        encoder = load_encoder(model, compute)
    reranked = run_rerank(encoder, first, collection.documents, collection.queries, depth)
    reranked.save(out, tag="rerank", overwrite=overwrite)
    tell(f"wrote {out}: {len(reranked):,} queries")
