"""remargin teach: a teacher's scores for triplets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from remargin.cli.options import (
    Config,
    Data,
    Overwrite,
    SkipBad,
    Split,
    Threads,
    load_collection,
    refuse_idle,
    say_skipped,
)
from remargin.errors import InputError
from remargin.progress import tell

if TYPE_CHECKING:
    from remargin.data.collection import Collection
    from remargin.model.cross_encoder import CrossEncoder

OF_TRAINING = ["save_model", "epochs", "batch_size", "learning_rate", "seed", "validation_run"]


def teach(
    context: typer.Context,
    triplets: Annotated[
        Path, typer.Option(help="Triplets of ids, as from `remargin mine`, with one or several negatives.")
    ],
    out: Annotated[Path, typer.Option(help="The table to write: .tsv or .tsv.gz. OUT.json says what it cost.")],
    data: Data = None,
    model: Annotated[
        str | None, typer.Option(help="The teacher, a cross-encoder: a folder or a Hugging Face name.")
    ] = None,
    train_from: Annotated[
        str | None, typer.Option(help="Train the teacher first, on these triplets, from this encoder.")
    ] = None,
    save_model: Annotated[Path | None, typer.Option(help="--train-from: the folder for the teacher.")] = None,
    scores: Annotated[
        Path | None,
        typer.Option(
            help="Take the scores from a file: a table of query_id, document_id and score (TSV, CSV, JSONL or "
            "Parquet), or a TREC run file."
        ),
    ] = None,
    length: Annotated[
        int | None, typer.Option(min=8, help="Longest query and document together, in tokens; documents are cut.")
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="--train-from: how often to go through the triplets.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="--train-from: triplets in a batch.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="--train-from: at its highest.")] = None,
    seed: Annotated[int, typer.Option(help="--train-from: for everything that is random.")] = 0,
    validation_run: Annotated[
        Path | None, typer.Option(help="--train-from: a run of dev queries to re-rank; BM25's without.")
    ] = None,
    split: Split = "train",
    skip_bad: SkipBad = False,
    overwrite: Overwrite = False,
    threads: Threads = None,
    config: Config = None,
) -> None:
    """Give triplets a teacher's scores, for `remargin fit --target teacher`.

    Killed, it goes on: scoring where it was, training from the last of its four checkpoints.
    """
    if sum(given is not None for given in (model, train_from, scores)) != 1:
        raise InputError("scores come from one teacher", do="give one of --model, --train-from and --scores")
    if train_from is None:
        refuse_idle(context, {"a teacher that is not trained here": OF_TRAINING})
    elif save_model is None:
        raise InputError("the teacher that is trained has to be kept", do="name a folder with --save-model")
    if scores is not None:
        refuse_idle(context, {"scores from a file": ["data", "length", "split"]})
    elif data is None:
        raise InputError("a cross-encoder reads texts", do="name the collection that has them with --data")
    from remargin.files.atomic import refuse_existing
    from remargin.teacher.scoring import report_of
    from remargin.teacher.scoring import teach as run

    refuse_existing(out, overwrite)
    teacher: CrossEncoder | Path
    collection = None
    if scores is not None:
        teacher = scores
    else:
        from remargin.model.cross_encoder import CrossEncoder

        teacher = CrossEncoder.from_pretrained(str(model or train_from), length, seed)
        collection = load_collection(str(data), split, skip_bad)
        if train_from is not None:
            assert save_model is not None  # or it was refused above
            changed = {"epochs": epochs, "batch_size": batch_size, "learning_rate": learning_rate, "seed": seed}
            _train(teacher, collection, triplets, save_model, changed, validation_run, skip_bad, overwrite)
    taught = run(triplets, out, teacher, collection, skip_bad, overwrite)
    say_skipped(taught.rejected, taught.first_reject)
    if taught.truncated:
        tell(f"pairs whose document was cut: {taught.truncated:,}")
    speed = f"{taught.seconds:,.1f} s, {taught.pairs_per_second:,.0f} a second"
    tell(f"wrote {out}: {taught.triplets:,} triplets, {taught.pairs:,} distinct pairs in {speed}")
    tell(f"wrote {report_of(out)}")


def _train(
    teacher: CrossEncoder,
    collection: Collection,
    triplets: Path,
    folder: Path,
    changed: dict[str, Any],
    validation_run: Path | None,
    skip_bad: bool,
    overwrite: bool,
) -> None:
    """Train the teacher, and print what it gains on dev and what it took."""
    from remargin.evaluation.runs import Run
    from remargin.teacher.from_collection import train_teacher
    from remargin.teacher.training import TeacherSettings

    settings = TeacherSettings(**{name: value for name, value in changed.items() if value is not None})
    run = None if validation_run is None else Run.load(validation_run)
    trained = train_teacher(teacher, collection, triplets, folder, settings, run, skip_bad, overwrite)
    if trained.best is not None and trained.first_stage is not None:
        ranked = f"{trained.first_stage:.4f} before re-ranking, {trained.best:.4f} after"
        tell(f"{trained.measure} on dev: {ranked} (step {trained.best_step:,})")
    tell(f"wrote {folder}: {trained.steps:,} steps on {trained.triplets:,} triplets in {trained.seconds:,.1f} s")
