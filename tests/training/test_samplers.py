"""Samplers: what an epoch holds, and balanced margins against their definition."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.cluster.vq
import scipy.stats

from remargin import BiEncoder, InputError
from remargin.data.preparation import prepare
from remargin.data.shuffle import Shuffle
from remargin.data.triplets import Triplets
from remargin.training.loop import train
from remargin.training.samplers import (
    Drawn,
    QueryIndex,
    RandomSampler,
    Sampler,
    TopicSampler,
    balanced_pairs,
    uniform_pairs,
)
from remargin.training.settings import FitSettings
from remargin.training.topics import default_clusters, mean_batch

from .conftest import sampled, silent


def epoch_of(sampler: Sampler, epoch: int) -> list[Drawn]:
    return [sampler(epoch * sampler.steps_per_epoch + number) for number in range(sampler.steps_per_epoch)]


@pytest.mark.parametrize("seed", [0, 7])
def test_random_has_every_triplet_once_an_epoch_in_the_order_of_the_shuffle(seed: int) -> None:
    sampler = RandomSampler(count=50, negatives=3, batch_size=8, seed=seed)
    assert sampler.steps_per_epoch == 6
    for epoch in range(4):
        batches = epoch_of(sampler, epoch)
        rows = np.concatenate([batch.triplets for batch in batches])
        assert len(set(rows.tolist())) == 48
        np.testing.assert_array_equal(rows, Shuffle(50, seed, epoch)(np.arange(48)))
        assert all((batch.negatives == epoch % 3).all() for batch in batches)
    whole = RandomSampler(count=50, negatives=3, batch_size=64, seed=seed)
    assert sorted(whole(0).triplets.tolist()) == list(range(50))


@pytest.mark.parametrize("uneven", [0.3, 1.0, 5.0])
def test_batches_by_topic_are_four_fifths_full_on_average(uneven: float) -> None:
    rng = np.random.default_rng(0)
    for queries in (64, 65, 500, 3001):
        clusters = default_clusters(queries, batch_size=16)
        topics = rng.choice(clusters, queries, p=rng.dirichlet([uneven] * clusters)).astype(np.int32)
        index = QueryIndex.of(np.arange(queries), queries)
        sampler = TopicSampler(index, topics, 16, 0, partial(uniform_pairs, index, 1))
        assert sampler.epoch_triplets / sampler.steps_per_epoch >= mean_batch(16)


QUERIES, NEGATIVES, BATCH = 200, 3, 8


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> tuple[Triplets, QueryIndex, np.ndarray[Any, Any]]:
    """Some queries without triplets, the others with 1 to 12 in no order; topics of very different sizes."""
    rng = np.random.default_rng(3)
    with_triplets = np.flatnonzero(rng.random(QUERIES) < 0.8)
    queries = rng.permutation(np.repeat(with_triplets, rng.integers(1, 13, len(with_triplets))))
    documents = rng.integers(0, 1000, (len(queries), 1 + NEGATIVES))
    scores = rng.integers(-40, 40, (len(queries), 1 + NEGATIVES)) / 4
    triplets = Triplets.write(
        tmp_path_factory.mktemp("world") / "triplets", np.column_stack([queries, documents]), scores
    )
    topics = np.array([0, 5, 5, 5, 9, 9, 9, 9, 9, 9], np.int32)[rng.integers(0, 10, QUERIES)]
    topics[with_triplets[0]] = 4  # alone in its topic
    return triplets, QueryIndex.of(triplets.queries, QUERIES), topics


def test_the_index_has_the_triplets_of_each_query(world: Any) -> None:
    triplets, index, _ = world
    by_hand = defaultdict(list)
    for row, query in enumerate(triplets.queries.tolist()):
        by_hand[query].append(row)
    assert len(by_hand) < QUERIES
    for query in range(QUERIES):
        assert index.order[index.bounds[query] : index.bounds[query + 1]].tolist() == by_hand.get(query, [])
    assert index.with_triplets().tolist() == sorted(by_hand)


@pytest.fixture(params=["tas", "tas-balanced"])
def sampler(world: Any, request: pytest.FixtureRequest) -> TopicSampler:
    triplets, index, topics = world
    draw = partial(uniform_pairs, index, NEGATIVES)
    if request.param == "tas-balanced":
        draw = partial(balanced_pairs, index, triplets, drop_bins=2)
    return TopicSampler(index, topics, BATCH, 11, draw)


def test_by_topic_every_query_comes_once_an_epoch_among_its_like(world: Any, sampler: TopicSampler) -> None:
    triplets, index, topics = world
    sizes = Counter(topics[index.with_triplets()].tolist())
    assert 1 in sizes.values()
    assert max(sizes.values()) > 4 * BATCH
    seen = []
    for epoch in range(3):
        batches = epoch_of(sampler, epoch)
        queries = [triplets.queries[batch.triplets] for batch in batches]
        assert sorted(np.concatenate(queries).tolist()) == index.with_triplets().tolist()
        of_topic = defaultdict(list)
        for batch in queries:
            assert len(set(topics[batch])) == 1
            of_topic[int(topics[batch[0]])].append(len(batch))
        for topic, size in sizes.items():
            assert len(of_topic[topic]) == -(-size // BATCH)
            assert max(of_topic[topic]) <= min(of_topic[topic]) + 1
            assert max(of_topic[topic]) <= BATCH
        assert all(((batch.negatives >= 0) & (batch.negatives < NEGATIVES)).all() for batch in batches)
        seen.append((
            [int(topics[batch[0]]) for batch in queries],
            {frozenset(batch.tolist()) for batch in queries if topics[batch[0]] == 9},
            {row: k for batch in batches for row, k in zip(*batch, strict=True)},
        ))  # fmt: skip
    for one, other in ((0, 1), (0, 2), (1, 2)):  # order of the batches, their queries, the triplets and negatives
        for part in range(3):
            assert seen[one][part] != seen[other][part]
    assert sampler.epoch == f"{sum(sizes.values())} queries, topic by topic"
    assert sampler.epoch_triplets == sum(sizes.values())


def test_any_batch_can_be_had_alone(world: Any, sampler: TopicSampler) -> None:
    _, index, topics = world
    in_sequence = [sampler(number) for number in range(3 * sampler.steps_per_epoch)]
    for number in (0, 1, sampler.steps_per_epoch, 2 * sampler.steps_per_epoch + 5):
        alone = TopicSampler(index, topics, BATCH, 11, sampler._draw)(number)
        for mine, theirs in zip(alone, in_sequence[number], strict=True):
            np.testing.assert_array_equal(mine, theirs)
    another = TopicSampler(index, topics, BATCH, 12, sampler._draw)
    assert any(another(n).triplets.tolist() != batch.triplets.tolist() for n, batch in enumerate(in_sequence[:3]))
    assert TopicSampler(index, topics, BATCH, -1, sampler._draw)(0).triplets.size


def share_of_pairs(triplets: Triplets, query: int, drop_bins: int | None) -> dict[tuple[int, int], Fraction]:
    """How likely each pair of a query is, slowly and from the definition; None for a plain uniform draw."""
    rows = [row for row in range(len(triplets)) if triplets.queries[row] == query]
    scores = {row: [Fraction(float(s)) for s in triplets.take([row]).scores[0]] for row in rows}  # type: ignore[index]
    margins = {(row, k): scores[row][0] - scores[row][1 + k] for row in rows for k in range(triplets.negatives)}
    if drop_bins is None:
        return dict.fromkeys(margins, Fraction(1, len(margins)))
    low, high = min(margins.values()), max(margins.values())
    bins: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for pair, margin in margins.items():
        bins[0 if high == low else min(9, int((margin - low) / ((high - low) / 10)))].append(pair)
    kept = {number: pairs for number, pairs in bins.items() if number < 10 - drop_bins} or {0: bins[min(bins)]}
    return {pair: Fraction(1, len(kept) * len(pairs)) for pairs in kept.values() for pair in pairs}


@pytest.mark.parametrize("drop_bins", [None, 0, 4, 9])
def test_pairs_are_drawn_as_often_as_the_definition_says(world: Any, drop_bins: int | None) -> None:
    triplets, index, _ = world
    counts = index.counts(np.arange(QUERIES))
    queries = [int(counts.argmax()), int(np.flatnonzero(counts == 1)[0]), int(np.flatnonzero(counts == 5)[0])]
    draws = 6000
    asked = np.repeat(queries, draws)
    rng = np.random.default_rng(5)
    if drop_bins is None:
        drawn = uniform_pairs(index, NEGATIVES, asked, rng)
    else:
        drawn = balanced_pairs(index, triplets, asked, rng, drop_bins)
    uneven = 0
    for number, query in enumerate(queries):
        mine = slice(number * draws, (number + 1) * draws)
        found = Counter(zip(drawn.triplets[mine].tolist(), drawn.negatives[mine].tolist(), strict=True))
        shares = share_of_pairs(triplets, query, drop_bins)
        assert set(found) == set(shares)
        if len(shares) > 1:
            expected = [float(share) * draws for share in shares.values()]
            assert scipy.stats.chisquare([found[pair] for pair in shares], expected).pvalue > 1e-3
        uneven += len(set(shares.values())) > 1
    assert bool(uneven) == (drop_bins in (0, 4))


def test_bins_dropped_are_those_of_the_easy_negatives(world: Any) -> None:
    """Every query at once: nothing that is drawn is in the upper part of the query's margins, and nothing is lost."""
    triplets, index, _ = world
    queries = index.with_triplets()
    rows = triplets.take(np.arange(len(triplets)))
    margins = rows.scores[:, :1] - rows.scores[:, 1:]
    low = np.array([margins[rows.queries == query].min() for query in queries])
    high = np.array([margins[rows.queries == query].max() for query in queries])
    largest = []
    for drop in (0, 3, 9):
        places = []
        for seed in range(40):
            drawn = balanced_pairs(index, triplets, queries, np.random.default_rng(seed), drop)
            assert (rows.queries[drawn.triplets] == queries).all()
            places.append((margins[drawn.triplets, drawn.negatives] - low) / np.maximum(high - low, 1e-9))
        largest.append(float(np.max(places)))
    assert largest[0] == 1.0
    assert 0.6 < largest[1] < 0.7
    assert largest[2] < 0.1


