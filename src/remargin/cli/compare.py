"""remargin compare: runs -> a table with significance tests."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from remargin.cli.options import BOUND, Config, Overwrite, RequiredData, SkipBad, Split, measure_names, measures_option
from remargin.cli.screen import print_tables
from remargin.progress import tell


def compare(
    data: RequiredData,
    runs: Annotated[list[Path], typer.Option(help="Run files, two or more: --runs a.trec b.trec.")],
    measures: Annotated[list[str] | None, measures_option("nDCG@10")] = None,
    reference: Annotated[
        str, typer.Option(help="Run file to compare the others with: one of --runs, or best (highest mean).")
    ] = "best",
    bound: Annotated[float, typer.Option(help=BOUND)] = 0.05,
    alpha: Annotated[float, typer.Option(help="Significance level.")] = 0.05,
    correction: Annotated[
        str, typer.Option(help="Correction for multiple comparisons within each measure: bonferroni, holm or none.")
    ] = "bonferroni",
    samples: Annotated[int, typer.Option(help="Number of samples of Fisher's randomisation test.")] = 10_000,
    seed: Annotated[int, typer.Option(min=0, help="Random seed.")] = 0,
    format: Annotated[
        str | None,
        typer.Option(
            help="Format of the table: terminal, csv, latex or markdown.",
            show_default="by the ending of --out: .txt, .csv, .tex or .md; terminal without --out",
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="File to write the table to.")] = None,
    split: Split = "test",
    skip_bad: SkipBad = False,
    overwrite: Overwrite = False,
    config: Config = None,
) -> dict[str, Any]:
    """Compare run files query by query, with significance tests: equivalent, non-inferior or different.

    Examples:
        remargin compare --data pairs:faq.csv --runs bm25.trec dense.trec
        remargin compare --data faq --runs a.trec b.trec c.trec --out table.tex
    """
    import remargin
    from remargin.reports.comparing import comparison_tables, comparison_text

    names = measure_names(measures, ["nDCG@10"])
    comparison = remargin.compare(
        runs, data, names, reference, bound, alpha, correction, samples, seed, format, out, split, skip_bad, overwrite
    )
    for name, count in comparison.self_matches.items():
        if count:  # on standard error, for the table itself may go into a pipe
            tell(f"{name}: documents that are the query itself, left out: {count:,}", error=True)
    if out is not None:
        tell(f"wrote {out}")
    elif format in (None, "terminal"):
        print_tables(comparison_tables(comparison))
    else:
        print(comparison_text(comparison, format), end="")
    return vars(comparison)
