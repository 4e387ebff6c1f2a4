"""remargin reproduce: a table or figure of the paper."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from remargin.cli.options import Config, ManyValues, SkipBad, Threads, is_typed, refuse_idle, require_ours
from remargin.cli.screen import print_tables
from remargin.errors import InputError
from remargin.progress import tell

if TYPE_CHECKING:
    from remargin.experiments.study import Study

app = typer.Typer(help="Make a table or figure of the paper, with your own models and data.", no_args_is_help=True)

NAMES = {
    "static-margins": "Figure 3: both measures over the static margin, without and with in-batch negatives.",
    "adaptive-margins": "Figure 4: adaptive targets over training, for two batch sizes.",
    "distributed-margins": "Figure 5: distributed targets over training, for two batch sizes.",
    "target-evolution": "Figure 6: how the targets move during training.",
    "instance": "Table 2: a query, its positive, and negatives with high, middle and low targets.",
    "variants": "Table 3: all targets, with what they cost, and which are equivalent to the best.",
    "baselines": "Table 4: beside teachers (MarginMSE, TAS-B), static margins and BM25.",
    "memory": "The set-up's claim: what mixed precision and 8-bit states save.",
}
PLAN = ("preset", "rates", "seeds", "margins", "temperatures", "teacher_scales", "batch_size", "other_batch_size",
        "sweep_triplets", "validate_every", "validation_queries", "patience", "relevant")  # fmt: skip
TRAINING = ("budget", "triplets", "also_test", "epoch", *PLAN)  # what only matters where something is trained
MEASURING = ("in_domain", "bm25", "measure", "reference", "bound", "skip_bad", "overwrite")  # of models as they are
FROM_FILES = "a study that is made again from its files (without --data)"

Folder = Annotated[Path, typer.Option(help="The study's folder; one that was stopped goes on where it was.")]
Trained = Annotated[
    str | None,
    typer.Option(
        help="The collection: needs train, dev and test queries. Without, all is made again from the folder's files."
    ),
]
Backbones = Annotated[
    list[str] | None, typer.Option(help="Encoders to start from, by folder or Hugging Face name: --model NAME=PATH.")
]
Budget = Annotated[
    int | None,
    typer.Option(
        help="The most triplets of a run. Sweeps, validations and grids that are not typed shrink with it; it says how."
    ),
]
ZeroShot = Annotated[
    list[str] | None,
    typer.Option(
        help="Collections for table 5: BEIR folders, irds:NAME, or a BEIR name such as scifact; NAME=DATA names them."
    ),
]
AlsoTest = Annotated[
    list[str] | None, typer.Option(help="Further test collections for tables 3 and 4, as DL20 is beside DL19.")
]
GivenTriplets = Annotated[
    Path | None,
    typer.Option(
        "--triplets", help="Triplets of ids to train on; without, BM25's negatives. Scores in them are the teacher's."
    ),
]
Preset = Annotated[
    str | None,
    typer.Option(
        help="The other settings of fit: paper (the usual one), released, or default (the usual one with --budget)."
    ),
]
Rates = Annotated[list[float] | None, typer.Option(help="Learning rates from which dev chooses.")]
Seeds = Annotated[list[int] | None, typer.Option(help="Of table 3; all else takes the first.")]
Margins = Annotated[list[float] | None, typer.Option(help="The grid of static margins.")]
Temperatures = Annotated[list[float] | None, typer.Option(help="That of the contrastive loss.")]
TeacherScales = Annotated[list[float] | None, typer.Option(help="That of a teacher's margins.")]
BatchSize = Annotated[int | None, typer.Option(help="Triplets in a batch.")]
OtherBatchSize = Annotated[int | None, typer.Option(help="The second one of figures 4 and 5.")]
Epoch = Annotated[int | None, typer.Option(help="The most triplets of a run without a budget.")]
SweepTriplets = Annotated[int | None, typer.Option(help="Triplets of each run of a sweep.")]
ValidateEvery = Annotated[int | None, typer.Option(help="Triplets between validations.")]
ValidationQueries = Annotated[int | None, typer.Option(help="At most so many dev queries.")]
Patience = Annotated[int | None, typer.Option(help="Validations without gain before a run stops.")]
Relevant = Annotated[int | None, typer.Option(help="The lowest grade that R counts; 2 for TREC-DL.")]


def _verb(names: list[str], about: str) -> Callable[..., None]:
    """A command that makes some experiments."""

    def verb(
        context: typer.Context,
        out: Folder,
        data: Trained = None,
        model: Backbones = None,
        budget: Budget = None,
        zero_shot: ZeroShot = None,
        also_test: AlsoTest = None,
        triplets: GivenTriplets = None,
        preset: Preset = None,
        rates: Rates = None,
        seeds: Seeds = None,
        margins: Margins = None,
        temperatures: Temperatures = None,
        teacher_scales: TeacherScales = None,
        batch_size: BatchSize = None,
        other_batch_size: OtherBatchSize = None,
        epoch: Epoch = None,
        sweep_triplets: SweepTriplets = None,
        validate_every: ValidateEvery = None,
        validation_queries: ValidationQueries = None,
        patience: Patience = None,
        relevant: Relevant = None,
        threads: Threads = None,
        config: Config = None,
    ) -> None:
        if data is None:
            _require_study(out)
            refuse_idle(context, {FROM_FILES: ("model", "zero_shot", *TRAINING)})
            _again(names, out)
        else:
            _reproduce(names, data, out, context)

    verb.__doc__ = about
    return verb


@app.command("loss-geometry")
def loss_geometry(out: Folder) -> None:
    """Figure 2: where each target pulls negatives, from real gradients. Needs no data."""
    require_ours(out)
    from remargin.experiments.loss_geometry import loss_geometry as figure
    from remargin.experiments.study import Study

    title = _title(Study(out)) if _is_study(out) else "Loss geometry"
    _show([figure().save(out / "loss-geometry")], out, title)


for _name, _about in NAMES.items():
    app.command(_name, cls=ManyValues)(_verb([_name], _about))


@app.command("zero-shot", cls=ManyValues)
def zero_shot(
    context: typer.Context,
    out: Folder,
    data: Annotated[
        str | None,
        typer.Option(
            help="The collection to train on. Without, each --model is measured as it is; without --model and "
            "--zero-shot as well, a study's table is made again from its files."
        ),
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="Encoders, by folder or Hugging Face name: to start from with --data, else to measure: "
            "--model before=PATH after=PATH names their rows."
        ),
    ] = None,
    zero_shot: Annotated[
        list[str] | None,
        typer.Option(
            help="The collections: BEIR folders, irds:NAME, a BEIR name such as scifact or SCF, each also as "
            "NAME=DATA. For models as they are, without any: all of BEIR that the paper has, by ir_datasets."
        ),
    ] = None,
    in_domain: Annotated[str | None, typer.Option(help="Models as they are: a collection like their own.")] = None,
    bm25: Annotated[bool, typer.Option(help="Measure BM25 as well.")] = True,
    measure: Annotated[str, typer.Option(help="An ir_measures name. Published rows are nDCG@10.")] = "nDCG@10",
    reference: Annotated[
        str | None,
        typer.Option(help="The published row for the test over data sets; without, TAS-B where it has three of them."),
    ] = None,
    bound: Annotated[float, typer.Option(help="The largest difference that does not matter.")] = 0.05,
    skip_bad: SkipBad = False,
    overwrite: Annotated[bool, typer.Option(help="Measure all again.")] = False,
    budget: Budget = None,
    also_test: AlsoTest = None,
    triplets: GivenTriplets = None,
    preset: Preset = None,
    rates: Rates = None,
    seeds: Seeds = None,
    margins: Margins = None,
    temperatures: Temperatures = None,
    teacher_scales: TeacherScales = None,
    batch_size: BatchSize = None,
    other_batch_size: OtherBatchSize = None,
    epoch: Epoch = None,
    sweep_triplets: SweepTriplets = None,
    validate_every: ValidateEvery = None,
    validation_queries: ValidationQueries = None,
    patience: Patience = None,
    relevant: Relevant = None,
    threads: Threads = None,
    config: Config = None,
) -> None:
    """Table 5: on collections that a model was not trained on, beside the published rows."""
    if data is not None:
        refuse_idle(context, {"rows that are trained (--data)": MEASURING})
        if not zero_shot:
            raise InputError("no other collections", do="name them: --zero-shot scifact cranfield")
        _reproduce(["zero-shot"], data, out, context)
    elif not model and not zero_shot:
        _require_study(out)
        refuse_idle(context, {FROM_FILES: (*MEASURING, *TRAINING)})
        _again(["zero-shot"], out)
    else:
        if _is_study(out):
            raise InputError("is a study", file=out, do="go on with it (--data), or choose another place")
        refuse_idle(context, {"models that are measured as they are (without --data)": TRAINING})
        from remargin.experiments.zero_shot import zero_shot as measure_models

        tables = measure_models(
            model_names(model or []), zero_shot or [], out, measure, bm25, in_domain, reference, bound, skip_bad,
            overwrite, say=_say,
        )  # fmt: skip
        print_tables(tables.values())
        tell(f"\nwrote {out}")


@app.command("claims")
def claims(out: Folder) -> None:
    """The verdict on each of the paper's claims, from the numbers that a study has."""
    _require_study(out)
    _again([], out)


