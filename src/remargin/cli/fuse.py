"""remargin fuse: one run file out of several."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from remargin.cli.options import RUN_FILE, Config, Data, Overwrite, SkipBad
from remargin.progress import tell


def fuse(
    runs: Annotated[list[Path], typer.Option(help="Run files, two or more: --runs bm25.trec dense.trec.")],
    out: Annotated[Path, typer.Option(help=RUN_FILE)],
    weight: Annotated[
        float | None, typer.Option(help="Weight, 0 to 1, of the second run file in a weighted sum of scores.")
    ] = None,
    tune: Annotated[
        list[Path] | None,
        typer.Option(
            help="Two run files of the queries of --split, in the order of --runs, to choose the weight with."
        ),
    ] = None,
    data: Data = None,
    split: Annotated[str | None, typer.Option(help="Split to choose the weight on.", show_default="dev")] = None,
    measure: Annotated[
        str | None,
        typer.Option(
            "--measure",
            "--measures",
            help="Measure to choose the weight by, by its ir_measures name.",
            show_default="nDCG@10",
        ),
    ] = None,
    k: Annotated[
        float | None,
        typer.Option(help="Constant k of reciprocal rank fusion: each rank adds 1 / (k + rank).", show_default="60"),
    ] = None,
    depth: Annotated[int, typer.Option(min=1, help="Maximum number of documents per query.")] = 1000,
    skip_bad: SkipBad = False,
    overwrite: Overwrite = False,
    config: Config = None,
) -> dict[str, Any]:
    """Fuse run files by reciprocal rank, or two run files by a weighted sum of scores (--weight or --tune).

    Examples:
        remargin fuse --runs bm25.trec dense.trec --out fused.trec
        remargin fuse --runs bm25.trec dense.trec --weight 0.7 --out fused.trec
    """
    import remargin

    fusion = remargin.fuse(
        runs, weight, tune, data, split, measure, k, depth, skip_bad=skip_bad, out=out, overwrite=overwrite
    )
    for path, count in zip(tune or [], fusion.self_matches, strict=False):
        if count:
            tell(f"{path}: documents that are the query itself, left out: {count:,}")
    if fusion.mean is not None:
        score = f"{measure or 'nDCG@10'} {fusion.mean:.4f} on {split or 'dev'}"
        tell(f"weight {fusion.weight} of {runs[1]}: {score}")
    tell(f"wrote {out}: {len(fusion.run):,} queries")
    return {"out": out, "queries": len(fusion.run), "weight": fusion.weight, "mean": fusion.mean}
