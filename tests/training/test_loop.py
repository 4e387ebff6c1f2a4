"""Training: the loop against a plain one, resuming, early stopping, and what goes wrong."""

from __future__ import annotations

import csv
import json
import logging
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn

from remargin import BiEncoder, Collection, InputError, MarginLoss
from remargin.data.preparation import prepare
from remargin.data.shuffle import Shuffle
from remargin.data.training_data import TrainingData
from remargin.evaluation.runs import Run
from remargin.losses.teacher import DualTeacherLoss
from remargin.training import loop
from remargin.training.engine import Engine
from remargin.training.loop import train
from remargin.training.optimiser import make_optimiser
from remargin.training.settings import PRESETS, FitSettings, LossSettings
from remargin.training.validation import Validator

from .conftest import random_batches, settings, silent


def test_the_loop_is_a_plain_loop(prepared: Path, tiny_model: Any, tmp_path: Path) -> None:
    """The same losses and vectors as a loop written from scratch: one text at a time, torch's Adam, no dropout."""
    model, plain = (BiEncoder.from_pretrained(tiny_model("bert"), pooling="mean") for _ in range(2))
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    plan: dict[str, Any] = {"steps": 5, "warm_up": 0.4, "weight_decay": 0.1, "clip": 0.5, "log_every": 1}
    chosen = settings(target="distributed", **plan)
    train(model, prepared, tmp_path / "run", settings=chosen, say=silent)
    data = TrainingData(prepared)
    decayed = [p for p in plain.parameters() if p.requires_grad and p.ndim > 1]
    others = [p for p in plain.parameters() if p.requires_grad and p.ndim <= 1]
    optimiser = torch.optim.Adam([{"params": decayed, "weight_decay": 0.1}, {"params": others}])
    losses = []
    order = Shuffle(len(data.triplets), 0, 0)(np.arange(len(data.triplets)))
    for step, rate in enumerate([0.5e-3, 1e-3, 1e-3, 2e-3 / 3, 1e-3 / 3]):
        rows = data.triplets.take(order[step * 8 : step * 8 + 8])
        vectors = []
        for store, wanted in (
            (data.queries, rows.queries),
            (data.documents, rows.positives),
            (data.documents, rows.negatives[:, 0]),
        ):
            texts = [store.take([row]).ids.astype(np.int64) for row in wanted]
            vectors.append(torch.cat([plain(torch.from_numpy(t)[None], torch.ones(1, len(t))) for t in texts]))
        loss = MarginLoss("distributed")(*vectors)
        loss.backward()
        losses.append(loss.item())
        torch.nn.utils.clip_grad_norm_([p for p in plain.parameters() if p.grad is not None], 0.5)
        for group in optimiser.param_groups:
            group["lr"] = rate
        optimiser.step()
        optimiser.zero_grad()
    with open(tmp_path / "run" / "metrics.csv", newline="") as file:
        assert [float(row["loss"]) for row in csv.DictReader(file)] == pytest.approx(losses, rel=1e-3)
    assert max(losses) > min(losses) * 1.05
    texts = ["the value of abcd", "how is it"]
    np.testing.assert_allclose(model.encode_documents(texts), plain.encode_documents(texts), atol=2e-3)


def test_an_epoch_has_every_triplet_once_and_the_next_another_order(prepared: Path) -> None:
    data = random_batches(prepared, 8)
    epochs = []
    for epoch in range(2):
        batches = [data.batch(epoch * data.steps_per_epoch + i) for i in range(data.steps_per_epoch)]
        epochs.append([tuple(row) for b in batches for row in np.stack(b[:3], 1)])
    assert len(epochs[0]) == len(TrainingData(prepared).triplets) == 120
    assert sorted(epochs[0]) == sorted(epochs[1])
    assert epochs[0] != epochs[1]


