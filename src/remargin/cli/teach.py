"""remargin teach: a teacher's scores for triplets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from remargin.cli.options import (
    INT,
    Data,
    config_option,
    overwrite_option,
    say_skipped,
    skip_bad_option,
    threads_option,
)
from remargin.progress import tell

TRAINING, RUNNING = "Training the teacher (--train-from)", "Input, output and speed"


def _training(help: str, default: str | bool = True) -> Any:
    return typer.Option(rich_help_panel=TRAINING, help=help, show_default=default)


def teach(
    triplets: Annotated[
        Path, typer.Option(help="Triplets of ids, as `remargin mine` writes them, with one or several negatives.")
    ],
    out: Annotated[Path, typer.Option(help="Table to write: .tsv or .tsv.gz. OUT.json holds what it cost.")],
    data: Data = None,
    model: Annotated[
        str | None, typer.Option(help="Teacher: a cross-encoder, as a folder or a Hugging Face name.")
    ] = None,
    train_from: Annotated[
        str | None, typer.Option(help="Encoder to train the teacher from, on these triplets, before it scores them.")
    ] = None,
    scores: Annotated[
        Path | None,
        typer.Option(
            help="File to take the scores from: a table of query_id, document_id and score (TSV, CSV, JSONL or "
            "Parquet), or a TREC run file."
        ),
    ] = None,
    length: Annotated[
        int | None,
        typer.Option(
            min=8,
            metavar=INT,
            help="Maximum tokens of a query and a document together; documents are truncated.",
        ),
    ] = None,
    split: Annotated[str | None, typer.Option(help="Split of the triplets' queries.", show_default="train")] = None,
    save_model: Annotated[Path | None, _training("Folder for the teacher.")] = None,
    epochs: Annotated[int | None, _training("Epochs.", "4")] = None,
    batch_size: Annotated[int | None, _training("Triplets in a batch.", "64")] = None,
    learning_rate: Annotated[float | None, _training("Peak learning rate.", "0.0001")] = None,
    seed: Annotated[int | None, _training("Random seed.", "0")] = None,
    validation_run: Annotated[Path | None, _training("Run file of the dev queries to re-rank.", "BM25's")] = None,
    skip_bad: Annotated[bool, skip_bad_option(RUNNING)] = False,
    overwrite: Annotated[bool, overwrite_option(RUNNING)] = False,
    threads: Annotated[int | None, threads_option(RUNNING)] = None,
    config: Annotated[Path | None, config_option(RUNNING)] = None,
) -> None:
    """Give triplets a teacher's scores, for `remargin fit --target teacher`.

    If interrupted, the same command continues: scoring after the last block, training from the last checkpoint.
    """
    given = {name: value for name, value in locals().items() if name not in ("threads", "config")}
    import remargin

    taught = remargin.teach(**given)
    say_skipped(taught.rejected, taught.first_reject)
    if taught.truncated:
        tell(f"pairs whose document was truncated: {taught.truncated:,}")
    speed = f"{taught.seconds:,.1f} s, {taught.pairs_per_second:,.0f} a second"
    tell(f"wrote {out}: {taught.triplets:,} triplets, {taught.pairs:,} distinct pairs in {speed}")
    tell(f"wrote {out}.json")
