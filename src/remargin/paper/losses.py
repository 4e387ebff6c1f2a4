"""The losses of the paper's experiments that the settings of `fit` do not have."""

from __future__ import annotations

from torch import nn

from remargin.losses.contrastive import ContrastiveLoss
from remargin.losses.inputs import Similarity
from remargin.paper.released import ReleasedMarginLoss
from remargin.study.specs import RunSpec


def other_loss(spec: RunSpec, similarity: Similarity) -> nn.Module | None:
    """The released code's loss, or the contrastive one that leaves nothing out; None for runs of all other losses.

    >>> spec = RunSpec("tiny", "contrastive", 16, 64, 1e-3, temperature=0.1, mask_known=False)
    >>> other_loss(spec, "dot")
    ContrastiveLoss(temperature=0.1, learned=False, similarity='dot', mask_known=False)
    >>> other_loss(RunSpec("tiny", "distributed", 16, 64, 1e-3), "cosine") is None
    True
    """
    if spec.released:
        target: float | str = spec.target if spec.target in ("adaptive", "distributed") else float(spec.target)
        return ReleasedMarginLoss(target, spec.in_batch, similarity)
    if not spec.mask_known:
        return ContrastiveLoss(spec.temperature, similarity=similarity, mask_known=False)
    return None
