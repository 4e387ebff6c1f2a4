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

from remargin.known_pairs import known_pairs, moved, not_own
from remargin.numerics import dot, mean_squares, product, unit

__all__ = ["ContrastiveLoss", "DualTeacherLoss", "MarginLoss", "Statistics", "known_pairs"]

Error = Literal["l2", "l1", "softplus"]
Similarity = Literal["cosine", "dot"]
NamedTarget = Literal["adaptive", "distributed", "mean", "teacher"]

# What becomes of x = margin - target.
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
        error: what becomes of x = margin - target: "l2" (the paper), "l1", or "softplus", log(1 + exp(-x)).
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
            _one_of("target", target, get_args(NamedTarget), "or a number")
        elif isinstance(target, bool) or not math.isfinite(target):
            raise ValueError(f"target={target!r}: a static margin is a finite number")
        if in_batch and target in ("distributed", "mean"):
            raise ValueError(f"target={target!r} uses every negative of the batch by itself: leave in_batch out")
        _one_of("error", error, get_args(Error))
        _one_of("similarity", similarity, get_args(Similarity))
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
                float32; float64 stays float64.
            teacher_margin: for target="teacher": (B,), or (B, B) with in_batch.
            mask: (M, 2) integers, the pairs (i, j) to leave out because negative j is known to be relevant to query i.
                Where only own negatives are used, only pairs (i, i) matter. For distributed and mean targets it is the
                target of that pair that is left out: query i is contrasted with its own negative all the same.
        """
        batch = self._batch(queries, positives, negatives, teacher_margin, mask)
        if self._moments_apply() and _moments_pay(batch):
            return self._by_moments(batch)
        margin, target = self._margin_and_target(batch, slice(None))
        errors = ERRORS[self.error](margin - target)
        if batch.mask is None:
            return errors.mean()
        keep = self._keep(batch, slice(None), errors.shape[1])
        return (errors * keep).sum() / keep.sum().clamp(min=1)

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
        >>> found = MarginLoss("distributed").statistics(*[vector.repeat(4, 1) for vector in torch.eye(3)])
        >>> float(found.target_mean), float(found.spread)
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
        q, p, n = _prepare(self.similarity, queries=queries, positives=positives, negatives=negatives)
        size = len(q)
        if teacher is None and self.target == "teacher":
            raise ValueError('teacher_margin is missing: target="teacher" needs it in each call')
        if teacher is not None and self.target != "teacher":
            raise ValueError(f'teacher_margin goes with target="teacher" only, not with {self.target!r}')
        if teacher is not None:
            shape = (size, size) if self.in_batch else (size,)
            _check("teacher_margin", teacher, shape, q.device)
            teacher = teacher.to(q.dtype).reshape(size, -1)
        return _Batch(q, p, n, teacher, None if mask is None else _checked_mask(mask, size, size, q.device))

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

    def _moments_apply(self) -> bool:
        return self.error == "l2" and (self.target == "distributed" or (self.in_batch and self.target != "teacher"))

    def _by_moments(self, batch: _Batch) -> Tensor:
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
        squares = mean_squares(offset, left, through, n)
        if batch.mask is None:
            return squares.mean()
        i, j = batch.masked(slice(None))
        x = offset[i] - dot(through[i], n[j])[:, 0]
        if through is not left:
            x = x - dot((left - through)[i], n[j].detach())[:, 0]
        return (batch.size * squares.sum() - x.square().sum()) / max(1, batch.size**2 - len(i))


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
            queries, positives, negatives: (B, d) each, as for `MarginLoss`.
            teacher_margin: (B,), of the triplets.
            in_batch_margin: (B, 2B), of query i's positive and document j, which is positive j, or negative j - B. What
                is said of a query's own two documents does not count.
        """
        own: Tensor = self.own(queries, positives, negatives, teacher_margin)
        q, p, n = _prepare(self.similarity, queries=queries, positives=positives, negatives=negatives)
        size = len(q)
        _check("in_batch_margin", in_batch_margin, (size, 2 * size), q.device)
        margin = dot(q, p) - product(q, torch.cat([p, n]).T)
        others = 1 - torch.eye(size, dtype=q.dtype, device=q.device).repeat(1, 2)
        errors = (margin - in_batch_margin.to(q.dtype)).square() * others
        return own + self.weight * errors.sum() / max(1, 2 * size * (size - 1))

    def extra_repr(self) -> str:
        """The arguments, for repr."""
        return f"weight={self.weight}, similarity={self.similarity!r}"


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
        _one_of("similarity", similarity, get_args(Similarity))
        self.log_temperature = nn.Parameter(torch.tensor(temperature).log()) if learned else None
        self._temperature = temperature
        self.similarity = similarity
        self.mask_known = mask_known
        self.takes = ("ids",) if mask_known else ()

    @property
    def temperature(self) -> Tensor | float:
        """What divides the similarities; a tensor if it is learned."""
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
                CPU: what is left out is found there while the GPU still computes the vectors.
        """
        q, p, n = _prepare(self.similarity, queries=queries, positives=positives, negatives=negatives)
        logits = product(q, torch.cat([p, n]).T) / self.temperature
        own = torch.arange(len(q), device=q.device)
        left_out = []
        if mask is not None:
            left_out.append(not_own(_checked_mask(mask, len(q), 2 * len(q), q.device)))
        if ids is not None and self.mask_known:
            query_ids, positive_ids, negative_ids = ids
            _check_tensor("query ids", query_ids)
            for name, given in zip(("query ids", "positive ids", "negative ids"), ids, strict=True):
                _check(name, given, (len(q),), query_ids.device)
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


def _prepare(similarity: Similarity, **inputs: Tensor) -> tuple[Tensor, ...]:
    """The three inputs checked, in one dtype of at least float32, of unit length if the similarity is cosine."""
    for name, t in inputs.items():
        _check_tensor(name, t)
    shapes = ", ".join(f"{name} {tuple(t.shape)}" for name, t in inputs.items())
    devices = ", ".join(f"{name} on {t.device}" for name, t in inputs.items())
    if len({t.shape for t in inputs.values()}) > 1 or any(t.ndim != 2 or not t.numel() for t in inputs.values()):
        raise ValueError(f"{shapes}: all three must be (B, d) alike, with B and d at least 1")
    if len({t.device for t in inputs.values()}) > 1:
        raise ValueError(f"{devices}: all three must be on one device")
    for name, t in inputs.items():
        if not t.is_floating_point():
            raise ValueError(f"{name} is {t.dtype}: embeddings must be of a floating-point dtype")
    double = any(t.dtype == torch.float64 for t in inputs.values())
    tensors = (t.to(torch.float64 if double else torch.float32) for t in inputs.values())
    return tuple(unit(t) if similarity == "cosine" else t for t in tensors)


def _checked_mask(mask: Tensor, rows: int, columns: int, device: torch.device) -> Tensor:
    _check_tensor("mask", mask)
    _check("mask", mask, (len(mask) if mask.ndim else 0, 2), device)
    if mask.is_floating_point() or mask.dtype == torch.bool:
        raise ValueError(f"mask is {mask.dtype}: it must hold integer pairs (i, j)")
    mask = mask.long()
    if len(mask) and (mask.min() < 0 or (mask.amax(0) >= mask.new_tensor([rows, columns])).any()):
        raise ValueError(f"mask has pairs outside the batch: i must be in 0..{rows - 1}, j in 0..{columns - 1}")
    pairs: Tensor = torch.unique(mask, dim=0)
    return pairs


def _check_tensor(name: str, value: object) -> None:
    if not isinstance(value, Tensor):
        raise ValueError(f"{name} is {type(value).__name__}: it must be a tensor")


def _check(name: str, tensor: Tensor, shape: tuple[int, ...], device: torch.device) -> None:
    _check_tensor(name, tensor)
    if tuple(tensor.shape) != shape:
        raise ValueError(f"{name} {tuple(tensor.shape)}: its shape must be {shape}")
    if tensor.device != device:
        raise ValueError(f"{name} on {tensor.device}: must be on {device}, as the others")


def _one_of(name: str, value: str, allowed: tuple[str, ...], also: str = "") -> None:
    if value not in allowed:
        raise ValueError(f"{name}={value!r}: must be one of {', '.join(map(repr, allowed))} {also}".rstrip())
