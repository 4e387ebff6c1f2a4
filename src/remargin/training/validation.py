"""Validation: how well a model ranks documents for held-out queries, while it trains and afterwards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import chain, zip_longest
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from remargin.data.collection import Collection
from remargin.data.tokens import TokenStore
from remargin.errors import InputError
from remargin.evaluation.inputs import without_self_matches
from remargin.evaluation.measures import Evaluation, evaluate_from, own_cutoff, relevant_grade, require_measures
from remargin.evaluation.runs import Run
from remargin.losses.inputs import Similarity
from remargin.model.encoder import BiEncoder
from remargin.model.packing import Packed
from remargin.model.tokenizer import TextSettings, Tokens
from remargin.retrieval.bm25 import BM25
from remargin.retrieval.candidates import candidates
from remargin.retrieval.exact import top_k
from remargin.retrieval.languages import AUTO, choose_language
from remargin.training.engine import Encodes
from remargin.training.settings import FitSettings

# How many documents are ranked in full, by device. A small encoder on two CPU cores takes about half a minute for the
# first number, a large GPU some seconds for the second: no longer than a few hundred training steps take there.
CPU_DOCUMENTS, GPU_DOCUMENTS = 3_000, 300_000
# How many characters are ranked as passages: about 250,000 tokens on a CPU, which take as long.
CPU_CHARACTERS, GPU_CHARACTERS = 1_000_000, 100_000_000
POOL_DEPTH = 100  # BM25's documents of a query that may come into a pool
RERANKED = 100  # documents of each query of a run that is given without a depth
RANKED = 1000  # documents of a query that measures without a cutoff see, as many as `search` ranks

# Tokens of some queries and then of some documents, and, if these may be split, the document that each passage is of.
Tokenised = Callable[[Sequence[str], Sequence[str], bool], tuple[Tokens, NDArray[np.uint32] | None]]
SCORES_AT_ONCE = 1 << 26  # of passages


class Validator:
    """Measures models on the queries of one split. All but the encoding is done once.

    With `settings.validation_depth`, that many documents of a first stage are re-ranked for each query. Without it, all
    documents are ranked if there are not too many of them, so that the figures are those that `search` and `evaluate`
    give. Of a larger collection, every query ranks one pool of documents: those that are relevant to any of the
    queries, the best ones of BM25, and others that are drawn.

    Args:
        folder: what `prepare` wrote.
        split: the split to validate on, or to measure in the end.
        settings: measure, depth, and how many queries at most; they are drawn with the seed.
        first_stage: a run of these queries, to re-rank; without one, BM25's.
        also: measures beside the one that counts.
        most_documents: how many documents are ranked in full, and how many a pool has; without it, it depends on the
            device: `CPU_DOCUMENTS` or `GPU_DOCUMENTS`.
        language: of the texts, for BM25; see `BM25`.
        relevant: the lowest grade that binary measures count, see `relevant_grade`.

    Raises:
        InputError: for an unknown measure, a split that is not there, and a run of other queries or documents.

    Example:
        >>> import tempfile
        >>> from remargin import prepare
        >>> folder, model = Path(tempfile.mkdtemp()) / "data", BiEncoder.from_pretrained(model_folder)
        >>> _ = prepare("docstrings:json,csv", model_folder, folder, document_length=model.document_length)
        >>> validator = Validator(folder, "test", FitSettings(validation_depth=None))
        >>> scores = validator.evaluate(model).per_query["nDCG@10"]
        >>> list(scores) == validator.queries, validator.describe().startswith("ranked in full")
        (True, True)
    """

    def __init__(
        self,
        folder: str | Path,
        split: str,
        settings: FitSettings,
        first_stage: Run | None = None,
        also: Sequence[str] = (),
        most_documents: int | None = None,
        language: str = AUTO,
        relevant: int = 1,
    ) -> None:
        folder, measures = Path(folder), [settings.validation_measure, *also]
        require_measures(measures)
        collection = Collection.load(folder, split)
        queries, documents = (TokenStore(folder / "tokens" / kind) for kind in ("queries", "documents"))
        made = [(store.header["length"], store.header["prefix"]) for store in (queries, documents)]
        (query_length, query_prefix), (document_length, document_prefix) = made
        self._text_settings = TextSettings(query_length, document_length, query_prefix, document_prefix)
        self._tokenizer = documents.header["tokenizer"]

        def tokens(of_queries: Sequence[str], of_documents: Sequence[str], split: bool) -> tuple[Tokens, None]:
            lots = ((queries, of_queries), (documents, of_documents))
            return Tokens.together([store.take(store.ids.rows(ids)) for store, ids in lots]), None

        self._set_up(collection, tokens, settings, measures, first_stage, most_documents, language, relevant)

    @classmethod
    def of(
        cls,
        collection: Collection,
        model: BiEncoder,
        settings: FitSettings,
        first_stage: Run | None = None,
        also: Sequence[str] = (),
        most_documents: int | None = None,
        language: str = AUTO,
        passages: bool = False,
    ) -> Validator:
        """A validator on a collection in memory, whose texts are tokenised for a model and others like it.

        With `passages`, documents that are longer than the model reads are split, as `search` does, and score as their
        best passage, unless they are re-ranked; without it, and there, they are truncated.

        >>> model = BiEncoder.from_pretrained(model_folder)
        >>> Validator.of(Collection.load("docstrings:json", "dev"), model, FitSettings(validation_depth=None)).measure
        'nDCG@10'
        """
        self, measures = cls.__new__(cls), [settings.validation_measure, *also]
        require_measures(measures)
        self._text_settings, self._tokenizer = model.text_settings, model.tokenizer.fingerprint

        def tokens(
            of_queries: Sequence[str], of_documents: Sequence[str], split: bool
        ) -> tuple[Tokens, NDArray[np.uint32] | None]:
            prefix, length = model.document_prefix, model.document_length
            texts = [collection.documents[id] for id in of_documents]
            owners = None
            if split and passages:
                documents, owners, _ = model.tokenizer.in_passages(texts, prefix, length, *model.passages)
            else:
                documents, _ = model.tokenizer([prefix + text for text in texts], length)
            queries = [model.query_prefix + collection.queries[id] for id in of_queries]
            return Tokens.together([model.tokenizer(queries, model.query_length)[0], documents]), owners

        self._set_up(collection, tokens, settings, measures, first_stage, most_documents, language)
        return self

    def _set_up(
        self,
        collection: Collection,
        tokens: Tokenised,
        settings: FitSettings,
        measures: list[str],
        first_stage: Run | None,
        most_documents: int | None,
        language: str,
        relevant: int = 1,
    ) -> None:
        self.split, self.measure = collection.split, settings.validation_measure
        self._measures, self._relevant = measures, relevant_grade(collection.qrels, relevant)
        collection = collection.sample(settings.validation_queries, settings.seed)
        self.queries, self.qrels, self.collection = list(collection.queries), collection.qrels, collection
        self._asked_language = language
        depth = settings.validation_depth or (None if first_stage is None else RERANKED)
        self._ranking: _Reranking | _FullRanking
        if depth is not None:
            self._ranking = _Reranking(collection, depth, first_stage, language)
        else:
            most = most_documents or settings.validation_documents or affordable_documents()
            self._ranking = _FullRanking(collection, pool(collection, most, settings.seed, language))
        self._texts, owners = tokens(self.queries, self._ranking.documents, not self.reranks)
        if (
            isinstance(self._ranking, _FullRanking)
            and owners is not None
            and len(owners) > len(self._ranking.documents)
        ):
            self._ranking.owners = owners
        self._parts: tuple[list[Packed], Tensor] | None = None
        self.per_query: dict[str, dict[str, float]] = {}  # the measures of each query at the last call

    @cached_property
    def language(self) -> str:
        """The language of BM25's terms, of all documents of the collection and not only of those that are ranked."""
        return choose_language(self._asked_language, self.collection.documents.values())

    def __call__(self, engine: Encodes, similarity: Similarity) -> dict[str, float]:
        """The measures' means with the model as it is now; `per_query` has each query's. Texts are packed once."""
        if self._parts is None:
            parts, order = engine.parts(self._texts)
            self._parts = parts, torch.from_numpy(np.argsort(order)).to(engine.device)
        parts, back = self._parts
        vectors = engine.evaluate(parts)[back]
        if similarity == "cosine":
            vectors = nn.functional.normalize(vectors, dim=1)
        evaluation = evaluate_from(self._relevant, self.ranked(vectors), self.qrels, self._measures)
        self.per_query = evaluation.per_query
        return evaluation.means

    def evaluate(self, model: BiEncoder) -> Evaluation:
        """The measures of each query with a model, as it encodes: for intervals, and to compare models.

        Raises:
            InputError: if the model tokenises texts in another way, or its vectors have numbers that are not finite.
        """
        return evaluate_from(self._relevant, self.rank(model), self.qrels, self._measures)

    def rank(self, model: BiEncoder, depth: int | None = None) -> Run:
        """The queries' rankings by a model, as it encodes: as deep as the measures look, or so many documents.

        Raises what `evaluate` raises.
        """
        return self.ranked(self.encode(model), depth)

    def encode(self, model: BiEncoder) -> Tensor:
        """The vectors that `ranked` takes: the queries', then those of documents or their passages."""
        if model.tokenizer.fingerprint != self._tokenizer or model.text_settings != self._text_settings:
            problem = f"{model.name or 'the model'} has another tokenizer, other lengths or other prefixes"
            raise InputError(f"{problem} than the validation texts were tokenised with", do="tokenise them for it")
        return torch.from_numpy(model.encode_tokens(self._texts)).to(model.device)

    def rank_by_bm25(self, depth: int = RANKED) -> Run:
        """The queries' rankings of the same documents by BM25, without documents that are the query itself."""
        texts = self.collection.documents
        documents = {document: texts[document] for document in self._ranking.documents}
        own = self._ranking.candidates if isinstance(self._ranking, _Reranking) else None
        searched = depth + bool(self.collection.self_matches) if own is None else len(documents)
        bm25 = BM25(documents, language=self.language)
        run = without_self_matches(bm25.search(self.collection.queries, searched), self.collection)[0]
        if own is None:
            return run
        found = {query: set(ranked) for query, ranked in own.items()}
        kept = {
            query: {document: score for document, score in ranking.items() if document in found[query]}
            for query, ranking in run.rankings.items()
        }
        return Run.of(kept, depth)

    @property
    def reranks(self) -> bool:
        """Whether each query ranks nothing but the documents that a first stage found for it."""
        return isinstance(self._ranking, _Reranking)

    def describe(self) -> str:
        """What is ranked, in words, such as "ranked in full (1,234 documents)"."""
        owners = self._ranking.owners if isinstance(self._ranking, _FullRanking) else None
        if owners is None:
            return self._ranking.describe()
        split = int((np.bincount(owners) > 1).sum())
        longer = f"{split:,} are longer than {self._text_settings.document_length:,} tokens"
        return f"{self._ranking.describe()}, of which {longer} and score as their best passage"

    @property
    def texts(self) -> int:
        """How many texts, queries and documents, are encoded each time."""
        return len(self._texts.lengths)

    @property
    def tokens(self) -> int:
        """How many tokens they have."""
        return int(self._texts.lengths.sum())

    def ranked(self, vectors: Tensor, depth: int | None = None) -> Run:
        """The queries' rankings by vectors."""
        queries, documents = vectors[: len(self.queries)], vectors[len(self.queries) :]
        return self._ranking.rank(queries, documents, depth or _top(self._measures, self._ranking.deepest))


