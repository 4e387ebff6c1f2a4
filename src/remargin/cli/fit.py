"""remargin fit: triplets -> model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from remargin.cli.options import RequiredData, config_option, skip_bad_option, threads_option
from remargin.progress import tell

DATA, LOSS, SCHEDULE, SPEED, VALIDATION, OUTPUT = "Data", "Loss", "Schedule", "Speed", "Validation", "Output"


def _option(panel: str | None, help: str, default: str | bool = True) -> Any:
    """An option in a panel of the help; panels come in the order of the parameters below, the one without name first.

    `default` is the default to show where it is a preset's or the model's.
    """
    return typer.Option(rich_help_panel=panel, help=help, show_default=default)


def fit(
    data: RequiredData,
    model: Annotated[str, _option(None, "Encoder to start from: a folder or a Hugging Face name.")],
    out: Annotated[Path, _option(None, "Folder of the training run: models, metrics, checkpoint, config.")],
    target: Annotated[
        str | None,
        _option(
            None,
            "Target of the margins: distributed, adaptive, mean, teacher, or a number (static); contrastive is another "
            "loss.",
            "distributed",
        ),
    ] = None,
    steps: Annotated[int | None, _option(None, "Optimiser steps.", "400")] = None,
    triplets: Annotated[
        Path | None,
        _option(
            DATA,
            "Triplets of ids, as `remargin mine` writes them. Without them: the triplets in a folder of `remargin "
            "prepare`, or triplets mined with BM25.",
        ),
    ] = None,
    sampler: Annotated[
        str | None,
        _option(
            DATA,
            "Batch sampler: random, tas (topic-aware), or tas-balanced (topic-aware, balanced by teacher margin).",
            "random",
        ),
    ] = None,
    clusters: Annotated[
        int | None, _option(DATA, "Number of topics for tas.", "about four batches of queries each")
    ] = None,
    drop_bins: Annotated[
        int | None, _option(DATA, "Margin bins to leave out in tas-balanced, of 10, easy negatives first.", "0")
    ] = None,
    pooling: Annotated[str, _option(DATA, "Pooling of token vectors: auto, cls, cls+linear, cls+pooler or mean.")] = (
        "auto"
    ),
    query_length: Annotated[
        int | None, _option(DATA, "Maximum query length in tokens.", "the model's own, or 30")
    ] = None,
    document_length: Annotated[
        int | None, _option(DATA, "Maximum document length in tokens.", "the model's own, or 200")
    ] = None,
    skip_bad: Annotated[bool, skip_bad_option(DATA)] = False,
    in_batch: Annotated[bool | None, _option(LOSS, "Contrast each query with every negative of the batch.")] = None,
    error: Annotated[str | None, _option(LOSS, "Error of margin and target: l2, l1 or softplus.", "l2")] = None,
    stop_gradient: Annotated[bool | None, _option(LOSS, "No gradient through the target.")] = None,
    temperature: Annotated[float | None, _option(LOSS, "Temperature of the contrastive loss.", "0.05")] = None,
    teacher_scale: Annotated[
        float | None,
        _option(LOSS, "Factor on the teacher's margins.", "1 for dot products; for cosine, 99% of margins within 1"),
    ] = None,
    in_batch_teacher: Annotated[
        str | None,
        _option(LOSS, "Encoder that scores every pair of a batch: the second teacher of TAS-B's dual supervision."),
    ] = None,
    preset: Annotated[
        str | None, _option(SCHEDULE, "Preset: default, paper, or released (the paper's code).", "default")
    ] = None,
    batch_size: Annotated[int | None, _option(SCHEDULE, "Triplets in a batch.", "64")] = None,
    accumulate: Annotated[int | None, _option(SCHEDULE, "Batches in a step (gradient accumulation).", "1")] = None,
    learning_rate: Annotated[float | None, _option(SCHEDULE, "Peak learning rate.", "0.0001")] = None,
    warm_up: Annotated[float | None, _option(SCHEDULE, "Share of the steps for linear warm-up.", "0.1")] = None,
    schedule: Annotated[
        str | None, _option(SCHEDULE, "Learning-rate schedule: constant, linear or exponential.", "linear")
    ] = None,
    gamma: Annotated[
        float | None, _option(SCHEDULE, "Decay factor per step of the exponential schedule.", "0.99999")
    ] = None,
    weight_decay: Annotated[
        float | None, _option(SCHEDULE, "Weight decay; none on biases and LayerNorm.", "1e-06")
    ] = None,
    clip: Annotated[float | None, _option(SCHEDULE, "Maximum gradient norm.", "1")] = None,
    attention_dropout: Annotated[
        bool | None, _option(SCHEDULE, "Keep the model's dropout on attention weights.")
    ] = None,
    seed: Annotated[int | None, _option(SCHEDULE, "Random seed.", "0")] = None,
    precision: Annotated[
        str | None, _option(SPEED, "Numeric precision of computing: auto, 32, bf16 or 16.", "auto")
    ] = None,
    eight_bit: Annotated[bool | None, _option(SPEED, "8-bit optimiser states (needs bitsandbytes).")] = None,
    engine: Annotated[str | None, _option(SPEED, "Batch layout: packed (no padding), padded, or auto.", "auto")] = None,
    compile: Annotated[
        str | None,
        _option(SPEED, "torch.compile: on, off, or auto (on a GPU, from 5,000 steps).", "auto"),
    ] = None,
    graphs: Annotated[bool | None, _option(SPEED, "Replay small steps from CUDA graphs.")] = None,
    token_budget: Annotated[
        int | None,
        _option(
            SPEED, "Maximum tokens in memory at once; a larger batch is split, with the same gradient.", "by memory"
        ),
    ] = None,
    threads: Annotated[int | None, threads_option(SPEED)] = None,
    validation_split: Annotated[
        str | None, _option(VALIDATION, "Split to validate on.", "dev, if there is one")
    ] = None,
    validation_run: Annotated[
        Path | None, _option(VALIDATION, "Run file of the validation queries to re-rank.", "BM25's")
    ] = None,
    validation_measure: Annotated[
        str | None, _option(VALIDATION, "Measure that selects the best model, as ir_measures names it.", "nDCG@10")
    ] = None,
    validation_depth: Annotated[
        int | None, _option(VALIDATION, "Documents to re-rank for each validation query.", "100")
    ] = None,
    validation_queries: Annotated[
        int | None, _option(VALIDATION, "Maximum number of validation queries.", "500")
    ] = None,
    validate_every: Annotated[int | None, _option(VALIDATION, "Steps between validations.", "100")] = None,
    patience: Annotated[
        int | None, _option(VALIDATION, "Early stopping: validations without gain before training ends.", "never")
    ] = None,
    also: Annotated[
        str | None, _option(VALIDATION, "Another collection, measured before and after: what the model forgets.")
    ] = None,
    save_every: Annotated[int | None, _option(OUTPUT, "Steps between checkpoints.", "100")] = None,
    log_every: Annotated[int | None, _option(OUTPUT, "Steps between log lines.", "10")] = None,
    resume: Annotated[bool, _option(OUTPUT, "Continue a training run that was interrupted.")] = False,
    tensorboard: Annotated[bool, _option(OUTPUT, "Log for TensorBoard, too.")] = False,
    loggers: Annotated[
        list[str] | None,
        _option(OUTPUT, "Lightning logger: its class and arguments, as in 'a_package.ALogger name=x'."),
    ] = None,
    config: Annotated[Path | None, config_option(OUTPUT)] = None,
) -> None:
    """Fine-tune an encoder on triplets. OUT/best is the best model on the validation split."""
    given = {name: value for name, value in locals().items() if value is not None}
    import remargin

    fitted = remargin.fit(**{name: value for name, value in given.items() if name not in ("threads", "config")})
    if fitted.best is not None and fitted.before is not None:
        best = f"{fitted.best:.4f} at step {fitted.best_step}{', stopped early' if fitted.stopped_early else ''}"
        if fitted.best_step == 0:
            tell("training did not help on dev: the best model is the one before it", error=True)
        tell(f"{fitted.measure}: {fitted.before:.4f} before, {best}")
    tell(f"wrote {fitted.model} after {fitted.steps:,} steps in {fitted.seconds:,.0f} s")
