"""remargin fit: triplets -> model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from remargin.cli.options import (
    BATCH_SIZE,
    DOCUMENT_LENGTH,
    DOCUMENT_PREFIX,
    IN_BATCH,
    LANGUAGE,
    OF_THE_MODEL,
    PATIENCE,
    PER_TRIPLET,
    QUERY_LENGTH,
    QUERY_PREFIX,
    SIMILARITY,
    START,
    TRIPLETS,
    config_option,
    skip_bad_option,
    threads_option,
)
from remargin.cli.options import DATA as COLLECTION
from remargin.errors import refuse_idle
from remargin.progress import tell, tell_or_show

NEEDED = "required, but for --resume"
DATA, LOSS, SCHEDULE, SPEED, VALIDATION, OUTPUT = "Data", "Loss", "Schedule", "Speed", "Validation", "Output"
STREAM = "Stream"
OF_STREAMS = ("negatives", "shuffle", "wait", "most_rejects", "from_start")
NOT_OF_STREAMS = ("epochs", "minutes", "triplets", "preset", "validation_run", "loggers", "devices")

LENGTHS = "the model's own; {} for the presets of the paper"


def _option(panel: str | None, help: str, default: str | bool = True) -> Any:
    """An option in a panel of the help; panels come in the order of the parameters below, the one without name first.

    `default` is the default to show where it is a preset's or the model's.
    """
    return typer.Option(rich_help_panel=panel, help=help, show_default=default)


def fit(
    data: Annotated[str | None, _option(None, COLLECTION, NEEDED)] = None,
    model: Annotated[str | None, _option(None, START, NEEDED)] = None,
    out: Annotated[
        Path | None, _option(None, "Folder of the training run: models, metrics, checkpoint, settings.", NEEDED)
    ] = None,
    target: Annotated[
        str | None,
        _option(
            None,
            "Target of the margin loss: distributed, adaptive, mean, teacher, or a number (a static margin); softmax, "
            "for the paper's margins inside a softmax; or contrastive, for the contrastive loss.",
            "softmax",
        ),
    ] = None,
    minutes: Annotated[
        float | None, _option(None, "Time for all of it, in minutes; training takes fewer steps to fit.", "no limit")
    ] = None,
    resume: Annotated[
        str | None,
        typer.Option(
            metavar="<path>",
            help="Folder of an interrupted training run to resume. All else follows from its config.yaml.",
        ),
    ] = None,
    steps: Annotated[int | None, _option(SCHEDULE, "Number of optimiser steps.", "by the number of pairs")] = None,
    epochs: Annotated[
        float | None,
        _option(SCHEDULE, "Number of passes through the training pairs, instead of --steps.", "at most 10"),
    ] = None,
    rounds: Annotated[
        int,
        _option(SCHEDULE, "Training rounds; each mines its negatives with the half-blended model of the one before."),
    ] = 1,
    blend: Annotated[
        str | None,
        _option(
            SCHEDULE,
            "Weight of the trained model when it is blended with the start: auto (the smallest that keeps 90% of the "
            "gain on dev), off, or 0 to 1.",
            "auto; off for the presets of the paper",
        ),
    ] = None,
    triplets: Annotated[
        Path | None,
        _option(DATA, TRIPLETS, "those in --data, if `remargin prepare` put triplets there; else mined with BM25"),
    ] = None,
    per_triplet: Annotated[int | None, _option(DATA, PER_TRIPLET, "1")] = None,
    sampler: Annotated[
        str | None,
        _option(
            DATA,
            "Batch sampler: random, tas (topic-aware), or tas-balanced (topic-aware, balanced by teacher margin).",
            "random",
        ),
    ] = None,
    clusters: Annotated[
        int | None,
        _option(DATA, "Number of query clusters (topics) for tas and tas-balanced.", "about four batches per cluster"),
    ] = None,
    drop_bins: Annotated[
        int | None, _option(DATA, "Margin bins, of 10, that tas-balanced leaves out, easiest negatives first.", "0")
    ] = None,
    pooling: Annotated[
        str, _option(DATA, "Pooling of token vectors: auto, cls, cls+linear, cls+pooler, mean, or last (of decoders).")
    ] = ("auto"),
    similarity: Annotated[str | None, _option(DATA, SIMILARITY, "the model's own, or cosine")] = None,
    query_length: Annotated[int | None, _option(DATA, QUERY_LENGTH, LENGTHS.format(30))] = None,
    document_length: Annotated[int | None, _option(DATA, DOCUMENT_LENGTH, LENGTHS.format(200))] = None,
    training_length: Annotated[
        int | None,
        _option(
            DATA,
            "Maximum document length in tokens while training; shorter is faster.",
            "the document length, at most 512",
        ),
    ] = None,
    language: Annotated[str, _option(DATA, LANGUAGE)] = "auto",
    query_prefix: Annotated[str | None, _option(DATA, QUERY_PREFIX, OF_THE_MODEL)] = None,
    document_prefix: Annotated[str | None, _option(DATA, DOCUMENT_PREFIX, OF_THE_MODEL)] = None,
    skip_bad: Annotated[bool, skip_bad_option(DATA)] = False,
    in_batch: Annotated[bool | None, _option(LOSS, IN_BATCH, "no-in-batch")] = None,
    error: Annotated[str | None, _option(LOSS, "Error between margin and target: l2, l1 or softplus.", "l2")] = None,
    stop_gradient: Annotated[
        bool | None,
        _option(LOSS, "Stop the gradient through the target.", "stop-gradient for softmax, else no-stop-gradient"),
    ] = None,
    temperature: Annotated[
        str | None, _option(LOSS, "Temperature of the contrastive loss: a number, or learned.", "0.05")
    ] = None,
    spread: Annotated[
        str | None,
        _option(
            LOSS,
            "Temperature of the softmax loss, the targets' standard deviation: of each query (row), of the batch, or a "
            "running mean over batches (running).",
            "row",
        ),
    ] = None,
    margin_weight: Annotated[
        float | None, _option(LOSS, "Weight of the targets' deviations (margins) in the softmax loss.", "0.5")
    ] = None,
    dims: Annotated[
        str | None,
        _option(
            LOSS,
            "Dimensions that vectors can be truncated to afterwards (Matryoshka), such as 384,256,128,64.",
            "only whole vectors",
        ),
    ] = None,
    teacher_scale: Annotated[
        float | None,
        _option(
            LOSS,
            "Factor to multiply the teacher's margins by.",
            "1 for dot products; for cosine, the factor that brings 99% of the margins within 1",
        ),
    ] = None,
    in_batch_teacher: Annotated[
        str | None,
        _option(LOSS, "Second teacher for TAS-B's dual supervision: an encoder that scores every pair of a batch."),
    ] = None,
    preset: Annotated[
        str | None,
        _option(
            SCHEDULE,
            "Preset for all other settings: default, paper, or released (the paper's code).",
            "default",
        ),
    ] = None,
    batch_size: Annotated[int | None, _option(SCHEDULE, BATCH_SIZE, "128")] = None,
    accumulate: Annotated[
        int | None, _option(SCHEDULE, "Batches per optimiser step (gradient accumulation).", "1")
    ] = None,
    learning_rate: Annotated[
        float | None, _option(SCHEDULE, "Peak learning rate.", "0.0002, less for long runs")
    ] = None,
    warm_up: Annotated[
        float | None, _option(SCHEDULE, "Fraction of the steps for linear learning-rate warm-up.", "0.1")
    ] = None,
    schedule: Annotated[
        str | None, _option(SCHEDULE, "Learning-rate schedule: constant, linear or exponential.", "linear")
    ] = None,
    gamma: Annotated[
        float | None, _option(SCHEDULE, "Decay factor per step of the exponential schedule.", "0.99999")
    ] = None,
    weight_decay: Annotated[
        float | None, _option(SCHEDULE, "Weight decay, not applied to biases and LayerNorm.", "1e-06")
    ] = None,
    clip: Annotated[float | None, _option(SCHEDULE, "Maximum gradient norm.", "1")] = None,
    attention_dropout: Annotated[
        bool | None, _option(SCHEDULE, "Apply the model's dropout to attention weights.", "no-attention-dropout")
    ] = None,
    seed: Annotated[int | None, _option(SCHEDULE, "Random seed.", "0")] = None,
    precision: Annotated[
        str | None,
        _option(
            SPEED,
            "Numeric precision of computing: auto (bf16 where the device is fast at it, else 32), 32, bf16 or 16.",
            "auto",
        ),
    ] = None,
    eight_bit: Annotated[
        bool | None, _option(SPEED, "8-bit optimiser states (needs bitsandbytes).", "no-eight-bit")
    ] = None,
    lora: Annotated[
        int | None,
        _option(SPEED, "LoRA: rank of low-rank changes to train, which takes less memory.", "train all weights"),
    ] = None,
    engine: Annotated[str | None, _option(SPEED, "Batch layout: packed (no padding), padded, or auto.", "auto")] = None,
    compile: Annotated[
        str | None,
        _option(SPEED, "torch.compile: on, off, or auto (on a GPU, from 5,000 steps).", "auto"),
    ] = None,
    graphs: Annotated[bool | None, _option(SPEED, "On a GPU, replay small steps from CUDA graphs.", "graphs")] = None,
    token_budget: Annotated[
        int | None,
        _option(
            SPEED,
            "Maximum tokens in memory at once; a larger batch is split into micro-batches, with the same gradient.",
            "by memory",
        ),
    ] = None,
    devices: Annotated[
        int | None,
        _option(
            SPEED,
            "Number of GPUs to train on, or of processes on the CPU; batches and gradients stay the same.",
            "1; under torchrun, as it says",
        ),
    ] = None,
    threads: Annotated[int | None, threads_option(SPEED)] = None,
    validation_split: Annotated[
        str | None, _option(VALIDATION, "Split to validate on.", "dev, if there is one")
    ] = None,
    validation_run: Annotated[
        Path | None,
        _option(VALIDATION, "First-stage run file of the validation queries, to re-rank.", "BM25's ranking"),
    ] = None,
    validation_measure: Annotated[
        str | None, _option(VALIDATION, "Measure that selects the best model, by its ir_measures name.", "nDCG@10")
    ] = None,
    validation_depth: Annotated[
        int | None, _option(VALIDATION, "Documents of a first stage to re-rank per validation query.", "rank in full")
    ] = None,
    validation_queries: Annotated[
        int | None, _option(VALIDATION, "Maximum number of validation queries.", "500")
    ] = None,
    validation_documents: Annotated[
        int | None,
        _option(
            VALIDATION, "Maximum number of documents to rank; of more, a pool is ranked.", "3,000; on a GPU 300,000"
        ),
    ] = None,
    validate_every: Annotated[
        int | None,
        _option(VALIDATION, "Steps between validations while training.", "only after training; 100 with --blend off"),
    ] = None,
    patience: Annotated[int | None, _option(VALIDATION, PATIENCE, "no early stopping")] = None,
    also: Annotated[
        str | None,
        _option(
            VALIDATION,
            "Another collection to measure before and after training, to see what the model forgets.",
            "texts that every machine has",
        ),
    ] = None,
    stream: Annotated[
        str | None,
        _option(
            STREAM,
            "Lines to train on as they come, triplets or pairs as JSON: - (standard input), a growing file, or a "
            "watched folder of .jsonl files.",
        ),
    ] = None,
    negatives: Annotated[
        str | None,
        _option(STREAM, "What ranks negatives for pairs: bm25, or model (the last accepted one).", "bm25"),
    ] = None,
    shuffle: Annotated[int | None, _option(STREAM, "Size of the shuffle buffer; 1 keeps the order.", "1")] = None,
    wait: Annotated[
        float | None, _option(STREAM, "Seconds without a new line after which training ends.", "wait for ever")
    ] = None,
    most_rejects: Annotated[
        float | None, _option(STREAM, "Share of malformed lines at which to stop; the first ten are free.", "0.1")
    ] = None,
    from_start: Annotated[
        bool | None,
        _option(STREAM, "With --resume: standard input begins again with its first line.", "it goes on where it was"),
    ] = None,
    save_every: Annotated[int | None, _option(OUTPUT, "Steps between checkpoints.", "100")] = None,
    log_every: Annotated[int | None, _option(OUTPUT, "Steps between log lines.", "10")] = None,
    tensorboard: Annotated[bool, _option(OUTPUT, "Also log to TensorBoard.")] = False,
    loggers: Annotated[
        list[str] | None,
        _option(OUTPUT, "Further Lightning logger, as its class and arguments: 'a_package.ALogger name=x'."),
    ] = None,
    config: Annotated[Path | None, config_option(OUTPUT)] = None,
) -> dict[str, Any]:
    """Fine-tune an encoder on your texts. OUT/model is the model to use.

    Examples:
        remargin fit --data pairs:faq.csv --model minilm --out runs/faq
        remargin fit --data pairs:faq.csv --model minilm --minutes 10 --out runs/quick
        remargin fit --resume runs/faq
        remargin fit --stream votes.jsonl --data faq/ --model minilm --out run
    """
    given = {name: value for name, value in locals().items() if value is not None}
    import remargin
    from remargin.training.streaming.request import is_stream

    if resume == "":  # the one in --out
        given["resume"] = True
    given = {name: value for name, value in given.items() if name not in ("threads", "config")}
    if stream is not None or (resume is not None and is_stream(resume or out)):
        return _stream(given)
    refuse_idle("training without --stream", [name for name in OF_STREAMS if name in given])
    fitted = remargin.fit(**given)
    tell_or_show(
        f"wrote {fitted.model} after {fitted.steps:,} steps, {fitted.seconds:,.0f} s of training", str(fitted.model)
    )
    parts = ("steps", "triplets", "seconds", "stopped_early", "measure", "before", "best", "weight", "fusion", "away")
    outcome = None if fitted.outcome is None else fitted.outcome.plain()
    return {"model": fitted.model, **{name: getattr(fitted, name) for name in parts}, "outcome": outcome}


def _stream(given: dict[str, Any]) -> dict[str, Any]:
    """Train on a stream. Options that were not given are left out, as it has defaults of its own."""
    import remargin

    refuse_idle("a stream", [name for name in NOT_OF_STREAMS if name in given])
    usual = {"rounds": 1, "tensorboard": False}
    refuse_idle("a stream", [name for name, default in usual.items() if given.pop(name) != default])
    streamed = remargin.stream(**given)
    counts = f"{streamed.examples:,} examples of {streamed.lines:,} lines in {streamed.steps:,} steps"
    tell(f"trained on {counts}; rejected {streamed.rejected:,}; the accepted model is {streamed.model}")
    return {name: value for name, value in vars(streamed).items() if name != "validations"}
