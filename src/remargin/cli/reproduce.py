"""remargin reproduce: tables and figures of the paper."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from remargin.cli.options import Config, Threads, given_options, is_typed, model_names
from remargin.cli.screen import print_tables, say
from remargin.errors import refuse_idle
from remargin.progress import tell

if TYPE_CHECKING:
    from remargin.study.scheduler import Schedule

PLAN = ("preset", "rates", "seeds", "margins", "temperatures", "teacher_scales", "batch_size", "other_batch_size",
        "sweep_triplets", "validate_every", "validation_queries", "patience", "relevant")  # fmt: skip
TRAINING = ("model", "budget", "zero_shot", "also_test", "triplets", "jobs", "plan", "epoch", *PLAN)
FROM_FILES = "a study that is made again from its files (without --data)"
GRIDS, COLLECTIONS, TRAIN = "Grids and seeds", "Collections", "Training"

EXPERIMENTS = """
loss-geometry (figure 2), static-margins (figure 3), adaptive-margins (figure 4), distributed-margins (figure 5),
target-evolution (figure 6), instance (table 2), variants (table 3), baselines (table 4), zero-shot (table 5), memory;
claims for the verdicts on the paper's claims alone; or all.
"""


def reproduce(
    context: typer.Context,
    experiments: Annotated[list[str], typer.Argument(metavar="EXPERIMENT...", help=EXPERIMENTS)],
    out: Annotated[Path, typer.Option(help="Folder of the study. An interrupted study resumes.")],
    data: Annotated[
        str | None,
        typer.Option(help="Collection with train, dev and test queries. Without it, nothing is trained, only drawn."),
    ] = None,
    model: Annotated[
        list[str] | None, typer.Option(help="Encoders to start from, folders or Hugging Face names: NAME=PATH.")
    ] = None,
    budget: Annotated[
        int | None,
        typer.Option(help="Maximum triplets of a training run; sweeps, validations and untyped grids shrink with it."),
    ] = None,
    plan: Annotated[bool, typer.Option(help="Show what would be trained, and train nothing.")] = False,
    jobs: Annotated[
        int,
        typer.Option(min=1, help="Training runs at once, for a GPU that one run leaves idle. Times are then longer."),
    ] = 1,
    zero_shot: Annotated[
        list[str] | None,
        typer.Option(
            help="Collections for table 5: BEIR folders, irds:NAME, or a BEIR name such as scifact; also NAME=DATA.",
            rich_help_panel=COLLECTIONS,
        ),
    ] = None,
    also_test: Annotated[
        list[str] | None,
        typer.Option(
            help="Further test collections for tables 3 and 4, as DL20 beside DL19.", rich_help_panel=COLLECTIONS
        ),
    ] = None,
    triplets: Annotated[
        Path | None,
        typer.Option(
            help="Triplets of ids; BM25's negatives if not given. Scores in the file are the teacher's.",
            rich_help_panel=COLLECTIONS,
        ),
    ] = None,
    relevant: Annotated[
        int | None,
        typer.Option(help="Lowest relevant grade for recall; 2 for TREC-DL.", rich_help_panel=COLLECTIONS),
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            help="Other settings of fit: paper, released, or default; default if a budget is given.",
            rich_help_panel=TRAIN,
            show_default="paper",
        ),
    ] = None,
    epoch: Annotated[
        int | None, typer.Option(help="Maximum triplets of a training run without a budget.", rich_help_panel=TRAIN)
    ] = None,
    sweep_triplets: Annotated[
        int | None, typer.Option(help="Triplets of each training run of a sweep.", rich_help_panel=TRAIN)
    ] = None,
    batch_size: Annotated[int | None, typer.Option(help="Triplets in a batch.", rich_help_panel=TRAIN)] = None,
    other_batch_size: Annotated[
        int | None, typer.Option(help="Second batch size of figures 4 and 5.", rich_help_panel=TRAIN)
    ] = None,
    validate_every: Annotated[
        int | None, typer.Option(help="Triplets between validations.", rich_help_panel=TRAIN)
    ] = None,
    validation_queries: Annotated[
        int | None, typer.Option(help="Maximum number of dev queries.", rich_help_panel=TRAIN)
    ] = None,
    patience: Annotated[
        int | None,
        typer.Option(help="Validations without improvement before early stopping.", rich_help_panel=TRAIN),
    ] = None,
    rates: Annotated[
        list[float] | None,
        typer.Option(help="Grid of peak learning rates, from which dev chooses.", rich_help_panel=GRIDS),
    ] = None,
    seeds: Annotated[
        list[int] | None, typer.Option(help="Seeds of table 3; other experiments use the first.", rich_help_panel=GRIDS)
    ] = None,
    margins: Annotated[list[float] | None, typer.Option(help="Grid of static margins.", rich_help_panel=GRIDS)] = None,
    temperatures: Annotated[
        list[float] | None, typer.Option(help="Grid of temperatures of the contrastive loss.", rich_help_panel=GRIDS)
    ] = None,
    teacher_scales: Annotated[
        list[float] | None, typer.Option(help="Grid of scales of a teacher's margins.", rich_help_panel=GRIDS)
    ] = None,
    threads: Threads = None,
    config: Config = None,
) -> None:
    """Make tables and figures of the paper, with your own models and data."""
    import remargin
    from remargin.paper.claims.table import checked_only
    from remargin.paper.running import ALL, CLAIMS
    from remargin.reports.sections import Section

    if data is None:
        if (out / "study.json").exists():
            refuse_idle(FROM_FILES, given_options(context, TRAINING))
        made = remargin.reproduce(experiments, out, say=say)
    else:
        given = {name: context.params[name] for name in PLAN if context.params[name] not in (None, [], ())}
        given |= {"triplets": epoch} if epoch is not None else {}
        typed = [name for name in given if is_typed(context, name)]  # what a configuration says is to be scaled
        arguments = (
            *(experiments, out, data, model_names(model or []), budget, zero_shot or [], also_test or [], triplets),
            *(jobs, given, typed, say),
        )
        if plan:
            _show_plan(remargin.planned(*arguments))
            return
        made = remargin.reproduce(*arguments)
    for section in map(Section.load, made.sections):
        tell("\n".join(section.summary))
        if section.name != CLAIMS:
            print_tables(section.tables)
        elif len(experiments) > 1 or experiments[0] in (
            ALL,
            CLAIMS,
        ):  # the page has all claims
            print_tables(map(checked_only, section.tables))
        print()
    tell(f"wrote {made.page}")


def _show_plan(plan: Schedule) -> None:
    """Print every run: whether it is there, is to be trained, or waits for what dev chooses."""
    from remargin.study.scheduler import time_left

    groups = {
        "there": plan.done,
        "to do": plan.ready,
        "after dev has chosen": plan.later,
        "no backbone": plan.impossible,
    }
    for state, tasks in groups.items():
        for task in tasks:
            tell(f"{state:>20}  {task.key}" + (f", {task.triplets:,} triplets" if task.triplets else ""))
    counts = ", ".join(f"{len(tasks):,} {state}" for state, tasks in groups.items() if tasks)
    time = "" if plan.seconds is None else f"; about {time_left(plan.seconds)} of training"
    tell(f"{plan.total:,} runs and measurements: {counts}{time}")
