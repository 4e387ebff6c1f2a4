"""remargin reproduce: tables and figures of the paper."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from remargin.cli.options import (
    BATCH_SIZE,
    DATA_WITH_SPLITS,
    PATIENCE,
    TRIPLETS,
    Config,
    Threads,
    given_options,
    is_typed,
    model_names,
)
from remargin.cli.screen import print_tables
from remargin.errors import refuse_idle
from remargin.progress import say, show, tell

if TYPE_CHECKING:
    from remargin.study.scheduler import Schedule

PLAN = ("preset", "rates", "rate_extensions", "seeds", "margins", "temperatures", "teacher_scales", "batch_size",
        "other_batch_size", "sweep_triplets", "validate_every", "validation_queries", "validation_depth",
        "full_validation", "patience", "relevant", "validation_split", "index")  # fmt: skip
TRAINING = ("model", "budget", "zero_shot", "also_test", "triplets", "first_stage", "jobs", "plan", "epoch", *PLAN)
FROM_FILES = "a study that is made again from its files (without --data)"
GRIDS, COLLECTIONS, TRAIN = "Grids and seeds", "Collections", "Training"

EXPERIMENT_HELP = """
One or several of: loss-geometry (figures 1 and 2), static-margins (figure 3), adaptive-margins (figure 4),
distributed-margins (figure 5), target-evolution (figure 6), instance (table 2), variants (tables 1 and 3), baselines
(table 4), zero-shot (table 5), memory (mixed precision and 8-bit states); claims (only the verdicts on the paper's
claims); or all. Not the paper's and not in all: beyond (the recipe of `remargin fit` against a tuned rival, at home and
away), beyond-rivals, beyond-variants, beyond-paper, beyond-constants, beyond-lengths, beyond-path, beyond-factors.
"""


def reproduce(
    context: typer.Context,
    experiments: Annotated[list[str], typer.Argument(metavar="EXPERIMENT...", help=EXPERIMENT_HELP)],
    out: Annotated[
        Path,
        typer.Option(
            help="Folder of the study. If interrupted, the same command resumes. Without --data, also a folder of "
            "studies of several collections, which `beyond` is drawn over."
        ),
    ],
    data: Annotated[
        str | None,
        typer.Option(help=f"{DATA_WITH_SPLITS} Without --data, tables and figures are drawn from the results in OUT."),
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(help="Encoders to start from: folders or Hugging Face names. NAME=PATH sets the name in tables."),
    ] = None,
    budget: Annotated[
        int | None,
        typer.Option(
            help="Maximum triplets per training run. Sweeps, validation intervals and grids shrink with the budget, "
            "except those that are given on the command line."
        ),
    ] = None,
    plan: Annotated[
        bool,
        typer.Option(
            help="List the training runs and measurements, done and to do, with the expected time. Train nothing."
        ),
    ] = False,
    jobs: Annotated[
        int,
        typer.Option(min=1, help="Training runs in parallel, for a GPU that one leaves idle. Each then takes longer."),
    ] = 1,
    zero_shot: Annotated[
        list[str] | None,
        typer.Option(
            help="Collections for table 5, and away for `beyond`: BEIR folders, irds:NAME, or BEIR names such as "
            "scifact or SCF. NAME=DATA sets the name of the column.",
            rich_help_panel=COLLECTIONS,
        ),
    ] = None,
    also_test: Annotated[
        list[str] | None,
        typer.Option(help="Further test collections for tables 3 and 4, such as DL20.", rich_help_panel=COLLECTIONS),
    ] = None,
    triplets: Annotated[
        Path | None,
        typer.Option(
            help=f"{TRIPLETS} If it has scores, these are the teacher's in table 4.",
            rich_help_panel=COLLECTIONS,
            show_default="mined with BM25",
        ),
    ] = None,
    first_stage: Annotated[
        Path | None,
        typer.Option(
            help="Run file of the validation queries to re-rank, or irds:NAME, the official one of a data set of "
            "ir_datasets, such as irds:msmarco-passage/trec-dl-2019/judged.",
            rich_help_panel=COLLECTIONS,
            show_default="BM25",
        ),
    ] = None,
    index: Annotated[
        str | None,
        typer.Option(
            help="What ranks the test queries of tables 3 and 4: exact, or faiss, the paper's index (HNSW over 32-byte "
            "OPQ codes, the first 1,000 re-ranked exactly), with what it costs beside it.",
            rich_help_panel=COLLECTIONS,
            show_default="exact",
        ),
    ] = None,
    relevant: Annotated[
        int | None,
        typer.Option(
            help="Lowest grade that R and Success count as relevant, in splits that have such grades; 2 for TREC-DL.",
            rich_help_panel=COLLECTIONS,
            show_default="1",
        ),
    ] = None,
    regime: Annotated[
        str | None,
        typer.Option(
            help="shared: figures show the training runs of the tables. paper: figures have training runs of their "
            "own, at a constant rate, validated half as often and never stopped early; 1,000,000 triplets per training "
            "run, 250,000 in a sweep. It is a study of its own within OUT, on one page with the other.",
            rich_help_panel=TRAIN,
            show_default="shared; without --data, both",
        ),
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            help="Preset of the training settings: paper, released, or default, which is pinned for studies.",
            rich_help_panel=TRAIN,
            show_default="paper; default with --budget",
        ),
    ] = None,
    epoch: Annotated[
        int | None,
        typer.Option(
            help="Maximum triplets per training run without --budget.",
            rich_help_panel=TRAIN,
            show_default="39,780,811, an epoch of MS MARCO",
        ),
    ] = None,
    sweep_triplets: Annotated[
        int | None,
        typer.Option(help="Triplets per training run of a sweep.", rich_help_panel=TRAIN, show_default="2,560,000"),
    ] = None,
    batch_size: Annotated[int | None, typer.Option(help=BATCH_SIZE, rich_help_panel=TRAIN, show_default="128")] = None,
    other_batch_size: Annotated[
        int | None,
        typer.Option(help="Second batch size of figures 4 and 5.", rich_help_panel=TRAIN, show_default="64"),
    ] = None,
    validate_every: Annotated[
        int | None, typer.Option(help="Triplets between validations.", rich_help_panel=TRAIN, show_default="64,000")
    ] = None,
    validation_split: Annotated[
        str | None,
        typer.Option(
            help="Split that chooses margins, rates and when to stop: dev, or test, which the paper reports, too.",
            rich_help_panel=TRAIN,
            show_default="dev",
        ),
    ] = None,
    validation_queries: Annotated[
        int | None,
        typer.Option(help="Maximum number of validation queries.", rich_help_panel=TRAIN, show_default="500"),
    ] = None,
    validation_depth: Annotated[
        int | None,
        typer.Option(
            help="The first stage's documents to re-rank for a validation query.",
            rich_help_panel=TRAIN,
            show_default="1000",
        ),
    ] = None,
    full_validation: Annotated[
        bool | None,
        typer.Option(
            help="Rank all documents for a validation query, instead of re-ranking the first stage's.",
            rich_help_panel=TRAIN,
            show_default="off",
        ),
    ] = None,
    patience: Annotated[
        int | None,
        typer.Option(
            help=PATIENCE,
            rich_help_panel=TRAIN,
            show_default="16; no early stopping with --budget",
        ),
    ] = None,
    rates: Annotated[
        list[float] | None,
        typer.Option(
            help="Grid of peak learning rates; dev chooses.", rich_help_panel=GRIDS, show_default="the preset's"
        ),
    ] = None,
    rate_extensions: Annotated[
        int | None,
        typer.Option(
            help="Maximum number of further peak learning rates for a row whose best one is at an edge of the grid.",
            rich_help_panel=GRIDS,
            show_default="0; 2 with --regime paper",
        ),
    ] = None,
    seeds: Annotated[
        list[int] | None,
        typer.Option(
            help="Random seeds of table 3 and `beyond`; other experiments use the first.",
            rich_help_panel=GRIDS,
            show_default="0",
        ),
    ] = None,
    margins: Annotated[
        list[float] | None,
        typer.Option(help="Grid of static margins.", rich_help_panel=GRIDS, show_default="0, 0.1, ... 1"),
    ] = None,
    temperatures: Annotated[
        list[float] | None,
        typer.Option(
            help="Grid of temperatures of the contrastive loss.",
            rich_help_panel=GRIDS,
            show_default="0.01, 0.02, 0.05, 0.1, 0.2",
        ),
    ] = None,
    teacher_scales: Annotated[
        list[float] | None,
        typer.Option(
            help="Grid of factors for the teacher's margins.", rich_help_panel=GRIDS, show_default="0.25, 0.5, 1"
        ),
    ] = None,
    threads: Threads = None,
    config: Config = None,
) -> dict[str, Any]:
    """Reproduce tables and figures of the paper, and the study beyond it, with your own models and data.

    Examples:
        remargin reproduce variants --data faq --model minilm --out study --plan
        remargin reproduce all --out study
    """
    import remargin
    from remargin.paper.claims.table import told_only
    from remargin.paper.experiments import ALL, CLAIMS
    from remargin.paper.regimes import study_folder
    from remargin.reports.sections import Section
    from remargin.study.header import is_study
    from remargin.study.plan import REGIMES

    if data is None:
        if any(is_study(study_folder(out, one)) for one in REGIMES):
            refuse_idle(FROM_FILES, given_options(context, TRAINING))
        made = remargin.reproduce(experiments, out, say=say, regime=regime)
    else:
        given = {name: context.params[name] for name in PLAN if context.params[name] not in (None, [], ())}
        given |= {"triplets": epoch} if epoch is not None else {}
        typed = [name for name in given if is_typed(context, name)]  # what a configuration says is to be scaled
        models, others = model_names(model or []), (zero_shot or [], also_test or [])
        arguments = (data, models, budget, *others, triplets, first_stage, jobs, given, typed, say)
        if plan:
            return _show_plan(remargin.planned(experiments, out, *arguments, regime=regime))
        made = remargin.reproduce(experiments, out, *arguments, regime=regime)
    for section in map(Section.load, made.sections):
        show("\n".join(section.summary))
        if section.name != CLAIMS:
            print_tables(section.tables)
        elif len(experiments) > 1 or experiments[0] in (
            ALL,
            CLAIMS,
        ):  # the page has all claims
            print_tables(map(told_only, section.tables))
        print()
    tell(f"wrote {made.page}")
    return {"out": out, "page": made.page, "sections": made.sections}


def _show_plan(plan: Schedule) -> dict[str, Any]:
    """Print every training run and measurement: whether it is done, to do, or waits for what dev chooses."""
    from remargin.study.scheduler import time_left

    groups = {
        "done": plan.done,
        "to do": plan.ready,
        "after dev has chosen": plan.later,
        "model not given": plan.impossible,
    }
    for state, tasks in groups.items():
        for task in tasks:
            show(f"{state:>20}  {task.key}" + (f", {task.triplets:,} triplets" if task.triplets else ""))
    counts = ", ".join(f"{len(tasks):,} {state}" for state, tasks in groups.items() if tasks)
    time = "" if plan.seconds is None else f"; about {time_left(plan.seconds)} of training"
    show(f"{plan.total:,} training runs and measurements: {counts}{time}")
    return {state: [task.key for task in tasks] for state, tasks in groups.items()} | {"seconds": plan.seconds}
