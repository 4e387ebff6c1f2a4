"""remargin compare: runs -> a table with significance tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
from remargin.cli.screen import print_tables
from remargin.errors import InputError
from remargin.progress import tell

if TYPE_CHECKING:
    from remargin.evaluation.comparison import Comparison
    from remargin.report.tables import Table

FORMATS = ("terminal", "csv", "latex", "markdown")
ENDINGS = {".csv": "csv", ".tex": "latex", ".md": "markdown", ".txt": "terminal"}
BEST = "best"


def compare(
    data: RequiredData,
    runs: Annotated[list[Path], typer.Option(help="Two run files or more: --runs a.trec b.trec.")],
    measures: Measures = None,
    reference: Annotated[str, typer.Option(help="What to compare with: one of the runs, or best.")] = BEST,
    bound: Annotated[float, typer.Option(help="The largest difference that does not matter.")] = 0.05,
    alpha: Annotated[float, typer.Option(help="p values below it count.")] = 0.05,
    correction: Annotated[str, typer.Option(help="bonferroni, holm or none, within each measure.")] = "bonferroni",
    samples: Annotated[int, typer.Option(help="Of Fisher's randomisation test.")] = 10_000,
    seed: Annotated[int, typer.Option(min=0, help="For everything that is random.")] = 0,
    format: Annotated[
        str | None,
        typer.Option(help=f"{', '.join(FORMATS)}; without, as --out ends ({', '.join(ENDINGS)}), or terminal."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write it to this file.")] = None,
    split: Split = "test",
    skip_bad: SkipBad = False,
    overwrite: Overwrite = False,
    config: Config = None,
) -> None:
    """Compare run files query by query: which are equivalent, which are no worse, which differ."""
    from remargin.evaluation.comparison import CompareSettings
    from remargin.evaluation.comparison import compare as run_compare
    from remargin.evaluation.runs import Run
    from remargin.files.atomic import new_file, refuse_existing
    from remargin.retrieval.searching import without_self_matches

    format = _format(format, out)
    if out is not None:
        refuse_existing(out, overwrite)
    names = run_names(runs)
    settings = CompareSettings(_reference(reference, names), bound, alpha, correction, samples, seed)
    settings.check_runs(names)  # before anything is read
    loaded = {name: Run.load(path) for name, path in names.items()}
    collection = load_collection(data, split, skip_bad)
    for name, run in loaded.items():
        require_judged(run, names[name], collection)
    for name, run in loaded.items():
        loaded[name], itself = without_self_matches(run, collection)
        if itself:  # on standard error, for the table itself may go into a pipe
            tell(f"{name}: documents that are the query itself, left out: {itself:,}", error=True)
    compared = run_compare(loaded, collection.qrels, measure_names(measures, ["nDCG@10"]), **asdict(settings))
    if out is None and format == "terminal":
        print_tables(_tables(compared))
    elif out is None:
        print(_text(compared, format), end="")
    else:
        with new_file(out, overwrite) as file:
            file.write(_text(compared, format).encode())
        tell(f"wrote {out}")


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


def _stem(path: Path) -> str:
    name = Path(path.name.removesuffix(".gz"))
    return name.stem if name.suffix[1:].isalpha() else name.name  # the .3 of margin-0.3 is no ending


def _format(given: str | None, out: Path | None) -> str:
    """The format of the table: the one given, or else the one that the ending of the file stands for."""
    if given is not None and given not in FORMATS:
        raise InputError(f"unknown format {given!r}", do=f"choose one of {', '.join(FORMATS)}")
    if given is None and out is not None and out.suffix not in ENDINGS:
        raise InputError("its ending is of no format", file=out, do=f"end it in {', '.join(ENDINGS)}, or give --format")
    return given or (FORMATS[0] if out is None else ENDINGS[out.suffix])


def _reference(given: str, names: dict[str, Path]) -> str:
    """The name of the reference run, which may be given by name or by file."""
    if given == BEST or given in names:
        return given
    found = [name for name, path in names.items() if Path(given).resolve() == path.resolve() or given == path.name]
    if len(found) == 1:
        return found[0]
    problem = "fits more than one run" if found else "is none of the runs"
    raise InputError(f"reference {given!r} {problem}", do=f"choose {BEST} or one of {', '.join(names)}")


def _tables(compared: Comparison) -> list[Table]:
    from remargin.report.comparison import comparison_table, details_table

    return [comparison_table(compared), details_table(compared)]


def _text(compared: Comparison, format: str) -> str:
    """The comparison in one of the formats, as a file has it."""
    from remargin.report.comparison import comparison_csv
    from remargin.report.tables import Table

    if format == "csv":
        return comparison_csv(compared)
    write = {"terminal": Table.terminal, "latex": Table.latex, "markdown": Table.markdown}[format]
    return "\n".join(write(table) for table in _tables(compared))
