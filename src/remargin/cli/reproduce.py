"""remargin reproduce: a table or figure of the paper."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from remargin.cli.options import Config, ManyValues, SkipBad, refuse_idle, require_ours
from remargin.errors import InputError

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
Budget = Annotated[
    int | None,
    typer.Option(help="The most triplets of a run. Sweeps, validations and grids shrink with it; it is said how."),
]
Trained = Annotated[
    str | None,
    typer.Option(
        help="The collection: needs train, dev and test queries. Without, all is made again from the folder's files."
    ),
]
Backbones = Annotated[
    list[str] | None, typer.Option(help="Encoders to start from, by folder or Hugging Face name: --model NAME=PATH.")
]
Folder = Annotated[Path, typer.Option(help="The study's folder; one that was stopped goes on where it was.")]
ZeroShot = Annotated[
    list[str] | None, typer.Option(help="Collections for table 5: BEIR folders, irds:NAME, or a BEIR name.")
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


@app.command("zero-shot", cls=ManyValues)
def zero_shot(
    context: typer.Context,
    out: Annotated[Path, typer.Option(help="The folder to write; one that was stopped goes on where it was.")],
    model: Annotated[
        list[str] | None,
        typer.Option(help="Encoders, by folder or Hugging Face name: --model before=PATH after=PATH names their rows."),
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            help="Collections: BEIR folders, irds:NAME, a BEIR name such as scifact or SCF, each also as NAME=DATA. "
            "Without: all of BEIR that the paper has, by ir_datasets."
        ),
    ] = None,
    in_domain: Annotated[str | None, typer.Option(help="A collection like the training data.")] = None,
    bm25: Annotated[bool, typer.Option(help="Measure BM25 as well.")] = True,
    measure: Annotated[str, typer.Option(help="An ir_measures name. Published rows are nDCG@10.")] = "nDCG@10",
    train: Annotated[
        str | None,
        typer.Option(
            help="Train the rows of the paper's table on this collection first, from each --model. See --budget."
        ),
    ] = None,
    budget: Budget = None,
    preset: Annotated[str | None, typer.Option(help="--train: paper, released or default.")] = None,
    rates: Annotated[list[float] | None, typer.Option(help="--train: learning rates from which dev chooses.")] = None,
    reference: Annotated[
        str | None,
        typer.Option(help="The published row for the test over data sets; without, TAS-B where it has three of them."),
    ] = None,
    bound: Annotated[float, typer.Option(help="The largest difference that does not matter.")] = 0.05,
    skip_bad: SkipBad = False,
    overwrite: Annotated[bool, typer.Option(help="Measure all again.")] = False,
    config: Config = None,
) -> None:
    """Models on collections that they were not trained on: the paper's table 5, beside the published rows."""
    models = model_names(model or [])
    if train is not None:
        refuse_idle(
            context, {"--train": ("in_domain", "bm25", "measure", "reference", "bound", "skip_bad", "overwrite")}
        )
        if not data:
            raise InputError("no other collections", do="name them: --data scifact cranfield")
        plan = {name: value for name, value in (("preset", preset), ("rates", rates)) if value}
        _reproduce(["zero-shot"], train, models, out, budget, data, plan)
        return
    refuse_idle(context, {"models that are not trained (without --train)": ("budget", "preset", "rates")})
    if not models and not data and (out / "study.json").exists():
        of_models = ("in_domain", "bm25", "measure", "reference", "bound", "skip_bad", "overwrite")
        refuse_idle(context, {"a study that is made again from its files (without --data)": of_models})
        _again(["zero-shot"], out)
        return
    from remargin.experiments.zero_shot import zero_shot as run_zero_shot

    tables = run_zero_shot(
        models, data or [], out, measure, bm25, in_domain, reference, bound, skip_bad, overwrite,
        say=lambda line: print(line, file=sys.stderr),
    )  # fmt: skip
    to_screen = sys.stdout.isatty()
    width = shutil.get_terminal_size().columns if to_screen else None
    print("\n".join(table.terminal(width, styled=to_screen) for table in tables.values()))
    print(f"wrote {out}")


