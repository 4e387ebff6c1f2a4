"""Any loss over the first numbers of vectors as well as over all of them, so that vectors can be truncated."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from remargin.losses.inputs import check_tensor


class MatryoshkaLoss(nn.Module):
    """Matryoshka representation learning (Kusupati et al., NeurIPS 2022) around any loss.

    The mean of the loss over dimensions d, each computed from the first d numbers of every vector:

        1/|D| sum_d loss(queries[:, :d], positives[:, :d], negatives[:, :d])

    A loss with cosine similarity brings truncated vectors back to unit length itself; one with dot products compares
    them as they are. With D of the whole dimension and smaller ones, vectors that are truncated to one of these rank
    nearly as well as whole ones. sentence-transformers' MatryoshkaLoss is the sum instead of the mean.

    Args:
        loss: any loss of queries, positives and negatives; it may take more arguments, such as ids.
        dims: the dimensions, at most that of the vectors. State and parameters of the loss, such as a learned
            temperature, are a copy of their own for every dimension; `loss` itself is that of the largest.

    Example:
        >>> from remargin.losses.margin import MarginLoss
        >>> batch = [vector.repeat(4, 1) for vector in torch.eye(3)]
        >>> MatryoshkaLoss(MarginLoss(0.3), dims=[3, 2])(*batch)   # without the third number, the negative is 0
        tensor(0.0900)
    """

    def __init__(self, loss: nn.Module, dims: Sequence[int]) -> None:
        super().__init__()
        whole = all(isinstance(dim, int) and not isinstance(dim, bool) and dim >= 1 for dim in dims)
        if not dims or not whole or len(set(dims)) < len(dims):
            raise ValueError(f"dims={list(dims)!r}: they must be different whole numbers, 1 or more")
        self.dims = tuple(sorted(dims, reverse=True))
        self.losses = nn.ModuleList([loss, *(copy.deepcopy(loss) for _ in self.dims[1:])])
        self.similarity = getattr(loss, "similarity", None)
        self.takes = tuple(getattr(loss, "takes", ()))
        self.rate_factor = float(getattr(loss, "rate_factor", 1.0))

    @property
    def largest(self) -> nn.Module:
        """The loss of the largest dimension."""
        return self.losses[0]

    def forward(self, queries: Tensor, positives: Tensor, negatives: Tensor, **arguments: Any) -> Tensor:
        """The mean over the dimensions.

        Args:
            queries, positives, negatives: as the loss takes them, of dimension `max(dims)` at least.
            **arguments: further ones of the loss, the same for every dimension.
        """
        vectors = (queries, positives, negatives)
        for name, tensor in zip(("queries", "positives", "negatives"), vectors, strict=True):
            check_tensor(name, tensor)
            if tensor.ndim and tensor.shape[-1] < self.dims[0]:
                raise ValueError(f"{name} {tuple(tensor.shape)}: dimension {self.dims[0]} of the loss is larger")
        truncated = (tuple(tensor[..., :dim] for tensor in vectors) for dim in self.dims)
        values = [loss(*parts, **arguments) for loss, parts in zip(self.losses, truncated, strict=True)]
        return torch.stack(values).mean()

    def __repr__(self) -> str:
        return f"MatryoshkaLoss({self.largest!r}, dims={list(self.dims)})"


def innermost(loss: nn.Module) -> nn.Module:
    """The loss itself, or the one that is computed over the whole vectors, if it is a `MatryoshkaLoss`.

    >>> innermost(MatryoshkaLoss(nn.Identity(), dims=[8, 4]))
    Identity()
    """
    return innermost(loss.largest) if isinstance(loss, MatryoshkaLoss) else loss
