"""Triplets from judgments: negatives by BM25, at random, or from a model's own ranking."""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remargin.data.collection import Collection, open_collection
from remargin.data.id_triplets import require_tsv
from remargin.data.source import Text
from remargin.errors import InputError, refuse_idle
from remargin.files.atomic import new_file, refuse_existing
from remargin.files.executor import Executor, InThisProcess
from remargin.files.hashes import texts_fingerprint
from remargin.files.parts import Parts, resumable
from remargin.mining.candidates import DrawNegatives, MinedPart, Queries
from remargin.mining.false_negatives import SUSPICIOUS, most_suspicious, with_texts
from remargin.mining.settings import MiningSettings, Negatives
from remargin.progress import track
from remargin.reports.suspicious import Suspicious, write_suspicious
from remargin.retrieval.encoders import as_encoder, for_workers, given_texts
from remargin.retrieval.languages import AUTO, choose_language

if TYPE_CHECKING:
    from remargin.mining.similarity import DocumentVectors
    from remargin.model.encoder import BiEncoder

log = logging.getLogger(__name__)
QUERIES_AT_ONCE = 2000  # in each part of the work; a finished part is not repeated
FORMAT = "remargin-mining-3"


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
    executor: Executor | None = None,
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
        executor: where to encode and rank, such as a `RayExecutor`, whose workers must see the folder of `out`; in this
            process, if not given. The triplets are the same.

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
        todo = [Queries(number, chunk) for number, chunk in enumerate(chunks) if parts.find(number) is None]
        made: DocumentVectors | Path | None = vectors
        if executor is not None and encoder is not None and vectors is None and todo:
            made = _encode_documents(collection, encoder, parts.folder / "vectors", executor)
        executor = executor or InThisProcess()
        chosen: str | None = None
        encoder = None if encoder is None else for_workers(encoder, executor)
        start = DrawNegatives(collection, settings, compares, positives, encoder, made)
        for number, part, chosen in track(executor.run(start, todo), "mining", total=len(todo)):  # noqa: B007
            parts.write(number, part)
        if chosen is None and settings.negatives == "bm25":  # all parts were there already
            chosen = choose_language(settings.language, collection.documents.values())
        numbers = range(len(chunks) if compares else 0)
        scored = [each for number in numbers for each in parts.read(number)["suspicious"]]
        found = [with_texts(collection, each) for each in most_suspicious(scored, SUSPICIOUS)]
        if suspicious is not None:
            write_suspicious(Path(suspicious), found)  # before the triplets, with which the work is done
        mined = Mined(0, len(queries), 0, 0, 0, found, chosen)
        return _join(out, parts, len(chunks), mined, settings, overwrite)


def _encode_documents(collection: Collection, model: BiEncoder, folder: Path, executor: Executor) -> Path:
    """A folder with the vectors of a collection's documents, encoded in blocks like those of `encode_documents`."""
    from remargin.model.encoder import TEXTS_AT_ONCE
    from remargin.retrieval.shards import encode_shards
    from remargin.retrieval.vectors import HEADER, Vectors

    if (folder / HEADER).is_file():
        Vectors.load(folder)
    else:
        texts = (Text(id, text) for id, text in collection.documents.items())
        encode_shards(model, texts, folder, executor, size=TEXTS_AT_ONCE, at_once=TEXTS_AT_ONCE)
    return folder


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