def test_several_negatives_take_turns_and_scores_become_margins(tiny_model: Any, tmp_path: Path) -> None:
    rows = [
        {"query": f"q {i}", "positive": f"p {i}", "negatives": ["n 0", "n 1"], "scores": [5, 3, 1]} for i in range(4)
    ]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    prepare(None, tiny_model("bert"), tmp_path / "data", tmp_path / "t.jsonl")
    data = random_batches(tmp_path / "data", 4)
    first, second = data.batch(0), data.batch(1)
    assert len({*first.negatives}) == len({*second.negatives}) == 1
    assert first.negatives[0] != second.negatives[0]
    assert first.teacher_margin is not None
    assert second.teacher_margin is not None
    assert first.teacher_margin.tolist() == [2.0] * 4
    assert second.teacher_margin.tolist() == [4.0] * 4
    model = BiEncoder.from_pretrained(tiny_model("bert"), document_length=32)
    with pytest.raises(InputError, match="made with length 64, not 32"):
        train(model, tmp_path / "data", tmp_path / "run", settings=settings(target="teacher"), say=silent)


def test_advice_that_we_do_not_follow_is_not_passed_on_while_we_train(
    model: BiEncoder, prepared: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = logging.getLogger("lightning_fabric.utilities.rank_zero")

    class Advising(loop.Fabric):
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            log.info("you should set `torch.set_float32_matmul_precision('medium' | 'high')`")
            log.info("something else")

    monkeypatch.setattr(loop, "Fabric", Advising)
    with caplog.at_level(logging.INFO, log.name):
        train(model, prepared, tmp_path / "out", settings=settings(steps=1), say=silent)
        assert caplog.messages == ["something else"]
        log.info("see torch.set_float32_matmul_precision")  # what others log is theirs
    assert caplog.messages[-1] == "see torch.set_float32_matmul_precision"
    assert not log.filters


def test_random_numbers_of_others_go_on_as_if_nothing_had_been_trained(
    model: BiEncoder, prepared: Path, tmp_path: Path
) -> None:
    torch.manual_seed(3)
    wanted = torch.rand(2)
    torch.manual_seed(3)
    train(model, prepared, tmp_path / "out", settings=settings(steps=1), say=silent)
    assert torch.equal(torch.rand(2), wanted)


def test_a_setting_that_needs_a_value_is_not_none() -> None:
    for name in ("steps", "warm_up", "batch_size"):
        with pytest.raises(InputError, match=f"{name} is None; give a value, or leave it out"):
            FitSettings.preset(**{name: None})
    with pytest.raises(InputError, match="batch_size is 0"):
        FitSettings.preset("paper", batch_size=0)


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_runs_a_step(preset: str, model: BiEncoder, prepared: Path, tmp_path: Path) -> None:
    before = {name: p.clone() for name, p in model.named_parameters()}
    fitted = train(
        model, prepared, tmp_path / "run", settings=FitSettings.preset(preset, steps=1, precision="32"), say=silent
    )
    assert fitted.steps == 1
    assert any(not torch.equal(before[name], p) for name, p in model.named_parameters())


def test_presets_are_what_the_paper_and_its_code_say() -> None:
    paper, released = FitSettings.preset("paper"), FitSettings.preset("released")
    assert paper.learning_rate == pytest.approx(3.9e-8, rel=0.01)
    assert released.learning_rate == 5e-7
    for preset in (paper, released):
        assert (preset.batch_size, preset.weight_decay, preset.gamma, preset.patience) == (128, 1e-6, 0.99999, 16)
        assert (preset.validate_every, preset.validation_depth) == (500, 1000)
        assert (preset.eight_bit, preset.attention_dropout) == (True, True)
        assert preset.rates()(0) == preset.learning_rate
        assert preset.rates()(1000) == pytest.approx(preset.learning_rate * 0.99999**1000)


def test_clipping_and_patience_can_be_switched_off() -> None:
    assert (FitSettings.preset().clip, FitSettings.preset("paper").patience) == (1.0, 16)
    assert (FitSettings.preset(clip=None).clip, FitSettings.preset("paper", patience=None).patience) == (None, None)


@pytest.mark.parametrize("target", ["0.3", "adaptive", "distributed", "mean", "contrastive", "softmax"])
def test_every_loss_trains(target: str, tiny_model: Any, prepared: Path, tmp_path: Path) -> None:
    model = BiEncoder.from_pretrained(tiny_model("bert"), pooling="mean")
    chosen = settings(target=target, steps=30, log_every=1, learning_rate=3e-3)
    train(model, prepared, tmp_path / "run", settings=chosen, say=silent)
    with open(tmp_path / "run" / "metrics.csv", newline="") as file:
        losses = [float(row["loss"]) for row in csv.DictReader(file)]
    assert len(losses) == 30
    assert np.mean(losses[-5:]) < np.mean(losses[:5])


def test_training_makes_the_encoder_better(tiny_model: Any, prepared: Path, tmp_path: Path) -> None:
    chosen = settings(steps=120, target="contrastive", learning_rate=3e-3, validate_every=40)
    model = BiEncoder.from_pretrained(tiny_model("bert"), pooling="mean")
    collection = Collection.load(prepared, "train")
    everything = Run.of({query: dict.fromkeys(collection.documents, 1.0) for query in collection.queries})
    validator = Validator(prepared, "train", chosen, everything)
    fitted = train(model, prepared, tmp_path / "run", settings=chosen, validator=validator, say=silent)
    assert fitted.before is not None
    assert fitted.best is not None
    assert fitted.best > fitted.before + 0.1
    again = BiEncoder.from_pretrained(fitted.model)
    engine = Engine(again, chosen, torch.device("cpu"), torch.float32, np.array([1]))
    assert validator(engine, again.similarity)[validator.measure] == pytest.approx(fitted.best, abs=1e-6)


def test_early_stopping_on_a_metric_that_falls(model: BiEncoder, prepared: Path, tmp_path: Path) -> None:
    values = iter([0.5, 0.6, 0.4, 0.3, 0.2, 0.1, 0.0])

    class Falling:
        measure = "nDCG@10"

        def __call__(self, *_: Any) -> dict[str, float]:
            return {self.measure: next(values)}

    chosen = settings(steps=60, validate_every=2, patience=3)
    fitted = train(model, prepared, tmp_path / "run", settings=chosen, validator=Falling(), say=silent)  # type: ignore[arg-type]
    assert fitted.stopped_early
    assert (fitted.steps, fitted.best, fitted.best_step) == (8, 0.6, 2)
    best, last = (safetensors.torch.load_file(tmp_path / "run" / n / "model.safetensors") for n in ("best", "last"))
    assert any(not torch.equal(best[name], last[name]) for name in best)
    assert not (fitted := _all_the_same(model, prepared, tmp_path / "last step")).stopped_early
    assert fitted.steps == 4


def _all_the_same(model: BiEncoder, prepared: Path, out: Path) -> Any:
    """A run whose patience ends with its last step."""

    class Same:
        measure = "nDCG@10"

        def __call__(self, *_: Any) -> dict[str, float]:
            return {self.measure: 0.5}

    chosen = settings(steps=4, validate_every=2, patience=2)
    return train(model, prepared, out, settings=chosen, validator=Same(), say=silent)  # type: ignore[arg-type]


def test_a_loss_that_is_not_a_number_stops_with_a_reason(model: BiEncoder, prepared: Path, tmp_path: Path) -> None:
    wild = {"learning_rate": 1e30, "clip": float("inf"), "warm_up": 0}
    with pytest.raises(InputError, match=r"the loss is nan at step .*; use a lower learning rate than 1e\+30"):
        train(model, prepared, tmp_path / "run", settings=settings(**wild), say=silent)


def test_so_does_one_between_two_lines_of_the_log(tiny_model: Any, prepared: Path, tmp_path: Path) -> None:
    """A validation would trip over the model's numbers, and blame a document."""
    chosen = settings(learning_rate=1e30, clip=float("inf"), warm_up=0, log_every=100, steps=9)
    validator = Validator(prepared, "dev", chosen)
    model = BiEncoder.from_pretrained(tiny_model("bert"))
    with pytest.raises(InputError, match="the loss is nan at step 3"):
        train(model, prepared, tmp_path / "run", settings=chosen, validator=validator, say=silent)


def test_a_collapsed_encoder_stops_with_a_reason(model: BiEncoder, prepared: Path, tmp_path: Path) -> None:
    with torch.no_grad():
        model.backbone.encoder.layer[-1].output.LayerNorm.weight.zero_()
        model.backbone.encoder.layer[-1].output.LayerNorm.bias.fill_(1.0)
    with pytest.raises(InputError, match="the encoder has collapsed at step 1"):
        train(model, prepared, tmp_path / "run", settings=settings(), say=silent)


def test_accumulation_is_the_mean_of_its_batches(prepared: Path, tiny_model: Any, tmp_path: Path) -> None:
    """Two batches of 8 in a step are one batch of 16, for a loss that looks at each triplet alone; one of 8 is not."""
    vectors = []
    for options in ({"batch_size": 8, "accumulate": 2}, {"batch_size": 16}, {"batch_size": 8}):
        model = BiEncoder.from_pretrained(tiny_model("bert"), pooling="mean")
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
        chosen = settings(target="0.3", steps=1, clip=None, warm_up=0, **options)
        train(model, prepared, tmp_path / str(len(vectors)), settings=chosen, say=silent)
        vectors.append(model.encode_documents(["the value of abcd", "how is it"]))
    np.testing.assert_allclose(vectors[0], vectors[1], atol=1e-3)
    assert np.abs(vectors[0] - vectors[2]).max() > 2 * np.abs(vectors[0] - vectors[1]).max()


def test_biases_and_layer_norms_are_not_decayed(model: BiEncoder) -> None:
    optimiser = make_optimiser([model], settings(weight_decay=0.5))
    decayed = {id(p) for group in optimiser.param_groups if group["weight_decay"] for p in group["params"]}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            assert (id(parameter) in decayed) == (not ("bias" in name or "LayerNorm" in name)), name


def test_eight_bits_need_their_package(model: BiEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    with pytest.raises(InputError, match="8-bit optimiser states need bitsandbytes"):
        make_optimiser([model], settings(eight_bit=True))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 0}, "steps is 0; it must be at least 1"),
        ({"learning_rate": -1.0}, "learning_rate is -1.0"),
        ({"learning_rate": float("inf")}, "learning_rate is inf"),
        ({"validate_every": 0}, "validate_every is 0; it must be at least 1"),
        ({"patience": 0}, "patience is 0; it must be at least 1"),
        ({"clip": -1.0}, "clip is -1.0; it must be above 0"),
        ({"weight_decay": -1.0}, "weight_decay is -1.0"),
        ({"gamma": 0.0}, "gamma is 0.0"),
        ({"gamma": 1.5}, "gamma is 1.5"),
        ({"seed": -1}, r"seed is -1; it must be at least 0 and below 2\*\*63"),
        ({"seed": 2**63}, f"seed is {2**63}"),
        ({"warm_up": 1.0}, "warm_up is 1.0"),
        ({"schedule": "cosine"}, "unknown schedule 'cosine'"),
        ({"precision": "8"}, "unknown precision '8'"),
        ({"preset": "best"}, "unknown preset 'best'; use default, paper, released"),
        ({"error": "l3"}, "unknown error 'l3'; use l2, l1, softplus"),
        ({"target": "contrastive", "error": "l1"}, "error does nothing for the contrastive loss; leave it out"),
        ({"temperature": 0.1}, "temperature does nothing for other losses than contrastive"),
        ({"temperature": "warm"}, "temperature is 'warm'; it must be a number above 0, or learned"),
        ({"temperature": "-1"}, "temperature is -1.0; it must be a number above 0, or learned"),
        ({"target": "softmax", "error": "l1"}, "error does nothing for the softmax loss; leave it out"),
        ({"target": "softmax", "spread": "column"}, "unknown spread 'column'; use row, batch, running"),
        ({"target": "softmax", "margin_weight": float("inf")}, "margin_weight is inf; it must be a finite number"),
        ({"target": "contrastive", "stop_gradient": True}, "stop_gradient does nothing for the contrastive loss"),
        ({"per_triplet": 0}, "per_triplet is 0; it must be at least 1"),
        (
            {"per_triplet": 2, "sampler": "tas-balanced"},
            "but tas-balanced draws pairs of one negative; use the sampler",
        ),
        ({"target": "1e-1", "stop_gradient": True}, "stop_gradient does nothing for targets that are constant anyway"),
        ({"target": "teacher", "in_batch": True, "error": "l1"}, "error does nothing for two teachers"),
        ({"teacher_scale": 0.5}, "teacher_scale does nothing for other targets than teacher"),
    ],
)
def test_wrong_settings_are_one_clear_line(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        FitSettings.preset(**options)


def test_the_softmax_loss_refuses_an_encoder_of_dot_products() -> None:
    with pytest.raises(InputError, match="similarity='dot': the softmax loss needs 'cosine'"):
        FitSettings.preset(target="softmax").loss.build("dot", 32)


@pytest.mark.parametrize("target", ["0.3", "adaptive", "distributed", "mean", "teacher", "contrastive", "softmax"])
def test_what_the_loss_decides_itself_is_resolved(target: str) -> None:
    """So that a resumed run compares what it was trained with; all but the softmax loss as before there was one."""
    found = asdict(LossSettings(target))
    assert found.pop("stop_gradient") is (target == "softmax")
    assert (found.pop("margin_weight"), found.pop("spread"), found.pop("dims")) == (0.5, "row", None)
    usual = {"target": target, "in_batch": False, "error": "l2", "temperature": 0.05, "teacher_scale": None}
    assert found == usual
    assert LossSettings(**asdict(LossSettings(target))) == LossSettings(target)
    assert LossSettings("contrastive", temperature="0.1") == LossSettings("contrastive", temperature=0.1)


def test_a_wrong_target_is_one_clear_line() -> None:
    with pytest.raises(InputError, match=r"unknown target 'adaptve'; use adaptive, .*, contrastive, or a number"):
        FitSettings.preset(target="adaptve").loss.build("cosine", 32)


def test_teachers_are_asked_for_before_the_first_validation(
    model: BiEncoder, prepared: Path, tiny_model: Any, tmp_path: Path
) -> None:
    def never(*_: Any) -> None:
        raise AssertionError("validated")

    with pytest.raises(InputError, match='target "teacher" needs scores; take triplets that have them'):
        train(model, prepared, tmp_path / "a", settings=settings(target="teacher"), validator=never, say=silent)  # type: ignore[arg-type]
    rows = ({"query": f"q {i}", "positive": f"p {i}", "negative": f"n {i}", "scores": [3, i % 3]} for i in range(16))
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    prepare(None, tiny_model("bert"), tmp_path / "data", tmp_path / "t.jsonl", document_length=64)
    with pytest.raises(InputError, match="dual supervision needs a second teacher"):
        train(model, tmp_path / "data", tmp_path / "b", DualTeacherLoss(), settings(), never, say=silent)  # type: ignore[arg-type]


def test_a_loss_of_ones_own_may_have_any_attributes(model: BiEncoder, prepared: Path, tmp_path: Path) -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.similarity = nn.CosineSimilarity(dim=1)

        def forward(self, queries: Any, positives: Any, negatives: Any) -> Any:
            return torch.relu(0.3 - self.similarity(queries, positives) + self.similarity(queries, negatives)).mean()

    assert train(model, prepared, tmp_path, Own(), settings(steps=2), say=silent).steps == 2

    class Listens(Own):
        takes = ("ids",)

        def forward(self, *vectors: Any, ids: Any) -> Any:  # type: ignore[override]
            assert [rows.shape for rows in ids] == [vectors[0].shape[:1]] * 3
            return super().forward(*vectors)

    assert train(model, prepared, tmp_path / "listens", Listens(), settings(steps=2), say=silent).steps == 2
    Listens.takes = ("ids", "weather")  # type: ignore[assignment]
    with pytest.raises(InputError, match="the loss takes weather, which `fit` does not have; it can take ids"):
        train(model, prepared, tmp_path / "a", Listens(), settings(steps=2), say=silent)
    with pytest.raises(InputError, match="a teacher's in-batch targets need a second teacher; use DualTeacherLoss"):
        train(model, prepared, tmp_path / "b", MarginLoss("teacher", in_batch=True), settings(steps=2), say=silent)
