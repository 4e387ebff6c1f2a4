"""The training loop, top to bottom."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from remargin.data.triplets import Triplets
from remargin.encoder import BiEncoder
from remargin.errors import InputError
from remargin.files import refuse_existing
from remargin.losses import ContrastiveLoss, DualTeacherLoss, MarginLoss, Similarity
from remargin.model_folder import OURS
from remargin.training.batches import Loader, TrainingData
from remargin.training.checkpoint import Progress, load_checkpoint, save_checkpoint
from remargin.training.engine import Engine, matmul_rate
from remargin.training.in_batch_teacher import InBatchTeacher
from remargin.training.log import Log, Meter
from remargin.training.optimiser import learning_rate, make_optimiser
from remargin.training.samplers import make_sampler
from remargin.training.settings import FitSettings, fast_precision
from remargin.training.stopping import Stopping
from remargin.training.validation import Validator

# What a run cannot change on its way, beside its loss.
FIXED = ("batch_size", "accumulate", "seed", "sampler", "clusters", "drop_bins", "learning_rate", "schedule")
# Mean cosine among a batch's positives: an encoder that comes to this has collapsed; at this, nothing differs any more.
COLLAPSED = 0.9999
ALL_THE_SAME = 1 - 1e-7


@dataclass
class Fitted:
    """What came of a run: what it saw, the validation before and the best, and where the models are."""

    steps: int
    triplets: int
    before: float | None
    best: float | None
    best_step: int | None
    best_triplets: int | None
    stopped_early: bool
    seconds: float
    model: Path
    validations: list[tuple[int, dict[str, float]]] = field(default_factory=list, repr=False)


def fit(
    model: BiEncoder,
    data: str | Path,
    out: str | Path,
    loss: nn.Module | None = None,
    settings: FitSettings | None = None,
    validator: Validator | None = None,
    loggers: Sequence[Any] = (),
    resume: bool = False,
    say: Callable[[str], None] = print,
    observe: Callable[[int, Tensor, Tensor, Tensor], None] | None = None,
) -> Fitted:
    """Fine-tune a model on prepared triplets.

    Writes `out/last`, `out/best` if there is a validator, `out/metrics.csv`, and `out/checkpoint`, from which `resume`
    goes on: with the same batches, the same dropout and so, on a CPU, the very same weights as without a stop. Ctrl-C
    and SIGTERM wait for the end of a step and its checkpoint.

    Args:
        model: the encoder; its weights are changed, and are the last ones in the end: `Fitted.model` has the best.
        data: a folder that `prepare` wrote, with triplets, by this model's tokenizer.
        out: the run's folder.
        loss: any module of queries, positives and negatives; without one, the settings' loss.
        settings: everything else.
        validator: measures the model every so often; the best one is kept, and patience counts from it. Without one,
            there is no patience.
        loggers: Lightning loggers, beside the CSV file.
        resume: go on from `out/checkpoint`, if there is one; else a run that is there already is an error.
        say: gets a line for people now and then.
        observe: gets the number of each batch, from 0, and its vectors: queries, positives and negatives.

    Raises:
        InputError: if data and model do not fit, a teacher is missing, the loss is not a number, or the encoder has
            collapsed.
    """
    settings, out = settings or FitSettings(), Path(out)
    progress, checkpoint = Progress(), out / "checkpoint"
    if not resume and (checkpoint.exists() or (out / "last").exists()):
        raise InputError("has a run already", file=out, do="choose another place, or go on with that run (resume)")
    refuse_existing(out / "last", overwrite=True, marker=OURS)
    precision = fast_precision() if settings.precision == "auto" else settings.precision
    scaled: Any = "16-mixed" if precision == "16" else "32-true"  # only float16 needs its gradients scaled
    fabric = Fabric(accelerator="auto", devices=1, precision=scaled, loggers=list(loggers))
    device = fabric.device
    training = TrainingData(data, settings.batch_size, settings.seed)
    training.queries.require(model.tokenizer, model.query_length, model.query_prefix)
    training.documents.require(model.tokenizer, model.document_length, model.document_prefix)
    loss = loss or settings.loss.build(model.similarity)
    _require_teachers(loss, training, settings)
    started = time.perf_counter()
    model, loss = model.to(device), loss.to(device)
    training.sampler = make_sampler(model, training.queries, training.triplets, settings, out, resume, say)
    training.teacher_scale = _teacher_scale(training, settings.loss.teacher_scale, loss, say)
    if settings.in_batch_teacher is not None:
        training.in_batch_teacher = InBatchTeacher.load(
            settings.in_batch_teacher, training.queries, training.documents, model.similarity, out, device, resume, say
        )
    torch.manual_seed(settings.seed)
    optimiser = make_optimiser([model, loss], settings)
    _, wrapped = fabric.setup(model, optimiser)
    dtype = {"32": torch.float32, "bf16": torch.bfloat16, "16": torch.float16}[precision]
    engine = Engine(model, settings, device, dtype, training.typical_lengths())
    of_loss = repr(loss) if isinstance(loss, MarginLoss) else type(loss).__name__  # what others say may be learned
    fixed = {name: getattr(settings, name) for name in FIXED} | {"loss": of_loss}
    if checkpoint.exists():
        progress, precision_state = load_checkpoint(checkpoint, {"model": model, "loss": loss}, optimiser, fixed)
        _restore_best(out / "best", checkpoint)
        _require_best(progress, out / "best", validator)
        fabric.strategy.precision.load_state_dict(precision_state)
        say(f"resuming after step {progress.step:,}")
    say(_describe(device, training, settings))
    say(engine.describe() + ("" if settings.attention_dropout else "; no attention dropout"))
    before_stop, watch = progress.seconds, _Watch(settings, progress)
    meter = Meter(engine.operations_per_token, matmul_rate(device, dtype))
    loader = Loader(training, progress.step * settings.accumulate, engine.cut)
    log = Log(out, fabric, progress.step, settings.steps, say, meter)
    with engine, loader, log, Stopping() as stopping:

        def validate() -> bool:
            """Measure, keep the best model; whether patience is at its end."""
            if validator is None:
                return False
            began = time.perf_counter()
            values = validator(engine, model.similarity)
            value = values[validator.measure]
            progress.validations.append((progress.step, values))
            log.validation(progress.step, values)
            if progress.best is None or value > progress.best:
                progress.best, progress.best_step, progress.best_triplets = value, progress.step, progress.triplets
                progress.without_gain = 0
                _keep_best(model, out / "best", checkpoint)
            else:
                progress.without_gain += 1
            meter.pause(time.perf_counter() - began)
            return settings.patience is not None and progress.without_gain >= settings.patience

        if not progress.validations:
            validate()
        stopped = settings.patience is not None and progress.without_gain >= settings.patience
        asked = False
        stopping.hold()
        while progress.step < settings.steps and not (stopped or asked):
            step = progress.step
            for group in optimiser.param_groups:
                group["lr"] = learning_rate(settings, step)
            for number in range(step * settings.accumulate, (step + 1) * settings.accumulate):
                waited = loader.waited
                batch, cut = next(loader)
                vectors = engine.embed(cut)
                queries, positives, negatives = vectors.chunk(3)
                arguments = _loss_arguments(loss, batch, device)
                value = loss(queries, positives, negatives, **arguments)
                fabric.backward(value / settings.accumulate)
                assert vectors.grad is not None
                engine.backward(vectors.grad)
                if observe is not None:
                    observe(number, *vectors.detach().chunk(3))
                progress.triplets += len(batch.queries)
                meter.count(len(batch.queries), cut.tokens, cut.computed, loader.waited - waited)
            if settings.clip is not None:
                fabric.clip_gradients(model, wrapped, max_norm=settings.clip, error_if_nonfinite=False)
            wrapped.step()
            wrapped.zero_grad()
            progress.step += 1
            asked = stopping.asked
            to_save = asked or progress.step % settings.save_every == 0 or progress.step == settings.steps
            to_log = progress.step % settings.log_every == 0 or progress.step in (1, settings.steps)
            if to_log or to_save:
                watch.check(value, positives)
            if to_log:
                log.training(
                    progress.step,
                    value,
                    learning_rate(settings, step),
                    _statistics(loss, queries, positives, negatives, arguments),
                )
            if progress.step % settings.validate_every == 0 or progress.step == settings.steps:
                stopped = validate()
            progress.seconds = before_stop + time.perf_counter() - started
            if to_save or stopped:
                precision_state = fabric.strategy.precision.state_dict()
                modules = {"model": model, "loss": loss}
                save_checkpoint(checkpoint, progress, modules, optimiser, precision_state, fixed)
        if stopping.asked:  # also while the last step was validated or saved
            stopping.leave()
    model.eval()
    model.save(out / "last", overwrite=True)
    before = None if validator is None else progress.validations[0][1][validator.measure]
    kept = out / ("last" if validator is None else "best")
    return Fitted(
        steps=progress.step,
        triplets=progress.triplets,
        before=before,
        best=progress.best,
        best_step=progress.best_step,
        best_triplets=progress.best_triplets,
        stopped_early=stopped,
        seconds=progress.seconds,
        model=kept,
        validations=progress.validations,
    )


def _keep_best(model: BiEncoder, best: Path, checkpoint: Path) -> None:
    """Save the best model. The one before it stays with the checkpoint that knows it, until there is a newer one."""
    if best.exists() and checkpoint.exists() and not (checkpoint / "best").exists():
        best.rename(checkpoint / "best")
    model.save(best, overwrite=True)


def _restore_best(best: Path, checkpoint: Path) -> None:
    """The best model that a checkpoint knows: what came after it may not come again."""
    if (checkpoint / "best").exists():
        shutil.rmtree(best, ignore_errors=True)
        (checkpoint / "best").rename(best)


def _require_best(progress: Progress, best: Path, validator: Validator | None) -> None:
    """The best model so far must be there, and be the best by what is measured from here on."""
    if progress.best_step is not None and not (best / OURS).is_file():
        raise InputError("the best model of the run is missing", file=best, do="start the run anew in another folder")
    if validator is not None and progress.validations and validator.measure not in progress.validations[0][1]:
        problem = f"the run was not validated by {validator.measure} before"
        raise InputError(problem, file=best.parent, do="resume with the same measure, or start another run")


def _describe(device: torch.device, training: TrainingData, settings: FitSettings) -> str:
    sampler = training.sampler
    epochs = settings.steps * settings.accumulate / sampler.steps_per_epoch
    triplets = round(sampler.epoch_triplets / sampler.steps_per_epoch * settings.accumulate, 1)
    return f"{settings.steps:,} steps of {triplets:g} triplets ({epochs:.2f} epochs of {sampler.epoch}) on {device}"


def needs_scores(loss: nn.Module) -> bool:
    """Whether a loss takes its targets from a teacher's scores.

    >>> needs_scores(MarginLoss("teacher")), needs_scores(MarginLoss(0.3))
    (True, False)
    """
    return isinstance(loss, DualTeacherLoss) or (isinstance(loss, MarginLoss) and loss.target == "teacher")


def _require_teachers(loss: nn.Module, training: TrainingData, settings: FitSettings) -> None:
    if isinstance(loss, MarginLoss) and loss.target == "teacher" and loss.in_batch:
        raise InputError("a teacher's in-batch targets need a second teacher", do="use DualTeacherLoss")
    if needs_scores(loss) and not training.triplets.header["scores"]:
        raise InputError('target "teacher" needs scores', do="prepare triplets that have scores")
    if isinstance(loss, DualTeacherLoss) and settings.in_batch_teacher is None:
        raise InputError("dual supervision needs a second teacher", do="name an in_batch_teacher in the settings")


def _teacher_scale(training: TrainingData, asked: float | None, loss: nn.Module, say: Callable[[str], None]) -> float:
    """What the teacher's margins are multiplied with: what was asked for, or what brings them into a cosine's range."""
    if asked is not None or not needs_scores(loss):
        return asked or 1.0
    assert isinstance(loss, MarginLoss | DualTeacherLoss)
    scale = natural_scale(training.triplets, loss.similarity)
    if scale != 1.0:
        say(f"the teacher's margins are multiplied with {scale:.4g}: 99% of them are within {1 / scale:.4g}")
    return scale


def natural_scale(triplets: Triplets, similarity: Similarity) -> float:
    """What a teacher's margins are multiplied with unless told: 1 for dot products; for cosines 99% come within 1."""
    large = triplets.large_margin() if similarity == "cosine" else None
    return 1 / large if large else 1.0


