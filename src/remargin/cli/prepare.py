"""remargin prepare: texts, pairs or triplets -> a collection and its token store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from remargin.cli.options import Config, Data, Overwrite, SkipBad, Threads
from remargin.progress import tell

if TYPE_CHECKING:
    from remargin.data.prepare import Prepared


def prepare(
    model: Annotated[str, typer.Option(help="The model whose tokenizer to use: a folder or a Hugging Face name.")],
    out: Annotated[Path, typer.Option(help="The folder to write.")],
    data: Data = None,
    triplets: Annotated[
        Path | None,
        typer.Option(
            help="A table of triplets: with --data, ids (query_id, positive_id, negative_id); without, texts (query, "
            "positive, negative). Several negatives: negative_1, negative_2. A teacher's scores: positive_score and "
            "negative_score (negative_score_1, ...)."
        ),
    ] = None,
    query_length: Annotated[int, typer.Option(min=3, max=100_000, help="Longest query, in tokens.")] = 30,
    document_length: Annotated[int, typer.Option(min=3, max=100_000, help="Longest document, in tokens.")] = 200,
    query_prefix: Annotated[str, typer.Option(help="Put before every query.")] = "",
    document_prefix: Annotated[str, typer.Option(help="Put before every document.")] = "",
    skip_bad: SkipBad = False,
    overwrite: Overwrite = False,
    threads: Threads = None,
    config: Config = None,
) -> None:
    """Turn texts, pairs or triplets into a collection and its token store. Killed, it goes on where it was.

    The folder it writes is a BEIR folder that any tool reads, and what the other verbs take as --data.
    """
    from remargin.data.prepare import prepare as run
    from remargin.model.tokenizer import TextSettings

    settings = TextSettings(query_length, document_length, query_prefix, document_prefix)
    report = run(data, model, out, triplets, settings, skip_bad, overwrite)
    for line in summary(report, settings.query_length, settings.document_length):
        tell(line)
    tell(f"wrote {out} in {report.seconds:.1f} s")


def summary(report: Prepared, query_length: int, document_length: int) -> list[str]:
    """What was prepared, in lines for people."""
    kinds = (
        ("documents", report.documents, report.document_tokens, report.documents_truncated, document_length),
        ("queries", report.queries, report.query_tokens, report.queries_truncated, query_length),
    )
    lines = [
        f"{kind}: {count:,}, {tokens / max(count, 1):.0f} tokens on average, {cut:,} cut at {length}"
        for kind, count, tokens, cut, length in kinds
    ]
    if report.judgments:
        lines.append("judgments: " + ", ".join(f"{split} {count:,}" for split, count in report.judgments.items()))
    if report.triplets is not None:
        lines.append(f"triplets: {report.triplets:,}, negatives in each: {report.negatives_per_triplet}")
    lines += [f"{what}: {count:,}" for what, count in report.notes.items() if count]
    if report.rejected:
        lines.append(f"bad input set aside in rejects.jsonl: {report.rejected:,}")
    return lines
