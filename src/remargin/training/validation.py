"""Validation while training: re-ranking a first stage's candidates for held-out queries."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from remargin.data.collection import Collection
from remargin.data.tokens import TokenStore
from remargin.evaluation.measures import evaluate, own_cutoff, require_measures
from remargin.evaluation.runs import Run
from remargin.losses.inputs import Similarity
from remargin.model.packing import Packed
from remargin.model.tokenizer import Tokens
from remargin.retrieval.candidates import candidates
from remargin.training.engine import Engine
from remargin.training.settings import FitSettings


class Validator:
    """Measures a model on a split's queries by re-ranking a first stage's candidates.

    All but the encoding is done once.

    Args:
        folder: what `prepare` wrote.
        split: the split to validate on.
        settings: measure, depth, and how many queries at most; they are drawn with the seed.
        first_stage: a run of these queries; without one, BM25's.
        also: measures beside the one that counts.
    """

    def __init__(
        self,
        folder: str | Path,
        split: str,
        settings: FitSettings,
        first_stage: Run | None = None,
        also: Sequence[str] = (),
    ) -> None:
        folder = Path(folder)
        self.measure = settings.validation_measure
        self._measures = [self.measure, *also]
        require_measures(self._measures)
        self._top = _top(self._measures)
        collection = Collection.load(folder, split).sample(settings.validation_queries, settings.seed)
        chosen, self._qrels = list(collection.queries), collection.qrels
        rankings = candidates(collection, settings.validation_depth, first_stage)
        self._candidates = {query: list(ranking) for query, ranking in rankings.items()}
        queries, documents = (TokenStore(folder / "tokens" / kind) for kind in ("queries", "documents"))
        needed = sorted({document for ranked in self._candidates.values() for document in ranked})
        self._texts = Tokens.together(
            [queries.take(queries.ids.rows(chosen)), documents.take(documents.ids.rows(needed))]
        )
        place = {document: len(chosen) + i for i, document in enumerate(needed)}
        self._rows = [
            torch.tensor([place[document] for document in ranked], dtype=torch.long)
            for ranked in self._candidates.values()
        ]
        self._parts: tuple[list[Packed], Tensor] | None = None

    def __call__(self, engine: Engine, similarity: Similarity) -> dict[str, float]:
        """The measures' means with the model as it is now. The texts are packed at the first call, and kept."""
        if self._parts is None:
            parts, order = engine.parts(self._texts)
            self._parts = parts, torch.from_numpy(np.argsort(order)).to(engine.device)
            self._rows = [rows.to(engine.device) for rows in self._rows]
        parts, back = self._parts
        vectors = engine.evaluate(parts)[back]
        if similarity == "cosine":
            vectors = nn.functional.normalize(vectors, dim=1)
        best = [
            (vectors[rows] @ vector).topk(min(len(rows), self._top))
            for vector, rows in zip(vectors, self._rows, strict=False)
        ]
        values = iter(torch.cat([top.values for top in best]).tolist())  # from here on, the device is waited for
        places = torch.cat([top.indices for top in best]).tolist()
        scores, start = {}, 0
        for (query, documents), top in zip(self._candidates.items(), best, strict=True):
            ranked = places[start : start + len(top.values)]
            scores[query] = {documents[place]: value for place, value in zip(ranked, values, strict=False)}
            start += len(ranked)
        return evaluate(Run.of(scores), self._qrels, self._measures).means


def _top(measures: Sequence[str]) -> int:
    """How many documents of a ranking these measures look at, and some more, in case of ties.

    >>> _top(["nDCG@10", "Success@100"]), _top(["nDCG@10", "IPrec@0.5"]) > 10**9
    (150, True)
    """
    cutoffs = [own_cutoff(name) for name in measures]
    return max(2**62 if cutoff is None else cutoff + 50 for cutoff in cutoffs)