app.command("all", cls=ManyValues)(
    _verb(
        ["loss-geometry", *NAMES, "zero-shot"],
        "Every table and figure, the verdicts on the paper's claims, and a report page.",
    )
)


def _reproduce(names: list[str], data: str, out: Path, context: typer.Context) -> None:
    """Run experiments in a study's folder, show their tables, and write the page. The options are those of `_verb`."""
    from remargin.experiments.plan import Plan
    from remargin.experiments.reproduce import reproduce
    from remargin.experiments.study import Study
    from remargin.experiments.study_file import planned_before

    options = context.params
    models, budget = model_names(options["model"] or []), options["budget"]
    if not models:
        raise InputError("no encoder to start from", do="give --model NAME=PATH")
    require_ours(out)
    plan = {name: options[name] for name in PLAN if options[name] not in (None, [], ())}
    if options["epoch"] is not None:
        plan["triplets"] = options["epoch"]
    planned = None if plan or budget is not None else planned_before(out)
    typed = [name for name in plan if is_typed(context, name)]  # what a configuration says is to be scaled
    whole = planned or Plan.of(plan)
    chosen = whole
    if budget is not None and budget < whole.triplets:
        # The paper's learning rate is for hundreds of times as many triplets.
        usual = whole if {"preset", "rates"} & plan.keys() else Plan.of({**plan, "preset": "default"})
        chosen = usual.scaled(budget, keep=typed)
    study = Study(
        out, data, models, chosen, options["zero_shot"] or [], options["triplets"], options["also_test"] or [], say=_say
    )
    if planned is not None:
        _say(f"{out} goes on as it was planned")
    for line in chosen.changes(whole):
        _say(line)
    if chosen != whole and chosen.preset != "default" and not plan.get("rates"):
        rate = f"the learning rate is for {whole.triplets:,} triplets: {chosen.rates[0]:g}"
        _say(f"{rate}; for a small budget take --preset default, or --rates")
    _show(reproduce(study, names), out, _title(study), with_claims=len(names) > 1)


