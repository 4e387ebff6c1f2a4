"""The systems of the study beyond the paper, in the groups in which they are trained."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from remargin.paper.systems import PAPER, untrained
from remargin.study.blending import CHOSEN, blended_at
from remargin.study.results import TEST, ZERO_SHOT, Results
from remargin.study.systems import CONTRASTIVE, System, declare, system
from remargin.study.tasks import Task

RATE = 1e-4  # of what is not tuned, at 100,000 triplets; see `beyond-lengths`
MARGIN_WEIGHT = 0.5  # of the recipe: the constant c of the loss

OURS = system("softmax", target="softmax", rate=RATE)
TUNED = replace(CONTRASTIVE, name="contrastive, tuned")  # temperature and learning rate
LEARNED = system("contrastive, learned temperature", target="contrastive", learned_temperature=True, rate=RATE)
# The defaults that transformers documents for its trainer, which sentence-transformers takes over: batches of 8, peak
# learning rate 5e-5 with linear decay and no warm-up; and of its loss: scale 20, a temperature of 0.05.
DOCUMENTED = system(
    "contrastive, documented defaults", target="contrastive", temperature=0.05, rate=5e-5, batch_size=8, warm_up=0.0
)
BATCH_SPREAD = system("softmax, spread of the batch", target="softmax", rate=RATE, spread="batch")
RUNNING_SPREAD = system("softmax, running spread", target="softmax", rate=RATE, spread="running")
UNSTOPPED = system("softmax, unstopped target", target="softmax", rate=RATE, unstopped=True)


def weighted(weight: float) -> System:
    """The softmax loss with another weight of the margin.

    >>> weighted(MARGIN_WEIGHT) is OURS, weighted(2).name
    (True, 'softmax, c = 2')
    """
    if weight == MARGIN_WEIGHT:
        return OURS
    return system(f"softmax, c = {weight:g}", target="softmax", rate=RATE, margin_weight=float(weight))


MARGIN_WEIGHTS = (-0.5, 0.0, MARGIN_WEIGHT, 1.0, 2.0)


@dataclass(frozen=True)
class Group:
    """Systems that are trained together: an experiment of its own.

    Attributes:
        name: of the experiment.
        title: its heading.
        systems: in the order of the tables.
    """

    name: str
    title: str
    systems: tuple[System, ...]


CORE = Group("beyond", "Beyond the paper", (OURS, TUNED))
RIVALS = Group("beyond-rivals", "Beyond the paper: rivals that are not tuned", (LEARNED, DOCUMENTED))
VARIANTS = Group(
    "beyond-variants",
    "Beyond the paper: variants of the softmax loss",
    (BATCH_SPREAD, RUNNING_SPREAD, UNSTOPPED, weighted(0.0)),
)
PAPERS = Group("beyond-paper", "Beyond the paper: the paper's targets, blended", PAPER)
CONSTANTS = Group(
    "beyond-constants",
    "Beyond the paper: the weight of the margin",
    tuple(weighted(weight) for weight in MARGIN_WEIGHTS),
)
GROUPS = (CORE, RIVALS, VARIANTS, PAPERS, CONSTANTS)
SYSTEMS = tuple(dict.fromkeys(system for group in GROUPS for system in group.systems))


def measures(results: Results) -> tuple[str, ...]:
    """What is measured of every run: at home and away, of the trained model and of the blended one."""
    kinds = (TEST, ZERO_SHOT) if results.columns else (TEST,)
    return (*kinds, *(blended_at(kind, CHOSEN) for kind in kinds))


def untrained_tasks(results: Results) -> Iterator[Task]:
    """BM25 and the backbones without training, at home and away."""
    yield from untrained(results, *((TEST, ZERO_SHOT) if results.columns else (TEST,)))


def system_tasks(results: Results, systems: tuple[System, ...]) -> Iterator[Task]:
    """The training runs behind some systems, for each backbone and with each seed."""
    for model in results.models:
        for one in systems:
            choice = declare(results, model, one)
            yield from choice.runs(choice.with_seeds(results.plan.seeds), measures(results))
