"""remargin teach: a teacher's scores for triplets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from remargin.cli.engines import engine_executor
from remargin.cli.options import (
    BATCH_SIZE,
    INT,
    TRIPLETS,
    Data,
    Engine,
    RayAddress,
    Workers,
    config_option,
    overwrite_option,
    say_skipped,
    skip_bad_option,
    threads_option,
)
from remargin.progress import tell

NOT_OURS = ("threads", "config", "engine", "ray_address", "workers")
TRAINING, RUNNING = "Training the teacher (--train-from)", "Input, output and speed"


def _training(help: str, default: str | bool = True) -> Any:
    return typer.Option(rich_help_panel=TRAINING, help=help, show_default=default)


def teach(
    triplets: Annotated[
        Path,
        typer.Option(help=f"{TRIPLETS} They may have several negatives."),
    ],
    out: Annotated[
        Path, typer.Option(help="Table of triplets with scores to write: .tsv or .tsv.gz. OUT.json has the cost.")
    ],
    data: Data = None,
    model: Annotated[
        str | None, typer.Option(help="Teacher, a cross-encoder: a folder or a Hugging Face name.")
    ] = None,
    train_from: Annotated[
        str | None, typer.Option(help="Encoder to train a teacher from, on the same triplets, before scoring.")
    ] = None,
    scores: Annotated[
        Path | None,
        typer.Option(
            help="File to take the scores from, instead of a teacher: a table of query_id, document_id and score "
            "(TSV, CSV, JSONL or Parquet), or a TREC run file."
        ),
    ] = None,
    length: Annotated[
        int | None,
        typer.Option(
            min=8,
            metavar=INT,
            help="Maximum length of a query and a document together in tokens; longer documents are truncated.",
            show_default="the model's",
        ),
    ] = None,
    split: Annotated[str | None, typer.Option(help="Split of the triplets' queries.", show_default="train")] = None,
    save_model: Annotated[Path | None, _training("Folder to save the trained teacher to.")] = None,
    target: Annotated[
        str | None,
        _training(
            "Loss: softmax, the cross-entropy of a triplet's scores; or the paper's margins between the teacher's own "
            "scores, with targets from its scores of positive and negative: adaptive or distributed.",
            "softmax",
        ),
    ] = None,
    epochs: Annotated[int | None, _training("Number of epochs.", "4")] = None,
    batch_size: Annotated[int | None, _training(BATCH_SIZE, "64")] = None,
    learning_rate: Annotated[float | None, _training("Peak learning rate.", "0.0001")] = None,
    seed: Annotated[int | None, _training("Random seed.", "0")] = None,
    validation_run: Annotated[
        Path | None, _training("First-stage run file of the dev queries, to re-rank.", "BM25's ranking")
    ] = None,
    skip_bad: Annotated[bool, skip_bad_option(RUNNING)] = False,
    overwrite: Annotated[bool, overwrite_option(RUNNING)] = False,
    threads: Annotated[int | None, threads_option(RUNNING)] = None,
    config: Annotated[Path | None, config_option(RUNNING)] = None,
    engine: Engine = "local",
    ray_address: RayAddress = None,
    workers: Workers = None,
) -> dict[str, Any]:
    """Add a teacher's scores to triplets, for `remargin fit --target teacher`.

    The scores come from one of --model, --train-from and --scores.
    If interrupted, the same command resumes: scoring after the last block
    of pairs, training from the last checkpoint.

    Examples:
        remargin teach --data faq --triplets a.tsv --train-from minilm --out b.tsv
        remargin teach --triplets a.tsv --scores scores.tsv --out b.tsv
    """
    given = {name: value for name, value in locals().items() if name not in NOT_OURS}
    import remargin

    with engine_executor(engine, ray_address, workers) as executor:
        taught = remargin.teach(**given, executor=executor)
    say_skipped(taught.rejected, taught.first_reject)
    if taught.truncated:
        tell(f"pairs whose document was truncated: {taught.truncated:,}")
    speed = f"{taught.seconds:,.1f} s, {taught.pairs_per_second:,.0f} a second"
    tell(f"wrote {out}: {taught.triplets:,} triplets, {taught.pairs:,} distinct pairs in {speed}")
    tell(f"wrote {out}.json")
    return {"out": out, **vars(taught)}
