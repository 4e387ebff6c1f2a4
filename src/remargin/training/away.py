"""What a training run cost elsewhere: the encoder before and after, on texts that it was not trained on."""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from remargin.data.collection import Collection, open_source
from remargin.data.preparation import MARKER, read_prepared
from remargin.data.source import checked_texts
from remargin.data.splits import normalised
from remargin.data.tables import Rejects
from remargin.errors import InputError
from remargin.evaluation.measures import evaluate, own_cutoff, require_measures
from remargin.evaluation.runs import Run
from remargin.evaluation.significance import paired_bootstrap
from remargin.files.atomic import on_disk
from remargin.model.encoder import BiEncoder
from remargin.model.tokenizer import Tokens
from remargin.progress import track
from remargin.reports.run_files import AGREEMENT, NEIGHBOURS, elsewhere_words
from remargin.retrieval.exact import top_k

STDLIB = "docstrings:stdlib"
# So many take some seconds for an encoder of MiniLM's size on two cores.
QUERIES, DOCUMENTS, PARAGRAPHS = 200, 1_000, 1_000
FEWEST_TEXTS = 30  # with fewer, nearly every other text is a neighbour
SHORTEST = 12  # of a paragraph, in words
FROM_ONE_PLACE = 40  # paragraphs at most of one topic or one distribution: some have hundreds
DEPTH = 1000  # documents ranked for a measure without a cutoff
TEXTS_AT_ONCE = 2048


@dataclass(frozen=True)
class AwayOutcome:
    """What training cost elsewhere.

    Attributes:
        what: the texts, in words.
        measure: a measure of rankings; or the agreement of nearest neighbours, which is 1 before training.
        queries: how many; of unlabelled texts, how many texts.
        before, after: the measure's means.
        difference, low, high: after - before, and the ends of its 95% bootstrap interval.

    Example:
        >>> print(AwayOutcome("docstrings", "nDCG@10", 200, 0.412, 0.405, -0.007, -0.021, 0.006).line())
        elsewhere (docstrings, 200 queries): nDCG@10 0.412 before, 0.405 after (-0.007, -0.021 to 0.006)
    """

    what: str
    measure: str
    queries: int
    before: float
    after: float
    difference: float
    low: float
    high: float

    def line(self) -> str:
        """The outcome in one line."""
        return elsewhere_words(asdict(self))  # type: ignore[arg-type]


class AwayMeasured(NamedTuple):
    """One encoder elsewhere: the measure for each query, or the nearest neighbours of each text."""

    per_query: dict[str, float]
    neighbours: dict[str, set[str]]


