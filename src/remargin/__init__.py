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
    from remargin.integrations.exporting import export
    from remargin.losses.contrastive import ContrastiveLoss
    from remargin.losses.margin import MarginLoss
    from remargin.losses.matryoshka import MatryoshkaLoss
    from remargin.losses.softmax_margin import SoftmaxMarginLoss
    from remargin.mining.negatives import mine
    from remargin.model.encoder import BiEncoder
    from remargin.paper.benchmarking import benchmark
    from remargin.paper.pages import report
    from remargin.paper.running import planned, reproduce
    from remargin.reports.comparing import compare
    from remargin.retrieval.asking import ask
    from remargin.retrieval.collection_vectors import encode
    from remargin.retrieval.fusion import fuse
    from remargin.retrieval.indexing import index
    from remargin.retrieval.reranking import rerank
    from remargin.retrieval.searching import search
    from remargin.retrieval.updating import update
    from remargin.serving.server import serve
    from remargin.study.learning_curve import curve
    from remargin.study.sweeping import sweep
    from remargin.teacher.teaching import teach
    from remargin.training.blending import blend
    from remargin.training.fitting import fit
    from remargin.training.inspection import inspect
    from remargin.training.loop import train
    from remargin.training.settings import FitSettings
    from remargin.training.streaming.learning import stream
    from remargin.training.validation import Validator
    from remargin.versions import info

__version__ = "0.2.0"

_HOMES = {
    "BiEncoder": "remargin.model.encoder",
    "Collection": "remargin.data.collection",
    "ContrastiveLoss": "remargin.losses.contrastive",
    "FitSettings": "remargin.training.settings",
    "InputError": "remargin.errors",
    "MarginLoss": "remargin.losses.margin",
    "MatryoshkaLoss": "remargin.losses.matryoshka",
    "Run": "remargin.evaluation.runs",
    "SoftmaxMarginLoss": "remargin.losses.softmax_margin",
    "Triplets": "remargin.data.triplets",
    "Validator": "remargin.training.validation",
    "ask": "remargin.retrieval.asking",
    "benchmark": "remargin.paper.benchmarking",
    "blend": "remargin.training.blending",
    "compare": "remargin.reports.comparing",
    "curve": "remargin.study.learning_curve",
    "demo": "remargin.demos.fine_tuning",
    "encode": "remargin.retrieval.collection_vectors",
    "evaluate": "remargin.evaluation.measures",
    "export": "remargin.integrations.exporting",
    "fit": "remargin.training.fitting",
    "fuse": "remargin.retrieval.fusion",
    "index": "remargin.retrieval.indexing",
    "info": "remargin.versions",
    "inspect": "remargin.training.inspection",
    "mine": "remargin.mining.negatives",
    "planned": "remargin.paper.running",
    "prepare": "remargin.data.preparation",
    "report": "remargin.paper.pages",
    "reproduce": "remargin.paper.running",
    "rerank": "remargin.retrieval.reranking",
    "search": "remargin.retrieval.searching",
    "serve": "remargin.serving.server",
    "stream": "remargin.training.streaming.learning",
    "sweep": "remargin.study.sweeping",
    "teach": "remargin.teacher.teaching",
    "train": "remargin.training.loop",
    "update": "remargin.retrieval.updating",
}

__all__ = [
    "BiEncoder",
    "Collection",
    "ContrastiveLoss",
    "FitSettings",
    "InputError",
    "MarginLoss",
    "MatryoshkaLoss",
    "Run",
    "SoftmaxMarginLoss",
    "Triplets",
    "Validator",
    "ask",
    "benchmark",
    "blend",
    "compare",
    "curve",
    "demo",
    "encode",
    "evaluate",
    "export",
    "fit",
    "fuse",
    "index",
    "info",
    "inspect",
    "mine",
    "planned",
    "prepare",
    "report",
    "reproduce",
    "rerank",
    "search",
    "serve",
    "stream",
    "sweep",
    "teach",
    "train",
    "update",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'remargin' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
