"""How negatives are chosen."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from remargin.errors import InputError, refuse_idle
from remargin.retrieval.languages import AUTO, check_language

Negatives = Literal["bm25", "random", "model"]


@dataclass(frozen=True)
class MiningSettings:
    """How negatives are chosen; see `mine`.

    For each query and each of its positives, `triplets` triplets with `per_triplet` negatives each are drawn from the
    `depth` best documents of the ranking, except those known to be relevant. With a `bound`, documents are left out
    that an encoder scores above `bound` times the positive's similarity; see `highest_allowed`. If too few are left,
    the rest is drawn at random from the whole collection.

    Example:
        >>> HARD
        MiningSettings(negatives='model', depth=50, triplets=1, per_triplet=1, seed=0, bound=0.95, language='auto')
    """

    negatives: Negatives = "bm25"
    depth: int = 1000
    triplets: int = 1
    per_triplet: int = 1
    seed: int = 0
    bound: float | None = None
    language: str = AUTO

    def __post_init__(self) -> None:
        if self.negatives not in get_args(Negatives):
            raise InputError(f"unknown negatives {self.negatives!r}", do=f"use {', '.join(get_args(Negatives))}")
        for name in ("depth", "triplets", "per_triplet"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, not {getattr(self, name)}", do="choose a larger number")
        if self.language != AUTO:
            check_language(self.language)
            refuse_idle("negatives that BM25 does not rank", [] if self.negatives == "bm25" else ["language"])
        if not 0 <= self.seed < 2**63:
            raise InputError(f"seed is {self.seed}", do="it must be at least 0 and below 2**63")
        if self.bound is not None:
            if not 0 < self.bound < math.inf:
                raise InputError(f"bound is {self.bound}", do="it must be a number above 0, such as 0.95")
            refuse_idle("random negatives", ["bound"] if self.negatives == "random" else [])


# Negatives for a second round, by the model of the first: `mine(data, out, model=model, **asdict(HARD))`.
HARD = MiningSettings("model", depth=50, bound=0.95)
