"""The paper's figures 1 and 2: what training takes; targets, and where negatives move, from the losses' gradients."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from remargin.losses.margin import MarginLoss
from remargin.reports.circles import Arrow, Circle, CirclePanel, Sector
from remargin.reports.sections import Section
from remargin.reports.stages import Stage, StagePanel, Stages
from remargin.reports.tables import Block, Cell, Table, number
from remargin.study.experiment import Experiment
from remargin.study.results import Results

# The angles of the paper's figure.
QUERY, POSITIVE = 90.0, 45.0
NEGATIVES = {"d-1": -15.0, "d-2": 143.0, "d-3": -96.0}
LOSSES: dict[str, MarginLoss] = {
    "static 1.0": MarginLoss(1.0),
    "adaptive": MarginLoss("adaptive"),
    "distributed": MarginLoss("distributed"),
    "distributed, stopped target": MarginLoss("distributed", stop_gradient=True),
}


@dataclass(frozen=True)
class Geometry:
    """What a loss does to each negative.

    Attributes:
        pulls: how strongly it pulls each negative, see `negative_pulls`.
        rests: the angle at which each negative comes to rest.
        targets: the targets that hold for every negative, by what they come from; none if each has its own.
    """

    pulls: Mapping[str, float]
    rests: Mapping[str, float]
    targets: Mapping[str, float]


def findings(results: Results | None = None) -> Mapping[str, Geometry]:
    """The geometry of each loss. Needs no results: a query, a positive and three negatives on the unit circle."""
    return {
        name: Geometry(
            negative_pulls(loss, NEGATIVES), {label: resting_angle(loss, label) for label in NEGATIVES}, targets(loss)
        )
        for name, loss in LOSSES.items()
    }


def draw(results: Results | None, findings: Mapping[str, Geometry]) -> Section:
    """Targets and resting places on the unit circle, and the pulls as a table."""
    points = {"q": QUERY, "d+": POSITIVE, **NEGATIVES}
    panels, rows = [], []
    for name, geometry in findings.items():
        arrows = [Arrow(label, NEGATIVES[label], rest) for label, rest in geometry.rests.items()]
        sectors = [_sector(label, target) for label, target in geometry.targets.items()]
        panels.append(CirclePanel(name, points, arrows, dict(geometry.rests), sectors))
        pulls = [number(geometry.pulls[label]) for label in NEGATIVES]
        rows.append([Cell(name), *pulls, *(number(geometry.rests[label], 0) for label in NEGATIVES)])
    caption = (
        "A query, a positive and three negatives of one batch on the unit circle. On the edges of a green sector the "
        "margin equals a target: one for all negatives if it is static, one from each negative of the batch if they "
        "are distributed; the darker, the more of them are met. An arrow follows the gradient of the loss to the green "
        "dot where that negative comes to rest if only it moves."
    )
    figure = Circle("loss-geometry", "The targets, and where they move negatives", caption, panels)
    table = Table(
        "Pull on each negative, and where it rests",
        ["target", *NEGATIVES, *(f"{label} rests at" for label in NEGATIVES)],
        [Block("", rows)],
        [
            "Pull: minus the derivative of the loss by the negative's angle, in radians. Above 0: anticlockwise. "
            f"Angles in degrees; the query is at {QUERY:.0f}°, the positive at {POSITIVE:.0f}°."
        ],
    )
    summary = [
        "A static target pushes every negative towards the same distance from the query. Adaptive targets ask less of "
        "a negative that is unlike the positive. Distributed targets hold every margin against the targets of all "
        "negatives: a distribution, whose mean decides where a negative rests if its gradient is stopped."
    ]
    return Section("loss-geometry", "Loss geometry", summary, [table], [overview(), figure], {"angles": NEGATIVES}, [])


def overview() -> Stages:
    """The paper's figure 1: the stages of training with a teacher, and without.

    >>> [len(panel.stages) for panel in overview().panels]
    [5, 4]
    """
    with_teacher = [
        Stage("triplets", "data"),
        Stage("teacher scores every triplet", "cross-encoder"),
        Stage("teacher's margins", "data"),
        Stage("batches sampled by topic and margin", "data"),
        Stage("student learns the margins", "bi-encoder"),
    ]
    without = [
        Stage("triplets", "data"),
        Stage("random batches", "data"),
        Stage("encoder learns margins", "bi-encoder"),
        Stage("targets from its own similarities", "data", returns=True),
    ]
    panels = [StagePanel("teacher distillation", with_teacher), StagePanel("self-distillation", without)]
    caption = "Left: a cross-encoder, trained before, is the teacher. Right: the encoder's own vectors set the targets."
    return Stages("overview", "What training takes", caption, panels)


def targets(loss: MarginLoss) -> dict[str, float]:
    """The targets that hold for every negative: a static one, or those of the batch.

    >>> targets(MarginLoss(0.5)), targets(MarginLoss("adaptive")), list(targets(MarginLoss("distributed")))
    ({'all negatives': 0.5}, {}, ['d-1', 'd-2', 'd-3'])
    """
    if isinstance(loss.target, float):
        return {"all negatives": loss.target}
    if loss.target == "adaptive":
        return {}
    return {label: (1 + math.cos(math.radians(angle - POSITIVE))) / 2 for label, angle in NEGATIVES.items()}


def _sector(label: str, target: float) -> Sector:
    """All places of a negative whose margin is at least the target."""
    relevance = math.cos(math.radians(QUERY - POSITIVE)) - target  # of a negative whose margin equals it
    away = math.degrees(math.acos(relevance))
    return Sector(f"margin above the target of {label}", QUERY + away, QUERY + 360 - away)


def negative_pulls(loss: MarginLoss, negatives: Mapping[str, float]) -> dict[str, float]:
    """Minus the derivative of the batch's loss by the angle of each negative. All triplets have the same query.

    >>> pulls = negative_pulls(MarginLoss(1.0), {"near": 80.0, "far": -80.0})
    >>> pulls["near"] < 0 < pulls["far"]
    True
    """
    angles = torch.tensor(
        [math.radians(angle) for angle in negatives.values()], dtype=torch.float64, requires_grad=True
    )
    (gradient,) = torch.autograd.grad(_loss(loss, angles), angles)
    return {label: -value for label, value in zip(negatives, gradient.tolist(), strict=True)}


def resting_angle(loss: MarginLoss, label: str, steps: int = 4000, rate: float = 0.02) -> float:
    """Where a negative ends up if it follows its pull while all else stays."""
    angles = dict(NEGATIVES)
    for _ in range(steps):
        pull = negative_pulls(loss, angles)[label]
        angles[label] += math.degrees(rate * pull * len(angles))
        if abs(pull) < 1e-9:
            break
    return angles[label]


def _loss(loss: MarginLoss, angles: Tensor) -> Tensor:
    negatives = torch.stack([angles.cos(), angles.sin()], 1)
    query, positive = (
        torch.tensor([[math.cos(a), math.sin(a)]], dtype=torch.float64).expand(len(angles), 2)
        for a in (math.radians(QUERY), math.radians(POSITIVE))
    )
    value: Tensor = loss(query, positive, negatives)
    return value


EXPERIMENT = Experiment(
    "loss-geometry",
    tasks=lambda results: (),
    findings=findings,
    draw=draw,
    needs_results=False,
)
