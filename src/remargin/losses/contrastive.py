"""The contrastive loss with in-batch negatives, also known as InfoNCE."""

from __future__ import annotations

import math
from typing import get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from remargin.losses.inputs import Similarity, check, check_mask, check_one_of, check_tensor, prepare
from remargin.losses.known_pairs import known_pairs, moved, not_own
from remargin.losses.numerics import product


class ContrastiveLoss(nn.Module):
    """Softmax cross-entropy of each query's positive against all positives and negatives of the batch.

    The paper leaves this loss out; it is the rival that a fair table carries. Known as InfoNCE, or as
    MultipleNegativesRankingLoss in sentence-transformers.

    Args:
        temperature: divides the similarities.
        learned: make the temperature a parameter, through its logarithm.
        similarity: "cosine" or "dot".
        mask_known: where ids are passed, leave out candidates that the batch itself shows to be relevant.

    Example:
        >>> import torch
        >>> queries = positives = torch.eye(2)
        >>> ContrastiveLoss(temperature=1.0)(queries, positives, torch.zeros(2, 2))   # log(1 + 3/e)
        tensor(0.7437)
    """

    def __init__(
        self,
        temperature: float = 0.05,
        learned: bool = False,
        similarity: Similarity = "cosine",
        mask_known: bool = True,
    ) -> None:
        super().__init__()
        if isinstance(temperature, bool) or not (math.isfinite(temperature) and temperature > 0):
            raise ValueError(f"temperature={temperature!r}: it must be a positive number")
        check_one_of("similarity", similarity, get_args(Similarity))
        self.log_temperature = nn.Parameter(torch.tensor(temperature).log()) if learned else None
        self._temperature = temperature
        self.similarity = similarity
        self.mask_known = mask_known
        self.takes = ("ids",) if mask_known else ()

    @property
    def temperature(self) -> Tensor | float:
        """The temperature, which divides the similarities; a tensor if it is learned."""
        return self._temperature if self.log_temperature is None else self.log_temperature.exp()

    def forward(
        self,
        queries: Tensor,
        positives: Tensor,
        negatives: Tensor,
        mask: Tensor | None = None,
        ids: tuple[Tensor, Tensor, Tensor] | None = None,
    ) -> Tensor:
        """The mean cross-entropy over the batch.

        Args:
            queries, positives, negatives: (B, d) each, as for `MarginLoss`.
            mask: (M, 2) integers, the pairs (i, j) to leave out. Candidate j is positive j, or negative j - B; a
                query's own positive always stays.
            ids: the integer ids of queries, positives and negatives, (B,) each. Candidates that are a positive of the
                same query, or copies of its own, are then left out as well, unless mask_known is off. Best on the
                CPU: the pairs to leave out are computed there while the GPU still computes the vectors.
        """
        q, p, n = prepare(self.similarity, queries=queries, positives=positives, negatives=negatives)
        logits = product(q, torch.cat([p, n]).T) / self.temperature
        own = torch.arange(len(q), device=q.device)
        left_out = []
        if mask is not None:
            left_out.append(not_own(check_mask(mask, len(q), 2 * len(q), q.device)))
        if ids is not None and self.mask_known:
            query_ids, positive_ids, negative_ids = ids
            check_tensor("query ids", query_ids)
            for name, given in zip(("query ids", "positive ids", "negative ids"), ids, strict=True):
                check(name, given, (len(q),), query_ids.device)
            known = not_own(known_pairs(query_ids, positive_ids, torch.cat([positive_ids, negative_ids])))
            left_out.append(moved(known, q.device))
        if left_out:
            logits = logits.index_put(torch.cat(left_out).unbind(1), logits.new_full((), -math.inf))
        return F.cross_entropy(logits, own)

    def extra_repr(self) -> str:
        """The arguments, for repr."""
        learned = self.log_temperature is not None
        temperature = torch.as_tensor(self.temperature).item()
        return (
            f"temperature={temperature:g}, learned={learned}, similarity={self.similarity!r}, "
            f"mask_known={self.mask_known}"
        )
