"""Validation while training: re-rank a first-stage run on held-out queries. All but the encoding is done once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from remargin.data.collection import Collection
from remargin.data.tokens import TokenStore
from remargin.errors import InputError
from remargin.evaluation.measures import evaluate
from remargin.evaluation.runs import Run
from remargin.losses import Similarity
from remargin.packing import Packed, together
from remargin.retrieval.search import search
from remargin.training.engine import Engine
from remargin.training.settings import FitSettings


class Validator:
    """Measures a model on a split's queries by re-ranking what a first stage found for them.

    Args:
        folder: what `prepare` wrote.
        split: the split to validate on.
        settings: measure, depth, and how many queries at most; they are drawn with the seed.
        first_stage: a run of these queries; without one, BM25's.
    """

    def __init__(self, folder: Path, split: str, settings: FitSettings, first_stage: Run | None = None) -> None:
        collection = Collection.load(folder, split)
        self.measure = settings.validation_measure
        chosen = list(collection.queries)
        if len(chosen) > settings.validation_queries:
            rng = np.random.default_rng(settings.seed)
            chosen = [chosen[i] for i in sorted(rng.choice(len(chosen), settings.validation_queries, replace=False))]
        collection.queries = {query: collection.queries[query] for query in chosen}
        self._qrels = {query: collection.qrels[query] for query in chosen}
        run = first_stage or search(collection, "bm25", k=settings.validation_depth)
        self._candidates = {query: run.top(query, settings.validation_depth) for query in chosen}
        if not any(self._candidates.values()):
            raise InputError("the first-stage run has none of the validation queries", do="give a run of that split")
        evaluate(Run.of({}), self._qrels, [self.measure])  # an unknown measure is an error now, not in an hour
        queries, documents = (TokenStore(folder / "tokens" / kind) for kind in ("queries", "documents"))
        needed = sorted({document for found in self._candidates.values() for document in found})
        document_rows = documents.ids.rows(needed)
        if (document_rows < 0).any():
            unknown = needed[int((document_rows < 0).argmax())]
            raise InputError(
                "the first-stage run has a document that is not in the collection", id=unknown, do="mend it"
            )
        self._texts = together([queries.take(queries.ids.rows(chosen)), documents.take(document_rows)])
        place = {document: len(chosen) + i for i, document in enumerate(needed)}
        self._rows = [torch.tensor([place[document] for document in found]) for found in self._candidates.values()]
        self._parts: tuple[list[Packed], Tensor] | None = None

    def __call__(self, engine: Engine, similarity: Similarity) -> float:
        """The measure's mean with the model as it is now. The texts are packed at the first call, and kept."""
        if self._parts is None:
            parts, order = engine.parts(self._texts)
            self._parts = parts, torch.from_numpy(np.argsort(order)).to(engine.device)
            self._rows = [rows.to(engine.device) for rows in self._rows]
        parts, back = self._parts
        vectors = engine.evaluate(parts)[back]
        if similarity == "cosine":
            vectors = nn.functional.normalize(vectors, dim=1)
        similarities = torch.cat([vectors[rows] @ vector for vector, rows in zip(vectors, self._rows, strict=False)])
        values = iter(similarities.tolist())  # the only time that the device is waited for
        scores = {query: dict(zip(found, values, strict=False)) for query, found in self._candidates.items()}
        return evaluate(Run.of(scores), self._qrels, [self.measure]).means[self.measure]
