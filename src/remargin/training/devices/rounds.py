"""One round of training, by all processes: the leader has prepared it, the others load what it names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import nn

from remargin.model.compute import fast_precision
from remargin.model.encoder import PAPER_LENGTHS, BiEncoder
from remargin.model.tokenizer import TextSettings
from remargin.training.devices.ranks import Ranks
from remargin.training.loop import Fitted, train
from remargin.training.request import Request
from remargin.training.settings import FitSettings
from remargin.training.validation import Validator


def load_encoder(asked: Request, settings: FitSettings, texts: TextSettings | None = None) -> BiEncoder:
    """The encoder to start from, to be kept as it is; with the lengths of training, to be trained."""
    precision = settings.precision if settings.precision in ("32", "bf16") else fast_precision()  # of encoding
    prefixes = {"query_prefix": asked.query_prefix, "document_prefix": asked.document_prefix}
    own = {"query_length": asked.query_length, "document_length": asked.document_length, **prefixes}
    options: Any = own if texts is None else asdict(texts)
    if asked.of_the_paper:
        options |= {"lengths": PAPER_LENGTHS}
    options |= {"pooling": asked.pooling, "similarity": asked.similarity, "seed": settings.seed, "precision": precision}
    return BiEncoder.from_pretrained(asked.model, **options)


def train_round(
    ranks: Ranks,
    asked: Request,
    texts: TextSettings,
    learner: BiEncoder,
    data: Path,
    out: Path,
    loss: nn.Module,
    settings: FitSettings,
    validator: Validator | None,
    loggers: Sequence[Any],
    resume: bool,
    say: Callable[[str], None],
) -> Fitted:
    """What the leader does: send the others what they need to train with it, and `train`."""
    ranks.send(_follow_round, asked, texts, data, out, settings)
    return train(learner, data, out, loss, settings, validator, loggers, resume, say, ranks=ranks)


def _follow_round(
    ranks: Ranks, asked: Request, texts: TextSettings, data: Path, out: Path, settings: FitSettings
) -> None:
    """What the others do. The weights that they start with are the leader's."""
    learner = load_encoder(asked, settings, texts)
    loss = settings.loss.build(learner.similarity, learner.dimension)
    train(learner, data, out, loss, settings, resume=True, say=lambda line: None, ranks=ranks)
