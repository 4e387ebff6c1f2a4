"""Scores of pairs by a cross-encoder, a part of them at a time, by the workers of an executor."""

from __future__ import annotations

import hashlib
import itertools
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypedDict

import numpy as np
from numpy.typing import ArrayLike, NDArray

from remargin.data.collection import Collection
from remargin.data.id_triplets import IdTriplets
from remargin.data.tables import Rejects
from remargin.errors import InputError
from remargin.files.executor import Executor, InThisProcess, Work
from remargin.files.parts import Parts, resumable
from remargin.files.shapes import Count
from remargin.model.cross_encoder import CrossEncoder, Pair
from remargin.model.tokenizer import LONGER
from remargin.progress import track
from remargin.retrieval.encoders import for_workers

FORMAT = "remargin-teaching-2"
PAIRS_AT_ONCE = 16_384  # in each part of the work, which is not done again once it is done


class TaughtPart(TypedDict):
    """Scores of a part of the pairs, how many of their documents were truncated, and how long scoring took."""

    scores: list[float]
    truncated: Count
    seconds: float


@dataclass
class ScoredPairs:
    """The distinct pairs of triplets, with their scores.

    Attributes:
        keys: what pairs they are, as `IdTriplets.keys` has them, ascending.
        scores: of each; NaN where there is none.
        truncated: pairs whose document was truncated.
        seconds_before: what earlier calls, which were interrupted, spent on them.
    """

    keys: NDArray[np.uint64]
    scores: NDArray[np.float32]
    truncated: int = 0
    seconds_before: float = 0.0

    @classmethod
    def of(cls, table: IdTriplets) -> ScoredPairs:
        """Those of some triplets, none of them scored yet."""
        keys = np.unique(table.keys())
        return cls(keys, np.full(len(keys), np.nan, np.float32))

    def blocks(self) -> list[slice]:
        """Where the parts of the work begin and end."""
        starts = range(0, len(self.keys), PAIRS_AT_ONCE)
        return [slice(start, min(start + PAIRS_AT_ONCE, len(self.keys))) for start in starts]

    def take(self, block: slice, scores: ArrayLike, truncated: int) -> None:
        """Take in the scores of a block."""
        self.scores[block] = scores
        self.truncated += truncated


class ByModel:
    """Scores by a cross-encoder, a part of the pairs at a time, each of which is kept on disk until all are there."""

    def __init__(self, model: CrossEncoder, collection: Collection, executor: Executor | None = None) -> None:
        self.name = model.name
        self.training_seconds = model.trained.get("seconds") if model.trained else None
        self._model = model
        self._collection = collection
        self._executor = executor or InThisProcess()

    def fingerprint(self) -> str:
        """That of the model."""
        return self._model.fingerprint()

    def read(self, path: Path, rejects: Rejects) -> IdTriplets:
        """The triplets whose queries leave room for a document."""
        return readable_triplets(path, self._model, self._collection, rejects)

    @contextmanager
    def scored(self, table: IdTriplets, out: Path, rejects: Rejects) -> Iterator[ScoredPairs]:
        """The distinct pairs with their scores; the parts go when the block ends well."""
        pairs = ScoredPairs.of(table)
        queries = [self._collection.queries[id] for id in table.queries]
        documents = [self._collection.documents[id] for id in table.documents]
        with resumable(out, self._work(pairs, queries, documents), FORMAT, TaughtPart) as parts:
            self._score(pairs, queries, documents, parts)
            yield pairs

    def _work(self, pairs: ScoredPairs, queries: list[str], documents: list[str]) -> str:
        """A hash of the teacher, the texts and the pairs: only work on the same ones is continued."""
        known = f"{self.fingerprint()} {PAIRS_AT_ONCE}"
        if self._executor.device not in (None, self._model.device.type):  # whose precision is another one
            known += f" {self._executor.device}"
        digest = hashlib.blake2b(known.encode(), digest_size=8)
        for text in itertools.chain(queries, documents):
            digest.update(text.encode() + b"\0")
        digest.update(pairs.keys.tobytes())
        return digest.hexdigest()

    def _score(self, pairs: ScoredPairs, queries: list[str], documents: list[str], parts: Parts[TaughtPart]) -> None:
        """Take over the parts that are done already, and score the others."""
        todo = {}
        for number, place in enumerate(pairs.blocks()):
            part = parts.find(number)
            if part is None or len(part["scores"]) != place.stop - place.start:
                todo[number] = place
            else:
                pairs.take(place, part["scores"], part["truncated"])
                pairs.seconds_before += part["seconds"]
        before = time.perf_counter()
        blocks = (Block(number, _texts(pairs.keys[place], queries, documents)) for number, place in todo.items())
        scored = self._executor.run(ScoreBlocks(for_workers(self._model, self._executor)), blocks)
        for block in track(scored, f"scoring pairs ({PAIRS_AT_ONCE:,} at a time)", total=len(todo)):
            now = time.perf_counter()
            part = {"scores": block.scores.tolist(), "truncated": block.truncated, "seconds": now - before}
            parts.write(block.number, part)
            pairs.take(todo[block.number], block.scores, block.truncated)
            before = now


class Block(NamedTuple):
    """Pairs to score together."""

    number: int
    pairs: list[Pair]


class ScoredBlock(NamedTuple):
    """The scores of a block, and how many of its documents were truncated."""

    number: int
    scores: NDArray[np.float32]
    truncated: int


@dataclass(frozen=True)
class ScoreBlocks:
    """Scores blocks of pairs."""

    model: CrossEncoder

    def __call__(self, device: str | None) -> Work[Block, ScoredBlock]:
        """What a worker does with blocks."""
        if device is not None:
            self.model.to(device)
        return self._scored

    def _scored(self, blocks: Iterable[Block]) -> Iterator[ScoredBlock]:
        numbers: deque[int] = deque()

        def pairs() -> Iterator[list[Pair]]:  # taken ahead of the scores, from another thread
            for number, texts in blocks:
                numbers.append(number)
                yield texts

        for scored in self.model.score_blocks(pairs()):
            yield ScoredBlock(numbers.popleft(), *scored)


def _texts(keys: NDArray[np.uint64], queries: list[str], documents: list[str]) -> list[Pair]:
    """The texts of pairs, which are given by their keys."""
    rows = (side.tolist() for side in np.divmod(keys, np.uint64(len(documents))))
    return [(queries[query], documents[document]) for query, document in zip(*rows, strict=True)]


def readable_triplets(path: Path, model: CrossEncoder, collection: Collection, rejects: Rejects) -> IdTriplets:
    """The triplets of a table, without those whose query leaves a cross-encoder no room for a document.

    These, and whatever else is wrong with the table, go to `rejects`.
    """
    table = IdTriplets.read(path, rejects, collection)
    too_long = set(model.too_long({id: collection.queries[id] for id in table.queries}))
    fits = np.array([id not in too_long for id in table.queries])[table.rows[:, 0]]
    queries = list(table.queries)
    for row in np.flatnonzero(~fits).tolist():
        problem = f"query leaves no room for a document in {model.length} tokens"
        id = queries[table.rows[row, 0]]
        rejects.add(InputError(problem, file=path, line=int(table.lines[row]), id=id, do=LONGER))
    return table.keep(fits, rejects)
