"""Training a cross-encoder on the triplets that a bi-encoder is to learn from: the teacher for its margins."""

from __future__ import annotations

import copy
import hashlib
import json
import math
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from remargin.data.collection import Collection
from remargin.data.tables import Rejects
from remargin.data.triplets import triplets_hash
from remargin.errors import InputError
from remargin.evaluation.measures import evaluate, require_measures
from remargin.evaluation.runs import Run
from remargin.files.atomic import refuse_existing, remove_left
from remargin.files.hashes import texts_fingerprint
from remargin.files.shapes import mismatch
from remargin.losses.pair_scores import PairMarginLoss, PairTarget
from remargin.model.ahead import ahead
from remargin.model.checkpoint import Progress, load_checkpoint, own_random_state, save_checkpoint
from remargin.model.compute import fast_precision
from remargin.model.cross_encoder import OURS, CrossEncoder, read_cross_encoder
from remargin.model.optimisation import RateSchedule, parameter_groups
from remargin.model.tokenizer import LONGER
from remargin.progress import tell, track
from remargin.retrieval.candidates import candidates
from remargin.teacher.batches import PairBatch, PairBatches

TARGETS = ("softmax", *get_args(PairTarget))


@dataclass(frozen=True)
class TeacherSettings:
    """How to train a cross-encoder, and how to validate it: how often, and on which queries.

    `target` is "softmax", the cross-entropy of the softmax over a triplet's scores, or one of the targets of
    `PairMarginLoss`. `learning_rate` is the peak learning rate, `clip` the maximum gradient norm.
    """

    epochs: int = 4
    batch_size: int = 64
    learning_rate: float = 1e-4
    warm_up: float = 0.1
    weight_decay: float = 0.01
    clip: float = 1.0
    seed: int = 0
    validations: int = 4
    validation_measure: str = "nDCG@10"
    validation_depth: int = 50
    validation_queries: int = 200
    target: Literal["softmax", PairTarget] = "softmax"

    def __post_init__(self) -> None:
        if self.target not in TARGETS:
            raise InputError(f"unknown target {self.target!r} of a teacher", do=f"use {', '.join(TARGETS)}")
        for name in ("epochs", "batch_size", "validations", "validation_depth", "validation_queries"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}", do="it must be at least 1")
        self.rates(1)  # an InputError for values that make no schedule

    def rates(self, steps: int) -> RateSchedule:
        """A learning rate that rises for a share of the steps, and then falls to zero."""
        return RateSchedule(self.learning_rate, steps, self.warm_up, "linear")


@dataclass
class Trained:
    """What came of training a cross-encoder, and what it cost.

    Attributes:
        first_loss, last_loss: means over the first and the last tenth of the steps.
        first_stage, best: the measure of what it re-ranks, and of what it makes of that.
        seconds: all of it, of which `validation_seconds` went into measuring.
        fingerprint: of what it was made from.
    """

    triplets: int
    rejected: int
    steps: int
    first_loss: float
    last_loss: float
    measure: str
    first_stage: float | None
    best: float | None
    best_step: int
    seconds: float
    validation_seconds: float
    fingerprint: str = field(repr=False)
    validations: list[tuple[int, float]] = field(default_factory=list, repr=False)


@own_random_state()
def train_cross_encoder(
    model: CrossEncoder,
    collection: Collection,
    triplets: str | Path,
    out: str | Path,
    settings: TeacherSettings | None = None,
    validation: Collection | None = None,
    first_stage: Run | None = None,
    skip_bad: bool = False,
    overwrite: bool = False,
    say: Callable[[str], None] = tell,
) -> Trained:
    """Teach a cross-encoder to tell the positive of each triplet from its negatives, and save it.

    The loss is the cross-entropy of the softmax over a triplet's scores, or that of `settings.target`. If `out` holds
    the model that the same call made before, that model is loaded instead. If interrupted, the same call continues from
    its last checkpoint, which is made at each validation and lies in a hidden folder beside `out` until training is
    done.

    Args:
        model: an encoder with a new head, or a cross-encoder to train further; its weights are changed.
        collection: the texts.
        triplets: a table of ids over the collection, as `mine` writes it.
        out: the model's folder. Its remargin_cross_encoder.json has what this function returns.
        settings: everything else.
        validation: a collection of held-out queries; the model that re-ranks the first stage best is kept. Without it,
            the last one is.
        first_stage: a run of those queries; without one, BM25's.
        skip_bad: leave triplets out that the collection does not know, and count them.
        overwrite: replace another cross-encoder in `out`.
        say: called with progress messages.

    Raises:
        InputError: for bad input, with its file, line and id, and if the loss is not a number.
    """
    started = time.perf_counter()
    settings, out, path = settings or TeacherSettings(), Path(out), Path(triplets)
    fingerprint = _fingerprint(model, collection, path, settings, validation, first_stage)
    made = _made_before(out, fingerprint)
    checkpoint = out.absolute().parent / f".{out.name}.{fingerprint}"
    if made is not None:
        remove_left(out.absolute().parent, out.name)
        _remove_checkpoint(checkpoint)
        say(f"{out} was trained on the same triplets in the same way: used as it is")
        model.take_over(CrossEncoder.from_pretrained(out, device=model.device))
        return made
    refuse_existing(out, overwrite, OURS)
    rejects = Rejects(skip=skip_bad)
    parts = settings.batch_size, settings.epochs, settings.seed, settings.target
    data = PairBatches(model, collection, path, rejects, *parts)
    validator = None if validation is None else _Reranking(model, validation, settings, first_stage)
    size, epochs = settings.batch_size, settings.epochs
    say(f"{data.steps:,} steps of {size} triplets ({epochs} epochs of {len(data):,}) on {model.device}")
    training = _Training(model, data, settings, validator, checkpoint, started, say)
    training.run()
    progress, sums = training.progress, training.sums
    trained = Trained(
        triplets=len(data),
        rejected=rejects.count,
        steps=data.steps,
        first_loss=float(sums.first) / sums.steps,
        last_loss=float(sums.last) / sums.steps,
        measure=settings.validation_measure,
        first_stage=None if validator is None else validator.before,
        best=progress.best,
        best_step=progress.best_step or data.steps,
        seconds=round(training.seconds(), 3),
        validation_seconds=round(float(sums.validation_seconds), 3),
        fingerprint=fingerprint,
        validations=[(step, values[settings.validation_measure]) for step, values in progress.validations],
    )
    origin = {"from": model.name, "data": collection.name, "split": collection.split, "settings": asdict(settings)}
    model.untrained, model.trained = False, {**origin, **asdict(trained)}
    model.save(out, overwrite)
    model.name = str(out)
    _remove_checkpoint(checkpoint)
    return trained


