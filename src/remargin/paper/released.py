"""The losses as the paper's released code computes them, for comparison with the paper's equations.

The released code combines a vector of B values with a B x B matrix by broadcasting. That lines the vector up with the
columns, so pair (i, j) gets the value of triplet j where the paper has that of triplet i. Without in-batch information
the two agree.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from remargin.losses.inputs import Similarity
from remargin.losses.margin import ERRORS, MarginLoss


class ReleasedMarginLoss(nn.Module):
    """`MarginLoss` with the released code's transposed broadcast, where that makes a difference.

    - static and adaptive, in-batch: pair (i, j) has the margin sim(q_j, p_j) - sim(q_i, n_j);
    - distributed: pair (i, j) compares the margin of triplet j, not i, with (1 + sim(p_i, n_j)) / 2: for each negative,
      the targets of every positive.

    Example:
        >>> import torch
        >>> batch = torch.randn(3, 5, 8, generator=torch.manual_seed(0)).unbind()
        >>> same = MarginLoss("adaptive")(*batch) == ReleasedMarginLoss("adaptive")(*batch)
        >>> other = MarginLoss("distributed")(*batch) != ReleasedMarginLoss("distributed")(*batch)
        >>> bool(same), bool(other)
        (True, True)
    """

    def __init__(
        self, target: float | str = "distributed", in_batch: bool = False, similarity: Similarity = "cosine"
    ) -> None:
        super().__init__()
        if target not in ("adaptive", "distributed") and isinstance(target, str):
            raise ValueError(f"target={target!r}: the released code has static, adaptive and distributed targets")
        self.similarity = similarity
        self.paper = MarginLoss(target, in_batch, similarity=similarity)  # type: ignore[arg-type]

    def forward(self, queries: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        """The mean squared error over the batch; always through B x B matrices."""
        target, in_batch = self.paper.target, self.paper.in_batch
        if not in_batch and target != "distributed":
            loss: Tensor = self.paper(queries, positives, negatives)
            return loss
        q, p, n = (x.float() for x in (queries, positives, negatives))
        if self.paper.similarity == "cosine":
            q, p, n = (nn.functional.normalize(x, dim=1) for x in (q, p, n))
        columns = (q * p).sum(1)
        margin = columns - (q @ n.T if in_batch else (q * n).sum(1))
        targets = (1 + p @ n.T) / 2 if isinstance(target, str) else torch.full_like(q @ n.T, target)
        return ERRORS["l2"](margin - targets).mean()