class Away:
    """A small collection, or unlabelled texts, on which to measure what an encoder forgets.

    Texts are tokenised once for all encoders that have the same tokenizer.

    Args:
        what: the texts, in words.
        collection: documents, queries and judgments; without queries, nearest neighbours among its documents are
            compared.
        by: the measure, if there are queries.

    Example:
        >>> away = Away("docstrings of json", Collection.load("docstrings:json"))
        >>> model = BiEncoder.from_pretrained(model_folder)
        >>> before, after = away.measure(model), away.measure(model)
        >>> away.compare(before, after).difference
        0.0
    """

    def __init__(self, what: str, collection: Collection, by: str = "nDCG@10") -> None:
        self.what, self.collection = what, collection
        self.by = by if collection.queries else AGREEMENT
        self._tokenised: tuple[str, Tokens, Tokens] | None = None

    @classmethod
    def choose(
        cls, home: str | Path, also: str | None = None, seed: int = 0, by: str = "nDCG@10", skip_bad: bool = False
    ) -> Away | None:
        """Where to measure forgetting: the collection that is asked for, or texts that every machine has.

        These are docstrings of the standard library. Where home is made of docstrings itself, they are paragraphs of
        Python's reference and of the descriptions of installed distributions, which have no judgments: there the share
        of nearest neighbours that stay the same is measured. None if this machine has too few of either.

        Args:
            home: what the encoder is trained on, as `Collection.load` takes it.
            also: the collection to measure on instead, on its test split.
            seed: draws queries, documents and paragraphs.
            by: the measure of rankings.
            skip_bad: set bad input of `also` aside.

        Raises:
            InputError: if `also` has no test split or bad input, and for an unknown measure.

        Example:
            >>> Away.choose("docstrings:json").by, Away.choose("pairs:faq.csv", "docstrings:csv,json").by
            ('agreement of 10 nearest neighbours', 'nDCG@10')
        """
        require_measures([by])
        if also is not None:
            return cls(also, _asked(also, skip_bad), by)
        if not made_of_docstrings(home):
            try:
                return cls("docstrings of the standard library", standard_library(seed), by)
            except InputError:  # a Python without its sources
                pass
        texts = paragraphs(seed)
        if len(texts) < FEWEST_TEXTS:
            return None
        what = "paragraphs of Python's reference and of package descriptions"
        return cls(what, Collection("paragraphs", "test", texts, {}, {}))

    def measure(self, model: BiEncoder) -> AwayMeasured:
        """Rank all documents for every query; or find the nearest neighbours of every text."""
        queries, documents = self._tokens(model)
        vectors = _encode(model, documents, self.what)
        ids = list(self.collection.documents)
        if not self.collection.queries:
            return AwayMeasured({}, nearest_neighbours(dict(zip(ids, vectors, strict=True)), NEIGHBOURS))
        depth = (own_cutoff(self.by) or DEPTH) + 1  # a query may find itself, which does not count
        scores, rows = top_k(_encode(model, queries, self.what), vectors, depth, model.device)
        run = Run.of(
            {
                query: {ids[place]: score for place, score in zip(found, of, strict=True)}
                for query, found, of in zip(self.collection.queries, rows.tolist(), scores.tolist(), strict=True)
            }
        )
        return AwayMeasured(evaluate(run, self.collection, [self.by]).per_query[self.by], {})

    def compare(self, before: AwayMeasured, after: AwayMeasured) -> AwayOutcome:
        """What became of the measure, with a paired bootstrap interval over queries or texts."""
        first, then = before.per_query, after.per_query
        if not self.collection.queries:
            first = dict.fromkeys(before.neighbours, 1.0)
            then = agreement(before.neighbours, after.neighbours)
        change = paired_bootstrap(then, first)
        means = fmean(first.values()), fmean(then.values())
        return AwayOutcome(self.what, self.by, len(first), *means, change.mean, change.low, change.high)

    def tokens(self, model: BiEncoder) -> int:
        """How many tokens are encoded to measure a model."""
        return sum(int(texts.lengths.sum()) for texts in self._tokens(model))

    def _tokens(self, model: BiEncoder) -> tuple[Tokens, Tokens]:
        """Queries and documents as tokens, made anew only for another tokenizer or other lengths and prefixes."""
        settings = model.text_settings
        made = f"{model.tokenizer.fingerprint} {settings}"
        if self._tokenised is None or self._tokenised[0] != made:
            (query_length, query_prefix), (length, prefix) = settings.of("queries"), settings.of("documents")
            queries = [query_prefix + text for text in self.collection.queries.values()]
            documents = [prefix + text for text in self.collection.documents.values()]
            in_tokens = model.tokenizer(queries, query_length)[0], model.tokenizer(documents, length)[0]
            self._tokenised = made, *in_tokens
        return self._tokenised[1:]


def made_of_docstrings(home: str | Path) -> bool:
    """Whether a collection is made of docstrings, also if `prepare` wrote it into a folder.

    >>> made_of_docstrings("docstrings:numpy"), made_of_docstrings("pairs:faq.csv")
    (True, False)
    """
    data = str(home)
    for _ in range(8):  # a prepared folder may be prepared again
        folder = on_disk(data)
        if folder is None or not (folder / MARKER).is_file():
            break
        data = read_prepared(folder)["data"] or ""
    return data.startswith("docstrings:")


@lru_cache(maxsize=1)  # to parse it takes seconds, and some programs train many encoders
def standard_library(seed: int = 0, queries: int = QUERIES, documents: int = DOCUMENTS) -> Collection:
    """Docstrings of the standard library, sampled: some queries of all splits, their documents, and random others.

    >>> collection = standard_library(queries=20, documents=50)
    >>> len(collection.queries), len(collection.documents)
    (20, 50)
    """
    rejects = Rejects(skip=True)  # a module that cannot be parsed is no reason not to train
    source = open_source(STDLIB, rejects)
    texts = {item.id: item.text for item in checked_texts(source.documents(), "document", rejects)}
    qrels: dict[str, dict[str, int]] = {}
    for split in source.splits():
        for judgment in source.judgments(split):
            qrels.setdefault(judgment.query, {})[judgment.document] = judgment.grade
    asked = {item.id: item.text for item in checked_texts(source.queries(), "query", rejects) if item.id in qrels}
    sample = Collection(STDLIB, "test", texts, asked, qrels, rejects).sample(queries, seed)
    relevant = {document for judged in sample.qrels.values() for document in judged}
    others = [id for id in texts if id not in relevant]
    room = min(len(others), max(0, documents - len(relevant)))
    kept = relevant.union(others[i] for i in np.random.default_rng(seed).choice(len(others), room, replace=False))
    return replace(sample, documents={id: text for id, text in texts.items() if id in kept})


