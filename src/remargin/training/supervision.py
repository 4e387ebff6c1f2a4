"""What a loss is called with beside the vectors of a batch: ids, and the margins of teachers.

A loss names what it wants in its attribute `takes`; one without it gets the vectors alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from remargin.data.triplets import Triplets
from remargin.errors import InputError
from remargin.losses.contrastive import ContrastiveLoss
from remargin.losses.inputs import Similarity
from remargin.losses.margin import MarginLoss
from remargin.losses.matryoshka import MatryoshkaLoss, innermost
from remargin.losses.softmax_margin import SoftmaxMarginLoss
from remargin.training.batches import TripletBatch
from remargin.training.settings import FitSettings

IDS, SCORES, IN_BATCH = "ids", "teacher_margin", "in_batch_margin"


def takes(loss: nn.Module) -> tuple[str, ...]:
    """The names of what a loss is called with beside vectors.

    >>> takes(MarginLoss("teacher")), takes(MarginLoss(0.3)), takes(nn.Identity())
    (('teacher_margin',), (), ())
    """
    return tuple(getattr(loss, "takes", ()))


def needs_scores(loss: nn.Module) -> bool:
    """Whether a loss takes its targets from a teacher's scores."""
    return SCORES in takes(loss)


def require_teachers(loss: nn.Module, triplets: Triplets, settings: FitSettings) -> None:
    """See that what a loss takes is there."""
    if unknown := set(takes(loss)) - {IDS, SCORES, IN_BATCH}:
        do = f"it can take {IDS}, {SCORES} and {IN_BATCH}"
        raise InputError(f"the loss takes {', '.join(sorted(unknown))}, which `fit` does not have", do=do)
    loss = innermost(loss)
    if isinstance(loss, MarginLoss) and loss.target == "teacher" and loss.in_batch:
        raise InputError("a teacher's in-batch targets need a second teacher", do="use DualTeacherLoss")
    if needs_scores(loss) and not triplets.header["scores"]:
        raise InputError(
            'target "teacher" needs scores', do="take triplets that have them (`remargin teach` makes them)"
        )
    if IN_BATCH in takes(loss) and settings.in_batch_teacher is None:
        raise InputError("dual supervision needs a second teacher", do="name an in_batch_teacher in the settings")


def margin_scale(
    triplets: Triplets, asked: float | None, loss: nn.Module, similarity: Similarity, say: Callable[[str], None]
) -> float:
    """What the teacher's margins are multiplied with: what was asked for, or what brings them into a cosine's range."""
    if asked is not None or not needs_scores(loss):
        return asked or 1.0
    own = getattr(loss, "similarity", None)
    scale = natural_scale(triplets, own if own in ("cosine", "dot") else similarity)
    if scale != 1.0:
        say(f"the teacher's margins are multiplied with {scale:.4g}: 99% of them are within {1 / scale:.4g}")
    return scale


def natural_scale(triplets: Triplets, similarity: Similarity) -> float:
    """The default of `teacher_scale`: 1 for dot products; for cosines, what brings 99% of the margins within ±1."""
    large = triplets.large_margin() if similarity == "cosine" else None
    return 1 / large if large else 1.0


def loss_arguments(loss: nn.Module, batch: TripletBatch, device: torch.device) -> dict[str, Any]:
    """The further arguments of a loss for a batch. Ids stay on the CPU: they are compared there while the GPU works."""
    arguments: dict[str, Any] = {}
    for name in getattr(loss, "takes", ()):
        if name == IDS:
            arguments[name] = tuple(
                torch.from_numpy(rows) for rows in (batch.queries, batch.positives, batch.negatives)
            )
        else:
            arguments[name] = getattr(batch, name).to(device)
    return arguments


def statistics(
    loss: nn.Module, queries: Tensor, positives: Tensor, negatives: Tensor, arguments: dict[str, Any]
) -> dict[str, float]:
    """Margins of a batch; also targets, the two parts of the loss, and its temperature, if it has them.

    Of several negatives, all count. Of several dimensions, the whole vectors do, whose two parts are not the loss's.
    """
    left_out, more = {"loss"}, dict[str, float]()
    if isinstance(loss, MatryoshkaLoss):
        loss, left_out = innermost(loss), left_out | {"explicit_mean", "spread"}
    if isinstance(loss, ContrastiveLoss):
        more["temperature"] = torch.as_tensor(loss.temperature).item()
    if not isinstance(loss, MarginLoss | SoftmaxMarginLoss):
        left_out |= {"explicit_mean", "spread", "target_mean", "target_min", "target_max"}
        own = getattr(loss, "similarity", None)
        loss, arguments = MarginLoss(similarity="dot" if own == "dot" else "cosine"), {}
    measured = loss.statistics(queries.detach(), positives.detach(), negatives.detach(), **arguments)
    values = torch.stack(measured).tolist()
    named = zip(measured._fields, values, strict=True)
    return more | {name: value for name, value in named if name not in left_out}
