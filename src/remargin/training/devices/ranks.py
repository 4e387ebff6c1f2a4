"""The processes of a training run, one for each device, and what they exchange: the only calls of torch.distributed.

Every process draws the whole batch and encodes its part of it. The vectors of all parts are gathered, each process
computes the loss of the whole batch, and sends the gradient of its own vectors back to the weights. Gradients of
weights are then added up. There is no loss scale that depends on the number of processes: the sum over the parts is the
gradient of the whole batch.

`DistributedDataParallel` is not used, nor a strategy of Fabric, which wraps it. It averages gradients while a backward
pass goes through its wrapper of the model; our engine computes with a copy of the weights, perhaps from CUDA graphs,
and fills the gradients in afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed

T = TypeVar("T")
# How many numbers of the gradients are added up at once.
ADDED_AT_ONCE = 1 << 25


class Ranks:
    """One process among those that train together. What one process alone exchanges with nobody, it gets back as is.

    All processes call the same methods in the same order.

    Args:
        rank: the number of this process; 0 leads: it alone writes and speaks.
        size: how many processes there are.
        local, here: the number of this process among those on its machine, and of its GPU; and how many those are.

    Example:
        >>> ranks = Ranks()
        >>> ranks.leads, ranks.alone, ranks.bounds(10), ranks.agree(True)
        (True, True, [0, 10], True)
        >>> Ranks(rank=1, size=3).share(10)
        slice(3, 6, None)
    """

    def __init__(self, rank: int = 0, size: int = 1, local: int = 0, here: int = 1) -> None:
        self.rank, self.size, self.local, self.here = rank, size, local, here

    @property
    def leads(self) -> bool:
        """Whether this is the process that writes and speaks."""
        return self.rank == 0

    @property
    def alone(self) -> bool:
        """Whether there are no others."""
        return self.size == 1

    def bounds(self, count: int) -> list[int]:
        """Where each process's part of so many things begins, and where the last one ends; parts differ by one."""
        return [count * rank // self.size for rank in range(self.size + 1)]

    def share(self, count: int) -> slice:
        """The part of this process of so many things."""
        return slice(*self.bounds(count)[self.rank : self.rank + 2])

    def gather(self, own: Tensor, rows: Sequence[int]) -> list[Tensor]:
        """The tensors of all processes in the order of their ranks.

        A gradient flows back to this process's own tensor alone, and that needs no exchange.

        Args:
            own: this process's tensor.
            rows: how many rows each process has.
        """
        return [own] if self.alone else gathered(own, rows)

    def total(self, tensor: Tensor) -> Tensor:
        """The sum over all processes, which is put into the tensor."""
        if not self.alone:
            distributed.all_reduce(tensor)
        return tensor

    def total_together(self, tensors: Sequence[Tensor]) -> None:
        """Put the sum over all processes into each of the tensors, many of them in one exchange."""
        for some in [] if self.alone else _in_lots(tensors, ADDED_AT_ONCE):
            flat = self.total(torch.cat([tensor.flatten() for tensor in some]))
            parts = flat.split([tensor.numel() for tensor in some])
            torch._foreach_copy_(some, [part.view_as(tensor) for part, tensor in zip(parts, some, strict=True)])

    def spread(self, tensors: Sequence[Tensor]) -> None:
        """Put the leader's values into the tensors of all processes."""
        for tensor in [] if self.alone else tensors:
            distributed.broadcast(tensor, 0)

    def agree(self, value: bool) -> bool:
        """The leader's answer."""
        if self.alone:
            return value
        answer = torch.tensor(value)
        distributed.broadcast(answer, 0)
        return bool(answer)

    def hear(self, value: Any = None) -> Any:
        """The leader's value, whatever it is."""
        if self.alone:
            return value
        values = [value]
        distributed.broadcast_object_list(values, 0, device=torch.device("cpu"))
        return values[0]

    def collect(self, value: Any) -> list[Any]:
        """The values of all processes, in the order of their ranks."""
        values = [value] * self.size
        if not self.alone:
            distributed.all_gather_object(values, value)
        return values

    def send(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Have the other processes, which `follow`, call a function of a module with their own ranks and arguments."""
        self.hear((function, arguments))

    def after_leader(self, make: Callable[[], T]) -> T:
        """What a function makes, called by the leader first: it may write files that the others then read."""
        if self.leads:
            made = make()
            self.collect(None)
            return made
        self.collect(None)
        return make()


ALONE = Ranks()


def gathered(own: Tensor, rows: Sequence[int] | None = None) -> list[Tensor]:
    """The tensors of all processes in the order of their ranks; the own one as it is, with its gradient.

    Without `rows`, all have the same shape.
    """
    size, rank = distributed.get_world_size(), distributed.get_rank()
    rows = [len(own)] * size if rows is None else rows
    filled = own.detach().contiguous()
    if len(filled) < max(rows):
        filled = torch.cat([filled, filled.new_zeros(max(rows) - len(filled), *filled.shape[1:])])
    parts = [torch.empty_like(filled) for _ in range(size)]
    distributed.all_gather(parts, filled)
    parts = [part[:count] for part, count in zip(parts, rows, strict=True)]
    parts[rank] = own
    return parts


def _in_lots(tensors: Sequence[Tensor], most: int) -> Iterator[list[Tensor]]:
    """Neighbouring tensors of one dtype together, of about so many numbers."""
    lot: list[Tensor] = []
    for tensor in tensors:
        if lot and (tensor.dtype != lot[0].dtype or sum(t.numel() for t in lot) + tensor.numel() > most):
            yield lot
            lot = []
        lot.append(tensor)
    if lot:
        yield lot
