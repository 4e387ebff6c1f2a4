"""`reproduce`: plans a study, trains what the named experiments lack, and draws them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from remargin.errors import InputError
from remargin.files.atomic import locked
from remargin.paper.beyond.collections import TOGETHER, draw_together
from remargin.paper.claims.claim import Verdict
from remargin.paper.claims.table import check_claims, claims
from remargin.paper.experiments import ALL, CLAIMS, EVERY, EXPERIMENTS
from remargin.paper.findings import Findings
from remargin.paper.regimes import TITLES, plan_of, side_by_side, study_folder, titled
from remargin.paper.released import released_loss
from remargin.progress import tell
from remargin.reports.collect import studies_in
from remargin.reports.page import write_page
from remargin.reports.sections import FILE, Section
from remargin.study.experiment import Experiment, declared_by
from remargin.study.header import is_study, planned_before, require_own_folder
from remargin.study.pinned import pinned
from remargin.study.plan import REGIMES, SHARED, TEST, Plan
from remargin.study.results import NotTrained, Results
from remargin.study.scheduler import Schedule, schedule, work_through
from remargin.study.study import Study
from remargin.training.optimiser import states_here


@dataclass(frozen=True)
class Reproduced:
    """What `reproduce` made: the folders of tables and figures, those of the claims last, and a page of them all."""

    sections: list[Path]
    page: Path


@dataclass(frozen=True)
class Given:
    """What a study is begun or resumed with, beside its folder and regime: arguments of `reproduce`."""

    data: str
    model: Mapping[str, str] | None = None
    budget: int | None = None
    zero_shot: Sequence[str] = ()
    also_test: Sequence[str] = ()
    triplets: str | Path | None = None
    first_stage: str | Path | None = None
    jobs: int = 1
    settings: Mapping[str, Any] | None = None
    typed: Collection[str] = ()
    say: Callable[[str], None] = tell


def reproduce(
    experiments: str | Sequence[str],
    out: str | Path,
    data: str | None = None,
    model: Mapping[str, str] | None = None,
    budget: int | None = None,
    zero_shot: Sequence[str] = (),
    also_test: Sequence[str] = (),
    triplets: str | Path | None = None,
    first_stage: str | Path | None = None,
    jobs: int = 1,
    settings: Mapping[str, Any] | None = None,
    typed: Collection[str] = (),
    say: Callable[[str], None] = tell,
    regime: str | None = None,
) -> Reproduced:
    """Make tables and figures of the paper, and of the study beyond it, with your own models and data.

    Training runs that the folder has are not trained again: an interrupted study resumes, and without `data` everything
    is drawn from the results alone.

    Args:
        experiments: names of `EVERY`; "claims" for the verdicts alone, or "all" for all of the paper's.
        out: the study's folder. Without `data`, also a folder of studies, which the experiments beyond the paper are
            drawn over.
        data: the collection: needs train, dev and test queries. Without it, nothing is trained.
        model: the encoders to start from, folders or hub names, by the names that tables give them.
        budget: the most triplets of a run; sweeps, validations and grids shrink with it.
        zero_shot: other collections, for table 5.
        also_test: further test collections for tables 3 and 4.
        triplets: a table of ids or "irds:NAME" (docpairs of ir_datasets) to train on, instead of BM25's negatives. Its
            scores, if any, are the teacher's.
        first_stage: a TREC run file of the validation queries, or "irds:NAME", to re-rank instead of BM25's documents.
        jobs: how many runs are trained at once.
        settings: fields of `Plan`: how much to train, and the grids. Without any, a study resumes as it was planned.
        typed: the fields of the plan that the budget must not shrink.
        say: gets progress messages.
        regime: shared or paper, see `remargin.paper.regimes`; each has its own study in the folder. With `data` it is
            shared if not given; without, all studies are drawn that are there.

    Raises:
        InputError: for bad input, and for a table whose runs are missing and cannot be trained.

    Example:
        >>> import tempfile
        >>> made = reproduce("loss-geometry", tempfile.mkdtemp())
        >>> [folder.name for folder in made.sections]
        ['loss-geometry']
    """
    out, names = Path(out), experiment_names(experiments)
    folders = [study_folder(out, one) for one in (REGIMES if regime is None else [regime])]
    studies = [folder for folder in folders if is_study(folder)]
    if data is None and not studies and names and not any(EVERY[n].needs_results for n in names):
        require_own_folder(out)
        sections = [EVERY[name].section(None).save(out / name, overwrite=True) for name in names]
        return Reproduced(sections, _page(out, "The paper's experiments"))
    if data is None and not studies and studies_in(out):
        drawn = draw_together(out, names or list(TOGETHER), say)
        sections = [section.save(out / section.name, overwrite=True) for section in drawn]
        return Reproduced(sections, _page(out, f"Beyond the paper: {out.absolute().name}"))
    if data is None:
        require_study(studies[0] if studies else folders[0])
        opened = [Results.open(folder, say) for folder in studies]
        sections = [path for results in opened for path in draw_experiments(results, names)]
        name = opened[0].name
    else:
        if "zero-shot" in names and len(names) == 1 and not zero_shot:
            raise InputError("no other collections", do="name them: --zero-shot scifact cranfield")
        require_own_folder(out)
        given = Given(
            data, model, budget, zero_shot, also_test, triplets, first_stage, jobs, settings, typed, say
        )  # fmt: skip
        study = open_study(folders[0], given, regime or SHARED)
        name, sections = study.results.name, run_experiments(study, names)
    return Reproduced(sections, _page(out, f"{name}: the paper's experiments"))


def planned(
    experiments: str | Sequence[str], out: str | Path, *given: Any, regime: str | None = None, **named: Any
) -> Schedule:
    """What `reproduce` would train and measure with the same arguments; nothing is trained, and no study begun.

    >>> plan = planned("target-evolution", "study", "docstrings:json,csv", {"tiny": model_folder}, budget=64, say=str)
    >>> [task.triplets for task in plan.ready]
    [64]
    """
    with TemporaryDirectory() as scratch:
        require_own_folder(Path(out))
        regime = regime or SHARED
        folder = study_folder(Path(out), regime)
        study = open_study(folder if is_study(folder) else Path(scratch) / "study", Given(*given, **named), regime)
        return schedule(study.results, declared_by(_experiments(experiment_names(experiments))))


def open_study(out: Path, given: Given, regime: str) -> Study:
    """The study in a folder, begun or resumed; see `reproduce`. Says how the budget scales the plan."""
    if not given.model:
        raise InputError("no encoder to start from", do="give --model NAME=PATH")
    require_own_folder(out)
    plan = _plan(out, given, regime)
    study = Study(
        out, given.data, given.model, plan, given.zero_shot, _path(given.triplets), given.also_test, given.say,
        make_loss=released_loss, jobs=given.jobs, first_stage=_path(given.first_stage),
    )  # fmt: skip
    states_here(pinned(plan.preset), given.say)
    if plan.validation_split == TEST:
        leak = "margins, rates and when to stop are chosen on the test queries, as in the paper"
        given.say(f"{leak}: their scores are what tuning could reach at best, not what it does on new queries")
    return study


def _plan(out: Path, given: Given, regime: str) -> Plan:
    """The plan of a study: that of the one that resumes, or the regime's with what was set, scaled to the budget."""
    settings, budget = dict(given.settings or {}), given.budget
    if budget is not None and regime != SHARED:
        problem = f"a budget scales {TITLES[SHARED]}"
        raise InputError(problem, do="set the triplets of a training run instead: --epoch, --sweep-triplets")
    before = None if settings or budget is not None else planned_before(out)
    if before is not None:
        given.say(f"{out} goes on as it was planned")
        return before
    whole = chosen = plan_of(regime, settings)
    if budget is not None and budget < whole.triplets:
        # The paper's learning rate is for hundreds of times as many triplets.
        usual = whole if {"preset", "rates"} & settings.keys() else Plan.of({**settings, "preset": "default"})
        chosen = usual.scaled(budget, keep=given.typed)
    for line in chosen.changes(whole):
        given.say(line)
    if chosen != whole and chosen.preset != "default" and not settings.get("rates"):
        rate = f"the learning rate is for {whole.triplets:,} triplets: {chosen.rates[0]:g}"
        given.say(f"{rate}; for a small budget take --preset default, or --rates")
    return chosen


