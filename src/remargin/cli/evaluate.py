"""remargin evaluate: a run file and judgments -> measures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from remargin.cli.options import Config, Overwrite, RequiredData, SkipBad, Split, measure_names, measures_option
from remargin.progress import show, tell


def evaluate(
    data: RequiredData,
    run: Annotated[Path, typer.Option(help="Run file to measure.")],
    measures: Annotated[list[str] | None, measures_option("nDCG@10 R@100 RR")] = None,
    per_query: Annotated[Path | None, typer.Option(help="CSV file to write the values of each query to.")] = None,
    split: Split = "test",
    skip_bad: SkipBad = False,
    overwrite: Overwrite = False,
    config: Config = None,
) -> dict[str, Any]:
    """Measure a run file against a collection's relevance judgments, as trec_eval does.

    Prints the mean of each measure, and the share of judged documents down to the measure's cutoff.

    Examples:
        remargin evaluate --data pairs:faq.csv --run dense.trec
        remargin evaluate --data faq --run dense.trec --measures nDCG@10 R@1000
    """
    import remargin
    from remargin.evaluation.measures import DEFAULT_MEASURES, judged_cutoff

    names = measure_names(measures, DEFAULT_MEASURES)
    evaluation = remargin.evaluate(run, data, names, per_query, split, skip_bad, overwrite)
    for measure, mean in evaluation.means.items():
        show(f"{measure}\t{mean:.4f}\tJudged@{judged_cutoff(measure)}\t{evaluation.judged[measure]:.4f}")
    if evaluation.self_matches:
        show(f"documents that are the query itself, left out: {evaluation.self_matches:,}")
    if evaluation.missing:
        show(f"judged queries that the run lacks, counted as 0: {len(evaluation.missing):,}")
    if per_query is not None:
        tell(f"wrote {per_query}")
    counts = {"missing": evaluation.missing, "self_matches": evaluation.self_matches}
    return {"run": run, "split": split, "means": evaluation.means, "judged": evaluation.judged, **counts}