def _again(names: list[str], out: Path) -> None:
    """Make sections of a study anew from what is in its folder."""
    from remargin.experiments.reproduce import reproduce
    from remargin.experiments.study import Study

    study = Study(out, say=_say)
    _show(reproduce(study, names), out, _title(study), with_claims=len(names) != 1)


def _require_study(out: Path) -> None:
    if not _is_study(out):
        raise InputError("there is no study", file=out, do="begin one (--data, --model), or name one that is there")


def _is_study(out: Path) -> bool:
    from remargin.experiments.study_file import FILE

    return (out / FILE).exists()


def _title(study: Study) -> str:
    return f"{study.name}: the paper's experiments"


def _show(folders: list[Path], out: Path, title: str, with_claims: bool = False) -> None:
    """Write a page of all that the folder has, and show what is new on it; of claims only the count, unless asked."""
    from remargin.experiments.claims import checked_only
    from remargin.experiments.reproduce import CLAIMS_FOLDER, sections_of
    from remargin.report.page import write_page
    from remargin.report.sections import Section

    write_page(out / "report.html", sections_of(out), title, overwrite=True)
    for section in map(Section.load, folders):
        tell("\n".join(section.summary))
        if section.name != CLAIMS_FOLDER:
            print_tables(section.tables)
        elif with_claims:  # the page has those that could not be checked, too
            print_tables(map(checked_only, section.tables))
        print()
    tell(f"wrote {out / 'report.html'}")


def _say(line: str) -> None:
    tell(line, error=True)


def model_names(given: list[str]) -> dict[str, str]:
    """Models by the names of their rows: NAME=PATH, or just PATH, whose last part is then the name.

    >>> model_names(["before=models/minilm", "intfloat/e5-base"])
    {'before': 'models/minilm', 'e5-base': 'intfloat/e5-base'}
    """
    from remargin.experiments.columns import split_name

    models: dict[str, str] = {}
    for text in given:
        name, value = split_name(text)
        name = name or Path(value).absolute().name
        if name in models:
            raise InputError(f"two models are called {name!r}", do="name them apart: --model NAME=PATH NAME=PATH")
        models[name] = value
    return models
