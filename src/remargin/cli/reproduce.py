"""remargin reproduce: a table or figure of the paper."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from remargin.cli.options import Config, ManyValues, SkipBad
from remargin.errors import InputError

app = typer.Typer(help="Make a table or figure of the paper, with your own models.", no_args_is_help=True)


@app.command("zero-shot", cls=ManyValues)
def zero_shot(
    out: Annotated[Path, typer.Option(help="The folder to write; one that was stopped goes on where it was.")],
    model: Annotated[
        list[str] | None,
        typer.Option(help="Encoders, by folder or Hugging Face name: --model before=PATH after=PATH names their rows."),
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            help="Collections: BEIR folders, irds:NAME, a BEIR name such as scifact or SCF, each also as NAME=DATA. "
            "Without: all of BEIR that the paper has, by ir_datasets."
        ),
    ] = None,
    in_domain: Annotated[str | None, typer.Option(help="A collection like the training data.")] = None,
    bm25: Annotated[bool, typer.Option(help="Measure BM25 as well.")] = True,
    measure: Annotated[str, typer.Option(help="An ir_measures name. Published rows are nDCG@10.")] = "nDCG@10",
    reference: Annotated[
        str | None,
        typer.Option(help="The published row for the test over data sets; without, TAS-B where it has three of them."),
    ] = None,
    bound: Annotated[float, typer.Option(help="The largest difference that does not matter.")] = 0.05,
    skip_bad: SkipBad = False,
    overwrite: Annotated[bool, typer.Option(help="Measure all again.")] = False,
    config: Config = None,
) -> None:
    """Models on collections that they were not trained on: the paper's table 5, beside the published rows."""
    models = model_names(model or [])
    from remargin.experiments.zero_shot import zero_shot as run_zero_shot

    tables = run_zero_shot(
        models, data or [], out, measure, bm25, in_domain, reference, bound, skip_bad, overwrite,
        say=lambda line: print(line, file=sys.stderr),
    )  # fmt: skip
    to_screen = sys.stdout.isatty()
    width = shutil.get_terminal_size().columns if to_screen else None
    print("\n".join(table.terminal(width, styled=to_screen) for table in tables.values()))
    print(f"wrote {out}")


def model_names(given: list[str]) -> dict[str, str]:
    """Models by the names of their rows: NAME=PATH, or just PATH, whose last part is then the name.

    >>> model_names(["before=models/minilm", "intfloat/e5-base"])
    {'before': 'models/minilm', 'e5-base': 'intfloat/e5-base'}
    """
    from remargin.experiments.columns import split_name

    models: dict[str, str] = {}
    for text in given:
        name, value = split_name(text)
        name = name or Path(value).absolute().name
        if name in models:
            raise InputError(f"two models are called {name!r}", do="name them apart: --model NAME=PATH NAME=PATH")
        models[name] = value
    return models
