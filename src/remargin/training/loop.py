"""The training loop, top to bottom."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from remargin.data.training_data import TrainingData
from remargin.errors import InputError
from remargin.evaluation.comparison import Scores
from remargin.files.atomic import refuse_existing
from remargin.model.ahead import ahead
from remargin.model.checkpoint import Progress, load_checkpoint, own_random_state, random_state, save_checkpoint
from remargin.model.compute import fast_precision
from remargin.model.encoder import BiEncoder
from remargin.model.lora import Lora
from remargin.model.parts import OURS
from remargin.progress import tell
from remargin.teacher.in_batch import InBatchTeacher
from remargin.training.batches import Batches
from remargin.training.best import Best
from remargin.training.devices.encoding import SharedEncoding
from remargin.training.devices.global_loss import global_loss
from remargin.training.devices.ranks import ALONE, Ranks
from remargin.training.engine import Engine, matmul_rate, require_precision
from remargin.training.log import Log, Meter
from remargin.training.optimiser import make_optimiser, set_rate
from remargin.training.samplers import make_sampler
from remargin.training.settings import FitSettings
from remargin.training.stopping import Stopping
from remargin.training.supervision import loss_arguments, margin_scale, require_teachers, statistics
from remargin.training.validation import Validator
from remargin.training.watch import Watch

# Settings that must stay the same when a training run is resumed. So must its loss.
FIXED = (
    "batch_size", "accumulate", "per_triplet", "seed", "sampler", "clusters", "drop_bins", "learning_rate", "warm_up",
    "schedule", "gamma", "weight_decay", "clip", "precision", "eight_bit", "attention_dropout", "lora",
)  # fmt: skip
SEEDS_APART = 0x9E3779B9  # of one process's dropout and the next one's: far from the seeds that people choose


@dataclass
class Fitted:
    """The outcome of a training run: length and peak learning rate, the measure before and at its best, the model."""

    steps: int
    triplets: int
    learning_rate: float
    before: float | None
    best: float | None
    best_step: int | None
    best_triplets: int | None
    stopped_early: bool
    seconds: float
    model: Path
    validations: list[tuple[int, dict[str, float]]] = field(default_factory=list, repr=False)

    @property
    def measure(self) -> str | None:
        """The measure of `before` and `best`; None without validation."""
        return next(iter(self.validations[0][1])) if self.validations else None


@own_random_state()
def train(
    model: BiEncoder,
    data: str | Path,
    out: str | Path,
    loss: nn.Module | None = None,
    settings: FitSettings | None = None,
    validator: Validator | None = None,
    loggers: Sequence[Any] = (),
    resume: bool = False,
    say: Callable[[str], None] = tell,
    observe: Callable[[int, Tensor, Tensor, Tensor], None] | None = None,
    validated: Callable[[int, Scores], None] | None = None,
    ranks: Ranks = ALONE,
) -> Fitted:
    """Fine-tune a model on prepared triplets: the loop under `fit`.

    Writes `out/last`, `out/best` if there is a validator, `out/metrics.csv`, and `out/checkpoint`. If interrupted,
    `resume` continues from the checkpoint with the same batches and the same dropout, and so, on a CPU, to the very
    same weights. Ctrl-C and SIGTERM wait for the end of a step and its checkpoint.

    Args:
        model: the encoder. Its weights are changed, and are the last ones in the end: `Fitted.model` has the best.
        data: a folder that `prepare` wrote, with triplets, by this model's tokenizer.
        out: the folder of the training run.
        loss: any module of queries, positives and negatives; without one, the settings' loss. If it has an attribute
            `takes`, it is called with these too: "ids" (of the three), "teacher_margin", "in_batch_margin". With
            several negatives in the settings, it gets negatives, and their ids, as (B, k, d) and (B, k).
        settings: everything else.
        validator: measures the model every `validate_every` steps; the best model is kept, and patience counts from it.
            Without a validator, there is no early stopping.
        loggers: Lightning loggers, beside the CSV file.
        resume: continue from `out/checkpoint`, if there is one. Without it, a training run in `out` is an error.
        say: called with progress messages.
        observe: called with the number of each batch, from 0, and its vectors: queries, positives and negatives, a row
            each.
        validated: called after each validation with the step and the measures of every query. If training is resumed,
            validations after the checkpoint come again.
        ranks: the processes that train together. Each of them calls this; what only the leader does with the arguments
            (validate, log, say, write) the others need not be given.

    Raises:
        InputError: if data and model do not fit, a teacher is missing, the loss is not a number, or the encoder has
            collapsed.

    Example:
        >>> import tempfile
        >>> from remargin import Collection, mine, prepare
        >>> folder, model = Path(tempfile.mkdtemp()), BiEncoder.from_pretrained(model_folder)
        >>> _ = mine(Collection.load("docstrings:json,csv", "train"), folder / "triplets.tsv")
        >>> _ = prepare("docstrings:json,csv", model_folder, folder / "data", folder / "triplets.tsv",
        ...             document_length=model.document_length)
        >>> train(model, folder / "data", folder / "run", settings=FitSettings(steps=2), say=str).steps
        2
    """
    settings, out = settings or FitSettings(), Path(out)
    progress, checkpoint = Progress(), out / "checkpoint"
    if ranks.leads and not resume and (checkpoint.exists() or (out / "last").exists()):
        raise InputError("has a training run already", file=out, do="choose another place, or continue it (resume)")
    if ranks.leads:
        refuse_existing(out / "last", overwrite=True, marker=OURS)
    require_precision(settings.precision)
    precision = fast_precision() if settings.precision == "auto" else settings.precision
    scaled: Any = "16-mixed" if precision == "16" else "32-true"  # only float16 needs its gradients scaled
    on: Any = [ranks.local] if torch.cuda.is_available() else 1
    with _no_advice():
        fabric = Fabric(accelerator="auto", devices=on, precision=scaled, loggers=list(loggers))
    device = fabric.device
    training = TrainingData(data)
    training.require(model)
    of_triplets = training.triplets.header["sha256"]
    if any(others != of_triplets for others in ranks.collect(of_triplets)):
        do = "let all machines see the same files"
        raise InputError("other triplets on another machine", file=training.triplets.folder, do=do)
    loss = settings.loss.build(model.similarity, model.dimension) if loss is None else loss
    require_teachers(loss, training.triplets, settings)
    model.trained_dims = getattr(loss, "dims", ())
    started = time.perf_counter()
    model, loss = model.to(device), loss.to(device)
    lora = None if settings.lora is None else Lora(model, settings.lora, settings.seed)
    make_batches = partial(_batches, training, model, loss, settings, out, resume or not ranks.leads, say, ranks)
    batches = ranks.after_leader(make_batches)
    torch.manual_seed(settings.seed + ranks.rank * SEEDS_APART)  # each has a dropout of its own
    optimiser, rates = make_optimiser([model, loss], settings), settings.rates()
    with _no_advice():
        _, wrapped = fabric.setup(model, optimiser)
    dtype = {"32": torch.float32, "bf16": torch.bfloat16, "16": torch.float16}[precision]
    engine = Engine(model, settings, device, dtype, batches.typical_lengths(), ranks.here)
    modules, fixed = {"model": model if lora is None else lora.learned, "loss": loss}, _fixed(settings, loss)
    if ranks.agree(checkpoint.exists()):
        progress, precision_state = load_checkpoint(checkpoint, modules, optimiser, fixed, ranks.rank)
        fabric.strategy.precision.load_state_dict(precision_state)
        say(f"resuming after step {progress.step:,}")
    ranks.spread([tensor for module in modules.values() for tensor in module.state_dict().values()])
    best = Best(out, validator, settings.patience, progress, validated)
    if ranks.leads:
        best.restore()
    say(_describe(device, batches, settings, ranks))
    say(engine.describe() + ("" if settings.attention_dropout else "; no attention dropout"))
    if lora is not None:
        copies = sum(weight.nbytes for weight in engine.compute.parameters())
        say(lora.describe(copies, engine.compute.trained[0].itemsize, settings.eight_bit))
    before_stop, watch = progress.seconds, Watch(settings, progress)
    rate = matmul_rate(device, dtype) if device.type == "cuda" else None
    meter = Meter(engine.operations_per_token, rate, ranks)
    numbers = itertools.count(progress.step * settings.accumulate)
    loader = ahead((batch, engine.split(batch.texts)) for batch in map(batches.batch, numbers))
    log = Log(out, fabric, progress.step, settings.steps, say, meter, settings.validate_every if validator else None)
    encoding = engine if ranks.alone else SharedEncoding(engine, ranks)
    validates, observed = ranks.agree(validator is not None), ranks.agree(observe is not None)

    def validate() -> bool:
        """Measure the model, if there is a validator; whether training is out of patience afterwards."""
        if isinstance(encoding, Engine) or ranks.leads:
            best.validate(encoding, model, log, meter)
        elif validates:
            encoding.take_part()
        return ranks.agree(best.out_of_patience)

    with engine, closing(loader), log if ranks.leads else nullcontext(), Stopping() as stopping:
        asked, enough = False, validate() if not progress.validations else ranks.agree(best.out_of_patience)
        if ranks.leads:
            stopping.hold()
        while progress.step < settings.steps and not (enough or asked):
            step = progress.step
            set_rate(optimiser, rates(step))
            at_the_end = step + 1 == settings.steps
            to_log = (step + 1) % settings.log_every == 0 or step == 0 or at_the_end
            to_validate = (step + 1) % settings.validate_every == 0 or at_the_end
            to_save = (step + 1) % settings.save_every == 0 or at_the_end
            look = to_log or to_validate or to_save
            for number in range(step * settings.accumulate, (step + 1) * settings.accumulate):
                asked_at = time.perf_counter()
                batch, texts = next(loader)
                waited = time.perf_counter() - asked_at
                with engine.embed(texts) as vectors:  # at its end, the vectors' gradient goes on to the weights
                    arguments = loss_arguments(loss, batch, device)
                    value, parts = global_loss(loss, batch, vectors, arguments, ranks, gather=look or observed)
                    fabric.backward(value / settings.accumulate)
                if observe is not None:
                    observe(number, *(part.detach().flatten(0, -2) for part in parts))
                progress.triplets += len(batch.queries)
                meter.count(len(batch.queries), texts.tokens, texts.computed, waited)
            _add_up_gradients(ranks, engine, loss)
            if settings.clip is not None:
                fabric.clip_gradients(model, wrapped, max_norm=settings.clip, error_if_nonfinite=False)
            wrapped.step()
            wrapped.zero_grad()
            progress.step += 1
            asked = ranks.agree(stopping.asked)
            if (look or asked) and ranks.leads:
                watch.check(value, parts[1])
            if to_log and ranks.leads:
                log.training(progress.step, value, rates(step), statistics(loss, *parts, arguments))
            elif to_log:
                meter.read()  # which all do together
            enough = validate() if to_validate else enough
            progress.seconds = before_stop + time.perf_counter() - started
            if to_save or asked or enough:
                random_states = ranks.collect(random_state())
                if ranks.leads:
                    scale = fabric.strategy.precision.state_dict()
                    save_checkpoint(checkpoint, progress, modules, optimiser, scale, fixed, random_states)
        if stopping.asked:  # also while the last step was validated or saved
            stopping.leave()
    model.eval()
    if ranks.leads:
        model.save(out / "last", overwrite=True)
    if lora is not None:
        lora.merge()
    before = None if validator is None else progress.validations[0][1][validator.measure]
    kept = out / ("last" if validator is None else "best")
    return Fitted(
        steps=progress.step,
        triplets=progress.triplets,
        learning_rate=settings.peak_rate,
        before=before,
        best=progress.best,
        best_step=progress.best_step,
        best_triplets=progress.best_triplets,
        stopped_early=progress.step < settings.steps,
        seconds=progress.seconds,
        model=kept,
        validations=progress.validations,
    )


def _batches(
    data: TrainingData,
    model: BiEncoder,
    loss: nn.Module,
    settings: FitSettings,
    out: Path,
    resume: bool,
    say: Callable[[str], None],
    ranks: Ranks,
) -> Batches:
    """The training run's batches: its sampler, and its teachers if it has some."""
    sampler = make_sampler(model, data, settings, out, resume, say)
    scale = margin_scale(data.triplets, settings.loss.teacher_scale, loss, model.similarity, say)
    teacher = None
    if settings.in_batch_teacher is not None:
        name, similarity = settings.in_batch_teacher, model.similarity
        teacher = InBatchTeacher.load(name, data, similarity, out, model.device, resume, say)
    return Batches(data, sampler, scale, teacher, ranks)


