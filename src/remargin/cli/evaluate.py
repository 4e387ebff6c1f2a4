"""remargin evaluate: a run file and judgments -> measures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from remargin.cli.options import Config, Measures, Overwrite, RequiredData, SkipBad, Split, measure_names
from remargin.progress import tell


def evaluate(
    data: RequiredData,
    run: Annotated[Path, typer.Option(help="The run file to measure.")],
    measures: Measures = None,
    per_query: Annotated[Path | None, typer.Option(help="A CSV file to write with each query's values.")] = None,
    split: Split = "test",
    skip_bad: SkipBad = False,
    overwrite: Overwrite = False,
    config: Config = None,
) -> None:
    """Measure a run file against a collection's judgments, as trec_eval does.

    Prints each measure, its mean, and the share of documents down to its cutoff that are judged.
    """
    import remargin
    from remargin.evaluation.measures import DEFAULT_MEASURES, judged_cutoff

    names = measure_names(measures, DEFAULT_MEASURES)
    evaluation = remargin.evaluate(run, data, names, per_query, split, skip_bad, overwrite)
    for measure, mean in evaluation.means.items():
        tell(f"{measure}\t{mean:.4f}\tJudged@{judged_cutoff(measure)}\t{evaluation.judged[measure]:.4f}")
    if evaluation.self_matches:
        tell(f"documents that are the query itself, left out: {evaluation.self_matches:,}")
    if evaluation.missing:
        tell(f"judged queries that the run lacks, counted as 0: {len(evaluation.missing):,}")
    if per_query is not None:
        tell(f"wrote {per_query}")
