"""Topics: k-means, the topics of queries, and training runs that continue with the topics of before."""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import scipy.cluster.vq
import scipy.stats
import torch

from remargin import BiEncoder, InputError, MarginLoss
from remargin.data.training_data import TrainingData
from remargin.training import topics as topics_module
from remargin.training.loop import train
from remargin.training.topics import kmeans, query_topics

from .conftest import sampled


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
    chosen = sampled(sampler="tas-balanced", clusters=3, drop_bins=2, target="teacher")

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
    with pytest.raises(InputError, match=r"topics.npy: has the topics of other queries; start the training run anew"):
        run("broken", resume=True)
    whole = (tmp_path / "whole" / "topics.npy").read_bytes()
    flipped = whole[:-40] + bytes([whole[-40] ^ 1]) + whole[-39:]  # the topic of a query
    for damaged in (flipped, whole[:-1], b"nothing"):
        (tmp_path / "broken" / "topics.npy").write_bytes(damaged)
        with pytest.raises(InputError, match=r"topics.npy: cannot be read as topics of queries"):
            run("broken", resume=True)
