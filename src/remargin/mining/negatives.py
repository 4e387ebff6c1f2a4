"""Triplets from judgments: negatives by BM25, at random, or from a model's own ranking."""

from __future__ import annotations

import hashlib
import json
import logging
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, get_args

import numpy as np

from remargin.data.collection import Collection, open_collection
from remargin.data.id_triplets import require_tsv
from remargin.errors import InputError, refuse_idle
from remargin.evaluation.runs import Run
from remargin.files.atomic import new_file, refuse_existing
from remargin.files.hashes import texts_fingerprint
from remargin.files.parts import Parts, resumable
from remargin.files.shapes import Count
from remargin.mining.false_negatives import SUSPICIOUS, Compared, Scored, most_suspicious, with_texts
from remargin.progress import track
from remargin.reports.suspicious import Suspicious, write_suspicious
from remargin.retrieval.encoders import as_encoder, given_texts
from remargin.retrieval.languages import AUTO, check_language

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from remargin.mining.similarity import DocumentVectors, Similarities
    from remargin.model.encoder import BiEncoder

log = logging.getLogger(__name__)
Negatives = Literal["bm25", "random", "model"]
QUERIES_AT_ONCE = 2000  # in each part of the work; a finished part is not repeated
FORMAT = "remargin-mining-3"


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


class MinedPart(TypedDict):
    """Triplets of some queries, as rows of ids; counts of what was drawn at random, lacks a ranking or was skipped."""

    rows: list[list[str]]
    filled: Count
    empty: Count
    skipped: Count
    suspicious: list[Scored]


@dataclass
class Mined:
    """Counts of the triplets that `mine` wrote.

    Attributes:
        triplets: triplets written.
        queries: queries that have a relevant document, and so triplets.
        filled_at_random: negatives that were drawn at random because the ranking had too few documents.
        without_ranking: queries whose ranking is empty, so that all their negatives are random.
        skipped: candidates that were left out because they score like the positive, counted for each positive.
        language: that BM25 split the texts into terms by; None if BM25 did not rank.
        suspicious: candidates that score at least as high as the best positive of their query, skipped or not, with
            the most suspicious first; only if `bound` or `suspicious` is given.
    """

    triplets: int
    queries: int
    filled_at_random: int
    without_ranking: int
    skipped: int = 0
    suspicious: list[Suspicious] = field(default_factory=list, repr=False)
    language: str | None = None


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
    bound: float | None = None,
    suspicious: str | Path | None = None,
    vectors: DocumentVectors | None = None,
    language: str = AUTO,
    query_length: int | None = None,
    document_length: int | None = None,
    query_prefix: str | None = None,
    document_prefix: str | None = None,
    pooling: str | None = None,
    similarity: str | None = None,
) -> Mined:
    """Write a table of training triplets for a collection's judgments, as ids: query, positive, and negatives.

    For each query and each of its positives, negatives are drawn from the best documents of a ranking. A document known
    to be relevant is never a negative. The same seed gives the same triplets. If interrupted, the next call continues
    with the queries that were not finished: the finished ones are in a folder beside `out` until all are there.

    Args:
        data: a collection, or what `Collection.load` takes.
        out: a .tsv file, gzipped if it ends in .gz.
        negatives: bm25, random, or model.
        model: an encoder, its folder or its hub name: its ranking is used with negatives="model", its similarities
            with a bound and for suspicious negatives.
        depth: negatives are drawn from this many best documents of the ranking.
        triplets: triplets for each query and positive.
        per_triplet: negatives in each triplet.
        seed: the random seed.
        split: the split to load; of a collection that is loaded already, its own.
        skip_bad: set bad input of the collection aside, count it, and continue.
        overwrite: replace `out` if it exists, and the list of suspicious negatives.
        bound: leave out candidates that the model scores above this share of the positive's similarity, such as 0.95:
            they may well be relevant. None leaves out nothing.
        suspicious: a JSON file to write, with the candidates that most look like false negatives.
        vectors: the documents' vectors by this model, if they were made before: `Vectors`, or ids and an array. They
            are not encoded again.
        language: of the texts, for BM25; see `BM25`.
        query_length, document_length, query_prefix, document_prefix, pooling, similarity: of the model, instead of its
            own.

    Raises:
        InputError: for bad input, a split without relevant documents, too few documents to draw negatives from, and for
            a model that is missing, not needed or a cross-encoder, and for vectors that are not the collection's.

    Example:
        >>> import tempfile
        >>> mined = mine("docstrings:json", Path(tempfile.mkdtemp()) / "triplets.tsv", negatives="random", triplets=2)
        >>> mined.triplets >= 2 * mined.queries > 0
        True
    """
    settings = MiningSettings(negatives, depth, triplets, per_triplet, seed, bound, language)
    compares = bound is not None or suspicious is not None
    encoder = _load(
        model, given_texts(query_length, document_length, query_prefix, document_prefix, pooling, similarity)
    )
    out = Path(out)
    require_tsv(out)
    refuse_existing(out, overwrite)
    _require_fitting(settings, compares, encoder, vectors)
    collection = open_collection(data, split, skip_bad)
    positives = {
        query: [document for document, grade in judged.items() if grade > 0]
        for query, judged in collection.qrels.items()
    }
    _leave_out(positives, {id for id, text in collection.documents.items() if not text.strip()})
    queries = [query for query, documents in positives.items() if documents]
    if not queries:
        raise InputError(f"split {collection.split!r} has no relevant documents", do="choose another split")
    chunks = [queries[i : i + QUERIES_AT_ONCE] for i in range(0, len(queries), QUERIES_AT_ONCE)]
    fingerprint = _fingerprint(collection, settings, compares, positives, encoder, vectors)
    with resumable(out, fingerprint, FORMAT, MinedPart) as parts:
        if suspicious is not None:
            refuse_existing(Path(suspicious), overwrite or parts.find(0) is not None)  # then it is from this very work
        candidates = _Candidates(collection, settings, compares, encoder, vectors)
        for number, chunk in enumerate(track(chunks, "mining", total=len(chunks))):
            if parts.find(number) is None:
                rng = np.random.default_rng([settings.seed, number])
                parts.write(number, candidates.triplets(chunk, positives, rng))
        numbers = range(len(chunks) if compares else 0)
        scored = [each for number in numbers for each in parts.read(number)["suspicious"]]
        found = [with_texts(collection, each) for each in most_suspicious(scored, SUSPICIOUS)]
        if suspicious is not None:
            write_suspicious(Path(suspicious), found)  # before the triplets, with which the work is done
        mined = Mined(0, len(queries), 0, 0, 0, found, candidates.language)
        return _join(out, parts, len(chunks), mined, settings, overwrite)


