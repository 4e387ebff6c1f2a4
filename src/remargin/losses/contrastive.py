"""The contrastive loss with in-batch negatives, also known as InfoNCE."""

from __future__ import annotations

import math
from typing import get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from remargin.losses.inputs import Similarity, check_one_of, prepare
from remargin.losses.known_pairs import Ids, pairs_left_out
from remargin.losses.numerics import product

# A rate that suits the weights of an encoder would hardly move the logarithm of a temperature.
RATE_FACTOR = 100.0


class ContrastiveLoss(nn.Module):
    """Softmax cross-entropy of each query's positive against all positives and negatives of the batch.

    The paper leaves this loss out; it is the rival that a fair table carries. Known as InfoNCE, or as
    MultipleNegativesRankingLoss in sentence-transformers.

    Args:
        temperature: divides the similarities.
        learned: make the temperature a parameter, through its logarithm. `fit` trains it at `RATE_FACTOR` times the
            learning rate of the encoder.
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
        self.rate_factor = RATE_FACTOR  # of the parameter, if there is one: see `make_optimiser`
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
        ids: Ids | None = None,
    ) -> Tensor:
        """The mean cross-entropy over the batch.

        Args:
            queries, positives, negatives: (B, d) each, as for `MarginLoss`. Negatives may be (B, k, d): all B * k of
                them are candidates for every query; with k = 0, the candidates are the batch's positives.
            mask: (M, 2) integers, the pairs (i, j) to leave out. Candidate j is positive j, or negative j - B, where
                k negatives are counted query by query; a query's own positive always stays.
            ids: the integer ids of queries and positives, (B,) each, and of negatives, (B,) or (B, k). Candidates that
                are a positive of the same query, or copies of its own, are then left out as well, unless mask_known
                is off. Best on the CPU: the pairs to leave out are computed there while the GPU still computes the
                vectors.
        """
        q, p, n = prepare(self.similarity, queries, positives, negatives)
        logits = product(q, torch.cat([p, n]).T) / self.temperature
        own = torch.arange(len(q), device=q.device)
        left_out = pairs_left_out(mask, ids if self.mask_known else None, negatives, q.device)
        if left_out is not None:
            logits = logits.index_put(left_out.unbind(1), logits.new_full((), -math.inf))
        return F.cross_entropy(logits, own)

    def extra_repr(self) -> str:
        """The arguments, for repr."""
        learned = self.log_temperature is not None
        temperature = torch.as_tensor(self.temperature).item()
        return (
            f"temperature={temperature:g}, learned={learned}, similarity={self.similarity!r}, "
            f"mask_known={self.mask_known}"
        )