def paragraphs(seed: int = 0, count: int = PARAGRAPHS) -> dict[str, str]:
    """Paragraphs of prose that every machine has, by their places: of Python's reference and of distributions.

    Half are of the reference, and half of the descriptions of installed distributions, if there are enough of each.
    No two are the same.

    >>> texts = paragraphs(count=40)
    >>> len(texts), texts == paragraphs(count=40), len({normalised(text) for text in texts.values()})
    (40, True, 40)
    """
    rng, seen = np.random.default_rng(seed), set[str]()
    lots: list[dict[str, str]] = []
    for kind, places in (("reference", _reference()), ("distribution", _descriptions())):
        lot: dict[str, str] = {}
        for name, text in sorted(places.items()):
            new = {normalised(part): part for part in _prose(text)}
            fresh = [key for key in new if key not in seen][:FROM_ONE_PLACE]
            seen.update(fresh)
            lot |= {f"{kind}:{name}:{number}": new[key] for number, key in enumerate(fresh)}
        lots.append(lot)
    first = min(len(lots[0]), max(count // 2, count - len(lots[1])))
    chosen: dict[str, str] = {}
    for lot, room in zip(lots, (first, count - first), strict=True):
        ids = list(lot)
        places_kept = sorted(rng.choice(len(ids), min(room, len(ids)), replace=False).tolist()) if ids else []
        chosen |= {ids[place]: lot[ids[place]] for place in places_kept}
    return chosen


def nearest_neighbours(vectors: Mapping[str, NDArray[np.float32]], k: int) -> dict[str, set[str]]:
    """The k texts with the largest dot product with each text's vector, itself left out.

    >>> vectors = {"a": [1, 0], "b": [0.9, 0.1], "c": [0, 1]}
    >>> nearest_neighbours({id: np.array(vector, "f4") for id, vector in vectors.items()}, k=1)["a"]
    {'b'}
    """
    ids, matrix = list(vectors), np.stack(list(vectors.values()))
    rows = top_k(matrix, matrix, min(k, len(ids) - 1) + 1)[1]
    nearest = {}
    for own, row in enumerate(rows.tolist()):
        others = [place for place in row if place != own]  # of equal vectors, the text's own may have been left out
        nearest[ids[own]] = {ids[place] for place in others[:k]}
    return nearest


def agreement(before: Mapping[str, set[str]], after: Mapping[str, set[str]]) -> dict[str, float]:
    """The share of each text's nearest neighbours that stayed the same.

    >>> agreement({"a": {"b", "c"}, "d": {"a", "b"}}, {"a": {"b", "d"}, "d": {"a", "b"}})
    {'a': 0.5, 'd': 1.0}
    """
    return {id: len(near & after[id]) / max(1, len(near)) for id, near in before.items()}


def _asked(also: str, skip_bad: bool) -> Collection:
    """The test split of a collection, with a message of its own if there is none."""
    splits = open_source(also, Rejects(skip=skip_bad)).splits()
    if "test" not in splits:
        problem = f"forgetting is measured on a test split; this collection has: {', '.join(splits) or 'no split'}"
        raise InputError(problem, file=also, do="name a collection that has one (--also), or leave it out")
    return Collection.load(also, "test", skip_bad)


def _encode(model: BiEncoder, tokens: Tokens, what: str) -> NDArray[np.float32]:
    """Vectors of texts, with a progress bar where there are many."""
    count, ends = len(tokens.lengths), np.cumsum(tokens.lengths)
    vectors = np.empty((count, model.dimension), np.float32)
    blocks = range(0, count, TEXTS_AT_ONCE)
    for start in track(blocks, f"encoding {what}", total=len(blocks), show=None if len(blocks) > 1 else False):
        stop = min(start + TEXTS_AT_ONCE, count)
        ids = tokens.ids[int(tokens.starts[start]) : int(ends[stop - 1])]
        vectors[start:stop] = model.encode_tokens(Tokens(ids, tokens.lengths[start:stop]))
    return vectors


def _reference() -> dict[str, str]:
    """Python's language reference by topic, as `help()` shows it. Some systems leave it out."""
    try:
        from pydoc_data.topics import topics
    except ImportError:
        return {}
    return dict(topics)


def _descriptions() -> dict[str, str]:
    """The descriptions of installed distributions, by name; one without usable metadata has none."""
    described: dict[str, str] = {}
    for distribution in importlib.metadata.distributions():
        try:
            metadata = distribution.metadata
            name, text = metadata["Name"], metadata.get_payload() or metadata["Description"]  # type: ignore[attr-defined]
        except Exception:  # whatever a damaged installation makes importlib raise
            continue
        if isinstance(name, str) and isinstance(text, str):
            described.setdefault(re.sub(r"[-_.]+", "-", name).lower(), text)
    return described


def _prose(text: str) -> Iterator[str]:
    """The paragraphs that are sentences: not code, tables, links, badges or lists of changes."""
    for part in re.split(r"\n\s*\n", text.replace("\r\n", "\n")):
        words = part.split()
        plain = sum(word.strip("\"'`*_.,:;()?!").isalpha() for word in words)
        code = part.startswith(("    ", "\t", ">>>", "|", "<", "#", "..")) or "://" in part
        if len(words) >= SHORTEST and not code and plain >= 0.8 * len(words):
            yield " ".join(words)
