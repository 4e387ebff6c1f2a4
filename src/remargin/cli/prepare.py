"""remargin prepare: texts, pairs or triplets -> a collection and its token store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from remargin.cli.options import (
    MODEL,
    Config,
    Data,
    DocumentLength,
    DocumentPrefix,
    Overwrite,
    QueryLength,
    QueryPrefix,
    SkipBad,
    Threads,
)
from remargin.progress import WARNING, tell

if TYPE_CHECKING:
    from remargin.data.preparation import Prepared


def prepare(
    model: Annotated[str, typer.Option(help=f"Model whose tokenizer to use. {MODEL}")],
    out: Annotated[Path, typer.Option(help="Folder to write.")],
    data: Data = None,
    triplets: Annotated[
        Path | None,
        typer.Option(
            help="Table of triplets: of ids (query_id, positive_id, negative_id) over --data, or of texts (query, "
            "positive, negative) without --data; or irds:NAME, docpairs of ir_datasets over --data."
        ),
    ] = None,
    query_length: QueryLength = None,
    document_length: DocumentLength = None,
    query_prefix: QueryPrefix = None,
    document_prefix: DocumentPrefix = None,
    skip_bad: SkipBad = False,
    overwrite: Overwrite = False,
    threads: Threads = None,
    config: Config = None,
) -> dict[str, Any]:
    """Turn texts, pairs or triplets into a collection and its token store. If interrupted, the same command resumes.

    The output is a BEIR folder, which the other commands take as --data.
    Triplets may have several negatives (negative_1, negative_2, ...) and a
    teacher's scores (positive_score, negative_score_1, ...).

    Examples:
        remargin prepare --data pairs:faq.csv --model minilm --out faq
        remargin prepare --triplets triplets.tsv --model minilm --out runs/triplets
    """
    import remargin
    from remargin.data.preparation import read_prepared

    lengths, prefixes = (query_length, document_length), (query_prefix, document_prefix)
    report = remargin.prepare(data, model, out, triplets, *lengths, *prefixes, skip_bad, overwrite)
    used = read_prepared(out)["settings"]
    for line in summary(report, int(used["query_length"]), int(used["document_length"])):
        tell(line)
    tell(f"wrote {out} in {report.seconds:.1f} s")
    return {"out": out, **vars(report)}


def summary(report: Prepared, query_length: int, document_length: int) -> list[str]:
    """Lines that say how much was prepared."""
    kinds = (
        ("documents", report.documents, report.document_tokens, report.documents_truncated, document_length),
        ("queries", report.queries, report.query_tokens, report.queries_truncated, query_length),
    )
    lines = [
        f"{kind}: {count:,}, {tokens / max(count, 1):.0f} tokens on average, {truncated:,} truncated at {length}"
        for kind, count, tokens, truncated, length in kinds
    ]
    if report.judgments:
        lines.append("judgments: " + ", ".join(f"{split} {count:,}" for split, count in report.judgments.items()))
    if report.triplets is not None:
        lines.append(f"triplets: {report.triplets:,}, negatives in each: {report.negatives_per_triplet}")
    lines += [f"{note}: {count:,}" for note, count in report.notes.items() if count]
    if report.rejected:
        lines.append(f"{WARNING}: bad input set aside in rejects.jsonl: {report.rejected:,}")
    return lines
