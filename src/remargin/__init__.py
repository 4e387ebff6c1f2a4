"""Fine-tune dense retrievers by self-distillation with adaptive relevance margins.

The public names load on first use, so importing remargin imports no torch.

>>> from remargin import MarginLoss
>>> MarginLoss(target="distributed")
MarginLoss(target='distributed', in_batch=False, error='l2', similarity='cosine', stop_gradient=False)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from remargin.data.collection import Collection
    from remargin.data.prepare import prepare
    from remargin.data.triplets import Triplets
    from remargin.errors import InputError
    from remargin.evaluation.comparison import compare
    from remargin.evaluation.measures import evaluate
    from remargin.evaluation.runs import Run
    from remargin.losses.contrastive import ContrastiveLoss
    from remargin.losses.margin import MarginLoss
    from remargin.mining.negatives import mine
    from remargin.model.encoder import BiEncoder
    from remargin.retrieval.encoding import encode
    from remargin.retrieval.fusion import fuse
    from remargin.retrieval.indexing import index
    from remargin.retrieval.reranking import rerank
    from remargin.retrieval.searching import ask, search
    from remargin.retrieval.updating import update
    from remargin.training.loop import fit
    from remargin.training.settings import FitSettings, fit_settings
    from remargin.training.validation import Validator

__version__ = "0.1.0"

_HOMES = {
    "BiEncoder": "remargin.model.encoder",
    "Collection": "remargin.data.collection",
    "ContrastiveLoss": "remargin.losses.contrastive",
    "FitSettings": "remargin.training.settings",
    "InputError": "remargin.errors",
    "MarginLoss": "remargin.losses.margin",
    "Run": "remargin.evaluation.runs",
    "Triplets": "remargin.data.triplets",
    "Validator": "remargin.training.validation",
    "ask": "remargin.retrieval.searching",
    "compare": "remargin.evaluation.comparison",
    "encode": "remargin.retrieval.encoding",
    "evaluate": "remargin.evaluation.measures",
    "fit": "remargin.training.loop",
    "fit_settings": "remargin.training.settings",
    "fuse": "remargin.retrieval.fusion",
    "index": "remargin.retrieval.indexing",
    "mine": "remargin.mining.negatives",
    "prepare": "remargin.data.prepare",
    "rerank": "remargin.retrieval.reranking",
    "search": "remargin.retrieval.searching",
    "update": "remargin.retrieval.updating",
}

__all__ = [
    "BiEncoder",
    "Collection",
    "ContrastiveLoss",
    "FitSettings",
    "InputError",
    "MarginLoss",
    "Run",
    "Triplets",
    "Validator",
    "ask",
    "compare",
    "encode",
    "evaluate",
    "fit",
    "fit_settings",
    "fuse",
    "index",
    "mine",
    "prepare",
    "rerank",
    "search",
    "update",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'remargin' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
