"""Samplers: what an epoch holds, topics, balanced margins against their definition, and runs that go on."""

from __future__ import annotations

import hashlib
import io
import json
from collections import Counter, defaultdict
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import scipy.cluster.vq
import scipy.stats
import torch

from remargin import BiEncoder, InputError, MarginLoss
from remargin.data.prepare import prepare
from remargin.data.shuffle import Shuffle
from remargin.data.training_data import TrainingData
from remargin.data.triplets import Triplets
from remargin.model.tokenizer import TextSettings
from remargin.training import topics as topics_module
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
from remargin.training.topics import default_clusters, kmeans, mean_batch, query_topics

from .conftest import random_batches, silent


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


def inertia(vectors: torch.Tensor, clusters: torch.Tensor) -> float:
    parts = [vectors[clusters == number] for number in clusters.unique()]
    return sum(float((part - part.mean(0)).square().sum()) for part in parts)


def test_kmeans_finds_what_anyone_sees() -> None:
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 7, 500)
    centres = 100 + 20 * rng.standard_normal((7, 5))
    vectors = torch.from_numpy((centres[truth] + rng.standard_normal((500, 5))).astype(np.float32))
    found = kmeans(vectors, 7, seed=1)
    assert sorted(found.unique().tolist()) == list(range(7))
    assert len({*zip(found.tolist(), truth.tolist(), strict=True)}) == 7
    assert torch.equal(found, kmeans(vectors, 7, seed=1))


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_kmeans_is_as_good_as_scipys(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there are no clear clusters, and in blocks that do not divide the vectors."""
    rng = np.random.default_rng(seed)
    array = rng.standard_normal((1500, 8)).astype(np.float32) * rng.random(8).astype(np.float32)
    vectors = torch.from_numpy(array)
    whole = kmeans(vectors, 20, seed)
    _, theirs = scipy.cluster.vq.kmeans2(array, 20, iter=30, minit="++", rng=seed)
    assert inertia(vectors, whole) < 1.03 * inertia(vectors, torch.from_numpy(theirs))
    assert inertia(vectors, whole) < 0.7 * inertia(vectors, torch.zeros(1500))
    monkeypatch.setattr(topics_module, "SIMILARITIES_AT_ONCE", 20 * 400)
    assert inertia(vectors, kmeans(vectors, 20, seed)) == pytest.approx(inertia(vectors, whole), rel=0.01)


def test_kmeans_keeps_no_empty_cluster() -> None:
    few = torch.tensor([[0.0, 0.0], [1.0, 1.0], [5.0, 5.0]]).repeat(10, 1)
    found = kmeans(few, 8, seed=0)
    assert sorted(found.unique().tolist()) == [0, 1, 2]
    assert inertia(few, found) == 0
    assert kmeans(few[:2], 8, seed=0).unique().tolist() == [0, 1]
    assert kmeans(few, 1, seed=0).unique().tolist() == [0]


@pytest.fixture(scope="module")
def scored(tiny_model: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Queries of three kinds with three triplets each, of two negatives and a teacher's scores."""
    folder = tmp_path_factory.mktemp("scored")
    rng = np.random.default_rng(0)
    kinds = ["how to {}{} a file", "margins {}{} adapt", "is the value {}{} in"]
    rows = [
        {
            "query": kinds[i % 3].format(*"abcdefgh"[i // 8 : i // 8 + 1], "abcdefgh"[i % 8]),
            "positive": f"document {i} {j}",
            "negatives": [f"text {i} {j}", f"list {j} {i}"],
            "scores": [float(score) for score in 10 + 5 * rng.standard_normal(3)],
        }
        for i in range(36)
        for j in range(3)
    ]
    (folder / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    prepare(None, tiny_model("bert"), folder / "data", folder / "t.jsonl", TextSettings(30, 64))
    return folder / "data"


def settings(**options: Any) -> FitSettings:
    defaults = {"steps": 9, "batch_size": 5, "learning_rate": 1e-3, "precision": "32", "log_every": 3, "save_every": 2}
    return FitSettings.preset(**{**defaults, **options})


def test_topics_are_kmeans_over_the_encoded_queries(scored: Path, tiny_model: Any) -> None:
    model = BiEncoder.from_pretrained(tiny_model("bert"))
    data = TrainingData(scored)
    texts = [json.loads(line)["query"] for line in (scored.parent / "t.jsonl").read_text().splitlines()]
    vectors = torch.from_numpy(model.encode_queries([texts[0], *texts[3::3]]))
    assert len(data.queries) == len(vectors) == 36
    found = query_topics(model, data.queries, np.arange(36), clusters=4, seed=2)
    assert found.tolist() == kmeans(vectors, 4, seed=2).tolist()
    some = query_topics(model, data.queries, np.arange(0, 36, 2), clusters=4, seed=2)
    assert (some[1::2] == -1).all()
    assert set(some[::2]) == set(range(4))


class Stops(MarginLoss):
    """As good as a kill after some batches."""

    calls = 0

    def _get_name(self) -> str:
        return "MarginLoss"

    def forward(self, *arguments: Any, **others: Any) -> torch.Tensor:
        self.calls += 1
        if self.calls > 5:
            raise KeyboardInterrupt
        return super().forward(*arguments, **others)


def test_resumed_is_uninterrupted_with_the_topics_of_before(
    scored: Path, tiny_model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = settings(sampler="tas-balanced", clusters=3, drop_bins=2, target="teacher")

    seen = {}

    def run(name: str, **options: Any) -> list[str]:
        lines: list[str] = []
        model = BiEncoder.from_pretrained(tiny_model("bert"))
        fitted = train(model, scored, tmp_path / name, settings=chosen, say=lines.append, **options)
        seen[name] = fitted.triplets
        return lines

    lines = run("whole")
    assert any(line.startswith("topics: 3, of ") for line in lines)
    described = next(line for line in lines if line.startswith("9 steps of "))
    topics = np.load(tmp_path / "whole" / "topics.npy")
    steps = sum(-(-int(size) // 5) for size in np.bincount(topics))
    epochs = f"{9 / steps:.2f} epochs of 36 queries, topic by topic"
    assert described == f"9 steps of {round(36 / steps, 1):g} triplets ({epochs}) on cpu"
    with pytest.raises(KeyboardInterrupt):
        run("broken", loss=Stops("teacher"))
    assert (tmp_path / "broken" / "checkpoint").exists()

    def never(*_: Any) -> None:
        raise AssertionError("the topics were to be read")

    monkeypatch.setattr(topics_module, "kmeans", never)
    assert "resuming after step 4" in run("broken", resume=True)
    assert 0 < seen["whole"] == seen["broken"] < 9 * 5  # what was in the batches, which are smaller where a topic ends
    whole, broken = (
        safetensors.torch.load_file(tmp_path / name / "last" / "model.safetensors") for name in ("whole", "broken")
    )
    for name, tensor in whole.items():
        assert torch.equal(tensor, broken[name]), name
    np.testing.assert_array_equal(topics, np.load(tmp_path / "broken" / "topics.npy"))
    other = io.BytesIO()
    np.save(other, topics[:-1])
    digest = hashlib.sha256(other.getvalue()).digest()
    (tmp_path / "broken" / "topics.npy").write_bytes(other.getvalue() + digest)
    with pytest.raises(InputError, match=r"topics.npy: has the topics of other queries; start the run anew"):
        run("broken", resume=True)
    whole = (tmp_path / "whole" / "topics.npy").read_bytes()
    flipped = whole[:-40] + bytes([whole[-40] ^ 1]) + whole[-39:]  # the topic of a query
    for damaged in (flipped, whole[:-1], b"nothing"):
        (tmp_path / "broken" / "topics.npy").write_bytes(damaged)
        with pytest.raises(InputError, match=r"topics.npy: cannot be read as topics of queries"):
            run("broken", resume=True)


@pytest.mark.parametrize("target", ["distributed", "contrastive"])
def test_batches_of_one_triplet_train(target: str, scored: Path, tiny_model: Any, tmp_path: Path) -> None:
    model = BiEncoder.from_pretrained(tiny_model("bert"))
    lines: list[str] = []
    chosen = settings(sampler="tas", clusters=36, target=target)
    fitted = train(model, scored, tmp_path / "run", settings=chosen, say=lines.append)
    assert fitted.steps == 9
    assert f"36 topics of 1.0 queries on average: batches of {chosen.batch_size} are never full" in lines


def test_balanced_needs_scores(tiny_model: Any, tmp_path: Path) -> None:
    rows = [{"query": f"q {i}", "positive": f"p {i}", "negative": f"n {i}"} for i in range(8)]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    prepare(None, tiny_model("bert"), tmp_path / "data", tmp_path / "t.jsonl", TextSettings(30, 64))
    model = BiEncoder.from_pretrained(tiny_model("bert"))
    with pytest.raises(InputError, match=r'"tas-balanced" needs triplets with scores; .*`remargin teach`'):
        train(model, tmp_path / "data", tmp_path / "run", settings=settings(sampler="tas-balanced"), say=silent)


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


def test_the_teachers_margins_are_brought_into_a_cosines_range(
    scored: Path, tiny_model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What reaches the loss is the scores' difference times the scale: given, or one over the 99th percentile."""
    seen: list[torch.Tensor] = []

    class Listens(MarginLoss):
        def forward(self, *arguments: Any, **others: Any) -> torch.Tensor:
            seen.append(others["teacher_margin"])
            return super().forward(*arguments, **others)

    scores = Triplets(scored / "triplets").take(np.arange(108)).scores
    assert scores is not None
    large = np.quantile(np.abs(scores[:, :1] - scores[:, 1:]), 0.99)
    plain = [random_batches(scored, 5).batch(number).teacher_margin for number in range(2)]
    for similarity, asked, scale in (("cosine", None, 1 / large), ("dot", None, 1.0), ("cosine", 0.25, 0.25)):
        model, lines = BiEncoder.from_pretrained(tiny_model("bert")), list[str]()
        loss = Listens("teacher", similarity=similarity)  # type: ignore[arg-type]
        chosen = settings(steps=2, target="teacher", teacher_scale=asked)
        train(model, scored, tmp_path / f"{similarity}{asked}", loss, chosen, say=lines.append)
        for margins, expected in zip(seen, plain, strict=True):
            assert expected is not None
            torch.testing.assert_close(margins, expected * float(scale))
        said = [line for line in lines if line.startswith("the teacher's margins are multiplied with ")]
        assert len(said) == (similarity == "cosine" and asked is None)
        seen.clear()
    monkeypatch.setattr("remargin.data.triplets.MARGINS_AT_MOST", 100)
    assert Triplets(scored / "triplets").large_margin() == pytest.approx(float(large), rel=0.3)
