"""TAS-B's loss with two teachers."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from remargin.losses.inputs import Similarity, check, prepare_triplets
from remargin.losses.margin import MarginLoss
from remargin.losses.numerics import dot, product


class DualTeacherLoss(nn.Module):
    """TAS-B's dual supervision: MarginMSE on each triplet by one teacher, and on the batch's other pairs by a second.

    Args:
        weight: of the second, 0.75 as in TAS-B.
        similarity: "cosine" or "dot".

    Example:
        >>> import torch
        >>> batch = [vector.repeat(2, 1) for vector in torch.eye(3)]   # all margins are 0
        >>> DualTeacherLoss()(*batch, teacher_margin=torch.ones(2), in_batch_margin=torch.ones(2, 4))
        tensor(1.7500)
    """

    def __init__(self, weight: float = 0.75, similarity: Similarity = "cosine") -> None:
        super().__init__()
        self.weight = weight
        self.similarity = similarity
        self.takes = ("teacher_margin", "in_batch_margin")
        self.own = MarginLoss("teacher", similarity=similarity)

    def forward(
        self, queries: Tensor, positives: Tensor, negatives: Tensor, teacher_margin: Tensor, in_batch_margin: Tensor
    ) -> Tensor:
        """Both errors, added up.

        Args:
            queries, positives, negatives: (B, d) each, as for `MarginLoss`. Negatives may be (B, k, d): that is a batch
                of B * k triplets, and what follows is said of those.
            teacher_margin: (B,), of the triplets; (B, k) of k negatives each.
            in_batch_margin: (B, 2B), of query i's positive and document j, which is positive j, or negative j - B. What
                is said of a query's own two documents does not count.
        """
        own: Tensor = self.own(queries, positives, negatives, teacher_margin)
        q, p, n = prepare_triplets(self.similarity, queries, positives, negatives)
        size = len(q)
        check("in_batch_margin", in_batch_margin, (size, 2 * size), q.device)
        margin = dot(q, p) - product(q, torch.cat([p, n]).T)
        others = 1 - torch.eye(size, dtype=q.dtype, device=q.device).repeat(1, 2)
        errors = (margin - in_batch_margin.to(q.dtype)).square() * others
        return own + self.weight * errors.sum() / max(1, 2 * size * (size - 1))

    def extra_repr(self) -> str:
        """The arguments, for repr."""
        return f"weight={self.weight}, similarity={self.similarity!r}"
