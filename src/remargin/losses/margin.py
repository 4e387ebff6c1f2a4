"""The paper's losses: pure tensors in, a scalar out.

A triplet is a query, a positive and a negative document. Its *margin* is how much more similar the query is to the
positive than to the negative; a loss compares that margin with a *target*:

| target          | target of pair (i, j)                              | source                         |
|-----------------|----------------------------------------------------|--------------------------------|
| a float         | that number                                        | static, the paper's eq. 1      |
| `"adaptive"`    | (1 + sim(positive i, negative j)) / 2, own or all j | eq. 2, and its in-batch form  |
| `"distributed"` | (1 + sim(positive i, negative j)) / 2 for every j  | eq. 3                          |
| `"mean"`        | the mean of the distributed targets of i           | the explicit-mean ablation     |
| `"teacher"`     | a teacher's margin, passed to each call            | MarginMSE, Hofstätter et al.   |

With an l2 error, the in-batch forms need the negatives only through their mean and covariance. Where it is cheaper they
are computed that way: exactly, in O(B d²) time, without any B x B matrix.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, NamedTuple, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from remargin.losses.inputs import Similarity, check, check_mask, check_one_of, prepare_triplets
from remargin.losses.numerics import Whole, dot, mean_squares, product

Error = Literal["l2", "l1", "softplus"]
NamedTarget = Literal["adaptive", "distributed", "mean", "teacher"]

# The error of x = margin - target.
ERRORS: dict[str, Callable[[Tensor], Tensor]] = {
    "l2": torch.square,
    "l1": torch.abs,
    "softplus": lambda x: F.softplus(-x),
}

# `statistics` holds at most this many elements of a B x B matrix at a time.
_BLOCK_ELEMENTS = 1 << 22


class Statistics(NamedTuple):
    """What a batch looks like to a `MarginLoss`, as zero-dimensional tensors: logging them forces no device sync.

    `loss = explicit_mean + spread`: the error of each triplet's mean difference, and what the spread of its differences
    around that mean adds. For distributed targets and l2 the first is the explicit-mean loss, the second the variance
    of the targets.
    """

    margin_mean: Tensor
    margin_min: Tensor
    margin_max: Tensor
    target_mean: Tensor
    target_min: Tensor
    target_max: Tensor
    loss: Tensor
    explicit_mean: Tensor
    spread: Tensor


class MarginLoss(nn.Module):
    """Self-distillation with adaptive relevance margins, and the margin losses it is compared with.

    Args:
        target: a static margin, or "adaptive", "distributed" (the paper's best), "mean", "teacher".
        in_batch: contrast each query with every negative of the batch, not only its own. Distributed and mean targets
            use the whole batch already and refuse it.
        error: the error of x = margin - target: "l2" (the paper), "l1", or "softplus", log(1 + exp(-x)).
        similarity: "cosine" (the paper) or "dot" (what teacher-distilled models use), for margins and targets alike.
        stop_gradient: hold the target constant in the backward pass.

    Example:
        >>> import torch
        >>> batch = [vector.repeat(4, 1) for vector in torch.eye(3)]   # orthogonal: margin 0, target 0.5
        >>> MarginLoss("distributed")(*batch)
        tensor(0.2500)
        >>> MarginLoss(0.3, in_batch=True, error="l1")(*batch)
        tensor(0.3000)
    """

    def __init__(
        self,
        target: float | NamedTarget = "distributed",
        in_batch: bool = False,
        error: Error = "l2",
        similarity: Similarity = "cosine",
        stop_gradient: bool = False,
    ) -> None:
        super().__init__()
        if isinstance(target, str):
            check_one_of("target", target, get_args(NamedTarget), "or a number")
        elif isinstance(target, bool) or not math.isfinite(target):
            raise ValueError(f"target={target!r}: a static margin is a finite number")
        if in_batch and target in ("distributed", "mean"):
            raise ValueError(f"target={target!r} uses every negative of the batch by itself: leave in_batch out")
        check_one_of("error", error, get_args(Error))
        check_one_of("similarity", similarity, get_args(Similarity))
        self.target = target
        self.in_batch = in_batch
        self.error = error
        self.similarity = similarity
        self.stop_gradient = stop_gradient
        self.takes = ("teacher_margin",) if target == "teacher" else ()  # see `fit`

    def forward(
        self,
        queries: Tensor,
        positives: Tensor,
        negatives: Tensor,
        teacher_margin: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> Tensor:
        """The mean error over the batch's triplets i, or over its pairs (i, j) where in-batch information is used.

        Args:
            queries, positives, negatives: (B, d) each, of any scale and float dtype. Half precision is computed in
                float32; float64 stays float64. Negatives may be (B, k, d): that is a batch of B * k triplets, those of
                the first query first, and all the rest is said of these.
            teacher_margin: for target="teacher": (B,), or (B, B) with in_batch; (B, k) of k negatives each.
            mask: (M, 2) integers, the pairs (i, j) to leave out because negative j is known to be relevant to query i.
                Where only own negatives are used, only pairs (i, i) matter. For distributed and mean targets it is the
                target of that pair that is left out: query i is contrasted with its own negative all the same.
        """
        batch = self._batch(queries, positives, negatives, teacher_margin, mask)
        if self.has_moments and _moments_pay(batch):
            return self._by_moments(batch)
        margin, target = self._margin_and_target(batch, slice(None))
        errors = ERRORS[self.error](margin - target)
        if batch.mask is None:
            return errors.mean()
        keep = self._keep(batch, slice(None), errors.shape[1])
        return (errors * keep).sum() / keep.sum().clamp(min=1)

    def part(self, queries: Tensor, positives: Tensor, negatives: Tensor, whole: Whole) -> Tensor:
        """What some of a batch's triplets contribute to its loss, if `has_moments`: the parts add up to the loss.

        Every process calls this with its own triplets; `whole` says how many there are in all, and adds up moments.

        >>> batch = [vector.repeat(4, 1) for vector in torch.eye(3)]
        >>> MarginLoss("distributed").part(*batch, Whole(size=4, total=lambda tensor: tensor))
        tensor(0.2500)
        """
        return self._by_moments(self._batch(queries, positives, negatives, None, None), whole)

    @torch.no_grad()
    def statistics(
        self,
        queries: Tensor,
        positives: Tensor,
        negatives: Tensor,
        teacher_margin: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> Statistics:
        """Margins, targets and the two parts of the loss. Takes what the loss takes and never holds a B x B matrix.

        >>> import torch
        >>> statistics = MarginLoss("distributed").statistics(*[vector.repeat(4, 1) for vector in torch.eye(3)])
        >>> float(statistics.target_mean), float(statistics.spread)
        (0.5, 0.0)
        """
        error = ERRORS[self.error]
        batch = self._batch(queries, positives, negatives, teacher_margin, mask)
        sums: list[Tensor] = []  # of margins, targets, errors, errors of the row means; and the pairs kept
        lows: list[Tensor] = []
        highs: list[Tensor] = []
        block = max(1, _BLOCK_ELEMENTS // batch.size)
        for start in range(0, batch.size, block):
            rows = slice(start, start + block)
            margin, target = torch.broadcast_tensors(*self._margin_and_target(batch, rows))
            keep = self._keep(batch, rows, margin.shape[1])
            kept = keep.sum(1)
            x = margin - target
            row_mean = (x * keep).sum(1) / kept.clamp(min=1)
            parts = (margin * keep, target * keep, error(x) * keep, error(row_mean) * kept, kept)
            sums.append(torch.stack([part.sum() for part in parts]))
            lows.append(torch.stack([v.masked_fill(keep == 0, math.inf).amin() for v in (margin, target)]))
            highs.append(torch.stack([v.masked_fill(keep == 0, -math.inf).amax() for v in (margin, target)]))
        total = torch.stack(sums).sum(0)
        margin_mean, target_mean, loss, explicit_mean = total[:4] / total[4].clamp(min=1)
        margin_min, target_min = torch.stack(lows).amin(0)
        margin_max, target_max = torch.stack(highs).amax(0)
        return Statistics(
            *(margin_mean, margin_min, margin_max),
            *(target_mean, target_min, target_max),
            *(loss, explicit_mean, loss - explicit_mean),
        )

    def extra_repr(self) -> str:
        """The arguments, for repr."""
        return (
            f"target={self.target!r}, in_batch={self.in_batch}, error={self.error!r}, "
            f"similarity={self.similarity!r}, stop_gradient={self.stop_gradient}"
        )

    def _batch(
        self, queries: Tensor, positives: Tensor, negatives: Tensor, teacher: Tensor | None, mask: Tensor | None
    ) -> _Batch:
        q, p, n = prepare_triplets(self.similarity, queries, positives, negatives)
        size = len(q)
        if teacher is None and self.target == "teacher":
            raise ValueError('teacher_margin is missing: target="teacher" needs it in each call')
        if teacher is not None and self.target != "teacher":
            raise ValueError(f'teacher_margin goes with target="teacher" only, not with {self.target!r}')
        if teacher is not None:
            check("teacher_margin", teacher, (size, size) if self.in_batch else tuple(negatives.shape[:-1]), q.device)
            teacher = teacher.to(q.dtype).reshape(size, -1)
        return _Batch(q, p, n, teacher, None if mask is None else check_mask(mask, size, size, q.device))

    def _margin_and_target(self, batch: _Batch, rows: slice) -> tuple[Tensor, Tensor]:
        """Margins and targets of some rows i: (rows, B), or (rows, 1) where they do not depend on j."""
        q, p, n = batch.queries[rows], batch.positives[rows], batch.negatives
        own = n[rows]
        margin = dot(q, p) - (product(q, n.T) if self.in_batch else dot(q, own))
        if not isinstance(self.target, str):
            return margin, margin.new_full((1, 1), self.target)
        if batch.teacher is not None:
            return margin, batch.teacher[rows].detach() if self.stop_gradient else batch.teacher[rows]
        if self.stop_gradient:
            p, n, own = p.detach(), n.detach(), own.detach()
        if self.target == "mean":
            similarity = _mean_similarity(p, n, batch.masked(rows))
        elif self.target == "distributed" or self.in_batch:
            similarity = product(p, n.T)
        else:
            similarity = dot(p, own)
        return margin, (1 + similarity) / 2

    def _keep(self, batch: _Batch, rows: slice, columns: int) -> Tensor:
        """(rows, columns) of ones, with zeros where the mask leaves a pair out."""
        start, stop, _ = rows.indices(batch.size)
        keep = batch.queries.new_ones(stop - start, columns)
        i, j = batch.masked(rows)
        if self.target == "mean":  # a row counts unless all of its targets are left out
            keep[torch.bincount(i, minlength=stop - start) == batch.size] = 0
        elif self.target == "distributed" or self.in_batch:
            keep[i, j] = 0
        else:
            keep[i[i + start == j]] = 0
        return keep

    @property
    def has_moments(self) -> bool:
        """Whether the loss needs the negatives only through their mean and covariance."""
        return self.error == "l2" and (self.target == "distributed" or (self.in_batch and self.target != "teacher"))

    def _by_moments(self, batch: _Batch, whole: Whole | None = None) -> Tensor:
        """The loss through x_ij = offset_i - left_i . n_j, whose mean square needs only the moments of the n_j."""
        q, p, n = batch.queries, batch.positives, batch.negatives
        score = dot(q, p)[:, 0]
        target_p = p.detach() if self.stop_gradient else p
        if not isinstance(self.target, str):
            offset, left = score - self.target, q
        elif self.target == "adaptive":
            offset, left = score - 0.5, q + target_p / 2
        else:
            offset, left = score - dot(q, n)[:, 0] - 0.5, target_p / 2
            n = n.detach() if self.stop_gradient else n
        # The part of `left` through which a negative gets its gradient: with a stopped target, the margin's alone.
        through = q if self.target == "adaptive" and self.stop_gradient else left
        squares = mean_squares(offset, left, through, n, whole)
        if whole is not None:
            return squares.sum() / whole.size
        if batch.mask is None:
            return squares.mean()
        i, j = batch.masked(slice(None))
        x = offset[i] - dot(through[i], n[j])[:, 0]
        if through is not left:
            x = x - dot((left - through)[i], n[j].detach())[:, 0]
        return (batch.size * squares.sum() - x.square().sum()) / max(1, batch.size**2 - len(i))


class _Batch(NamedTuple):
    """Checked inputs: unit vectors if the similarity is cosine, teacher margins in two dimensions, a sorted mask."""

    queries: Tensor
    positives: Tensor
    negatives: Tensor
    teacher: Tensor | None
    mask: Tensor | None

    @property
    def size(self) -> int:
        return len(self.queries)

    def masked(self, rows: slice) -> tuple[Tensor, Tensor]:
        """The masked pairs of some rows; i counts from the first of them."""
        if self.mask is None:
            none = torch.empty(0, dtype=torch.long, device=self.queries.device)
            return none, none
        start, stop, _ = rows.indices(self.size)
        i, j = self.mask.unbind(1)
        inside = (i >= start) & (i < stop)
        return i[inside] - start, j[inside]


def _moments_pay(batch: _Batch) -> bool:
    """Whether O(B d²) through the moments beats O(B² d) directly; benchmarks/losses.py measures where they cross."""
    size, dimension = batch.queries.shape
    crossing = 4 * dimension if batch.queries.is_cuda else dimension
    return size > crossing and (batch.mask is None or len(batch.mask) <= size)


def _mean_similarity(p: Tensor, n: Tensor, masked: tuple[Tensor, Tensor]) -> Tensor:
    """The mean similarity of each positive to the negatives that are not masked for it."""
    i, j = masked
    total = product(p, n.sum(0, keepdim=True).T)[:, 0]
    count = p.new_full((len(p),), len(n))
    if len(i):
        total = total.index_add(0, i, -dot(p[i], n[j])[:, 0])
        count = count - torch.bincount(i, minlength=len(p))
    return (total / count.clamp(min=1))[:, None]
