"""remargin fuse: one run file out of several."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from remargin.cli.options import Config, Data, Measures, Overwrite, SkipBad, load_collection, measure_names, refuse_idle
from remargin.progress import tell


def fuse(
    context: typer.Context,
    runs: Annotated[list[Path], typer.Option(help="Two run files or more: --runs bm25.trec dense.trec.")],
    out: Annotated[Path, typer.Option(help="The run file to write; .gz packs it.")],
    weight: Annotated[
        float | None, typer.Option(help="Add up scores instead of ranks, the second run's with this weight: 0 to 1.")
    ] = None,
    tune: Annotated[
        list[Path] | None, typer.Option(help="Choose the weight with these two runs of --split, in the same order.")
    ] = None,
    data: Data = None,
    split: Annotated[str, typer.Option(help="The split to choose the weight on.")] = "dev",
    measures: Measures = None,
    k: Annotated[float, typer.Option(help="Of reciprocal rank fusion: a rank scores 1 / (k + rank).")] = 60.0,
    depth: Annotated[int, typer.Option(min=1, help="Documents for each query.")] = 1000,
    skip_bad: SkipBad = False,
    overwrite: Overwrite = False,
    config: Config = None,
) -> None:
    """Fuse runs by reciprocal rank, or two of them by a weighted sum of scores, given or chosen on a dev split."""
    from remargin.errors import InputError
    from remargin.evaluation.inputs import without_self_matches
    from remargin.evaluation.runs import Run
    from remargin.files.atomic import refuse_existing
    from remargin.retrieval.fusion import reciprocal_rank, tune_weight, weighted

    refuse_existing(out, overwrite)
    idle: dict[str, tuple[str, ...]] = {
        "a weighted sum": ("k",) if weight is not None or tune else (),
        "a fusion without --tune": () if tune else ("data", "split", "measures", "skip_bad"),
    }
    refuse_idle(context, idle)
    if (weight is not None or tune) and len(runs) != 2:
        raise InputError(f"a weight is between two runs, not {len(runs)}", do="give --runs FIRST SECOND")
    if weight is not None and tune:
        raise InputError("a weight, and runs to choose it with", do="give --weight or --tune")
    if tune and (len(tune) != 2 or data is None):
        raise InputError("a weight is chosen with two runs and their judgments", do="give --tune FIRST SECOND --data")
    found = [Run.load(path) for path in runs]
    if tune:
        names = measure_names(measures, ["nDCG@10"])
        if len(names) > 1:
            raise InputError("a weight is chosen by one measure", do="give one")
        measure = names[0]
        loaded = [Run.load(path) for path in tune]
        collection = load_collection(str(data), split, skip_bad)
        (first, first_itself), (second, second_itself) = (without_self_matches(run, collection) for run in loaded)
        for path, itself in zip(tune, (first_itself, second_itself), strict=True):
            if itself:
                tell(f"{path}: documents that are the query itself, left out: {itself:,}")
        weight, means = tune_weight(first, second, collection.qrels, measure, depth=depth)
        tell(f"weight {weight} of {runs[1]}: {measure} {means[weight]:.4f} on {split}")
    fused = reciprocal_rank(found, k, depth) if weight is None else weighted(found[0], found[1], weight, depth)
    fused.save(out, tag="fused", overwrite=overwrite)
    tell(f"wrote {out}: {len(fused):,} queries")
