"""Triplets from judgments: negatives by BM25, at random, or from a model's own ranking."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, get_args

import numpy as np

from remargin.data.collection import Collection, open_collection
from remargin.data.id_triplets import require_tsv
from remargin.errors import InputError
from remargin.evaluation.runs import Run
from remargin.files.atomic import new_file, refuse_existing
from remargin.files.hashes import texts_fingerprint
from remargin.files.parts import Parts, resumable
from remargin.files.shapes import Count
from remargin.progress import track

if TYPE_CHECKING:
    from remargin.model.encoder import BiEncoder

Negatives = Literal["bm25", "random", "model"]
QUERIES_AT_ONCE = 2000  # in each part of the work; a finished part is not repeated
FORMAT = "remargin-mining-2"


@dataclass(frozen=True)
class MiningSettings:
    """How negatives are chosen; see `mine`.

    For each query and each of its positives, `triplets` triplets with `per_triplet` negatives each are drawn from the
    `depth` best documents of the ranking, except those known to be relevant. If these are too few, the rest is drawn
    at random from the whole collection.
    """

    negatives: Negatives = "bm25"
    depth: int = 1000
    triplets: int = 1
    per_triplet: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        if self.negatives not in get_args(Negatives):
            raise InputError(f"unknown negatives {self.negatives!r}", do=f"use {', '.join(get_args(Negatives))}")
        for name in ("depth", "triplets", "per_triplet"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, not {getattr(self, name)}", do="choose a larger number")
        if not 0 <= self.seed < 2**63:
            raise InputError(f"seed is {self.seed}", do="it must be at least 0 and below 2**63")


class MinedPart(TypedDict):
    """Triplets of some queries, as rows of ids; negatives that were drawn at random, and queries without a ranking."""

    rows: list[list[str]]
    filled: Count
    empty: Count


@dataclass
class Mined:
    """Counts of the triplets that `mine` wrote.

    Attributes:
        triplets: triplets written.
        queries: queries that have a relevant document, and so triplets.
        filled_at_random: negatives that were drawn at random because the ranking had too few documents.
        without_ranking: queries whose ranking is empty, so that all their negatives are random.
    """

    triplets: int
    queries: int
    filled_at_random: int
    without_ranking: int


def mine(
    data: str | Path | Collection,
    out: str | Path,
    negatives: Negatives = "bm25",
    model: str | Path | BiEncoder | None = None,
    depth: int = 1000,
    triplets: int = 1,
    per_triplet: int = 1,
    seed: int = 0,
    split: str = "train",
    skip_bad: bool = False,
    overwrite: bool = False,
) -> Mined:
    """Write a table of training triplets for a collection's judgments, as ids: query, positive, and negatives.

    For each query and each of its positives, negatives are drawn from the best documents of a ranking. A document known
    to be relevant is never a negative. The same seed gives the same triplets. If interrupted, the next call continues
    with the queries that were not finished: the finished ones are in a folder beside `out` until all are there.

    Args:
        data: a collection, or what `Collection.load` takes.
        out: a .tsv file, gzipped if it ends in .gz.
        negatives: bm25, random, or model.
        model: the encoder whose ranking is used, with negatives="model": a folder, a hub name, or an encoder.
        depth: negatives are drawn from this many best documents of the ranking.
        triplets: triplets for each query and positive.
        per_triplet: negatives in each triplet.
        seed: the random seed.
        split: the split to load; of a collection that is loaded already, its own.
        skip_bad: set bad input of the collection aside, count it, and continue.
        overwrite: replace `out` if it exists.

    Raises:
        InputError: for bad input, a split without relevant documents, too few documents to draw negatives from, and for
            a model that is missing, not needed or a cross-encoder.

    Example:
        >>> import tempfile
        >>> mined = mine("docstrings:json", Path(tempfile.mkdtemp()) / "triplets.tsv", negatives="random", triplets=2)
        >>> mined.triplets >= 2 * mined.queries > 0
        True
    """
    settings = MiningSettings(negatives, depth, triplets, per_triplet, seed)
    encoder = _load(model)
    out = Path(out)
    require_tsv(out)
    refuse_existing(out, overwrite)
    if negatives == "model" and model is None:
        raise InputError("negatives from a model need one", do="give --model")
    if negatives != "model" and model is not None:
        raise InputError("a model goes with negatives from a model only", do="use --negatives model")
    collection = open_collection(data, split, skip_bad)
    positives = {
        query: [document for document, grade in judged.items() if grade > 0]
        for query, judged in collection.qrels.items()
    }
    queries = [query for query, documents in positives.items() if documents]
    if not queries:
        raise InputError(f"split {collection.split!r} has no relevant documents", do="choose another split")
    chunks = [queries[i : i + QUERIES_AT_ONCE] for i in range(0, len(queries), QUERIES_AT_ONCE)]
    with resumable(out, _fingerprint(collection, settings, positives, encoder), FORMAT, MinedPart) as parts:
        candidates = _Candidates(collection, settings, encoder)
        for number, chunk in enumerate(track(chunks, "mining", total=len(chunks))):
            if parts.find(number) is None:
                rng = np.random.default_rng([settings.seed, number])
                parts.write(number, candidates.triplets(chunk, positives, rng))
        return _join(out, parts, len(chunks), len(queries), settings, overwrite)


def _load(model: str | Path | BiEncoder | None) -> BiEncoder | None:
    if model is None:
        return None
    from remargin.model.loading import load_encoder  # needs torch, which BM25's negatives do not

    return load_encoder(model)


def _join(
    out: Path, parts: Parts[MinedPart], count: int, queries: int, settings: MiningSettings, overwrite: bool
) -> Mined:
    """Write the triplets of all parts to one table."""
    names = (
        [f"negative_id_{i + 1}" for i in range(settings.per_triplet)] if settings.per_triplet > 1 else ["negative_id"]
    )
    mined = Mined(0, queries, 0, 0)
    with new_file(out, overwrite) as file:
        file.write("\t".join(["query_id", "positive_id", *names]).encode() + b"\n")
        for number in range(count):
            part = parts.read(number)
            file.write("".join("\t".join(row) + "\n" for row in part["rows"]).encode())
            mined.triplets += len(part["rows"])
            mined.filled_at_random += part["filled"]
            mined.without_ranking += part["empty"]
    return mined


def _fingerprint(
    collection: Collection, settings: MiningSettings, positives: dict[str, list[str]], model: BiEncoder | None
) -> str:
    """Names the folder of parts, so that only a call with the same input, settings and model continues with them."""
    known: list[Any] = [collection.name, collection.split, asdict(settings), positives]
    known += [texts_fingerprint(collection.documents), texts_fingerprint(collection.queries)]
    if model is not None:
        known += [model.fingerprint(), model.query_length, model.document_length]
        known += [model.query_prefix, model.document_prefix]
    return hashlib.blake2b(json.dumps(known).encode(), digest_size=8).hexdigest()


def require_ranked(mined: Mined) -> None:
    """Refuse triplets whose negatives were all drawn at random, although BM25 was to rank them.

    Raises:
        InputError: if BM25 found nothing for any query.
    """
    from remargin.retrieval.bm25 import NO_SPACES

    if mined.without_ranking == mined.queries:
        problem = f"BM25 finds nothing for any of the {mined.queries:,} training queries; {NO_SPACES}"
        do = "mine negatives with a model (`remargin mine --negatives model`), and give them with --triplets"
        raise InputError(problem, do=do)


class _Candidates:
    """Where negatives are drawn from."""

    def __init__(self, collection: Collection, settings: MiningSettings, model: BiEncoder | None) -> None:
        self._collection = collection
        self._settings = settings
        self._model = model
        self._ids = list(collection.documents)
        self._search = None
        if settings.negatives == "bm25":
            from remargin.retrieval.bm25 import BM25

            self._search = BM25(collection.documents).search
        elif model is not None:
            from remargin.retrieval.dense import DenseIndex
            from remargin.retrieval.vectors import Vectors

            self._search = DenseIndex(model, Vectors.of(model, collection.documents)).search

    def triplets(self, queries: list[str], positives: dict[str, list[str]], rng: np.random.Generator) -> MinedPart:
        """The triplets of some queries."""
        texts = {query: self._collection.queries[query] for query in queries}
        run = Run({}) if self._search is None else self._search(texts, self._settings.depth)
        rows, filled = [], 0
        wanted = self._settings.per_triplet
        for query in queries:
            known = {*positives[query], *({query} & self._collection.self_matches)}  # nor is it its own negative
            pool = [document for document in run.top(query, self._settings.depth) if document not in known]
            for positive in positives[query]:
                for _ in range(self._settings.triplets):
                    chosen = [pool[i] for i in rng.permutation(len(pool))[:wanted]] if pool else []
                    if self._search is not None:
                        filled += wanted - len(chosen)
                    chosen += self._random(wanted - len(chosen), known | set(chosen), rng)
                    rows.append([query, positive, *chosen])
        return {"rows": rows, "filled": filled, "empty": len(run.empty())}

    def _random(self, count: int, excluded: set[str], rng: np.random.Generator) -> list[str]:
        if count and len(self._ids) - len(excluded) < count:
            problem = "the collection has too few documents to draw negatives from"
            raise InputError(problem, file=self._collection.name, do="ask for fewer negatives, or add documents")
        return list(self._draw(count, excluded, rng))

    def _draw(self, count: int, excluded: set[str], rng: np.random.Generator) -> Iterator[str]:
        drawn: set[str] = set()
        while len(drawn) < count:
            document = self._ids[rng.integers(len(self._ids))]
            if document not in excluded and document not in drawn:
                drawn.add(document)
                yield document
