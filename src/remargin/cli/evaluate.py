"""remargin evaluate: what a run file is worth."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from remargin.cli.options import (
    Config,
    Measures,
    Overwrite,
    RequiredData,
    SkipBad,
    Split,
    load_collection,
    measure_names,
    require_judged,
)
from remargin.progress import tell


def evaluate(
    data: RequiredData,
    run: Annotated[Path, typer.Option(help="The run file to measure.")],
    measures: Measures = None,
    per_query: Annotated[Path | None, typer.Option(help="Also write each query's values to this CSV.")] = None,
    split: Split = "test",
    skip_bad: SkipBad = False,
    overwrite: Overwrite = False,
    config: Config = None,
) -> None:
    """Measure a run file against a collection's judgments, as trec_eval does.

    Prints each measure, its mean, and what share of the documents down to its cutoff was judged.
    """
    from remargin.evaluation.measures import DEFAULT_MEASURES, judged_cutoff
    from remargin.evaluation.measures import evaluate as run_evaluate
    from remargin.evaluation.runs import Run
    from remargin.retrieval.searching import without_self_matches

    names = measure_names(measures, DEFAULT_MEASURES)
    ranked, collection = Run.load(run), load_collection(data, split, skip_bad)
    require_judged(ranked, run, collection)
    ranked, itself = without_self_matches(ranked, collection)
    scores = run_evaluate(ranked, collection.qrels, names)
    for measure, mean in scores.means.items():
        tell(f"{measure}\t{mean:.4f}\tJudged@{judged_cutoff(measure)}\t{scores.judged[measure]:.4f}")
    if itself:
        tell(f"documents that are the query itself, left out: {itself:,}")
    if scores.missing:
        tell(f"judged queries that the run lacks, counted as 0: {len(scores.missing):,}")
    if per_query is not None:
        scores.save(per_query, overwrite)
        tell(f"wrote {per_query}")
