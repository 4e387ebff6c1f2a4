"""Run files compared: the table with significance tests that `remargin compare` prints or writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from remargin.errors import InputError
from remargin.evaluation.comparison import BEST, CompareSettings, Comparison, compare_runs
from remargin.evaluation.inputs import JudgedData, RunOrFile, judged_runs
from remargin.evaluation.runs import Run
from remargin.files.atomic import new_file, refuse_existing
from remargin.reports.comparison import comparison_csv, comparison_table, details_table
from remargin.reports.tables import Table

FORMATS = ("terminal", "csv", "latex", "markdown")
ENDINGS = {".csv": "csv", ".tex": "latex", ".md": "markdown", ".txt": "terminal"}


def compare(
    runs: Mapping[str, RunOrFile] | Sequence[str | Path],
    data: JudgedData,
    measures: str | Sequence[str] = ("nDCG@10",),
    reference: str | Path = BEST,
    bound: float = 0.05,
    alpha: float = 0.05,
    correction: str = "bonferroni",
    samples: int = 10_000,
    seed: int = 0,
    format: str | None = None,
    out: str | Path | None = None,
    split: str = "test",
    skip_bad: bool = False,
    overwrite: bool = False,
) -> Comparison:
    """Compare runs with one of them, with paired tests over all judged queries, and write the table if `out` is given.

    Args:
        runs: two runs or more: run files, or runs or run files by name.
        data: a collection, what `Collection.load` takes, or judgments: grades by query and document. A judged query
            that a run lacks counts as 0 and is counted.
        measures: names such as nDCG@10 or R@1000.
        reference: the run to compare with, by name or file, or best: the one with the highest mean, for each measure.
        bound: the equivalence bound: the largest difference that does not matter.
        alpha: the significance level. Confidence intervals cover 1 - alpha.
        correction: bonferroni, holm or none, over all comparisons within a measure.
        samples: samples of Fisher's randomisation test, where the exact test would need more.
        seed: the seed of those samples.
        format: terminal, csv, latex or markdown; by default the one that the ending of `out` stands for.
        out: the file to write the table to.
        split: the collection's split.
        skip_bad: set bad input of the collection aside, count it, and continue.
        overwrite: replace `out` if it exists.

    Raises:
        InputError: for bad input, fewer than two runs or two judged queries, a run of which no query is judged, and an
            unknown reference, measure, correction or format.

    Example:
        >>> qrels = {f"q{i}": {"a": 1} for i in range(9)}
        >>> good = Run.of({query: {"a": 2.0, "b": 1.0} for query in qrels})
        >>> bad = Run.of({query: {"b": 2.0, "a": 1.0} for query in qrels})
        >>> print(comparison_text(compare({"good": good, "bad": bad}, qrels, "RR"), "csv")[:32])
        measure,run,reference,queries,mi
    """
    if out is not None or format is not None:
        format = table_format(format, out)
    if out is not None:
        refuse_existing(Path(out), overwrite)
    named: Mapping[str, RunOrFile] = runs if isinstance(runs, Mapping) else run_names(list(map(Path, runs)))
    settings = CompareSettings(_reference(reference, named), bound, alpha, correction, samples, seed)
    settings.check_runs(named)  # before anything is read
    judged = judged_runs(named, data, split, skip_bad)
    names = [measures] if isinstance(measures, str) else measures
    comparison = compare_runs(judged.runs, judged.qrels, names, **asdict(settings))
    comparison.self_matches = judged.self_matches
    if out is not None:
        with new_file(out, overwrite) as file:
            file.write(comparison_text(comparison, format or FORMATS[0]).encode())
    return comparison


def table_format(given: str | None, out: str | Path | None) -> str:
    """The format of the table: the one given, or else the one that the ending of the file stands for.

    >>> table_format(None, "table.tex"), table_format("csv", "table.txt"), table_format(None, None)
    ('latex', 'csv', 'terminal')
    """
    if given is not None and given not in FORMATS:
        raise InputError(f"unknown format {given!r}", do=f"choose one of {', '.join(FORMATS)}")
    ending = None if out is None else Path(out).suffix
    if given is None and ending is not None and ending not in ENDINGS:
        raise InputError("its ending names no format", file=out, do=f"end it in {', '.join(ENDINGS)}, or give --format")
    return given or (FORMATS[0] if ending is None else ENDINGS[ending])


def run_names(paths: Sequence[Path]) -> dict[str, Path]:
    """A short name for each run file: its name without the ending, preceded by folders where names would be the same.

    >>> list(run_names([Path("x/bm25.trec.gz"), Path("y/margin-0.3.trec")]))
    ['bm25', 'margin-0.3']
    >>> list(run_names([Path("out/x/run.trec"), Path("out/y/run.trec")]))
    ['x/run', 'y/run']
    """
    seen: set[Path] = set()
    for path in paths:
        if path.resolve() in seen:
            raise InputError("given twice", file=path, do="give each run file once")
        seen.add(path.resolve())
    parts = [(*path.parent.parts, _stem(path)) for path in paths]
    for depth in range(1, max(map(len, parts), default=0) + 1):
        names = ["/".join(part[-depth:]) for part in parts]
        if len(set(names)) == len(names) and BEST not in names:
            return dict(zip(names, paths, strict=True))
    return {str(path): path for path in paths}


def comparison_tables(comparison: Comparison) -> list[Table]:
    """The means with their marks, and every number behind them."""
    return [comparison_table(comparison), details_table(comparison)]


def comparison_text(comparison: Comparison, format: str) -> str:
    """The comparison in one of the formats, as a file has it."""
    if format == "csv":
        return comparison_csv(comparison)
    write = {"terminal": Table.terminal, "latex": Table.latex, "markdown": Table.markdown}[format]
    return "\n".join(write(table) for table in comparison_tables(comparison))


def _stem(path: Path) -> str:
    name = Path(path.name.removesuffix(".gz"))
    return name.stem if name.suffix[1:].isalpha() else name.name  # the .3 of margin-0.3 is no ending


def _reference(given: str | Path, runs: Mapping[str, RunOrFile]) -> str:
    """The name of the reference run, which may be given by name or by file."""
    given = str(given)
    if given == BEST or given in runs:
        return given
    files = {name: Path(run) for name, run in runs.items() if not isinstance(run, Run)}
    matches = [name for name, path in files.items() if Path(given).resolve() == path.resolve() or given == path.name]
    if len(matches) == 1:
        return matches[0]
    problem = "fits more than one run" if matches else "is none of the runs"
    raise InputError(f"reference {given!r} {problem}", do=f"choose {BEST} or one of {', '.join(runs)}")