def _leave_out(positives: dict[str, list[str]], empty: set[str]) -> None:
    """Leave documents without text out of the positives: nothing can be learnt from them."""
    pairs = sum(document in empty for documents in positives.values() for document in documents)
    if pairs:
        log.warning("no triplets for relevant documents without text: %s", f"{pairs:,}")
        for query, documents in positives.items():
            positives[query] = [document for document in documents if document not in empty]


def _require_fitting(
    settings: MiningSettings, compares: bool, model: BiEncoder | None, vectors: DocumentVectors | None
) -> None:
    """Refuse a model that is missing or would not be used."""
    if model is None:
        if settings.negatives == "model":
            raise InputError("negatives from a model need one", do="give --model")
        if compares:
            raise InputError("similarities to the positive need an encoder", do="give --model")
        if vectors is not None:
            raise InputError("vectors, but no model that made them", do="give the model, too")
    elif settings.negatives != "model" and not compares:
        problem = "a model goes with negatives from a model, a bound or suspicious negatives only"
        raise InputError(problem, do="use --negatives model, or give --bound or --suspicious")
    elif settings.negatives == "random":
        raise InputError("random negatives are not compared with the positive", do="use --negatives bm25 or model")


def _load(model: str | Path | BiEncoder | None, texts: dict[str, Any]) -> BiEncoder | None:
    if model is None:
        refuse_idle("negatives without a model", texts)
        return None
    return as_encoder(model, **texts)


def _join(
    out: Path, parts: Parts[MinedPart], count: int, mined: Mined, settings: MiningSettings, overwrite: bool
) -> Mined:
    """Write the triplets of all parts to one table, and count them."""
    names = (
        [f"negative_id_{i + 1}" for i in range(settings.per_triplet)] if settings.per_triplet > 1 else ["negative_id"]
    )
    with new_file(out, overwrite) as file:
        file.write("\t".join(["query_id", "positive_id", *names]).encode() + b"\n")
        for number in range(count):
            part = parts.read(number)
            file.write("".join("\t".join(row) + "\n" for row in part["rows"]).encode())
            mined.triplets += len(part["rows"])
            mined.filled_at_random += part["filled"]
            mined.without_ranking += part["empty"]
            mined.skipped += part["skipped"]
    return mined