def _path(given: str | Path | None) -> Path | None:
    return None if given is None else Path(given)


def run_experiments(study: Study, names: Sequence[str]) -> list[Path]:
    """Train and measure what some experiments lack, and draw them; returns the folders of their sections."""
    experiments = _experiments(names)
    with study.lock():
        if any(experiment.compares for experiment in experiments):
            study.rankings.require_several_queries()
            study.rankings.require_index(study.backbones.values())
        work_through(study, declared_by(experiments))
        study.keep_queries()
        return _drawn(study.results, names)


def draw_experiments(results: Results, names: Sequence[str]) -> list[Path]:
    """Draw some experiments, then the verdicts on the claims; returns the folders of their sections.

    Experiments that lack runs are left out if any other can be drawn. Verdicts come from all results of the study.
    """
    with locked(results.out):
        return _drawn(results, names)


def _drawn(results: Results, names: Sequence[str]) -> list[Path]:
    findings, folders = Findings(triplets=results.plan.triplets), list[Path]()
    lacking: NotTrained | None = None
    for experiment in _experiments(names):
        try:
            findings[experiment] = experiment.findings(results)
        except NotTrained as error:
            lacking = error
            results.say(f"{experiment.name} is left out: {error.problem}")
        else:
            section = titled(experiment.draw(results, findings[experiment]), results.plan)
            folders.append(section.save(results.out / experiment.name, overwrite=True))
    if lacking and not folders:
        raise lacking
    _add_others(findings, results)
    if not findings:
        raise InputError("has no experiments yet", file=results.out, do="make some: `remargin reproduce NAME`")
    if names and not any(experiment in findings for experiment in EXPERIMENTS.values()):
        return folders  # nothing that the paper's claims are about
    return [*folders, titled(claims(findings), results.plan).save(results.out / CLAIMS, overwrite=True)]


