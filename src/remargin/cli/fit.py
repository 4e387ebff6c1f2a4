"""remargin fit: triplets -> model."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Annotated

import typer

from remargin.cli.options import Config, RequiredData, SkipBad, Threads, refuse_idle
from remargin.errors import InputError
from remargin.progress import tell


def fit(
    context: typer.Context,
    data: RequiredData,
    model: Annotated[str, typer.Option(help="The encoder to start from: a folder or a Hugging Face name.")],
    out: Annotated[Path, typer.Option(help="The run's folder: models, metrics, checkpoint, config.")],
    triplets: Annotated[
        Path | None,
        typer.Option(
            help="Triplets of ids, as from `remargin mine`; without, those that `prepare` put there, or BM25's."
        ),
    ] = None,
    preset: Annotated[str, typer.Option(help="default, paper, or released (the paper's code).")] = "default",
    target: Annotated[
        str | None,
        typer.Option(
            help="distributed, adaptive, mean, teacher, contrastive, or a number: a static margin.",
            show_default="distributed",
        ),
    ] = None,
    in_batch: Annotated[bool | None, typer.Option(help="Use every negative of the batch.")] = None,
    error: Annotated[str | None, typer.Option(help="l2, l1 or softplus.", show_default="l2")] = None,
    stop_gradient: Annotated[bool | None, typer.Option(help="Hold the target constant.")] = None,
    temperature: Annotated[float | None, typer.Option(help="Of the contrastive loss.", show_default="0.05")] = None,
    teacher_scale: Annotated[
        float | None,
        typer.Option(
            help="Times the teacher's margins; by default 1 for dot, and what brings them into range for cosine."
        ),
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Steps of the optimiser.", show_default="400")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Triplets in a batch.", show_default="64")] = None,
    accumulate: Annotated[int | None, typer.Option(help="Batches in a step.", show_default="1")] = None,
    sampler: Annotated[
        str | None,
        typer.Option(
            help="random, tas (batches of one topic), or tas-balanced (and as many easy pairs as hard ones).",
            show_default="random",
        ),
    ] = None,
    clusters: Annotated[
        int | None, typer.Option(help="Topics of tas; without, so many that each has about four batches.")
    ] = None,
    drop_bins: Annotated[
        int | None, typer.Option(help="Leave out so many of the 10 bins of tas-balanced, those of easy negatives.")
    ] = None,
    in_batch_teacher: Annotated[
        str | None, typer.Option(help="An encoder that scores every pair of a batch: TAS-B's second teacher.")
    ] = None,
    learning_rate: Annotated[float | None, typer.Option(help="At its highest.", show_default="0.0001")] = None,
    warm_up: Annotated[
        float | None, typer.Option(help="Share of the steps with a rising learning rate.", show_default="0.1")
    ] = None,
    schedule: Annotated[
        str | None, typer.Option(help="constant, linear or exponential.", show_default="linear")
    ] = None,
    gamma: Annotated[
        float | None, typer.Option(help="Of the exponential schedule, per step.", show_default="0.99999")
    ] = None,
    weight_decay: Annotated[
        float | None, typer.Option(help="Not on biases and LayerNorm.", show_default="1e-06")
    ] = None,
    clip: Annotated[float | None, typer.Option(help="Longest gradient.", show_default="1")] = None,
    precision: Annotated[str | None, typer.Option(help="auto, bf16, 16 or 32.", show_default="auto")] = None,
    eight_bit: Annotated[bool | None, typer.Option(help="Optimiser states in 8 bits (needs bitsandbytes).")] = None,
    engine: Annotated[
        str | None,
        typer.Option(help="packed (no padding), padded, or auto: packed if the model allows it.", show_default="auto"),
    ] = None,
    compile: Annotated[
        str | None,
        typer.Option(
            help="on, off, or auto: torch.compile on a GPU, for runs of 5,000 steps and more.", show_default="auto"
        ),
    ] = None,
    graphs: Annotated[bool | None, typer.Option(help="Replay small steps from CUDA graphs.")] = None,
    token_budget: Annotated[
        int | None, typer.Option(help="Most tokens in memory at once; larger batches are trained in parts, exactly.")
    ] = None,
    attention_dropout: Annotated[
        bool | None, typer.Option(help="Keep the model's dropout on attention weights.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="For everything that is random.", show_default="0")] = None,
    pooling: Annotated[str, typer.Option(help="auto, cls, cls+linear, cls+pooler or mean.")] = "auto",
    query_length: Annotated[
        int | None, typer.Option(help="Longest query, in tokens.", show_default="the model's own, or 30")
    ] = None,
    document_length: Annotated[
        int | None, typer.Option(help="Longest document, in tokens.", show_default="the model's own, or 200")
    ] = None,
    validation_split: Annotated[
        str | None, typer.Option(help="Validate on this split; dev if the collection has one.")
    ] = None,
    validation_run: Annotated[Path | None, typer.Option(help="The first-stage run to re-rank; BM25's without.")] = None,
    validation_measure: Annotated[str | None, typer.Option(help="An ir_measures name.", show_default="nDCG@10")] = None,
    validation_depth: Annotated[
        int | None, typer.Option(help="Documents to re-rank for each query.", show_default="100")
    ] = None,
    validation_queries: Annotated[int | None, typer.Option(help="At most so many queries.", show_default="500")] = None,
    validate_every: Annotated[int | None, typer.Option(help="Steps.", show_default="100")] = None,
    patience: Annotated[
        int | None, typer.Option(help="Stop after so many validations without gain.", show_default="never")
    ] = None,
    save_every: Annotated[int | None, typer.Option(help="Steps between checkpoints.", show_default="100")] = None,
    log_every: Annotated[int | None, typer.Option(help="Steps between log lines.", show_default="10")] = None,
    also: Annotated[str | None, typer.Option(help="Another collection, measured before and after: forgetting.")] = None,
    tensorboard: Annotated[bool, typer.Option(help="Log for TensorBoard too.")] = False,
    loggers: Annotated[
        list[str] | None,
        typer.Option(
            help="Any Lightning logger: its class and arguments, as in 'lightning_fabric.loggers.CSVLogger name=x'."
        ),
    ] = None,
    resume: Annotated[bool, typer.Option(help="Go on with a run that was stopped.")] = False,
    skip_bad: SkipBad = False,
    threads: Threads = None,
    config: Config = None,
) -> None:
    """Fine-tune an encoder on triplets; the best model by validation is in OUT/best."""
    from remargin.training.run import RunRequest, start
    from remargin.training.settings import FitSettings, LossSettings, fit_settings, idle_settings

    given = dict(locals())
    names = [f.name for f in (*fields(FitSettings), *fields(LossSettings)) if given.get(f.name) is not None]
    if preset in ("paper", "released") and steps is None:
        do = "give --steps; the paper has an epoch of MS MARCO, 310,788 steps of 128"
        raise InputError(f"the preset {preset} needs to know how long to train", do=do)
    refuse_idle(context, idle_settings(target or LossSettings.target, bool(in_batch)))
    settings = fit_settings(preset, **{name: given[name] for name in names})
    if settings.schedule != "exponential":
        refuse_idle(context, {"other schedules than exponential": ["gamma"]})
    request = RunRequest(**{f.name: given[f.name] for f in fields(RunRequest)})
    fitted = start(request, settings, resume)
    if fitted.best is not None and fitted.before is not None:
        best = f"{fitted.best:.4f} at step {fitted.best_step}{', stopped early' if fitted.stopped_early else ''}"
        if fitted.best_step == 0:
            tell("training did not help on dev: the best model is the one before it", error=True)
        tell(f"{settings.validation_measure}: {fitted.before:.4f} before, {best}")
    tell(f"wrote {fitted.model} after {fitted.steps:,} steps in {fitted.seconds:,.0f} s")
