"""The experiments of the study beyond the paper: a core, and further groups that come into its tables when trained."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from remargin.paper.beyond import factors, lengths, paths
from remargin.paper.beyond.constants import weight_tables
from remargin.paper.beyond.drawing import section
from remargin.paper.beyond.rows import CollectionRows, collection_rows
from remargin.paper.beyond.systems import CONSTANTS, CORE, GROUPS, OURS, Group, system_tasks, untrained_tasks
from remargin.reports.sections import Section
from remargin.study.experiment import Experiment
from remargin.study.results import Results
from remargin.study.tasks import Task

Rows = Mapping[str, CollectionRows]  # by backbone


def _experiment(group: Group) -> Experiment[Rows]:
    """The experiment that trains a group, and draws all rows that are there."""

    def tasks(results: Results) -> Iterator[Task]:
        yield from untrained_tasks(results)
        yield from system_tasks(results, group.systems)

    def findings(results: Results) -> Rows:
        required = (OURS,) if group is CORE else group.systems
        return results.of_models(lambda model: collection_rows(results, model, required))

    def draw(results: Results, rows: Rows) -> Section:
        by_model = {model: [of_model] for model, of_model in rows.items()}
        drawn = section(group.name, group.title, by_model, settings(results))
        if group is CONSTANTS:
            drawn.tables += weight_tables(by_model)
        return drawn

    return Experiment(group.name, tasks, findings, draw, compares=True)


def settings(results: Results) -> dict[str, Any]:
    """What is needed to repeat it."""
    plan = results.plan
    names = ("triplets", "batch_size", "rates", "seeds", "temperatures", "sweep_triplets", "full_validation")
    return {name.replace("_", " "): getattr(plan, name) for name in names}


_ALL: list[Experiment[Any]] = [*map(_experiment, GROUPS), lengths.EXPERIMENT, paths.EXPERIMENT, factors.EXPERIMENT]
BEYOND: dict[str, Experiment[Any]] = {experiment.name: experiment for experiment in _ALL}