def test_margins_that_are_all_equal_are_one_bin(tmp_path: Path) -> None:
    triplets = Triplets.write(tmp_path / "t", [[0, 0, 1, 2], [0, 0, 3, 4]], [[5, 3, 3], [4, 2, 2]])
    index = QueryIndex.of(triplets.queries, 1)
    for drop in (0, 9):
        drawn = balanced_pairs(index, triplets, np.zeros(4000, np.int64), np.random.default_rng(0), drop)
        found = Counter(zip(drawn.triplets.tolist(), drawn.negatives.tolist(), strict=True))
        assert len(found) == 4
        assert scipy.stats.chisquare(list(found.values())).pvalue > 1e-3


@pytest.mark.parametrize("target", ["distributed", "contrastive"])
def test_batches_of_one_triplet_train(target: str, scored: Path, tiny_model: Any, tmp_path: Path) -> None:
    model = BiEncoder.from_pretrained(tiny_model("bert"))
    lines: list[str] = []
    chosen = sampled(sampler="tas", clusters=36, target=target)
    fitted = train(model, scored, tmp_path / "run", settings=chosen, say=lines.append)
    assert fitted.steps == 9
    assert f"36 topics of 1.0 queries on average: batches of {chosen.batch_size} are never full" in lines


def test_balanced_needs_scores(tiny_model: Any, tmp_path: Path) -> None:
    rows = [{"query": f"q {i}", "positive": f"p {i}", "negative": f"n {i}"} for i in range(8)]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    prepare(None, tiny_model("bert"), tmp_path / "data", tmp_path / "t.jsonl", document_length=64)
    model = BiEncoder.from_pretrained(tiny_model("bert"))
    with pytest.raises(InputError, match=r'"tas-balanced" needs triplets with scores; .*`remargin teach`'):
        train(model, tmp_path / "data", tmp_path / "run", settings=sampled(sampler="tas-balanced"), say=silent)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sampler": "topics"}, "unknown sampler 'topics'; use random, tas, tas-balanced"),
        ({"sampler": "tas", "clusters": 0}, "clusters is 0; it must be at least 1"),
        ({"clusters": 5}, "clusters without a sampler that has them"),
        ({"sampler": "tas-balanced", "drop_bins": 10}, "drop_bins is 10; there are 10 bins"),
        ({"sampler": "tas-balanced", "drop_bins": -1}, "drop_bins is -1"),
        ({"sampler": "tas", "drop_bins": 1}, "drop_bins without a sampler that has bins"),
        ({"teacher_scale": 0.0}, "teacher_scale is 0.0; it must be a number above 0"),
        ({"teacher_scale": float("nan")}, "teacher_scale is nan"),
    ],
)
def test_wrong_settings_are_one_clear_line(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        FitSettings.preset(**options)