class _Reranking:
    """Each query ranks its own documents: those that a first stage found for it."""

    deepest = 2**62  # for measures without a cutoff: all of them

    def __init__(self, collection: Collection, depth: int, first_stage: Run | None, language: str) -> None:
        rankings = candidates(collection, depth, first_stage, language)
        self.candidates = {query: list(ranking) for query, ranking in rankings.items()}
        self.documents = sorted({document for ranked in self.candidates.values() for document in ranked})
        place = {document: i for i, document in enumerate(self.documents)}
        self._rows = [
            torch.tensor([place[document] for document in ranked], dtype=torch.long)
            for ranked in self.candidates.values()
        ]
        self._depth = depth
        self._stage = "BM25" if first_stage is None else "the run that was given"

    def describe(self) -> str:
        return f"re-ranking the first {self._depth:,} documents of {self._stage}"

    def rank(self, queries: Tensor, documents: Tensor, depth: int) -> Run:
        self._rows = [rows.to(documents.device) for rows in self._rows]
        best = [
            (documents[rows] @ query).topk(min(len(rows), depth))
            for query, rows in zip(queries, self._rows, strict=True)
        ]
        values = iter(torch.cat([top.values for top in best]).tolist())  # from here on, the device is waited for
        places = torch.cat([top.indices for top in best]).tolist()
        scores, start = {}, 0
        for (query, of_query), top in zip(self.candidates.items(), best, strict=True):
            ranked = places[start : start + len(top.values)]
            scores[query] = {of_query[place]: value for place, value in zip(ranked, values, strict=False)}
            start += len(ranked)
        return Run.of(scores)


