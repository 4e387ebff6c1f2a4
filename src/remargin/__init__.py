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
    from remargin.data.preparation import prepare
    from remargin.data.triplets import Triplets
    from remargin.demos.fine_tuning import demo
    from remargin.errors import InputError
    from remargin.evaluation.measures import evaluate
    from remargin.evaluation.runs import Run
    from remargin.losses.contrastive import ContrastiveLoss
    from remargin.losses.margin import MarginLoss
    from remargin.mining.negatives import mine
    from remargin.model.encoder import BiEncoder
    from remargin.paper.benchmarking import benchmark
    from remargin.paper.running import planned, reproduce
    from remargin.report.comparing import compare
    from remargin.retrieval.search import search
    from remargin.study.sweeping import sweep
    from remargin.teacher.teaching import teach
    from remargin.training.fitting import fit
    from remargin.training.inspection import inspect
    from remargin.training.loop import train
    from remargin.training.settings import FitSettings
    from remargin.training.validation import Validator
    from remargin.versions import info

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
    "benchmark": "remargin.paper.benchmarking",
    "compare": "remargin.report.comparing",
    "demo": "remargin.demos.fine_tuning",
    "evaluate": "remargin.evaluation.measures",
    "fit": "remargin.training.fitting",
    "info": "remargin.versions",
    "inspect": "remargin.training.inspection",
    "mine": "remargin.mining.negatives",
    "planned": "remargin.paper.running",
    "prepare": "remargin.data.preparation",
    "reproduce": "remargin.paper.running",
    "search": "remargin.retrieval.search",
    "sweep": "remargin.study.sweeping",
    "teach": "remargin.teacher.teaching",
    "train": "remargin.training.loop",
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
    "benchmark",
    "compare",
    "demo",
    "evaluate",
    "fit",
    "info",
    "inspect",
    "mine",
    "planned",
    "prepare",
    "reproduce",
    "search",
    "sweep",
    "teach",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'remargin' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
