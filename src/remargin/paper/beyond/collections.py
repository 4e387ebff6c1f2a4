"""The study beyond the paper over several collections: each is a study of its own, and they are drawn together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from remargin.errors import InputError
from remargin.paper.beyond import lengths, paths
from remargin.paper.beyond.constants import weight_tables
from remargin.paper.beyond.drawing import section
from remargin.paper.beyond.experiments import BEYOND, settings
from remargin.paper.beyond.systems import CONSTANTS, GROUPS
from remargin.reports.collect import studies_in
from remargin.reports.sections import Section
from remargin.study.results import NotTrained, Results

OWN_TABLES: dict[str, Callable[[Mapping[str, Sequence[Any]]], Section]] = {
    lengths.NAME: lengths.section,
    paths.NAME: paths.section,
}
TOGETHER = (*(group.name for group in GROUPS), *OWN_TABLES)  # experiments that can be drawn over collections


def draw_together(folder: Path, names: Sequence[str], say: Callable[[str], None]) -> list[Section]:
    """Draw experiments over all studies in a folder, at any depth.

    Studies that lack the runs of an experiment are left out of it, with a message.

    Raises:
        InputError: if an experiment cannot be drawn over several collections, if no study has its runs, if two studies
            are of one collection, or if a backbone is another one in two studies.
    """
    studies = [Results.open(path, say) for path in sorted(studies_in(folder))]
    _require_alike(studies, folder)
    return [_drawn(name, studies, folder, say) for name in names]


def _drawn(name: str, studies: Sequence[Results], folder: Path, say: Callable[[str], None]) -> Section:
    if name not in TOGETHER:
        problem = f"{name} is about one collection"
        raise InputError(problem, file=folder, do=f"name a study in it, or use {', '.join(TOGETHER)}")
    by_model: dict[str, list[Any]] = {}
    for results in studies:
        try:
            for model, rows in BEYOND[name].findings(results).items():
                by_model.setdefault(model, []).append(rows)
        except NotTrained as lacking:
            say(f"{results.name} is left out of {name}: {lacking.problem}")
    if not by_model:
        raise NotTrained(f"no study in it has the runs of {name}", file=folder, do="train them: give --data")
    if name in OWN_TABLES:
        return OWN_TABLES[name](by_model)
    title = next(group.title for group in GROUPS if group.name == name)
    plans = {results.name: settings(results) for results in studies}
    drawn = section(name, title, by_model, {"plans": plans})
    if name == CONSTANTS.name:
        drawn.tables += weight_tables(by_model)
    if len({str({**plan, "seeds": None}) for plan in plans.values()}) > 1:
        drawn.notes.append("The plans of the collections differ: see the settings.")
    return drawn


def _require_alike(studies: Sequence[Results], folder: Path) -> None:
    """See that collections differ, and that backbones of one name are one."""
    names = [results.name for results in studies]
    if twice := {name for name in names if names.count(name) > 1}:
        raise InputError(f"two studies are of {min(twice)}", file=folder, do="leave one study for each collection")
    models: dict[str, str] = {}
    for results in studies:
        for model, fingerprint in results.header["models"].items():
            if models.setdefault(model, fingerprint) != fingerprint:
                problem = f"{model} is another model here than in a study beside it"
                raise InputError(
                    problem, file=results.out, do="give different models different names: --model NAME=PATH"
                )
