"""The paper's margins inside a softmax: the spread of the targets is its temperature, their deviations its margins."""

from __future__ import annotations

import logging
import math
from typing import Literal, NamedTuple, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from remargin.losses.inputs import check_one_of, prepare
from remargin.losses.known_pairs import Ids, pairs_left_out
from remargin.losses.numerics import product

log = logging.getLogger(__name__)

Spread = Literal["row", "batch", "running"]

# Constants, not settings: chosen once, on the dev splits of several collections.
MARGIN_WEIGHT = 0.5
# A spread is taken from at least this many targets, and none is below what rounding to bfloat16 does to vectors.
FEW = 8
LEAST_SPREAD = 1e-4
FALLBACK_TEMPERATURE = 0.05
# What a batch counts in the running mean of spreads.
MOMENTUM = 0.05


class SoftmaxStatistics(NamedTuple):
    """What a batch looks like to a `SoftmaxMarginLoss`, as zero-dimensional tensors.

    Margins and targets are those of all pairs that count; the temperature is the mean over the batch's queries.
    """

    margin_mean: Tensor
    margin_min: Tensor
    margin_max: Tensor
    target_mean: Tensor
    target_min: Tensor
    target_max: Tensor
    temperature: Tensor


class SoftmaxMarginLoss(nn.Module):
    """Softmax cross-entropy of each query's positive, whose margins and temperature the encoder sets itself.

    For query i and every document j of the batch, positive or negative, but its own positive and known ones:

        margin  m_ij = cos(query i, positive i) - cos(query i, document j)
        target  t_ij = (1 + cos(positive i, document j)) / 2, as in the paper
        loss_i = log(1 + sum_j exp((c (t_ij - mean_j t_ij) - m_ij) / std_j t_ij))

    The spread of the targets is the temperature, and their deviation from the mean the margin: a document that is more
    like the positive than others are must be further behind. Mean and standard deviation (with n - 1) are held constant
    in the backward pass. A shift or scale that all similarities share changes nothing, so there is nothing to tune.

    A query with fewer than `FEW` documents, or with a spread below `LEAST_SPREAD`, gets `FALLBACK_TEMPERATURE` and no
    margins; a warning says so once. A query without documents contributes 0.

    Args:
        margin_weight: c.
        spread: whose standard deviation is the temperature: that of each query's targets ("row"), of all targets of the
            batch ("batch"), or the exponential running mean of the latter ("running"), which is part of the loss's
            state and moves in training mode only. The mean in the margins is always that of the query's targets.
        stop_gradient: hold the target constant in the backward pass. Without it, the gradient flows through t_ij, but
            never through mean and standard deviation.
        similarity: "cosine". Dot products are refused: those of queries and of positives may differ in scale, so that
            the spread of the one is no temperature for the other.
        mask_known: where ids are passed, leave out candidates that the batch itself shows to be relevant.

    Example:
        >>> import torch
        >>> batch = torch.eye(8)                                # positives like their queries, nothing else alike
        >>> print(f"{SoftmaxMarginLoss()(batch, batch, -batch):.4f}")   # m = 1 or 2, t = 0.5 or 0, std 0.1291
        0.0069
    """

    running_spread: Tensor

    def __init__(
        self,
        margin_weight: float = MARGIN_WEIGHT,
        spread: Spread = "row",
        stop_gradient: bool = True,
        similarity: Literal["cosine"] = "cosine",
        mask_known: bool = True,
    ) -> None:
        super().__init__()
        if isinstance(margin_weight, bool) or not math.isfinite(margin_weight):
            raise ValueError(f"margin_weight={margin_weight!r}: it must be a finite number")
        check_one_of("spread", spread, get_args(Spread))
        if similarity != "cosine":
            why = "with dot products, the spread of document similarities does not fit the scale of a query's margins"
            raise ValueError(f"similarity={similarity!r}: the softmax loss needs 'cosine'; {why}")
        self.margin_weight = margin_weight
        self.spread = spread
        self.stop_gradient = stop_gradient
        self.similarity = similarity
        self.mask_known = mask_known
        self.takes = ("ids",) if mask_known else ()
        if spread == "running":
            self.register_buffer("running_spread", torch.zeros(()))  # 0: there is none yet
        self._fallen: Tensor | None = None  # how many queries had no spread so far; stays on its device
        self._warned = False

    def forward(
        self, queries: Tensor, positives: Tensor, negatives: Tensor, mask: Tensor | None = None, ids: Ids | None = None
    ) -> Tensor:
        """The mean loss over the batch's queries.

        Args:
            queries, positives, negatives: (B, d) each, of any scale and float dtype. Negatives may be (B, k, d): all
                B * k of them are candidates for every query; with k = 0, the candidates are the batch's positives.
            mask: pairs (i, j) to leave out, as for `ContrastiveLoss`.
            ids: the ids of queries, positives and negatives, as for `ContrastiveLoss`.
        """
        margin, target, keep = self._compare(queries, positives, negatives, mask, ids)
        mean, temperature, usable = self._scale(target.detach(), keep, update=self.training)
        self._count(~usable & keep.any(1, keepdim=True))
        lead = (self.margin_weight * (target - mean)).masked_fill(~usable, 0)
        logits = ((lead - margin) / temperature).masked_fill(~keep, torch.finfo(margin.dtype).min)
        return -F.logsigmoid(-logits.logsumexp(1)).mean()  # log(1 + exp(x)) for any x

    @torch.no_grad()
    def statistics(
        self, queries: Tensor, positives: Tensor, negatives: Tensor, mask: Tensor | None = None, ids: Ids | None = None
    ) -> SoftmaxStatistics:
        """Margins, targets and the mean temperature of a batch. Takes what the loss takes, and changes no state.

        >>> import torch
        >>> batch = torch.eye(8)
        >>> statistics = SoftmaxMarginLoss().statistics(batch, batch, -batch)
        >>> float(statistics.margin_min), float(statistics.target_max), round(float(statistics.temperature), 4)
        (1.0, 0.5, 0.1291)
        """
        margin, target, keep = self._compare(queries, positives, negatives, mask, ids)
        _, temperature, _ = self._scale(target, keep, update=False)
        self._warn()
        return SoftmaxStatistics(*_summary(margin, keep), *_summary(target, keep), temperature.mean())

    def extra_repr(self) -> str:
        """The arguments, for repr."""
        return (
            f"margin_weight={self.margin_weight:g}, spread={self.spread!r}, stop_gradient={self.stop_gradient}, "
            f"similarity={self.similarity!r}, mask_known={self.mask_known}"
        )

    def _compare(
        self, queries: Tensor, positives: Tensor, negatives: Tensor, mask: Tensor | None, ids: Ids | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Margins and targets of all pairs (i, j), and which of them count."""
        q, p, n = prepare("cosine", queries, positives, negatives)
        documents = torch.cat([p, n])
        relevance = product(q, documents.T)
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.stop_gradient):
            target = (1 + product(p, documents.T)) / 2
        keep = torch.ones_like(relevance, dtype=torch.bool).fill_diagonal_(False)
        left_out = pairs_left_out(mask, ids if self.mask_known else None, negatives, q.device)
        if left_out is not None:
            keep.index_put_(left_out.unbind(1), keep.new_zeros(()))
        return relevance.diagonal()[:, None] - relevance, target, keep

    def _scale(self, target: Tensor, keep: Tensor, update: bool) -> tuple[Tensor, Tensor, Tensor]:
        """The mean target of each query, its temperature, and whether that is the targets' own."""
        count, mean, spread = _moments(target, keep, dim=1)
        if self.spread != "row":
            count, _, spread = _moments(target, keep, dim=(0, 1))
        usable = (count >= FEW) & (spread >= LEAST_SPREAD)
        if self.spread == "running":
            before = self.running_spread.to(spread.dtype)
            running = torch.where(before > 0, before.lerp(spread, MOMENTUM if update else 0.0), spread)
            spread = torch.where(usable, running, before)
            usable = spread > 0
            if update:
                self.running_spread.copy_(spread.squeeze())
        return mean, torch.where(usable, spread, FALLBACK_TEMPERATURE), usable.expand_as(mean)

    def _count(self, fallen: Tensor) -> None:
        """Count queries without a spread of their own. Where to read the count is to wait, `statistics` reads it."""
        if not self._warned:
            self._fallen = fallen.sum() if self._fallen is None else self._fallen + fallen.sum()
            if fallen.device.type == "cpu":
                self._warn()

    def _warn(self) -> None:
        if not self._warned and self._fallen is not None and (queries := int(self._fallen)):
            self._warned = True
            log.warning(
                "queries with fewer than %d documents to be compared with, or with documents that are all alike: %d "
                "so far; their temperature is %g, without margins (said once)",
                FEW, queries, FALLBACK_TEMPERATURE,
            )  # fmt: skip


def _summary(values: Tensor, keep: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean, minimum and maximum of the values that are kept."""
    low, high = values.masked_fill(~keep, math.inf).amin(), values.masked_fill(~keep, -math.inf).amax()
    return (values * keep).sum() / keep.sum().clamp(min=1), low, high


def _moments(values: Tensor, keep: Tensor, dim: int | tuple[int, ...]) -> tuple[Tensor, Tensor, Tensor]:
    """Number, mean and standard deviation of the values that are kept."""
    count = keep.sum(dim, keepdim=True)
    mean = (values * keep).sum(dim, keepdim=True) / count.clamp(min=1)
    squares = ((values - mean) * keep).square().sum(dim, keepdim=True)
    return count, mean, (squares / (count - 1).clamp(min=1)).sqrt()
