"""Several negatives of each triplet in a batch."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats
import torch

from remargin import BiEncoder, InputError
from remargin.data.training_data import TrainingData
from remargin.teacher.in_batch import InBatchTeacher
from remargin.training.batches import Batches
from remargin.training.loop import train
from remargin.training.samplers import QueryIndex, RandomSampler, uniform_pairs

from .conftest import sampled, silent
from .test_resume import stop_at, weights


@pytest.mark.parametrize("take", [1, 2, 3])
def test_they_take_turns_epoch_by_epoch(take: int) -> None:
    sampler = RandomSampler(count=6, negatives=3, batch_size=2, seed=0, take=take)
    plain = RandomSampler(count=6, negatives=3, batch_size=2, seed=0)
    taken = Counter[int]()
    for number in range(3 * sampler.steps_per_epoch):
        triplets, negatives = sampler(number)
        assert triplets.tolist() == plain(number).triplets.tolist()
        assert negatives.shape == ((2,) if take == 1 else (2, take))
        rows = negatives.reshape(2, take).tolist()
        assert all(len(set(row)) == take for row in rows)
        assert rows == [[(number // 3 * take + k) % 3 for k in range(take)]] * 2
        taken.update(rows[0])
    assert set(taken.values()) == {3 * take}


def test_by_topic_each_is_as_likely_as_any_other() -> None:
    index = QueryIndex.of(np.array([0, 0, 1]), queries=2)
    queries = np.zeros(3000, np.int64)
    one = uniform_pairs(index, 4, queries, np.random.default_rng(5))
    drawn = uniform_pairs(index, 4, queries, np.random.default_rng(5), take=3)
    assert (one.negatives == drawn.negatives[:, 0]).all()
    assert (one.triplets == drawn.triplets).all()
    assert all(len(set(row)) == 3 for row in drawn.negatives.tolist())
    assert scipy.stats.chisquare(np.bincount(drawn.negatives.ravel())).pvalue > 1e-3


def test_a_batch_holds_their_texts_and_margins(scored: Path) -> None:
    data, rng = TrainingData(scored), np.random.default_rng(0)
    of_queries, of_documents = (rng.standard_normal((len(s), 3)).astype("f4") for s in (data.queries, data.documents))
    teacher = InBatchTeacher(of_queries, of_documents)
    batch = Batches(data, RandomSampler.of(data.triplets, 5, 0, take=2), 0.5, teacher).batch(3)
    rows = data.triplets.take(RandomSampler.of(data.triplets, 5, 0)(3).triplets)
    assert rows.scores is not None
    assert batch.negatives.tolist() == rows.negatives.tolist()
    texts = [data.queries.take([row]) for row in rows.queries]
    texts += [data.documents.take([row]) for row in [*rows.positives, *rows.negatives.ravel()]]
    np.testing.assert_array_equal(batch.texts.ids, np.concatenate([text.ids for text in texts]))
    assert batch.teacher_margin is not None
    np.testing.assert_allclose(batch.teacher_margin, (rows.scores[:, :1] - rows.scores[:, 1:]) / 2, rtol=1e-6)
    triplets = [(rows.queries[i], rows.positives[i], rows.negatives[i, k]) for i in range(5) for k in range(2)]
    documents = [p for _, p, _ in triplets] + [n for *_, n in triplets]
    expected = [[of_queries[q] @ (of_documents[p] - of_documents[d]) for d in documents] for q, p, _ in triplets]
    assert batch.in_batch_margin is not None
    np.testing.assert_allclose(batch.in_batch_margin, expected, rtol=1e-4, atol=1e-5)


def test_a_loss_gets_them_and_an_observer_one_by_one(scored: Path, tiny_model: Any, tmp_path: Path) -> None:
    model = BiEncoder.from_pretrained(tiny_model("bert"))
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    data, seen, observed = TrainingData(scored), list[Any](), list[Any]()

    class Listens(torch.nn.Module):
        takes = ("ids", "teacher_margin")

        def forward(self, *vectors: Any, ids: Any, teacher_margin: Any) -> Any:
            seen.append((*(v.detach() for v in vectors), ids, teacher_margin))
            return vectors[2].square().mean()

    batch = Batches(data, RandomSampler.of(data.triplets, 5, 0, take=2)).batch(0)
    expected = model.encode_tokens(batch.texts)  # before training changes them
    chosen = sampled(steps=1, per_triplet=2, teacher_scale=1.0, target="teacher")
    lines: list[str] = []
    train(
        model, scored, tmp_path / "run", Listens(), chosen,
        say=lines.append, observe=lambda *given: observed.append(given),
    )  # fmt: skip
    queries, positives, negatives, ids, margins = seen[0]
    assert (queries.shape, positives.shape, negatives.shape) == ((5, 32), (5, 32), (5, 2, 32))
    for found in (torch.cat([queries, positives, negatives.flatten(0, 1)]), torch.cat(observed[0][1:])):
        unit = torch.nn.functional.normalize(found, dim=1)
        np.testing.assert_allclose(unit, expected, atol=1e-3)
    for found, rows in zip(ids, (batch.queries, batch.positives, batch.negatives), strict=True):
        assert found.tolist() == rows.tolist()
    assert batch.teacher_margin is not None
    assert margins.tolist() == batch.teacher_margin.tolist()
    assert any(line.startswith("1 steps of 5 triplets with 2 negatives each (") for line in lines)


@pytest.mark.parametrize(
    "options",
    [
        {"target": "distributed"},
        {"target": "0.3", "in_batch": True},
        {"target": "teacher"},
        {"target": "contrastive", "sampler": "tas", "clusters": 4},
        {"target": "softmax", "sampler": "tas", "clusters": 4},
    ],
    ids=lambda options: options["target"],
)
def test_every_loss_trains_with_them_and_goes_on_after_a_stop(
    options: dict[str, Any], scored: Path, tiny_model: Any, tmp_path: Path
) -> None:
    def run(name: str, per_triplet: int = 2, **others: Any) -> Any:
        model, chosen = BiEncoder.from_pretrained(tiny_model("bert")), sampled(per_triplet=per_triplet, **options)
        return train(model, scored, tmp_path / name, settings=chosen, say=silent, **others)

    assert run("whole").triplets == run("one", per_triplet=1).triplets
    with pytest.raises(KeyboardInterrupt):
        run("stopped", observe=stop_at(5))
    with pytest.raises(InputError, match="the training run was started with another per_triplet"):
        run("stopped", per_triplet=1, resume=True)
    run("stopped", resume=True)
    whole, stopped, one = (weights(tmp_path / name) for name in ("whole", "stopped", "one"))
    assert all(torch.equal(whole[name], stopped[name]) for name in whole)
    assert any(not torch.equal(whole[name], one[name]) for name in whole)


@pytest.mark.parametrize("sampler", ["random", "tas"])
def test_triplets_that_have_fewer_are_one_clear_line(
    sampler: str, scored: Path, tiny_model: Any, tmp_path: Path
) -> None:
    model, message = BiEncoder.from_pretrained(tiny_model("bert")), r"triplets of 2 negatives each, not 3; take fewer"
    with pytest.raises(InputError, match=message):
        train(model, scored, tmp_path / "run", settings=sampled(per_triplet=3, sampler=sampler), say=silent)
