"""The training loop of a stream, top to bottom."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from remargin.model.checkpoint import Progress, load_checkpoint, save_checkpoint
from remargin.model.compute import fast_precision
from remargin.model.encoder import BiEncoder
from remargin.training.engine import Engine
from remargin.training.optimiser import make_optimiser, set_rate
from remargin.training.settings import FitSettings
from remargin.training.stopping import Stopping
from remargin.training.streaming.accepting import Acceptance, Decision
from remargin.training.streaming.batches import StreamBatches
from remargin.training.streaming.feed import Feed
from remargin.training.streaming.journal import StreamJournal
from remargin.training.streaming.records import Metrics, TrainedLines
from remargin.training.streaming.sources import Source
from remargin.training.streaming.window import Window
from remargin.training.supervision import loss_arguments, statistics
from remargin.training.watch import Watch

TYPICAL = 64  # tokens of a text, for the engine's plan


@dataclass
class Streamed:
    """The outcome of training on a stream, for as long as it lasted.

    Attributes:
        steps, examples: optimiser steps, and examples trained on.
        lines: lines that were taken of the stream, of which `rejected` are malformed and `against` are votes against a
            document; `waiting` are in no batch yet.
        measure: the measure of `before`, of the encoder before training, and `best`, of the accepted model, on dev.
        validations: step and values.
        seconds: without the time spent waiting for lines, `waited`.
        model: the folder of the accepted model.
    """

    steps: int
    examples: int
    lines: int
    rejected: int
    against: int
    waiting: int
    measure: str
    before: float | None
    best: float | None
    seconds: float
    waited: float
    model: Path
    validations: list[tuple[int, dict[str, float]]] = field(default_factory=list, repr=False)


class StreamTraining:
    """Trains an encoder on the batches of a stream, and lets models be accepted from time to time.

    Args:
        learner: the encoder; its weights are changed.
        loss: of queries, positives and negatives.
        settings: how to train. The learning rate is constant after its warm-up, as a stream has no end.
        journal: what was taken of the stream.
        window: which examples make a batch.
        batches: makes examples a batch.
        acceptance: the last accepted model.
        out: the folder of the training run.
        say: called with progress messages.
    """

    def __init__(
        self,
        learner: BiEncoder,
        loss: nn.Module,
        settings: FitSettings,
        journal: StreamJournal,
        window: Window,
        batches: StreamBatches,
        acceptance: Acceptance,
        out: Path,
        say: Callable[[str], None],
    ) -> None:
        self._settings, self._journal, self._window, self._batches = settings, journal, window, batches
        self._acceptance, self._out, self._say = acceptance, out, say
        self._checkpoint = out / "checkpoint"
        self._learner, self._loss = learner, loss.to(learner.device)
        torch.manual_seed(settings.seed)
        self._optimiser = make_optimiser([learner, self._loss], settings)
        self._progress, self._validated = Progress(), 0
        resumed = self._checkpoint.exists()
        if resumed:
            modules = self._modules()
            self._progress, _ = load_checkpoint(self._checkpoint, modules, self._optimiser)
            acceptance.value = self._progress.best
            self._validated = self._progress.validations[-1][0] if self._progress.validations else 0
        self._trained = TrainedLines(out, self._progress.step)
        self._metrics = Metrics(out, self._progress.step if resumed else None)
        if resumed:
            replay = self._trained.replay()
            again = f"; {replay} were trained on after that checkpoint, and are replayed" if replay else ""
            say(f"resuming after step {self._progress.step:,}{again}")
        self._resumed = resumed

    def run(self, source: Source, wait: float | None = None) -> Streamed:
        """Train until the stream ends: for ever, unless `wait` says after how many silent seconds it does."""
        settings, progress, device = self._settings, self._progress, self._learner.device
        precision = fast_precision() if settings.precision == "auto" else settings.precision
        dtype = {"32": torch.float32, "bf16": torch.bfloat16}[precision]
        sample = np.full(settings.batch_size * (2 + settings.per_triplet), TYPICAL)
        engine, rates = Engine(self._learner, settings, device, dtype, sample), settings.rates()
        self._say(f"{engine.describe()}; batches of {settings.batch_size:,} on {device}")
        before_stop, started, watch = progress.seconds, time.perf_counter(), Watch(settings, progress)
        with engine, Stopping() as stopping:
            feed = Feed(source, self._journal, self._window, settings.batch_size, wait, lambda: stopping.asked)

            def save() -> None:
                progress.seconds = before_stop + time.perf_counter() - started - feed.waited
                save_checkpoint(self._checkpoint, progress, self._modules(), self._optimiser, None)

            stopping.hold()
            if not self._resumed:
                self._record(self._acceptance.begin(), None)
                save()
            self._acceptance.publish(self._out)
            self._batches.take(self._acceptance.model)
            pace = _Pace(feed)
            while lines := feed.batch():
                self._trained.add(progress.step + 1, (taken.number for taken in lines))
                set_rate(self._optimiser, rates(progress.step))
                batch = self._batches.batch(lines)
                with engine.embed(engine.split(batch.texts)) as vectors:
                    queries, positives, negatives = batch.split(vectors)
                    arguments = loss_arguments(self._loss, batch, device)
                    value = self._loss(queries, positives, negatives, **arguments)
                    value.backward()
                if settings.clip is not None:
                    nn.utils.clip_grad_norm_(self._learner.parameters(), settings.clip)
                self._optimiser.step()
                self._optimiser.zero_grad()
                progress.step += 1
                progress.triplets += len(lines)
                pace.count(len(lines))
                step, asked = progress.step, stopping.asked
                to_log, to_validate = step % settings.log_every == 0 or step == 1, step % settings.validate_every == 0
                if to_log or to_validate or asked or step % settings.save_every == 0:
                    watch.check(value, positives)
                if to_log:
                    margins = statistics(self._loss, queries, positives, negatives, arguments)
                    self._log(value, rates(step - 1), pace.read(), margins)
                if to_validate:
                    self._validate(save)
                    pace.read()
                elif step % settings.save_every == 0:
                    save()
                if asked:
                    break
            if not stopping.asked and progress.step > self._validated:
                self._validate(save)
            else:
                save()
            if stopping.asked:
                stopping.leave()
        return self._outcome(feed.waited)

    def _modules(self) -> dict[str, nn.Module]:
        """Everything that has a state."""
        accepted = self._acceptance.model
        return {"model": self._learner, "accepted": accepted, "loss": self._loss, "window": self._window}

    def _validate(self, save: Callable[[], None]) -> None:
        """Let the model be accepted. What is published can be continued from: the checkpoint is written before."""
        began = time.perf_counter()
        decision = self._acceptance.consider(self._learner)
        self._record(decision, time.perf_counter() - began)
        save()
        if decision.weight > 0:
            self._acceptance.publish(self._out)
            self._batches.take(self._acceptance.model)

    def _record(self, decision: Decision, seconds: float | None) -> None:
        progress, measure = self._progress, self._settings.validation_measure
        values = {} if decision.home is None else {measure: decision.home}
        values |= {} if decision.away is None else {"away": decision.away}
        progress.validations.append((progress.step, values))
        self._validated = progress.step
        if decision.weight > 0 or progress.step == 0:
            progress.best, progress.best_step, progress.best_triplets = decision.home, progress.step, progress.triplets
        self._metrics.add(
            step=progress.step,
            examples=progress.triplets,
            weight=decision.weight if progress.step else None,
            validation=decision.home,
            away=decision.away,
        )
        took = "" if seconds is None else f" ({seconds:,.0f} s)"
        if progress.step or values:
            self._say(f"step {progress.step:,}: {decision.line(measure, begun=progress.step > 0)}{took}")

    def _log(self, loss: Tensor, rate: float, pace: float, margins: dict[str, float]) -> None:
        progress, journal, waiting = self._progress, self._journal, self._window.waiting
        row = {"step": progress.step, "examples": progress.triplets, "loss": loss.item(), "learning_rate": rate}
        speed = {"triplets_per_second": pace, "rejected": journal.rejected, "waiting": waiting}
        self._metrics.add(**row, **speed, **margins)
        rejected = f"  {journal.rejected:,} lines rejected" if journal.rejected else ""
        self._say(
            f"step {progress.step:,}  loss {loss.item():.4f}  {progress.triplets:,} examples  {waiting:,} waiting"
            f"{rejected}  lr {rate:.1e}  {pace:,.1f} triplets/s"
        )

    def _outcome(self, waited: float) -> Streamed:
        progress, journal = self._progress, self._journal
        measure = self._settings.validation_measure
        return Streamed(
            steps=progress.step,
            examples=progress.triplets,
            lines=journal.lines,
            rejected=journal.rejected,
            against=journal.against,
            waiting=self._window.waiting,
            measure=measure,
            before=progress.validations[0][1].get(measure),
            best=progress.best,
            seconds=progress.seconds,
            waited=waited,
            model=self._out / "model",
            validations=progress.validations,
        )


class _Pace:
    """Triplets per second since the last look, without the time spent waiting for lines."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._start()

    def _start(self) -> None:
        self._count, self._since, self._waited = 0, time.perf_counter(), self._feed.waited

    def count(self, triplets: int) -> None:
        self._count += triplets

    def read(self) -> float:
        seconds = time.perf_counter() - self._since - (self._feed.waited - self._waited)
        pace = self._count / max(seconds, 1e-9)
        self._start()
        return pace
