"""Trains one run of a study: its settings, and its result."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from remargin.data.triplets import Triplets
from remargin.files.atomic import remove_folder
from remargin.losses.inputs import Similarity
from remargin.model.encoder import PAPER_LENGTHS, BiEncoder
from remargin.study.dev_scores import FILE as DEV
from remargin.study.dev_scores import DevLog
from remargin.study.hardware import Energy, peak_memory
from remargin.study.pinned import pinned
from remargin.study.plan import Plan
from remargin.study.results import Result
from remargin.study.specs import RunSpec
from remargin.study.targets import TARGETS, TargetLog
from remargin.study.training_set import TrainingSet
from remargin.training import loop
from remargin.training.optimiser import states_here
from remargin.training.settings import FitSettings
from remargin.training.supervision import natural_scale
from remargin.training.topics import mean_batch

SILENCE = 60.0  # seconds after which a run says how it is getting on


MakeLoss = Callable[[RunSpec, Similarity], nn.Module | None]


def no_other_loss(spec: RunSpec, similarity: Similarity) -> nn.Module | None:
    """No loss but those that the settings of `fit` have."""
    return None


def train(
    spec: RunSpec,
    training: TrainingSet,
    fitted: Path,
    result: Path,
    second_teacher: Path | None = None,
    make_loss: MakeLoss = no_other_loss,
) -> Result:
    """Train a run, or resume one that was interrupted.

    Args:
        spec: the run.
        training: what it is trained on.
        fitted: the folder for models and checkpoints.
        result: the folder for what came of it.
        second_teacher: a model that scores the pairs of a batch, for runs with two teachers.
        make_loss: builds a loss that the settings of `fit` do not have; None for all others.
    """
    data = training.prepared_for(spec)
    model = BiEncoder.from_pretrained(training.backbones[spec.model], seed=spec.seed, lengths=PAPER_LENGTHS)
    settings = run_settings(spec, training.plan, teacher_scale(spec, data, model.similarity), second_teacher)
    settings = states_here(settings, lambda line: None)  # it is said once, where the study begins
    targets = None
    if spec.target == "distributed":
        targets = TargetLog(fitted / TARGETS, model.similarity, save_at=lambda batch: _saves(batch + 1, settings))
        if not (fitted / TARGETS).exists() and (fitted / "checkpoint").exists():  # lost with the process that wrote it
            remove_folder(fitted / "checkpoint")
    resumed = (fitted / "checkpoint").exists()  # then the energy before is not known
    dev = DevLog(fitted / DEV)
    with Energy() as energy, targets or nullcontext():
        peak_memory(reset=True)
        trained = loop.train(
            model,
            data,
            fitted,
            make_loss(spec, model.similarity),
            settings,
            training.validator(spec.model),
            resume=True,
            say=_now_and_then(training.say, spec.key),
            observe=targets,
            validated=dev,
        )
    return Result(
        spec,
        result,
        curve=trained.validations,
        steps=trained.steps,
        triplets=trained.triplets,
        best_step=trained.best_step or 0,
        best_triplets=trained.best_triplets or 0,
        seconds=round(trained.seconds, 2),
        joules=None if resumed else energy.joules,
        peak_bytes=peak_memory(),
    )


def _saves(step: int, settings: FitSettings) -> bool:
    """Whether there is a checkpoint after a step, as far as settings tell."""
    return step % settings.save_every == 0 or step == settings.steps


def _now_and_then(say: Callable[[str], None], key: str) -> Callable[[str], None]:
    """Says how a run is getting on if it takes long. On a terminal `fit` itself keeps a line up to date."""
    last = time.monotonic()

    def now_and_then(line: str) -> None:
        nonlocal last
        if time.monotonic() - last >= SILENCE:
            last = time.monotonic()
            say(f"{key}: {line}")

    return now_and_then


def run_settings(
    spec: RunSpec, plan: Plan, scale: float | None = None, second_teacher: Path | None = None
) -> FitSettings:
    """The settings of a run: what its spec and the plan say, the rest as the preset has it in studies."""
    size = spec.batch_size if spec.sampler == "random" else mean_batch(spec.batch_size)
    steps = plan.steps(spec.triplets, size)
    settings = pinned(
        plan.preset,
        **{**spec.settings(), "teacher_scale": scale},
        steps=steps,
        validate_every=min(steps, plan.steps(spec.validate_every or plan.validate_every, size)),
        in_batch_teacher=None if second_teacher is None else str(second_teacher),
        log_every=min(steps, 100),
        save_every=2000 if torch.cuda.is_available() else 50,  # less than a minute or so
    )
    return replace(settings, patience=plan.patience if spec.early_stopping else None)  # not the preset's


def teacher_scale(spec: RunSpec, data: Path, similarity: Similarity) -> float | None:
    """What a teacher's margins are multiplied with; None is what `fit` takes of itself."""
    if spec.teacher_scale == 1.0:
        return None
    return spec.teacher_scale * natural_scale(Triplets(data / "triplets"), similarity)