def verdicts(results: Results) -> list[Verdict]:
    """The verdict on each claim, from all results of a study."""
    findings = Findings(triplets=results.plan.triplets)
    _add_others(findings, results)
    return check_claims(findings)


def _add_others(findings: Findings, results: Results) -> None:
    """Add what else claims can be checked against, without a message about each backbone and run that is missing."""
    quiet = Results(results.out, results.header, lambda line: None, results.files, results.at_hand)
    findings.add_all((experiment for experiment in EXPERIMENTS.values() if experiment.needs_results), quiet)


def experiment_names(given: str | Sequence[str]) -> list[str]:
    """The names of experiments that a user's words stand for.

    >>> experiment_names("claims"), experiment_names(["variants"]), len(experiment_names("all")) == len(EXPERIMENTS)
    ([], ['variants'], True)
    """
    words = [given] if isinstance(given, str) else list(given)
    if ALL in words:
        return list(EXPERIMENTS)
    names = list(dict.fromkeys(word for word in words if word != CLAIMS))
    for name in names:
        if name not in EVERY:
            raise InputError(f"unknown experiment {name!r}", do=f"use {', '.join(EVERY)}, {CLAIMS}, or {ALL}")
    return names


def _experiments(names: Sequence[str]) -> list[Experiment[Any]]:
    return [EVERY[name] for name in names]


def sections_of(out: Path) -> list[Section]:
    """The sections that a study's folder has so far, in the paper's order, with those of both regimes side by side."""
    by_regime, plans = dict[str, dict[str, Section]](), dict[str, Plan]()
    for regime in REGIMES:
        folder = study_folder(out, regime)
        there = [name for name in (*EVERY, CLAIMS) if (folder / name / FILE).exists()]
        by_regime[regime] = {name: Section.load(folder / name) for name in there}
        if (plan := planned_before(folder)) is not None:
            plans[regime] = plan
    return side_by_side(by_regime, plans)


def require_study(out: Path) -> None:
    """Raise an InputError unless a folder has a study."""
    if not is_study(out):
        raise InputError("there is no study", file=out, do="begin one (--data, --model), or name one that is there")


def _page(out: Path, title: str) -> Path:
    page = out / "report.html"
    write_page(page, sections_of(out), title, overwrite=True)
    return page
