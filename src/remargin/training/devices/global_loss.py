"""The loss of a whole batch, of which each process has encoded a part."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from remargin.losses.margin import MarginLoss
from remargin.losses.numerics import Whole
from remargin.training.batches import TripletBatch
from remargin.training.devices.ranks import Ranks

Parts = tuple[Tensor, Tensor, Tensor]


def global_loss(
    loss: nn.Module, batch: TripletBatch, own: Tensor, arguments: dict[str, Any], ranks: Ranks, gather: bool = True
) -> tuple[Tensor, Parts]:
    """A loss to go back from on this process, and the vectors that it was computed from.

    The vectors of all processes are gathered, and each process computes the loss of the whole batch: any loss sees what
    it sees on one device, known positives and teachers included. The gradient goes back to the process's own vectors.
    Without `gather`, a loss through moments needs no vectors of others where moments are less to exchange, unless it
    has further arguments, such as a mask; its value is then this process's part of the loss, and the vectors are its
    own.

    Args:
        loss: of queries, positives and negatives.
        batch: the whole batch, of whose texts this process has its part.
        own: vectors of those texts.
        arguments: further ones of the loss, of the whole batch.
        ranks: the processes.
        gather: gather the vectors in any case, to look at them.
    """
    if not (gather or arguments or ranks.alone) and moments_are_less(loss, batch, own.shape[1], ranks):
        assert isinstance(loss, MarginLoss)
        parts = batch.split(own)
        return loss.part(*parts, Whole(batch.negatives.size, ranks.total)), parts
    parts = batch.split(*ranks.gather(own, batch.texts_of_each(ranks)))
    value: Tensor = loss(*parts, **arguments)
    return value, parts


def moments_are_less(loss: nn.Module, batch: TripletBatch, dimension: int, ranks: Ranks) -> bool:
    """Whether less is exchanged for a loss through moments than by gathering the batch's vectors.

    Four sums, of d² + d numbers in the forward and in the backward pass, go around twice; a gathered vector once.
    """
    suits = isinstance(loss, MarginLoss) and loss.has_moments and len(batch.queries) >= ranks.size
    return suits and sum(batch.texts_of_each(ranks)) > 4 * (dimension + 1)