def _remove_checkpoint(checkpoint: Path) -> None:
    """Remove a checkpoint that is no longer needed, and what a killed process left of one."""
    remove_left(checkpoint.parent, checkpoint.name)
    shutil.rmtree(checkpoint, ignore_errors=True)


class _Training:
    """The steps, from the last checkpoint on if there is one. At each mark there is a validation and a checkpoint."""

    def __init__(
        self,
        model: CrossEncoder,
        data: PairBatches,
        settings: TeacherSettings,
        validator: _Reranking | None,
        checkpoint: Path,
        started: float,
        say: Callable[[str], None],
    ) -> None:
        self._model, self._data, self._settings, self._validator = model, data, settings, validator
        self._checkpoint, self._started, self._say = checkpoint, started, say
        self._precision = fast_precision() if model.precision == "auto" else model.precision
        self._rates = settings.rates(data.steps)
        self._marks = {math.ceil(data.steps * (i + 1) / settings.validations) for i in range(settings.validations)}
        groups = parameter_groups([model.model], settings.weight_decay)
        self._optimiser = torch.optim.AdamW(groups, lr=settings.learning_rate, fused=True)
        self.progress, self.sums = Progress(), _Sums(data.steps).to(model.device)
        self._best = nn.Module() if validator is None else copy.deepcopy(model.model).cpu()
        self._kept = {"model": model.model, "best": self._best, "sums": self.sums}
        torch.manual_seed(settings.seed)
        if checkpoint.exists():
            self.progress, _ = load_checkpoint(checkpoint, self._kept, self._optimiser)
            if any(settings.validation_measure not in values for _, values in self.progress.validations):
                problem = f"the checkpoint was not validated by {settings.validation_measure}"
                raise InputError(problem, file=checkpoint, do="delete it")
            say(f"resuming after step {self.progress.step:,}")
        self._seconds_before = self.progress.seconds

    def seconds(self) -> float:
        """How long it has taken, also before it was stopped and resumed."""
        return self._seconds_before + time.perf_counter() - self._started

    def run(self) -> None:
        """Train to the end, and take the best weights if there were validations."""
        batches = self._data.batches(self.progress.step)
        self._model.train()
        for batch in track(ahead(batches), "training the teacher", total=self._data.steps - self.progress.step):
            loss = self._step(batch)
            if self.progress.step in self._marks:
                self._validate(loss.item())
                self.progress.seconds = self.seconds()
                save_checkpoint(self._checkpoint, self.progress, self._kept, self._optimiser, None)
        self._model.train(False)
        if self.progress.best_step is not None:
            self._model.model.load_state_dict(self._best.state_dict())

    def _step(self, batch: PairBatch) -> Tensor:
        model, settings = self._model, self._settings
        for group in self._optimiser.param_groups:
            group["lr"] = self._rates(self.progress.step)
        with torch.autocast(model.device.type, torch.bfloat16, enabled=self._precision == "bf16"):
            scores = model.logits(batch.scored).view(-1, self._data.width)
            with torch.no_grad():
                documents = None if batch.documents is None else model.logits(batch.documents).view(len(scores), -1)
        loss = self._loss(scores, documents)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.model.parameters(), settings.clip)
        self._optimiser.step()
        self._optimiser.zero_grad()
        self.progress.step += 1
        self.progress.triplets += len(scores)
        self.sums.add(self.progress.step, loss.detach())
        return loss

    def _loss(self, scores: Tensor, documents: Tensor | None) -> Tensor:
        if documents is None or self._settings.target == "softmax":
            return cross_entropy(scores, scores.new_zeros(len(scores), dtype=torch.long))  # the positive is first
        value: Tensor = PairMarginLoss(self._settings.target)(scores, documents)
        return value

    def _validate(self, loss: float) -> None:
        """Raise an InputError if the loss is not a number; else measure, and keep the weights if they are the best."""
        progress, measure = self.progress, self._settings.validation_measure
        if not math.isfinite(loss):
            do = f"use a lower learning rate than {self._settings.learning_rate:g}"
            raise InputError(f"the loss is {loss} at step {progress.step}", do=do)
        if self._validator is None:
            return
        began = time.perf_counter()
        value = self._validator(self._model)
        progress.validations.append((progress.step, {measure: value}))
        if progress.best is None or value >= progress.best:  # of two alike, the one that saw more
            progress.best, progress.best_step, progress.best_triplets = value, progress.step, progress.triplets
            self._best.load_state_dict(self._model.model.state_dict())
        self.sums.validation_seconds += time.perf_counter() - began
        self._say(f"step {progress.step:,}: loss {loss:.4f}, {measure} {value:.4f} on {self._validator.split}")


