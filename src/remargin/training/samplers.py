"""Which triplets make a batch: in random order, or by topic. Any batch follows from the seed and its number alone."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from remargin.data.shuffle import Shuffle
from remargin.data.training_data import TrainingData
from remargin.data.triplets import Triplets
from remargin.errors import InputError
from remargin.model.encoder import BiEncoder
from remargin.training.settings import FitSettings
from remargin.training.topics import default_clusters, query_topics, run_topics

BINS = 10


class Drawn(NamedTuple):
    """A batch: the triplets' positions, and which of its negatives each one takes: (B,), or (B, k) if several."""

    triplets: NDArray[np.int64]
    negatives: NDArray[np.int64]


class Sampler(Protocol):
    """Draws batches. `epoch` says in words what an epoch goes through, `epoch_triplets` how many triplets it has."""

    steps_per_epoch: int
    epoch_triplets: int
    epoch: str

    def __call__(self, number: int) -> Drawn:
        """The batch of that number since training began."""


class RandomSampler:
    """Every triplet once an epoch, in another order each time; several negatives take turns, epoch by epoch.

    What is left over when the batches are full waits for another epoch.

    Args:
        count: how many triplets there are.
        negatives: how many negatives each of them has.
        batch_size: triplets in a batch.
        seed: for the order.
        take: how many of its negatives a triplet takes into a batch.

    Example:
        >>> sampler = RandomSampler(count=6, negatives=1, batch_size=2, seed=0)
        >>> sampler.steps_per_epoch, sorted(row for number in range(3) for row in sampler(number).triplets.tolist())
        (3, [0, 1, 2, 3, 4, 5])
    """

    def __init__(self, count: int, negatives: int, batch_size: int, seed: int, take: int = 1) -> None:
        self._count, self._negatives, self._seed, self._take = count, negatives, seed, take
        self._size = min(batch_size, count)
        self.steps_per_epoch = count // self._size
        self.epoch_triplets = self.steps_per_epoch * self._size
        self.epoch = f"{count:,}"

    @classmethod
    def of(cls, triplets: Triplets, batch_size: int, seed: int, take: int = 1) -> RandomSampler:
        """A sampler of these triplets.

        Raises:
            InputError: if they have fewer negatives than a batch is to take.
        """
        require_negatives(triplets, take)
        return cls(len(triplets), triplets.negatives, batch_size, seed, take)

    def __call__(self, number: int) -> Drawn:
        """The batch of that number since training began."""
        epoch, place = divmod(number, self.steps_per_epoch)
        places = np.arange(place * self._size, (place + 1) * self._size)
        rows = Shuffle(self._count, self._seed, epoch)(places)
        first = np.full(len(rows), epoch * self._take % self._negatives)
        return Drawn(rows, turns(first, self._negatives, self._take))


def turns(first: NDArray[np.int64], negatives: int, take: int) -> NDArray[np.int64]:
    """Which negatives triplets take: `take` of them from the first on, and after the last the first again.

    >>> turns(np.array([0, 2]), negatives=3, take=2).tolist(), turns(np.array([0, 2]), negatives=3, take=1).tolist()
    ([[0, 1], [2, 0]], [0, 2])
    """
    return first if take == 1 else (first[:, None] + np.arange(take)) % negatives


def require_negatives(triplets: Triplets, take: int) -> None:
    """Raise an InputError if triplets have fewer negatives than a batch is to take."""
    if take > triplets.negatives:
        have = f"{triplets.negatives} negative{'s' if triplets.negatives > 1 else ''} each, not {take}"
        do = f"take fewer, or mine more (`remargin mine --per-triplet {take}`)"
        raise InputError(f"triplets of {have}", file=triplets.folder, do=do)


class QueryIndex(NamedTuple):
    """The triplets of every query: of query q, those at `order[bounds[q]:bounds[q + 1]]`.

    Example:
        >>> index = QueryIndex.of(np.array([2, 0, 2]), queries=4)
        >>> index.with_triplets().tolist(), index.order[index.bounds[2] : index.bounds[3]].tolist()
        ([0, 2], [0, 2])
    """

    order: NDArray[np.uint32]
    bounds: NDArray[np.int64]

    @classmethod
    def of(cls, queries_of_triplets: NDArray[np.integer[Any]], queries: int) -> QueryIndex:
        """From the query of every triplet, and how many queries there are."""
        order = np.argsort(queries_of_triplets, kind="stable").astype(np.uint32)
        counts = np.bincount(queries_of_triplets, minlength=queries)
        return cls(order, np.concatenate([[0], np.cumsum(counts)]))

    def with_triplets(self) -> NDArray[np.int64]:
        """The queries that have triplets."""
        return np.flatnonzero(np.diff(self.bounds))

    def counts(self, queries: NDArray[np.int64]) -> NDArray[np.int64]:
        """How many triplets some queries have."""
        return self.bounds[queries + 1] - self.bounds[queries]


