"""A teacher for a collection: a cross-encoder trained on its triplets, and validated on its dev split if it has one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from remargin.data.collection import Collection, has_queries, open_source
from remargin.data.tables import Rejects
from remargin.evaluation.runs import Run
from remargin.model.cross_encoder import CrossEncoder
from remargin.progress import tell
from remargin.teacher.training import TeacherSettings, Trained, train_cross_encoder


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

    The dev split of the same collection decides which weights are kept. Where there is none, that is said, and the
    last weights are kept.

    Args:
        model: an encoder with a new head, or a cross-encoder to go on with; its weights are changed.
        collection: the texts, as `Collection.load` read them: dev is read from the same place.
        triplets: a table of ids over the collection, as `mine` writes it.
        out: the model's folder.
        settings: everything else.
        first_stage: a run of the dev queries, whose documents are re-ranked to validate; without one, BM25's.
        skip_bad: leave out what is wrong with dev, and triplets that the collection does not know.
        overwrite: replace another cross-encoder in `out`.
        say: gets a line for people now and then.

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