class _FullRanking:
    """Every query ranks the same documents: all, or a pool of them. A query that is a document does not find itself."""

    deepest = RANKED
    owners: NDArray[np.uint32] | None = None  # of passages: the document of each

    def __init__(self, collection: Collection, documents: list[str]) -> None:
        self._queries, self.documents = list(collection.queries), documents
        self._own = collection.self_matches
        self._ids = np.array(documents, dtype=object)
        self._total = len(collection.documents)

    def describe(self) -> str:
        if len(self.documents) == self._total:
            return f"ranked in full ({self._total:,} documents)"
        return f"over a pool of {len(self.documents):,} of {self._total:,} documents"

    def rank(self, queries: Tensor, documents: Tensor, depth: int) -> Run:
        depth_searched = depth + bool(self._own)
        if self.owners is None:
            scores, rows = top_k(queries, documents, depth_searched, documents.device)
        else:
            scores, rows = _best_passages(queries, documents, self.owners, depth_searched)
        rankings = {}
        for query, of_query, values in zip(self._queries, self._ids[rows], scores.tolist(), strict=True):
            own = query if query in self._own else None
            ranking = zip(of_query.tolist(), values, strict=True)
            rankings[query] = {document: value for document, value in ranking if document != own}
        return Run.of(rankings, depth)


