"""remargin ask: one question to an index."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Annotated

import typer

from remargin.cli.options import Config, Data, Model, load_encoder
from remargin.errors import InputError
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
    from remargin.files.shapes import encodable
    from remargin.retrieval.search import load_index

    if not question.strip():
        raise InputError("the question is empty", do="write it in quotes")
    if not encodable(question):
        raise InputError("the question is not UTF-8", do="set the terminal, or LC_ALL, to UTF-8")
    opened = load_index(index, None if model is None else load_encoder(model))
    found = opened.search({"": question}, k).rankings[""]
    texts = _texts(data or opened.data, set(found))
    for place, (id, score) in enumerate(found.items(), 1):
        tell(f"{place}. {id}  {score:.3f}")
        if id in texts:
            tell(textwrap.indent(textwrap.fill(textwrap.shorten(texts[id], SHOWN, placeholder=" ...")), "   "))
    if not found:
        tell("nothing found")


def _texts(data: str, wanted: set[str]) -> dict[str, str]:
    """The texts of some documents; none if the collection cannot be read, and standard error says why."""
    from remargin.data.collection import open_source
    from remargin.data.tables import Rejects

    found: dict[str, str] = {}
    try:
        for text in open_source(data, Rejects(skip=True)).documents():
            if text.id in wanted:
                found[text.id] = text.text
            if len(found) == len(wanted):
                break
    except InputError as error:
        tell(f"texts are not shown ({error}); say where they are (--data)", error=True)
    return found
