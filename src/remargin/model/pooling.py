"""How token vectors become one vector: the pooling, and the layers on top of it."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch
from torch import Tensor, nn

from remargin.errors import InputError
from remargin.model.folder import refuse_decoder

if TYPE_CHECKING:
    from remargin.model.backbone import Checkpoint
    from remargin.model.opening import EncoderFolder

log = logging.getLogger(__name__)

Pooling = Literal[
    "cls", "cls+linear", "cls+pooler", "mean", "mean+linear", "mean+pooler", "last", "last+linear", "last+pooler"
]

# The paper's choice for each family (its table 1); other families take the plain [CLS] vector.
PAPER_POOLING: dict[str, Pooling] = {"roberta": "cls+linear", "mpnet": "cls+linear", "distilbert": "cls"}


class NormedLinear(nn.Linear):
    """A linear projection with a layer norm behind it, as ANCE has it.

    >>> torch.manual_seed(0).initial_seed(), NormedLinear(4, 8)(torch.ones(2, 4)).mean(1).abs().max().item() < 1e-6
    (0, True)
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        super().__init__(in_features, out_features, bias)
        self.norm = nn.LayerNorm(out_features)

    def forward(self, input: Tensor) -> Tensor:
        """The projected vectors, normed."""
        return self.norm(super().forward(input))  # type: ignore[no-any-return]


def pooled_rows(pooling: str, bounds: Tensor, tokens: int) -> Tensor:
    """Which token is each text's vector: its first, or its last; of a text without tokens, it is any.

    >>> bounds = torch.tensor([0, 3, 5])
    >>> pooled_rows("cls", bounds, 5).tolist(), pooled_rows("last", bounds, 5).tolist()
    ([0, 3], [2, 4])
    """
    rows = bounds[1:] - 1 if pooling.startswith("last") else bounds[:-1]
    return rows.clamp(0, tokens - 1)


def require_whole_text(transformer: Path, pooling: str | None) -> None:
    """Refuse a decoder whose vector would be of tokens that do not see the whole text: of any but the last."""
    if not (pooling or "").startswith("last"):
        refuse_decoder(transformer, do="name an encoder, such as BERT or ModernBERT, or give --pooling last")


def check_pooling(pooling: str, projection: nn.Linear | None) -> None:
    """Refuse a pooling that there is not, and a projection that does not go with it."""
    if pooling not in get_args(Pooling):
        raise InputError(f"unknown pooling {pooling!r}", do=f"use auto, {', '.join(get_args(Pooling))}")
    if ("+" in pooling) != (projection is not None):
        raise ValueError(f"pooling={pooling!r} and projection={projection}: a projection goes with +linear, +pooler")


def choose_pooling(
    name: object,
    folder: EncoderFolder,
    config: Any,
    checkpoint: Checkpoint,
    asked: Pooling | Literal["auto"],
    seed: int,
) -> tuple[Pooling, nn.Linear | None]:
    """The pooling that is asked for, or else the folder's own or the paper's for the family, and its projection.

    A projection that the folder lacks is the checkpoint's own pooler, or else a new one that the seed draws.
    """
    saved = folder.settings
    pooling: Pooling = asked if asked != "auto" else saved.pooling or PAPER_POOLING.get(config.model_type, "cls")
    projection = None
    if "+" in pooling:
        projection = folder.projection() if saved.pooling == pooling else None
        projection = projection or checkpoint.pooler_projection()
        if projection is not None and projection.in_features != config.hidden_size:
            problem = f"projection of {projection.in_features} numbers, but the encoder gives {config.hidden_size}"
            raise InputError(problem, file=saved.transformer, do="use an intact model folder")
        if projection is None:
            projection = new_projection(config.hidden_size, getattr(config, "initializer_range", 0.02), seed)
            missing = f"{name} has no weights for the projection of {pooling}"
            log.warning("%s: a new one is initialised with seed %d", missing, seed)
    if folder.has_projection and saved.pooling != pooling:
        log.warning("%s: pooling %s does not use the projection that the model has", name, pooling)
    return pooling, projection


def new_projection(dimension: int, spread: float, seed: int) -> nn.Linear:
    """A linear layer whose weights are drawn with a seed."""
    projection = nn.Linear(dimension, dimension)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        projection.weight.normal_(0, spread, generator=generator)
        projection.bias.zero_()
    return projection
