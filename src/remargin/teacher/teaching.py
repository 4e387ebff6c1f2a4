"""`teach`: a teacher's scores for triplets, from a model, from one that is trained first, or from a file."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

from remargin.data.collection import Collection, has_queries, open_source
from remargin.data.tables import Rejects
from remargin.errors import InputError, refuse_idle
from remargin.evaluation.runs import Run
from remargin.files.atomic import refuse_existing
from remargin.files.executor import Executor
from remargin.model.cross_encoder import CrossEncoder
from remargin.progress import tell
from remargin.teacher.scoring import Taught, score_triplets
from remargin.teacher.training import TeacherSettings, Trained, train_cross_encoder

log = logging.getLogger(__name__)


def teach(
    triplets: str | Path,
    out: str | Path,
    *,
    data: str | Path | None = None,
    model: str | Path | None = None,
    train_from: str | Path | None = None,
    save_model: str | Path | None = None,
    target: Literal["softmax", "adaptive", "distributed"] | None = None,
    scores: str | Path | None = None,
    length: int | None = None,
    epochs: int | None = None,
    batch_size: int | None = None,
    learning_rate: float | None = None,
    seed: int | None = None,
    validation_run: str | Path | None = None,
    split: str | None = None,
    skip_bad: bool = False,
    overwrite: bool = False,
    say: Callable[[str], None] = tell,
    executor: Executor | None = None,
) -> Taught:
    """Give triplets a teacher's scores, for `fit` with target "teacher"; what `remargin teach` does.

    The teacher is one of three: a cross-encoder (`model`), a cross-encoder that is trained on the triplets first
    (`train_from`), or a file of scores (`scores`). If interrupted, the same call continues: scoring after the last
    block of pairs, training from its last checkpoint.

    Args:
        triplets: a table of ids, as `mine` writes it, with one or several negatives; or "irds:NAME" (docpairs).
        out: the table to write, .tsv or .tsv.gz. `out`.json holds what it cost.
        data: the collection whose texts a cross-encoder reads.
        model: the teacher: a folder, or a name of the Hugging Face hub.
        train_from: an encoder; the teacher is trained from it.
        save_model: the folder for the teacher that is trained.
        target: what it is trained with: "softmax", the cross-entropy of the softmax over a triplet's scores (the
            default), or the paper's "adaptive" or "distributed" targets from its own scores of positive and negative;
            see `PairMarginLoss`.
        scores: a table of query_id, document_id and score, or a TREC run file.
        length: maximum length of a query and a document together in tokens; longer documents are truncated.
        epochs, batch_size, learning_rate, seed: of training the teacher; see `TeacherSettings`.
        validation_run: a run file of the dev queries to re-rank, to validate the teacher. Without it, BM25's.
        split: the split of the triplets' queries. Without it, train.
        skip_bad: leave out triplets that cannot be scored, and count them.
        overwrite: replace `out`, and another cross-encoder in `save_model`.
        say: called with progress messages.
        executor: where a cross-encoder scores, such as a `RayExecutor`; training is in this process in any case.

    Raises:
        InputError: for bad input, with its file, line and id; for none or several teachers; and for an argument that
            has no effect with the given teacher.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> _ = (folder / "triplets.tsv").write_text("q1\\td1\\td2\\n")
        >>> _ = (folder / "scores.tsv").write_text("q1\\td1\\t8.5\\nq1\\td2\\t-1.5\\n")
        >>> teach(folder / "triplets.tsv", folder / "scored.tsv", scores=folder / "scores.tsv").pairs
        2
    """
    training = {
        "target": target, "epochs": epochs, "batch_size": batch_size, "learning_rate": learning_rate, "seed": seed
    }  # fmt: skip
    if sum(given is not None for given in (model, train_from, scores)) != 1:
        raise InputError("scores come from one teacher", do="give one of --model, --train-from and --scores")
    if train_from is None:
        only_then = {"save_model": save_model, **training, "validation_run": validation_run}
        refuse_idle("a teacher that is not trained here", _given(only_then))
    elif save_model is None:
        raise InputError("the teacher that is trained has to be kept", do="name a folder with --save-model")
    if scores is not None:
        texts = {"data": data, "length": length, "split": split}
        refuse_idle("scores from a file", [*_given(texts), *(["engine"] if executor is not None else [])])
    elif data is None:
        raise InputError("a cross-encoder reads texts", do="name the collection that has them with --data")
    refuse_existing(Path(out), overwrite)
    if scores is not None:
        return score_triplets(triplets, out, scores, None, skip_bad, overwrite)
    teacher = CrossEncoder.from_pretrained(str(model or train_from), length, seed or 0)
    collection = Collection.load(str(data), split or "train", skip_bad)
    if collection.rejects.count:
        log.warning("skipped bad input: %s", collection.rejects.describe())
    if save_model is not None:
        settings = TeacherSettings(**{name: value for name, value in training.items() if value is not None})  # type: ignore[arg-type]
        first_stage = None if validation_run is None else Run.load(validation_run)
        trained = train_teacher(
            teacher, collection, triplets, save_model, settings, first_stage, skip_bad, overwrite, say
        )
        if trained.best is not None and trained.first_stage is not None:
            ranked = f"{trained.first_stage:.4f} before re-ranking, {trained.best:.4f} after"
            say(f"{trained.measure} on dev: {ranked} (step {trained.best_step:,})")
        cost = f"{trained.steps:,} steps on {trained.triplets:,} triplets in {trained.seconds:,.1f} s"
        say(f"wrote {save_model}: {cost}")
    return score_triplets(triplets, out, teacher, collection, skip_bad, overwrite, executor)


def train_teacher(
    model: CrossEncoder,
    collection: Collection,
    triplets: str | Path,
    out: str | Path,
    settings: TeacherSettings | None = None,
    first_stage: Run | None = None,
    skip_bad: bool = False,
    overwrite: bool = False,
    say: Callable[[str], None] = tell,
) -> Trained:
    """Train a cross-encoder on triplets of a collection, and save it; see `train_cross_encoder`.

    The dev split of the same collection decides which weights are kept. If there is none, the last weights are kept,
    and a message says so.

    Args:
        model: an encoder with a new head, or a cross-encoder to train further; its weights are changed.
        collection: the texts, as `Collection.load` read them: dev is read from the same place.
        triplets: a table of ids over the collection, as `mine` writes it.
        out: the model's folder.
        settings: everything else.
        first_stage: a run of the dev queries, whose documents are re-ranked to validate; without one, BM25's.
        skip_bad: leave out what is wrong with dev, and triplets that the collection does not know.
        overwrite: replace another cross-encoder in `out`.
        say: called with progress messages.

    Raises:
        InputError: for bad input, with its file, line and id, and if the loss is not a number.
    """
    dev = _dev_of(collection, skip_bad)
    if dev is None:
        say("no dev split: training without validation")
    return train_cross_encoder(
        model, collection, triplets, out, settings, dev, first_stage, skip_bad, overwrite, say=say
    )


def _dev_of(collection: Collection, skip_bad: bool) -> Collection | None:
    """The dev split of the same collection, if it has queries; it shares the documents, once in memory is enough."""
    if not has_queries(open_source(collection.name, Rejects(skip=skip_bad)), "dev"):
        return None
    dev = Collection.load(collection.name, "dev", skip_bad)
    dev.documents = collection.documents
    return dev


def _given(options: Mapping[str, object]) -> list[str]:
    return [name for name, value in options.items() if value is not None]
