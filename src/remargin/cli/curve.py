"""remargin curve: would more data help?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from remargin.cli import fit
from remargin.cli.options import START, TRIPLETS, Config, RequiredData, SkipBad, Threads
from remargin.cli.screen import print_tables, table_data
from remargin.cli.verb import Verb
from remargin.progress import say, show, tell

REQUIRED = ("data", "model", "out")  # of both verbs


def curve(
    context: typer.Context,
    data: RequiredData,
    model: Annotated[str, typer.Option(help=START)],
    out: Annotated[Path, typer.Option(help="Folder for the results. If interrupted, the same command resumes.")],
    shares: Annotated[
        list[float] | None, typer.Option(help="Shares of the training queries.", show_default="0.1 0.33 1.0")
    ] = None,
    seeds: Annotated[
        list[int] | None, typer.Option(help="Random seeds: one training run each.", show_default="0 1 2")
    ] = None,
    measure: Annotated[str, typer.Option(help="Measure, by its ir_measures name.")] = "nDCG@10",
    triplets: Annotated[Path | None, typer.Option(help=TRIPLETS, show_default="mined with BM25")] = None,
    skip_bad: SkipBad = False,
    threads: Threads = None,
    config: Config = None,
) -> dict[str, Any]:
    """Fine-tune on growing shares of the training data, and say whether more data would help.

    Takes all other options of `remargin fit`, for the training runs.

    Examples:
        remargin curve --data pairs:faq.csv --model minilm --out runs/curve
    """
    import remargin
    from remargin.reports.sections import Section

    options = fit_options(context.args, context) | {"measure": measure, "triplets": triplets, "skip_bad": skip_bad}
    options |= {name: value for name, value in {"shares": shares, "seeds": seeds}.items() if value}
    remargin.curve(data, model, out, say=say, **options)
    section = Section.load(out)
    print_tables(section.tables)
    show("\n".join(["", *section.summary]))
    tell(f"wrote {out}")
    return {"out": out, "summary": section.summary, "tables": [table_data(table) for table in section.tables]}


def fit_options(arguments: list[str], context: typer.Context | None = None) -> dict[str, Any]:
    """Options of `remargin fit`, as that verb reads them; those that are given.

    >>> fit_options(["--steps", "20", "--target", "contrastive", "--in-batch"])
    {'steps': 20, 'target': 'contrastive', 'in_batch': True}
    """
    app = typer.Typer(add_completion=False)
    app.command("fit", cls=Verb)(fit.fit)
    command = typer.main.get_command(app)
    required = [word for name in REQUIRED for word in (f"--{name}", "-")]
    parsed = command.make_context("curve", [*required, *arguments], parent=context)
    sources = {name: parsed.get_parameter_source(name) for name in parsed.params}
    typed = [name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"]
    return {name: parsed.params[name] for name in typed if name not in REQUIRED}