class _Sums(nn.Module):
    """Sums of the losses in the first and in the last tenth of the steps, and of the seconds spent on validation.

    It is a module because a checkpoint holds the tensors of modules.
    """

    first: Tensor
    last: Tensor
    validation_seconds: Tensor

    def __init__(self, steps: int) -> None:
        super().__init__()
        self._all, self.steps = steps, max(1, steps // 10)
        for name in ("first", "last", "validation_seconds"):
            self.register_buffer(name, torch.zeros(()))

    def add(self, step: int, loss: Tensor) -> None:
        """Add the loss of a step, from 1, without waiting until the device has computed it."""
        if step <= self.steps:
            self.first += loss
        if step > self._all - self.steps:
            self.last += loss


class _Reranking:
    """Measures a cross-encoder on some held-out queries by re-ranking a first stage's candidates."""

    def __init__(
        self, model: CrossEncoder, collection: Collection, settings: TeacherSettings, first_stage: Run | None
    ) -> None:
        self.split, self._measure = collection.split, settings.validation_measure
        require_measures([self._measure])
        some = collection.sample(settings.validation_queries, settings.seed)
        if unfit := model.too_long(some.queries):
            problem = f"validation query leaves no room for a document in {model.length} tokens"
            raise InputError(problem, id=unfit[0], do=LONGER)
        first = candidates(some, settings.validation_depth, first_stage)
        self._qrels, self._candidates = some.qrels, {id: list(ranking) for id, ranking in first.items()}
        self._pairs = [
            (some.queries[id], collection.documents[document])
            for id, documents in self._candidates.items()
            for document in documents
        ]
        self.before = self._measured(first)

    def __call__(self, model: CrossEncoder) -> float:
        [scored] = model.score_blocks([self._pairs])
        values = iter(scored.scores.tolist())
        scores = {id: dict(zip(documents, values, strict=False)) for id, documents in self._candidates.items()}
        return self._measured(scores)

    def _measured(self, scores: dict[str, dict[str, float]]) -> float:
        return evaluate(Run.of(scores), self._qrels, [self._measure]).means[self._measure]


def _fingerprint(
    model: CrossEncoder,
    collection: Collection,
    triplets: Path,
    settings: TeacherSettings,
    validation: Collection | None,
    first_stage: Run | None,
) -> str:
    """A hash of all that a cross-encoder is made from: the same one is not trained twice."""
    documents = texts_fingerprint(collection.documents)
    known: list[Any] = [
        model.fingerprint(),
        collection.name,
        collection.split,
        triplets_hash(triplets),
        asdict(settings),
    ]
    known += [documents, texts_fingerprint(collection.queries)]
    if validation is not None:
        shared = validation.documents is collection.documents
        known += [validation.split, documents if shared else texts_fingerprint(validation.documents)]
        known += [texts_fingerprint(validation.queries), validation.qrels]
    if first_stage is not None:
        known.append(texts_fingerprint({id: json.dumps(ranking) for id, ranking in first_stage.rankings.items()}))
    return hashlib.blake2b(json.dumps(known).encode(), digest_size=16).hexdigest()


def _made_before(out: Path, fingerprint: str) -> Trained | None:
    header = read_cross_encoder(out)
    record = header["trained"] if header is not None else None
    if record is None or record.get("fingerprint") != fingerprint:
        return None
    known = {name: record[name] for name in Trained.__dataclass_fields__ if name in record}
    if problem := mismatch(known, Trained, "trained"):
        raise InputError(f"not a record of training: {problem}", file=out / OURS, do="choose another place")
    trained = Trained(**known)
    trained.validations = [(step, value) for step, value in trained.validations]
    return trained
