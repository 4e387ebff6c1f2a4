"""Every table and figure of the paper, by name, in a study's folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from remargin.errors import InputError
from remargin.experiments.baselines import baselines
from remargin.experiments.claims import claims
from remargin.experiments.curves import adaptive_margins, distributed_margins
from remargin.experiments.instance import instance
from remargin.experiments.loss_geometry import loss_geometry
from remargin.experiments.memory import memory
from remargin.experiments.outcome import Outcome, all_numbers
from remargin.experiments.results import NotTrained
from remargin.experiments.static_margins import static_margins
from remargin.experiments.study import Study
from remargin.experiments.target_evolution import target_evolution
from remargin.experiments.variants import variants
from remargin.experiments.zero_shot_rows import zero_shot_rows
from remargin.report.sections import FILE, PAPERS_ORDER, Section

EXPERIMENTS: dict[str, Callable[[Study], Outcome]] = {
    "loss-geometry": lambda study: loss_geometry(),
    "static-margins": static_margins,
    "adaptive-margins": adaptive_margins,
    "distributed-margins": distributed_margins,
    "target-evolution": target_evolution,
    "instance": instance,
    "variants": variants,
    "baselines": baselines,
    "zero-shot": zero_shot_rows,
    "memory": memory,
}
COMPARING = {"variants", "baselines", "zero-shot"}  # systems, query by query
CLAIMS_FOLDER = "claims"


def sections_of(folder: Path) -> list[Section]:
    """The sections that a study's folder has so far, in the paper's order."""
    return [Section.load(folder / name) for name in PAPERS_ORDER if (folder / name / FILE).exists()]


def reproduce(study: Study, names: Sequence[str]) -> list[Path]:
    """Make some tables and figures, then the verdicts on the claims that they are about; returns their folders.

    What was trained before is not trained again; what cannot be made, for lack of runs, is left out if anything else
    can. Verdicts come from all numbers in the study's folder.
    """
    for name in names:
        if name not in EXPERIMENTS:
            raise InputError(f"unknown experiment {name!r}", do=f"use {', '.join(EXPERIMENTS)}, or all")
    folders: list[Path] = []
    lacking: NotTrained | None = None
    with study.lock():
        if study.can_train and not COMPARING.isdisjoint(names):
            study.rankings.require_several_queries()
        for name in names:
            if name == "zero-shot" and not study.columns:
                study.say("zero-shot: no other collections were named, so it is left out")
                continue
            study.say(f"{name} ...")
            try:
                folders.append(EXPERIMENTS[name](study).save(study.out / name))
            except NotTrained as error:
                lacking = error
                study.say(f"{name} is left out: {error.problem}")
        if lacking and not folders:
            raise lacking
        if not names and not sections_of(study.out):
            raise InputError("has no experiments yet", file=study.out, do="make some: `remargin reproduce NAME`")
        numbers = {name: found for name, found in all_numbers(study.out).items() if name in EXPERIMENTS}
        return [*folders, claims(numbers).save(study.out / CLAIMS_FOLDER)]
