"""The paper's figure 2: where each target pulls the negatives, from the gradients of the losses themselves."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from remargin.losses.margin import MarginLoss
from remargin.reports.figures import Arrow, Circle, CirclePanel
from remargin.reports.sections import Section
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
    """What a loss does to each negative: how strongly it pulls, and at which angle the negative comes to rest."""

    pulls: Mapping[str, float]
    rests: Mapping[str, float]


def findings(results: Results | None = None) -> Mapping[str, Geometry]:
    """The geometry of each loss. Needs no results: a query, a positive and three negatives on the unit circle."""
    return {
        name: Geometry(negative_pulls(loss, NEGATIVES), {label: resting_angle(loss, label) for label in NEGATIVES})
        for name, loss in LOSSES.items()
    }


def draw(results: Results | None, findings: Mapping[str, Geometry]) -> Section:
    """Arrows on the unit circle, and the pulls as a table."""
    points = {"q": QUERY, "d+": POSITIVE, **NEGATIVES}
    panels, rows = [], []
    for name, geometry in findings.items():
        arrows = [Arrow(label, NEGATIVES[label], pull=pull) for label, pull in geometry.pulls.items()]
        panels.append(CirclePanel(name, points, arrows, dict(geometry.rests)))
        rows.append([Cell(name), *(number(geometry.pulls[label]) for label in NEGATIVES)])
    caption = (
        "A query, a positive and three negatives of one batch on the unit circle. An arrow is the negative gradient of "
        "the loss along the circle, to scale; a green dot is where that negative would come to rest if only it moved."
    )
    figure = Circle("loss-geometry", "What each target pulls where", caption, panels)
    table = Table(
        "Pull on each negative",
        ["target", *NEGATIVES],
        [Block("", rows)],
        ["Minus the derivative of the loss by the negative's angle, in radians. Above 0: anticlockwise."],
    )
    summary = [
        "A static target pushes every negative towards the same distance from the query. Adaptive targets ask less of "
        "a negative that is unlike the positive. Distributed targets hold a margin against all negatives' targets."
    ]
    return Section("loss-geometry", "Loss geometry", summary, [table], [figure], {"angles": NEGATIVES}, [])


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
