"""Validation while training: re-rank a first-stage run on held-out queries. All but the encoding is done once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import nn

from remargin.data.collection import Collection
from remargin.data.tokens import TokenStore
from remargin.encoder import BiEncoder
from remargin.errors import InputError
from remargin.evaluation.measures import evaluate
from remargin.evaluation.runs import Run
from remargin.retrieval.search import search
from remargin.training.batches import embed
from remargin.training.settings import FitSettings

TEXTS_AT_ONCE = 512


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
        self._queries, self._documents = (TokenStore(folder / "tokens" / kind) for kind in ("queries", "documents"))
        needed = sorted({document for found in self._candidates.values() for document in found})
        self._query_rows = self._queries.ids.rows(chosen)
        self._document_rows = self._documents.ids.rows(needed)
        if (self._document_rows < 0).any():
            unknown = needed[int((self._document_rows < 0).argmax())]
            raise InputError(
                "the first-stage run has a document that is not in the collection", id=unknown, do="mend it"
            )
        self._place = {document: i for i, document in enumerate(needed)}

    def __call__(self, module: nn.Module, model: BiEncoder, device: torch.device) -> float:
        """The measure's mean with the model as it is now."""
        queries = self._vectors(module, model, self._queries, self._query_rows, device)
        documents = self._vectors(module, model, self._documents, self._document_rows, device)
        scores = {}
        for vector, (query, found) in zip(queries, self._candidates.items(), strict=True):
            similarities = documents[[self._place[document] for document in found]] @ vector
            scores[query] = dict(zip(found, similarities.tolist(), strict=True))
        return evaluate(Run.of(scores), self._qrels, [self.measure]).means[self.measure]

    def _vectors(
        self, module: nn.Module, model: BiEncoder, store: TokenStore, rows: np.ndarray, device: torch.device
    ) -> torch.Tensor:
        order = np.argsort(store.lengths(rows), kind="stable")  # texts of one length together
        parts = []
        with torch.inference_mode():
            for start in range(0, len(rows), TEXTS_AT_ONCE):
                parts.append(embed(module, model, store, rows[order[start : start + TEXTS_AT_ONCE]], device).float())
            vectors = torch.cat(parts)[torch.from_numpy(np.argsort(order)).to(device)]
        return nn.functional.normalize(vectors, dim=1) if model.similarity == "cosine" else vectors