def _fingerprint(
    collection: Collection,
    settings: MiningSettings,
    compares: bool,
    positives: dict[str, list[str]],
    model: BiEncoder | None,
    vectors: DocumentVectors | None,
) -> str:
    """Names the folder of parts, so that only a call with the same input, settings and model continues with them."""
    known: list[Any] = [collection.name, collection.split, asdict(settings), compares, positives]
    known += [texts_fingerprint(collection.documents), texts_fingerprint(collection.queries)]
    if model is not None:
        known += [model.fingerprint(), model.query_length, model.document_length]
        known += [model.query_prefix, model.document_prefix]
    if vectors is not None:
        from remargin.mining.similarity import vectors_fingerprint

        known.append(vectors_fingerprint(vectors))
    return hashlib.blake2b(json.dumps(known).encode(), digest_size=8).hexdigest()


def require_ranked(mined: Mined) -> None:
    """Refuse triplets whose negatives were all drawn at random, although BM25 was to rank them.

    Raises:
        InputError: if BM25 found nothing for any query.
    """
    if mined.without_ranking == mined.queries:
        problem = f"BM25 finds nothing for any of the {mined.queries:,} training queries"
        do = "name the language of the texts (--language), or give --triplets with negatives that a model mined"
        raise InputError(problem, do=f"{do} (`remargin mine --negatives model`)")


class _Candidates:
    """Where negatives are drawn from."""

    def __init__(
        self,
        collection: Collection,
        settings: MiningSettings,
        compares: bool,
        model: BiEncoder | None,
        vectors: DocumentVectors | None,
    ) -> None:
        self._collection = collection
        self._settings = settings
        self._compares = compares
        self._ids = [id for id, text in collection.documents.items() if text.strip()]
        self._empty = collection.documents.keys() - self._ids  # neither positives nor negatives
        self._bm25 = None
        self._similar: Similarities | None = None
        if settings.negatives == "bm25":
            from remargin.retrieval.bm25 import BM25

            self._bm25 = BM25(collection.documents, language=settings.language)
        if model is not None:
            from remargin.mining.similarity import Similarities

            self._similar = Similarities(collection, model, vectors)

    @property
    def language(self) -> str | None:
        """The language of BM25's terms, if BM25 ranks."""
        return None if self._bm25 is None else self._bm25.language

    def triplets(self, queries: list[str], positives: dict[str, list[str]], rng: np.random.Generator) -> MinedPart:
        """The triplets of some queries."""
        texts = {query: self._collection.queries[query] for query in queries}
        vectors = None if self._similar is None else self._similar.encode(list(texts.values()))
        run = self._ranked(texts, vectors)
        part: MinedPart = {"rows": [], "filled": 0, "empty": len(run.empty()), "skipped": 0, "suspicious": []}
        found: list[Scored] = []
        for row, query in enumerate(queries):
            known = {*positives[query], *({query} & self._collection.self_matches)}  # nor is it its own negative
            pool = [d for d in run.top(query, self._settings.depth) if d not in known and d not in self._empty]
            compared = None
            if self._compares and self._similar is not None and vectors is not None:
                compared = Compared.of(self._similar, vectors[row], positives[query], pool)
                found += compared.suspicious(query)
            for number, positive in enumerate(positives[query]):
                kept = pool if compared is None else compared.allowed(number, self._settings.bound)
                skipped = {*pool}.difference(kept)
                part["skipped"] += len(skipped)
                for _ in range(self._settings.triplets):
                    part["rows"].append([query, positive, *self._negatives(kept, skipped, known, rng, part)])
        part["suspicious"] = most_suspicious(found, SUSPICIOUS)
        return part

    def _ranked(self, texts: dict[str, str], vectors: NDArray[np.float32] | None) -> Run:
        """The ranking of the queries that negatives are drawn from; empty for random ones."""
        if self._bm25 is not None:
            return self._bm25.search(texts, self._settings.depth)
        if self._similar is not None and vectors is not None:
            return self._similar.search(list(texts), vectors, self._settings.depth)
        return Run({})

    def _negatives(
        self, pool: list[str], skipped: set[str], known: set[str], rng: np.random.Generator, part: MinedPart
    ) -> list[str]:
        """The negatives of a triplet: from the pool, and what that lacks from the whole collection."""
        wanted = self._settings.per_triplet
        chosen = [pool[i] for i in rng.permutation(len(pool))[:wanted]] if pool else []
        lacking = wanted - len(chosen)
        if self._settings.negatives != "random":
            part["filled"] += lacking
        excluded = known.union(chosen)
        if len(self._ids) - len(excluded | skipped) >= lacking:  # else even what was skipped is better than nothing
            excluded |= skipped
        return chosen + self._random(lacking, excluded, rng)

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