def _best_passages(
    queries: Tensor, passages: Tensor, owners: NDArray[np.uint32], k: int
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Scores and rows of the k documents whose best passage has the largest dot product for each query, best first.

    >>> passages = torch.tensor([[1.0, 0.0], [0.0, 2.0], [0.5, 0.5]])
    >>> scores, rows = _best_passages(torch.eye(2), passages, np.array([0, 0, 1], np.uint32), k=2)
    >>> rows.tolist(), scores.tolist()
    ([[0, 1], [0, 1]], [[1.0, 0.5], [2.0, 0.5]])
    """
    document = torch.from_numpy(owners.astype(np.int64)).to(passages.device)
    count = int(owners.max()) + 1
    best = []
    for some in queries.split(max(1, SCORES_AT_ONCE // len(passages))):
        scores = torch.full((len(some), count), -torch.inf, dtype=passages.dtype, device=passages.device)
        of_document = document.expand(len(some), -1)
        best.append(scores.scatter_reduce_(1, of_document, some @ passages.T, "amax").topk(min(k, count)))
    values, places = (torch.cat([getattr(top, name) for top in best]) for name in ("values", "indices"))
    return values.float().cpu().numpy(), places.cpu().numpy()


def affordable_characters() -> int:
    """How long all documents together may be to be split into passages on this machine."""
    return GPU_CHARACTERS if torch.cuda.is_available() else CPU_CHARACTERS


def affordable_documents() -> int:
    """How many documents are ranked in full on this machine."""
    return GPU_DOCUMENTS if torch.cuda.is_available() else CPU_DOCUMENTS


def pool(collection: Collection, size: int, seed: int, language: str = AUTO) -> list[str]:
    """The documents that every query of a collection ranks, in the collection's order: all of them, if at most `size`.

    Of more documents, those are taken that are relevant to a query, however many; then the first of BM25 of every
    query, the second of every query, and so on, until there are `size`; and then others, drawn with the seed. So what
    BM25 cannot find is there as well, and each query meets the hard documents of all others.

    >>> collection = Collection.load("docstrings:json,csv", "test")
    >>> few, all = pool(collection, 12, seed=0), pool(collection, 10**6, seed=0)
    >>> len(few), all == list(collection.documents), few == [document for document in all if document in few]
    (12, True, True)
    """
    if len(collection.documents) <= size:
        return list(collection.documents)
    judgments = (judged.items() for judged in collection.qrels.values())
    chosen = {document for document, grade in chain.from_iterable(judgments) if grade > 0}
    bm25 = BM25(collection.documents, language=language)
    rankings = bm25.search(collection.queries, POOL_DEPTH).rankings.values()
    for document in chain.from_iterable(zip_longest(*rankings)):
        if len(chosen) >= size:
            break
        if document is not None:
            chosen.add(document)
    others = [document for document in collection.documents if document not in chosen]
    missing = max(0, size - len(chosen))
    chosen.update(others[i] for i in np.random.default_rng(seed).choice(len(others), missing, replace=False))
    return [document for document in collection.documents if document in chosen]


def _top(measures: Sequence[str], without_cutoff: int = 2**62) -> int:
    """How many documents of a ranking these measures look at, and some more, in case of ties.

    >>> _top(["nDCG@10", "Success@100"]), _top(["nDCG@10", "IPrec@0.5"]) > 10**9, _top(["RR", "P@5"], 1000)
    (150, True, 1000)
    """
    cutoffs = [own_cutoff(name) for name in measures]
    return max(without_cutoff if cutoff is None else cutoff + 50 for cutoff in cutoffs)