Draw = Callable[[NDArray[np.int64], np.random.Generator], Drawn]


class TopicSampler:
    """Topic-aware sampling (TAS, Hofstätter et al. 2021): the queries of a batch are about one topic.

    Every query that has triplets comes once an epoch, with one pair of a positive and a negative. A topic of c queries
    gives ceil(c / batch_size) batches, whose sizes differ by one at most. In each epoch the batches come in another
    order, hold other queries of their topic, and other pairs.

    Args:
        index: the triplets of every query.
        topics: (queries,) the topic of each; what it is for a query without triplets does not matter.
        batch_size: no batch is larger.
        seed: for everything that is random.
        draw: gives each query of a batch its pair: `uniform_pairs` or `balanced_pairs`.

    Example:
        >>> index = QueryIndex.of(np.array([0, 1, 1, 2, 3]), queries=4)
        >>> sampler = TopicSampler(index, np.array([0, 1, 0, 0]), 2, 0, partial(uniform_pairs, index, 1))
        >>> sampler.steps_per_epoch, sorted(len(sampler(number).triplets) for number in range(3))
        (3, [1, 1, 2])
    """

    def __init__(self, index: QueryIndex, topics: NDArray[np.int32], batch_size: int, seed: int, draw: Draw) -> None:
        queries = index.with_triplets()
        topics = topics[queries]
        self._queries = queries[np.argsort(topics, kind="stable")]  # topic after topic
        self._sizes = np.unique(topics, return_counts=True)[1]
        self._starts = np.cumsum(self._sizes) - self._sizes
        self._parts = -(-self._sizes // batch_size)
        self._first_part = np.cumsum(self._parts) - self._parts
        self._seed, self._draw = seed, draw
        self.steps_per_epoch = int(self._parts.sum())
        self.epoch_triplets = len(queries)
        self.epoch = f"{len(queries):,} queries, topic by topic"

    def __call__(self, number: int) -> Drawn:
        """The batch of that number since training began."""
        epoch, place = divmod(number, self.steps_per_epoch)
        place = int(self._shuffle(self.steps_per_epoch, epoch, 0)(np.array([place]))[0])
        topic = int(np.searchsorted(self._first_part, place, side="right")) - 1
        part, parts, size = place - self._first_part[topic], self._parts[topic], self._sizes[topic]
        places = np.arange(part * size // parts, (part + 1) * size // parts)
        queries = self._queries[self._starts[topic] + self._shuffle(int(size), epoch, 1 + topic)(places)]
        return self._draw(queries, np.random.default_rng([self._seed % 2**64, number]))

    def _shuffle(self, size: int, epoch: int, which: int) -> Shuffle:
        """The orders of an epoch: `which` is 0 for that of the batches, and 1 + t for that of topic t's queries."""
        return Shuffle(size, self._seed, epoch * (1 + len(self._sizes)) + which)


def uniform_pairs(
    index: QueryIndex, negatives: int, queries: NDArray[np.int64], rng: np.random.Generator, take: int = 1
) -> Drawn:
    """One triplet of each query, and one or several of its negatives; each is as likely as any other.

    >>> index = QueryIndex.of(np.array([1, 0, 1]), queries=2)
    >>> uniform_pairs(index, 1, np.array([0]), np.random.default_rng(0)).triplets.tolist()
    [1]
    """
    chosen = index.order[index.bounds[queries] + rng.integers(index.counts(queries))]
    return Drawn(chosen.astype(np.int64), turns(rng.integers(negatives, size=len(queries)), negatives, take))


def balanced_pairs(
    index: QueryIndex,
    triplets: Triplets,
    queries: NDArray[np.int64],
    rng: np.random.Generator,
    drop_bins: int = 0,
    bins: int = BINS,
) -> Drawn:
    """One pair of each query by the teacher's margin, easy and hard ones alike (TAS-Balanced, Hofstätter et al. 2021).

    All pairs of a query, of a positive and a negative, are put into bins of equal width between the query's smallest
    and its largest margin. One of the bins that are not empty is drawn, then one of the pairs in it.

    Args:
        index: the triplets of every query.
        triplets: with scores.
        queries: those of the batch.
        rng: to draw with.
        drop_bins: how many bins to leave out, from the largest margins down: negatives that are easy to tell. Fewer
            than `bins`; a query always keeps its hardest pair, which is in the first bin.
        bins: how many.

    Example:
        >>> import tempfile
        >>> scores = [[9.0, 8.0], [9.0, 7.5], [9.0, 0.0]]        # margins of 1, 1.5 and 9
        >>> folder = Path(tempfile.mkdtemp()) / "triplets"
        >>> triplets = Triplets.write(folder, [[0, 0, 1], [0, 0, 2], [0, 0, 3]], scores)
        >>> index = QueryIndex.of(triplets.queries, queries=1)
        >>> drawn = balanced_pairs(index, triplets, np.zeros(1000, np.int64), np.random.default_rng(0))
        >>> 450 < drawn.triplets.tolist().count(2) < 550         # not one in three: it has a bin to itself
        True
    """
    counts = index.counts(queries)
    starts = np.cumsum(counts) - counts
    places = np.arange(counts.sum()) + np.repeat(index.bounds[queries] - starts, counts)
    rows = index.order[places].astype(np.int64)
    scores = triplets.take(rows).scores
    assert scores is not None
    margins = scores[:, :1].astype(np.float64) - scores[:, 1:]
    owners = np.repeat(np.arange(len(queries)), counts)
    low, high = np.minimum.reduceat(margins.min(1), starts), np.maximum.reduceat(margins.max(1), starts)
    above, width = margins - low[owners, None], (high - low)[owners, None]
    bin_of = np.minimum((above * bins / np.where(width > 0, width, 1)).astype(np.int64), bins - 1)
    keys = (owners[:, None] * bins + bin_of).ravel()  # pairs in the order of their keys: query by query, bin by bin
    pairs = np.argsort(keys, kind="stable")
    filled = np.bincount(keys, minlength=len(queries) * bins)
    allowed = filled.reshape(-1, bins) > 0
    allowed[:, bins - drop_bins :] = False
    rank = rng.integers(allowed.sum(1))
    chosen = np.arange(len(queries)) * bins + (np.cumsum(allowed, axis=1) > rank[:, None]).argmax(1)
    first = np.cumsum(filled) - filled
    pair = pairs[first[chosen] + rng.integers(filled[chosen])]
    row, negative = np.divmod(pair, margins.shape[1])
    return Drawn(rows[row], negative)


def make_sampler(
    model: BiEncoder,
    data: TrainingData,
    settings: FitSettings,
    out: Path,
    resume: bool,
    say: Callable[[str], None],
) -> Sampler:
    """The settings' sampler. Topics, if it needs them, are computed with the model as it is, and kept in `out`.

    Raises:
        InputError: if the sampler needs scores and there are none, triplets have too few negatives, or the folder has
            the topics of other queries.
    """
    queries, triplets = data.queries, data.triplets
    require_negatives(triplets, settings.negatives)
    if settings.sampler == "random":
        return RandomSampler.of(triplets, settings.batch_size, settings.seed, settings.negatives)
    if settings.sampler == "tas-balanced" and not triplets.header["scores"]:
        do = "let a teacher score them (`remargin teach`), or use the sampler tas"
        raise InputError('sampler "tas-balanced" needs triplets with scores', file=triplets.folder, do=do)
    index = QueryIndex.of(triplets.queries, len(queries))
    rows = index.with_triplets()
    clusters = settings.clusters or default_clusters(len(rows), settings.batch_size)
    if clusters * settings.batch_size > 2 * len(rows):
        size = len(rows) / clusters
        say(f"{clusters:,} topics of {size:.1f} queries on average: batches of {settings.batch_size} are never full")
    find = partial(query_topics, model, queries, rows, clusters, settings.seed)
    topics = run_topics(out / "topics.npy", len(queries), rows, find, resume, say)
    draw = partial(uniform_pairs, index, triplets.negatives, take=settings.negatives)
    if settings.sampler == "tas-balanced":
        draw = partial(balanced_pairs, index, triplets, drop_bins=settings.drop_bins)
    return TopicSampler(index, topics, settings.batch_size, settings.seed, draw)