def _add_up_gradients(ranks: Ranks, engine: Engine, loss: nn.Module) -> None:
    """Make the gradients of each process's part those of the whole batch, on all of them."""
    if ranks.alone:
        return
    for weight in engine.masters:
        weight.grad = torch.zeros_like(weight) if weight.grad is None else weight.grad
    ranks.total_together([weight.grad for weight in engine.masters if weight.grad is not None])
    own = [weight.grad for weight in loss.parameters() if weight.grad is not None]  # of the whole batch already
    ranks.total_together(own)
    for gradient in own:
        gradient /= ranks.size


@contextmanager
def _no_advice() -> Iterator[None]:
    """Without Fabric's advice to multiply float32 less precisely: what we compute in float32, we do on purpose."""
    names = ("lightning_fabric.utilities.rank_zero", "pytorch_lightning.utilities.rank_zero")
    logs = [logging.getLogger(name) for name in names]

    def keep(record: logging.LogRecord) -> bool:
        return "set_float32_matmul_precision" not in record.getMessage()

    for log in logs:
        log.addFilter(keep)
    try:
        yield
    finally:
        for log in logs:
            log.removeFilter(keep)


def _fixed(settings: FitSettings, loss: nn.Module) -> dict[str, Any]:
    """What must not change when a training run is resumed."""
    learned = any(True for _ in loss.parameters())  # then what it says of itself changes
    of_loss = type(loss).__name__ if learned else repr(loss)
    return {name: getattr(settings, name) for name in FIXED} | {"loss": of_loss}


def _describe(device: torch.device, batches: Batches, settings: FitSettings, ranks: Ranks) -> str:
    sampler = batches.sampler
    epochs = settings.steps * settings.accumulate / sampler.steps_per_epoch
    triplets = round(sampler.epoch_triplets / sampler.steps_per_epoch * settings.accumulate, 1)
    several = f" with {settings.per_triplet} negatives each" if settings.per_triplet > 1 else ""
    of_what = f"{triplets:g} triplets{several} ({epochs:.2f} epochs of {sampler.epoch})"
    where = str(device) if ranks.alone else f"{ranks.size} devices ({device.type})"
    return f"{settings.steps:,} steps of {of_what} on {where}"