def _loss_arguments(loss: nn.Module, batch: Any, device: torch.device) -> dict[str, Any]:
    if isinstance(loss, ContrastiveLoss) and loss.mask_known:
        ids = (batch.queries, batch.positives, batch.negatives)
        return {"ids": tuple(torch.from_numpy(rows) for rows in ids)}
    arguments = {}
    if needs_scores(loss):
        arguments["teacher_margin"] = batch.teacher_margin.to(device)
    if isinstance(loss, DualTeacherLoss):
        arguments["in_batch_margin"] = batch.in_batch_margin.to(device)
    return arguments


def _statistics(
    loss: nn.Module, queries: Tensor, positives: Tensor, negatives: Tensor, arguments: dict[str, Any]
) -> dict[str, float]:
    """Margins of a batch; also targets and the two parts of the loss, if it has them."""
    left_out = {"loss"}
    if not isinstance(loss, MarginLoss):
        left_out |= {"explicit_mean", "spread", "target_mean", "target_min", "target_max"}
        own = getattr(loss, "similarity", None)
        loss, arguments = MarginLoss(similarity="dot" if own == "dot" else "cosine"), {}
    found = loss.statistics(queries.detach(), positives.detach(), negatives.detach(), **arguments)
    values = torch.stack(found).tolist()
    return {name: value for name, value in zip(found._fields, values, strict=True) if name not in left_out}


class _Watch:
    """Stops a run that has gone wrong, and says why."""

    def __init__(self, settings: FitSettings, progress: Progress) -> None:
        self._do = f"use a lower learning rate than {settings.learning_rate:g}, or a longer warm-up"
        self._progress = progress

    def check(self, loss: Tensor, positives: Tensor) -> None:
        """Look at a step's loss and vectors."""
        step = self._progress.step
        if not math.isfinite(loss.item()):
            raise InputError(f"the loss is {loss.item()} at step {step}", do=self._do)
        unit = nn.functional.normalize(positives.detach().double(), dim=1)
        pairs = len(unit) * (len(unit) - 1)
        alike = float((unit.sum(0).square().sum() - len(unit)) / max(1, pairs))
        if step == 1 and alike > COLLAPSED:
            self._progress.began_alike = True  # an encoder without any training is like that, and may yet learn
        if pairs and alike > (ALL_THE_SAME if self._progress.began_alike else COLLAPSED):
            raise InputError(f"the encoder has collapsed at step {step}: it maps all texts to one vector", do=self._do)
