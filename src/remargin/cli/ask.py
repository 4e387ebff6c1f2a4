"""remargin ask: one question to an index."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Annotated, Any

import typer

from remargin.cli.options import (
    HYBRID,
    Config,
    DocumentLength,
    DocumentPrefix,
    IndexModel,
    Pooling,
    QueryLength,
    QueryPrefix,
    Similarity,
)
from remargin.cli.search import tell_fusion
from remargin.progress import show

SHOWN = 240  # characters of a document


def ask(
    question: Annotated[str, typer.Argument(help="Question, in quotes.")],
    index: Annotated[Path, typer.Option(help="Index folder that `remargin index` wrote.")],
    k: Annotated[int, typer.Option(min=1, help="Number of documents to show.")] = 5,
    model: IndexModel = None,
    data: Annotated[
        str | None,
        typer.Option(help="Collection to read the texts from.", show_default="the index, or its collection"),
    ] = None,
    hybrid: Annotated[str | None, typer.Option(help=HYBRID, show_default="as the index was made")] = None,
    query_length: QueryLength = None,
    document_length: DocumentLength = None,
    query_prefix: QueryPrefix = None,
    document_prefix: DocumentPrefix = None,
    pooling: Pooling = None,
    similarity: Similarity = None,
    config: Config = None,
) -> dict[str, Any]:
    """Ask an index one question, and show the best documents.

    Examples:
        remargin ask "how do I get my money back?" --index faq.index
    """
    import remargin

    answers = remargin.ask(
        question,
        index,
        k,
        model,
        data,
        hybrid,
        query_length=query_length,
        document_length=document_length,
        query_prefix=query_prefix,
        document_prefix=document_prefix,
        pooling=pooling,
        similarity=similarity,
    )
    fusion = tell_fusion(index, model, hybrid)
    for place, answer in enumerate(answers, 1):
        show(f"{place}. {answer.id}  {answer.score:.3f}")
        if answer.text is not None:
            show(textwrap.indent(textwrap.fill(_shortened(answer.text)), "   "))
    if not answers:
        show("nothing found")
    return {"question": question, "index": index, "answers": answers, "fusion": fusion}


def _shortened(text: str) -> str:
    """The beginning of a text, cut between words where there are some.

    >>> _shortened("one text"), _shortened("图" * 300) == "图" * 240 + " ..."
    ('one text', True)
    """
    text = " ".join(text.split())
    if len(text) <= SHOWN:
        return text
    beginning, _, last = text[: SHOWN + 1].rpartition(" ")
    return f"{beginning if len(last) < SHOWN // 4 else text[:SHOWN]} ..."
