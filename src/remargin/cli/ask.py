"""remargin ask: one question to an index."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Annotated

import typer

from remargin.cli.options import Config, Data, Model
from remargin.progress import tell

SHOWN = 240  # characters of a document


def ask(
    question: Annotated[str, typer.Argument(help="What to look for, in quotes.")],
    index: Annotated[Path, typer.Option(help="A folder that `remargin index` wrote.")],
    k: Annotated[int, typer.Option(min=1, help="How many documents.")] = 5,
    model: Model = None,
    data: Data = None,
    config: Config = None,
) -> None:
    """Ask an index one question, and read the best documents. Texts are those of the collection that it was made of."""
    import remargin

    answers = remargin.ask(question, index, k, model, data)
    for place, answer in enumerate(answers, 1):
        tell(f"{place}. {answer.id}  {answer.score:.3f}")
        if answer.text is not None:
            tell(textwrap.indent(textwrap.fill(textwrap.shorten(answer.text, SHOWN, placeholder=" ...")), "   "))
    if not answers:
        tell("nothing found")