def _verb(names: list[str], about: str) -> Callable[..., None]:
    def verb(
        context: typer.Context,
        out: Folder,
        data: Trained = None,
        model: Backbones = None,
        budget: Budget = None,
        zero_shot: ZeroShot = None,
        also_test: AlsoTest = None,
        triplets: GivenTriplets = None,
        preset: Annotated[
            str | None, typer.Option(help="The other settings of fit: paper, released or default.")
        ] = None,
        rates: Annotated[list[float] | None, typer.Option(help="Learning rates from which dev chooses.")] = None,
        seeds: Annotated[list[int] | None, typer.Option(help="Of table 3; all else takes the first.")] = None,
        margins: Annotated[list[float] | None, typer.Option(help="The grid of static margins.")] = None,
        temperatures: Annotated[list[float] | None, typer.Option(help="That of the contrastive loss.")] = None,
        teacher_scales: Annotated[list[float] | None, typer.Option(help="That of a teacher's margins.")] = None,
        batch_size: Annotated[int | None, typer.Option(help="Triplets in a batch.")] = None,
        other_batch_size: Annotated[int | None, typer.Option(help="The second one of figures 4 and 5.")] = None,
        epoch: Annotated[int | None, typer.Option(help="The most triplets of a run without a budget.")] = None,
        sweep_triplets: Annotated[int | None, typer.Option(help="Triplets of each run of a sweep.")] = None,
        validate_every: Annotated[int | None, typer.Option(help="Triplets between validations.")] = None,
        validation_queries: Annotated[int | None, typer.Option(help="At most so many dev queries.")] = None,
        patience: Annotated[int | None, typer.Option(help="Validations without gain before a run stops.")] = None,
        relevant: Annotated[int | None, typer.Option(help="The lowest grade that R counts; 2 for TREC-DL.")] = None,
        config: Config = None,
    ) -> None:
        given = dict(locals())
        plan = {name: given[name] for name in PLAN if given[name] not in (None, [])}
        if epoch is not None:
            plan["triplets"] = epoch
        if data is None:
            asked = ("model", "budget", "zero_shot", "also_test", "triplets", "epoch", *PLAN)
            refuse_idle(context, {"a study that is made again from its files (without --data)": asked})
            _again(names, out)
        else:
            _reproduce(
                names, data, model_names(model or []), out, budget, zero_shot or [], plan, triplets, also_test or []
            )

    verb.__doc__ = about
    return verb


PLAN = ("preset", "rates", "seeds", "margins", "temperatures", "teacher_scales", "batch_size", "other_batch_size",
        "sweep_triplets", "validate_every", "validation_queries", "patience", "relevant")  # fmt: skip


@app.command("loss-geometry")
def loss_geometry(out: Folder) -> None:
    """Figure 2: where each target pulls negatives, from real gradients. Needs no data."""
    require_ours(out)
    from remargin.experiments.loss_geometry import loss_geometry as figure
    from remargin.experiments.study import Study

    title = _title(Study(out)) if (out / "study.json").exists() else "Loss geometry"
    _show([figure().save(out / "loss-geometry")], out, title)


for _name, _about in NAMES.items():
    app.command(_name, cls=ManyValues)(_verb([_name], _about))
app.command("all", cls=ManyValues)(
    _verb(
        ["loss-geometry", *NAMES, "zero-shot"],
        "Every table and figure, the verdicts on the paper's claims, and a report page.",
    )
)


def _reproduce(
    names: list[str],
    data: str,
    models: dict[str, str],
    out: Path,
    budget: int | None,
    zero_shot: list[str],
    plan: Mapping[str, Any] | None = None,
    triplets: Path | None = None,
    also_test: Sequence[str] = (),
) -> None:
    """Run experiments in a study's folder, show their tables, and write the page."""
    from remargin.experiments.plan import Plan
    from remargin.experiments.reproduce import reproduce
    from remargin.experiments.study import Study
    from remargin.experiments.study_file import planned_before

    if not models:
        raise InputError("no encoder to start from", do="give --model NAME=PATH")
    require_ours(out)
    planned = None if plan or budget is not None else planned_before(out)
    whole = planned or Plan.of(plan or {})
    chosen = whole if budget is None else whole.scaled(budget)
    if planned is not None:
        print(f"{out} goes on as it was planned", file=sys.stderr)
    for line in chosen.changes(whole):
        print(line, file=sys.stderr)
    if chosen != whole and whole.preset != "default" and not (plan or {}).get("rates"):
        rate = f"the learning rate is for {whole.triplets:,} triplets: {chosen.rates[0]:g}"
        print(f"{rate}; for a small budget take --preset default, or --rates", file=sys.stderr)
    study = Study(
        out, data, models, chosen, zero_shot, triplets, also_test, say=lambda line: print(line, file=sys.stderr)
    )
    _show(reproduce(study, names), out, _title(study))


def _again(names: list[str], out: Path) -> None:
    """Make sections of a study anew from what is in its folder."""
    from remargin.experiments.reproduce import reproduce
    from remargin.experiments.study import Study

    study = Study(out, say=lambda line: print(line, file=sys.stderr))
    _show(reproduce(study, names), out, _title(study))


def _title(study: Study) -> str:
    return f"{study.name}: the paper's experiments"


def _show(folders: list[Path], out: Path, title: str) -> None:
    """Write a page of all that the folder has, and show what is new on it."""
    from remargin.experiments.claim import OPEN
    from remargin.experiments.reproduce import CLAIMS_FOLDER, sections_of
    from remargin.report.page import write_page
    from remargin.report.sections import Section

    write_page(out / "report.html", sections_of(out), title, overwrite=True)
    sections = [Section.load(folder) for folder in folders]
    to_screen = sys.stdout.isatty()
    width = shutil.get_terminal_size().columns if to_screen else None
    for section in sections:
        if section.name == CLAIMS_FOLDER:  # the page has those that could not be checked, too
            for block in section.tables[0].blocks:
                block.rows = [row for row in block.rows if row[2].text != OPEN]
        print("\n".join([*section.summary, *(table.terminal(width, styled=to_screen) for table in section.tables)]))
    print(f"wrote {out / 'report.html'}")


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
