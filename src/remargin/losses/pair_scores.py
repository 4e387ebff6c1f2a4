"""The paper's targets for a cross-encoder, which has scores of pairs and no vectors."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from remargin.losses.inputs import check, check_one_of, check_tensor

PairTarget = Literal["adaptive", "distributed"]


class PairMarginLoss(nn.Module):
    """Equations 2 and 3 of the paper, where the similarity of two texts is a cross-encoder's own score of the pair.

    With c the probability that the logit of a pair stands for, the similarity of its two texts is 2c - 1, between -1
    and 1 as a cosine is. Query and document make the margins, positive and negative the targets:

        margin  m_ij = (2c(query i, positive i) - 1) - (2c(query i, negative ij) - 1)
        target  t_ij = (1 + (2c(positive i, negative ij) - 1)) / 2 = c(positive i, negative ij)

    The loss is the mean of the squares of m_ij - t_ij ("adaptive", equation 2), or of m_ij - t_il for each of the
    negatives l that positive i was scored with ("distributed", equation 3).

    Targets are held constant: nothing but the loss ties a cross-encoder's scores of two documents to those of queries
    and documents, so that with a gradient it would meet its targets by lowering them.

    Example:
        >>> import torch
        >>> loss = PairMarginLoss("adaptive")
        >>> loss(torch.zeros(4, 2), torch.zeros(4, 1))   # all probabilities are 0.5: margin 0, target 0.5
        tensor(0.2500)
    """

    def __init__(self, target: PairTarget = "distributed") -> None:
        super().__init__()
        check_one_of("target", target, ("adaptive", "distributed"))
        self.target = target

    def forward(self, scores: Tensor, document_scores: Tensor) -> Tensor:
        """The mean over triplets and targets.

        Args:
            scores: (B, 1 + k) logits of each query with its positive, and then with each of its k negatives.
            document_scores: logits of each positive with negatives: (B, k), its own, for adaptive targets; (B, t), any
                of the batch, for distributed ones.
        """
        check_tensor("scores", scores)
        if scores.ndim != 2 or scores.shape[1] < 2:
            raise ValueError(f"scores {tuple(scores.shape)}: one positive and at least one negative in each row")
        rows, columns = len(scores), scores.shape[1] - 1
        if self.target == "distributed" and document_scores.ndim == 2:
            columns = document_scores.shape[1]
        check("document_scores", document_scores, (rows, columns), scores.device)
        similarity = torch.tanh(scores.float() / 2)
        margin = similarity[:, :1] - similarity[:, 1:]
        target = document_scores.detach().float().sigmoid()
        if self.target == "adaptive":
            return (margin - target).square().mean()
        return (margin[:, :, None] - target[:, None, :]).square().mean()

    def extra_repr(self) -> str:
        """The arguments, for repr."""
        return f"target={self.target!r}"
