"""Training: the loop against a plain one, resuming, early stopping, and what goes wrong."""

from __future__ import annotations

import csv
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn

from remargin import BiEncoder, Collection, InputError, MarginLoss
from remargin.data.prepare import TextSettings, prepare
from remargin.data.shuffle import Shuffle
from remargin.evaluation.runs import Run
from remargin.experiments.targets import TargetLog, read_targets
from remargin.files import read_header, write_header
from remargin.losses import DualTeacherLoss
from remargin.training import log, loop
from remargin.training.batches import TrainingData
from remargin.training.checkpoint import FORMAT, Progress, load_checkpoint, save_checkpoint
from remargin.training.engine import Engine
from remargin.training.loop import fit
from remargin.training.optimiser import learning_rate, make_optimiser
from remargin.training.settings import PRESETS, fit_settings
from remargin.training.validation import Validator

from .conftest import settings, silent


def test_the_loop_is_a_plain_loop(prepared: Path, tiny_model: Any, tmp_path: Path) -> None:
    """The same losses and vectors as a loop written from scratch: one text at a time, torch's Adam, no dropout."""
    model, plain = (BiEncoder.from_pretrained(tiny_model("bert"), pooling="mean") for _ in range(2))
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    chosen = settings(steps=5, warm_up=0.4, weight_decay=0.1, clip=0.5, log_every=1)
    fit(model, prepared, tmp_path / "run", settings=chosen, say=silent)
    data = TrainingData(prepared, 8, seed=0)
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
    data = TrainingData(prepared, 8, seed=0)
    epochs = []
    for epoch in range(2):
        batches = [data.batch(epoch * data.steps_per_epoch + i) for i in range(data.steps_per_epoch)]
        epochs.append([tuple(row) for b in batches for row in np.stack(b[:3], 1)])
    assert len(epochs[0]) == len(data.triplets) == 120
    assert sorted(epochs[0]) == sorted(epochs[1])
    assert epochs[0] != epochs[1]


def test_several_negatives_take_turns_and_scores_become_margins(tiny_model: Any, tmp_path: Path) -> None:
    rows = [
        {"query": f"q {i}", "positive": f"p {i}", "negatives": ["n 0", "n 1"], "scores": [5, 3, 1]} for i in range(4)
    ]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    prepare(None, tiny_model("bert"), tmp_path / "data", tmp_path / "t.jsonl")
    data = TrainingData(tmp_path / "data", 4, seed=0)
    first, second = data.batch(0), data.batch(1)
    assert len({*first.negatives}) == len({*second.negatives}) == 1
    assert first.negatives[0] != second.negatives[0]
    assert first.teacher_margin is not None
    assert second.teacher_margin is not None
    assert first.teacher_margin.tolist() == [2.0] * 4
    assert second.teacher_margin.tolist() == [4.0] * 4
    model = BiEncoder.from_pretrained(tiny_model("bert"), document_length=64)
    with pytest.raises(InputError, match="made with length 200, not 64"):
        fit(model, tmp_path / "data", tmp_path / "run", settings=settings(target="teacher"), say=silent)


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_runs_a_step(preset: str, model: BiEncoder, prepared: Path, tmp_path: Path) -> None:
    before = {name: p.clone() for name, p in model.named_parameters()}
    fitted = fit(model, prepared, tmp_path / "run", settings=fit_settings(preset, steps=1, precision="32"), say=silent)
    assert fitted.steps == 1
    assert any(not torch.equal(before[name], p) for name, p in model.named_parameters())


def test_presets_are_what_the_paper_and_its_code_say() -> None:
    paper, released = fit_settings("paper"), fit_settings("released")
    assert paper.learning_rate == pytest.approx(3.9e-8, rel=0.01)
    assert released.learning_rate == 5e-7
    for preset in (paper, released):
        assert (preset.batch_size, preset.weight_decay, preset.gamma, preset.patience) == (128, 1e-6, 0.99999, 16)
        assert preset.validate_every == 500
        assert learning_rate(preset, 0) == preset.learning_rate
        assert learning_rate(preset, 1000) == pytest.approx(preset.learning_rate * 0.99999**1000)


@pytest.mark.parametrize("target", ["0.3", "adaptive", "distributed", "mean", "contrastive"])
def test_every_loss_trains(target: str, model: BiEncoder, prepared: Path, tmp_path: Path) -> None:
    chosen = settings(target=target, steps=30, log_every=1, learning_rate=3e-3)
    fit(model, prepared, tmp_path / "run", settings=chosen, say=silent)
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
    fitted = fit(model, prepared, tmp_path / "run", settings=chosen, validator=validator, say=silent)
    assert fitted.before is not None
    assert fitted.best is not None
    assert fitted.best > fitted.before + 0.1
    again = BiEncoder.from_pretrained(fitted.model)
    engine = Engine(again, chosen, torch.device("cpu"), torch.float32, np.array([1]))
    assert validator(engine, again.similarity)[validator.measure] == pytest.approx(fitted.best, abs=1e-6)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return safetensors.torch.load_file(folder / "last" / "model.safetensors")


ARGUMENTS = ["--steps", "60", "--batch-size", "8", "--precision", "32", "--save-every", "7", "--validate-every", "10"]


def test_killed_at_random_steps_and_resumed_it_ends_with_the_same_weights(
    beir: Path, tiny_model: Any, tmp_path: Path
) -> None:
    """A real kill -9, three times, against a run that nobody disturbed: equal bit for bit, dropout included."""
    model = tiny_model("bert")
    command = [sys.executable, "-m", "remargin", "fit", "--data", str(beir), "--model", str(model), *ARGUMENTS]
    subprocess.run([*command, "--out", str(tmp_path / "whole")], check=True, capture_output=True)
    rng, kills = random.Random(time.time_ns()), []
    metrics = tmp_path / "broken" / "metrics.csv"

    def step() -> int:
        lines = metrics.read_text().splitlines() if metrics.exists() else []
        return int(lines[-1].split(",")[0]) if len(lines) > 1 else -1

    for low in (2, 20, 38):
        target = low + rng.randrange(15)
        process = subprocess.Popen(
            [*command, "--out", str(tmp_path / "broken"), "--resume", "--log-every", "1"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        while process.poll() is None and step() < target:
            time.sleep(0.002)
        assert process.poll() is None, "it ended before it could be killed"
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        kills.append(step())
    assert len(set(kills)) == 3
    subprocess.run(
        [*command, "--out", str(tmp_path / "broken"), "--resume", "--log-every", "1"], check=True, capture_output=True
    )
    whole, broken = weights(tmp_path / "whole"), weights(tmp_path / "broken")
    assert whole.keys() == broken.keys()
    for name, tensor in whole.items():
        assert torch.equal(tensor, broken[name]), (name, kills)
    reports = [json.loads((tmp_path / name / "report.json").read_text()) for name in ("whole", "broken")]
    assert reports[0]["validations"] == reports[1]["validations"]
    with open(metrics, newline="") as file:
        steps = [int(row["step"]) for row in csv.DictReader(file) if row["loss"]]
    assert steps == list(range(1, 61))


def test_early_stopping_on_a_metric_that_falls(model: BiEncoder, prepared: Path, tmp_path: Path) -> None:
    values = iter([0.5, 0.6, 0.4, 0.3, 0.2, 0.1, 0.0])

    class Falling:
        measure = "nDCG@10"

        def __call__(self, *_: Any) -> dict[str, float]:
            return {self.measure: next(values)}

    chosen = settings(steps=60, validate_every=2, patience=3)
    fitted = fit(model, prepared, tmp_path / "run", settings=chosen, validator=Falling(), say=silent)  # type: ignore[arg-type]
    assert fitted.stopped_early
    assert (fitted.steps, fitted.best, fitted.best_step) == (8, 0.6, 2)
    best, last = (safetensors.torch.load_file(tmp_path / "run" / n / "model.safetensors") for n in ("best", "last"))
    assert any(not torch.equal(best[name], last[name]) for name in best)


def test_a_loss_that_is_not_a_number_stops_with_a_reason(model: BiEncoder, prepared: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"the loss is nan at step .*; use a lower learning rate than 1e\+30"):
        fit(model, prepared, tmp_path / "run", settings=settings(learning_rate=1e30, clip=None, warm_up=0), say=silent)


def test_a_collapsed_encoder_stops_with_a_reason(model: BiEncoder, prepared: Path, tmp_path: Path) -> None:
    with torch.no_grad():
        model.backbone.encoder.layer[-1].output.LayerNorm.weight.zero_()
        model.backbone.encoder.layer[-1].output.LayerNorm.bias.fill_(1.0)
    with pytest.raises(InputError, match="the encoder has collapsed at step 1"):
        fit(model, prepared, tmp_path / "run", settings=settings(), say=silent)


def test_accumulation_is_the_mean_of_its_batches(prepared: Path, tiny_model: Any, tmp_path: Path) -> None:
    """Two batches of 8 in a step are one batch of 16, for a loss that looks at each triplet alone; one of 8 is not."""
    vectors = []
    for options in ({"batch_size": 8, "accumulate": 2}, {"batch_size": 16}, {"batch_size": 8}):
        model = BiEncoder.from_pretrained(tiny_model("bert"), pooling="mean")
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
        chosen = settings(target="0.3", steps=1, clip=None, warm_up=0, **options)
        fit(model, prepared, tmp_path / str(len(vectors)), settings=chosen, say=silent)
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


@pytest.mark.parametrize("eight_bit", [False, True])
def test_a_checkpoint_brings_the_optimiser_back(eight_bit: bool, tmp_path: Path) -> None:
    inputs = torch.randn(12, 4, 128, generator=torch.Generator().manual_seed(0))

    def made() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
        torch.manual_seed(1)
        module = torch.nn.Linear(128, 128)  # large enough for its state to be quantised
        return module, make_optimiser([module], settings(eight_bit=eight_bit))

    def steps(module: torch.nn.Module, optimiser: torch.optim.Optimizer, batches: torch.Tensor) -> None:
        for batch in batches:
            optimiser.zero_grad()
            module(batch).square().sum().backward()
            optimiser.step()

    whole, optimiser = made()
    steps(whole, optimiser, inputs[:6])
    save_checkpoint(tmp_path / "checkpoint", Progress(step=6), {"model": whole}, optimiser, {})
    steps(whole, optimiser, inputs[6:])
    resumed, optimiser = made()
    assert load_checkpoint(tmp_path / "checkpoint", {"model": resumed}, optimiser)[0].step == 6
    steps(resumed, optimiser, inputs[6:])
    assert torch.equal(whole.weight, resumed.weight)
    states = safetensors.torch.load_file(tmp_path / "checkpoint" / "state.safetensors")
    assert any(tensor.dtype == torch.uint8 and name[0] == "o" for name, tensor in states.items()) == eight_bit


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
    ],
)
def test_wrong_settings_are_one_clear_line(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        fit_settings(**options)


def test_a_wrong_target_is_one_clear_line() -> None:
    with pytest.raises(InputError, match=r"unknown target 'adaptve'; use adaptive, .*, contrastive, or a number"):
        fit_settings(target="adaptve").loss.build("cosine")


def test_teachers_are_asked_for_before_the_first_validation(
    model: BiEncoder, prepared: Path, tiny_model: Any, tmp_path: Path
) -> None:
    def never(*_: Any) -> None:
        raise AssertionError("validated")

    with pytest.raises(InputError, match='target "teacher" needs scores; prepare triplets that have scores'):
        fit(model, prepared, tmp_path / "a", settings=settings(target="teacher"), validator=never, say=silent)  # type: ignore[arg-type]
    rows = ({"query": f"q {i}", "positive": f"p {i}", "negative": f"n {i}", "scores": [3, i % 3]} for i in range(16))
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    prepare(None, tiny_model("bert"), tmp_path / "data", tmp_path / "t.jsonl", TextSettings(30, 64))
    with pytest.raises(InputError, match="dual supervision needs a second teacher"):
        fit(model, tmp_path / "data", tmp_path / "b", DualTeacherLoss(), settings(), never, say=silent)  # type: ignore[arg-type]


def stop_at(batch: int) -> Any:
    """An observer that stops a run."""

    def observe(number: int, *_: Any) -> None:
        if number == batch:
            raise KeyboardInterrupt

    return observe


def test_the_time_of_making_batches_counts_also_after_a_stop(
    tiny_model: Any, prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = loop.make_sampler

    def slow(*arguments: Any) -> Any:
        time.sleep(2)
        return make(*arguments)

    monkeypatch.setattr(loop, "make_sampler", slow)
    chosen = settings(steps=4, save_every=2)
    model = BiEncoder.from_pretrained(tiny_model("bert"))
    with pytest.raises(KeyboardInterrupt):
        fit(model, prepared, tmp_path / "run", settings=chosen, say=silent, observe=stop_at(2))
    stopped = json.loads((tmp_path / "run" / "checkpoint" / "progress.json").read_text())["seconds"]
    assert stopped >= 2
    model = BiEncoder.from_pretrained(tiny_model("bert"))
    fitted = fit(model, prepared, tmp_path / "run", settings=chosen, say=silent, resume=True)
    assert fitted.seconds >= stopped + 2


def test_an_encoder_that_begins_alike_may_learn_also_after_a_stop(
    tiny_model: Any, prepared: Path, tmp_path: Path
) -> None:
    def alike() -> BiEncoder:
        model = BiEncoder.from_pretrained(tiny_model("bert"))
        with torch.no_grad():
            model.backbone.encoder.layer[-1].output.LayerNorm.weight.fill_(3e-3)
            model.backbone.encoder.layer[-1].output.LayerNorm.bias.fill_(1.0)
        return model

    chosen, run = settings(steps=4, save_every=2, log_every=1, learning_rate=1e-7), tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        fit(alike(), prepared, run, settings=chosen, say=silent, observe=stop_at(2))
    shutil.copytree(run, tmp_path / "old")
    assert fit(alike(), prepared, run, settings=chosen, say=silent, resume=True).steps == 4
    header = read_header(tmp_path / "old" / "checkpoint" / "progress.json", FORMAT, "")
    del header["began_alike"]  # as it was written before there was such a field
    write_header(tmp_path / "old" / "checkpoint" / "progress.json", header)
    with pytest.raises(InputError, match="the encoder has collapsed at step 3"):
        fit(alike(), prepared, tmp_path / "old", settings=chosen, say=silent, resume=True)


def test_a_kill_while_a_table_is_rewritten_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Killed:
        def __init__(self, *_: Any, **__: Any) -> None:
            raise KeyboardInterrupt

    (tmp_path / "metrics.csv").write_text("step,loss\n1,0.5\n2,0.4\n")
    targets = TargetLog(tmp_path / "targets.csv")
    targets(0, *torch.eye(2).expand(3, 2, 2))
    targets.save()
    before = {path.name: path.read_text() for path in tmp_path.iterdir()}
    monkeypatch.setattr(log.csv, "DictWriter", Killed)
    monkeypatch.setattr(log.csv, "writer", Killed)
    with pytest.raises(KeyboardInterrupt):
        log.Log(tmp_path, None, 2, 4, silent, log.Meter(1.0, 1.0)).__enter__()
    with pytest.raises(KeyboardInterrupt):
        targets.save()
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == before


def test_a_log_of_targets_whose_last_line_is_cut_goes_on(tmp_path: Path) -> None:
    for cut in ("1", "1,0.5", "1,0.5,0.1,0.", "1,0.5,0.1,0.9"):
        (tmp_path / "targets.csv").write_text(f"batch,mean,low,high\n0,0.5,0,1\n{cut}")
        targets = TargetLog(tmp_path / "targets.csv")
        targets(2, *torch.eye(2).expand(3, 2, 2))
        targets.save()
        assert [row.batch for row in read_targets(tmp_path / "targets.csv")] == [0, 2]


def test_a_damaged_checkpoint_is_one_clear_line(model: BiEncoder, prepared: Path, tmp_path: Path) -> None:
    fit(model, prepared, tmp_path, settings=settings(steps=1), say=silent)
    state = tmp_path / "checkpoint" / "state.safetensors"
    whole = state.read_bytes()
    flipped = bytearray(whole)
    flipped[-1000] ^= 1
    for damaged in (bytes(flipped), whole[:1000], None):
        state.unlink()
        if damaged is not None:
            state.write_bytes(damaged)
        with pytest.raises(InputError, match=r"state.safetensors: damaged or missing; start the run anew"):
            fit(model, prepared, tmp_path, settings=settings(steps=2), say=silent, resume=True)
        state.touch()


def test_a_log_whose_first_line_is_damaged_is_not_lost(model: BiEncoder, prepared: Path, tmp_path: Path) -> None:
    fit(model, prepared, tmp_path, settings=settings(steps=1), say=silent)
    metrics = tmp_path / "metrics.csv"
    for damaged in (b"stfp" + metrics.read_bytes()[4:], b"\xff" + metrics.read_bytes()):
        metrics.write_bytes(damaged)
        with pytest.raises(InputError, match=r"metrics.csv: its first line is damaged; put it back, or delete it"):
            fit(model, prepared, tmp_path, settings=settings(steps=2), say=silent, resume=True)
        assert metrics.read_bytes() == damaged


def test_a_run_is_neither_overwritten_nor_gone_on_with_otherwise(
    model: BiEncoder, prepared: Path, tmp_path: Path
) -> None:
    run, validator = tmp_path / "run", Validator(prepared, "dev", settings())
    fit(model, prepared, run, settings=settings(steps=1), validator=validator, say=silent)

    def refused(words: str, out: Path = run, resume: bool = True, loss: Any = None, **others: Any) -> None:
        measured = Validator(prepared, "dev", settings(**others))
        before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
        with pytest.raises(InputError, match=words):
            fit(model, prepared, out, loss, settings(steps=2, **others), measured, resume=resume, say=silent)
        assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before

    refused("run: has a run already; choose another place", resume=False)
    refused("the run was started with another seed and another learning_rate", seed=1, learning_rate=1.0)
    refused("the run was started with another loss", loss=MarginLoss(0.2))
    refused("the run was not validated by RR before", validation_measure="RR")
    (run / "best").rename(tmp_path / "lost")
    refused("best: the best model of the run is missing")
    (tmp_path / "foreign" / "last").mkdir(parents=True)
    (tmp_path / "foreign" / "last" / "mine.txt").touch()
    refused("last: exists and is not ours to overwrite", tmp_path / "foreign")


def test_a_loss_of_ones_own_may_have_any_attributes(model: BiEncoder, prepared: Path, tmp_path: Path) -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.similarity = nn.CosineSimilarity(dim=1)

        def forward(self, queries: Any, positives: Any, negatives: Any) -> Any:
            return torch.relu(0.3 - self.similarity(queries, positives) + self.similarity(queries, negatives)).mean()

    assert fit(model, prepared, tmp_path, Own(), settings(steps=2), say=silent).steps == 2
    with pytest.raises(InputError, match="a teacher's in-batch targets need a second teacher; use DualTeacherLoss"):
        fit(model, prepared, tmp_path / "b", MarginLoss("teacher", in_batch=True), settings(steps=2), say=silent)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_asked_to_stop_it_keeps_the_step_it_is_in(
    prepared: Path, tiny_model: Any, tmp_path: Path, number: signal.Signals, capfd: pytest.CaptureFixture[str]
) -> None:
    chosen = settings(steps=6, save_every=100)

    def run(name: str, ask: tuple[int, ...] = ()) -> Any:
        def observe(batch: int, *vectors: Any) -> None:
            if batch in ask:
                for _ in range(ask.count(batch)):
                    signal.raise_signal(number)

        base = BiEncoder.from_pretrained(tiny_model("bert"))
        return fit(base, prepared, tmp_path / name, settings=chosen, resume=True, say=silent, observe=observe)

    def gone(*_: Any) -> None:
        raise SystemExit

    before = signal.signal(number, gone)
    try:
        with pytest.raises(SystemExit):
            run("stopped", ask=(3,))
        assert "stopping after this step" in capfd.readouterr().err
        assert json.loads((tmp_path / "stopped" / "checkpoint" / "progress.json").read_text())["step"] == 4
        with pytest.raises(SystemExit):
            run("at once", ask=(1, 1))  # the second request is not held back
        assert not (tmp_path / "at once" / "checkpoint").exists()
        assert signal.getsignal(number) is gone
    finally:
        signal.signal(number, before)
    run("stopped")
    run("whole")
    whole, stopped = weights(tmp_path / "whole"), weights(tmp_path / "stopped")
    assert all(torch.equal(whole[name], stopped[name]) for name in whole)


def test_asked_to_stop_in_the_last_validation_it_does_not_go_on_as_if_nothing_was(
    prepared: Path, model: BiEncoder, tmp_path: Path
) -> None:
    class Asks(Validator):
        def __call__(self, *arguments: Any) -> dict[str, float]:
            if (tmp_path / "metrics.csv").read_text().count("\n") > 2:
                signal.raise_signal(signal.SIGINT)
            return super().__call__(*arguments)

    chosen, targets = settings(steps=2, log_every=1), TargetLog(tmp_path / "targets.csv")
    asks = Asks(prepared, "dev", chosen)
    with pytest.raises(KeyboardInterrupt), targets:
        fit(model, prepared, tmp_path, settings=chosen, validator=asks, say=silent, observe=targets)
    assert json.loads((tmp_path / "checkpoint" / "progress.json").read_text())["step"] == 2
    assert [row.batch for row in read_targets(tmp_path / "targets.csv")] == [0, 1]
    assert fit(model, prepared, tmp_path, settings=chosen, validator=asks, resume=True, say=silent).steps == 2


class _Scripted:
    """A validator that says what it is told to."""

    measure = "nDCG@10"

    def __init__(self, values: list[float]) -> None:
        self._values = iter(values)

    def __call__(self, engine: Any, similarity: Any) -> dict[str, float]:
        return {self.measure: next(self._values)}


def test_a_resumed_run_keeps_the_best_model_that_its_checkpoint_knows(
    prepared: Path, tiny_model: Any, tmp_path: Path
) -> None:
    """Where numbers do not come out the same again, a best model from after the checkpoint belongs to nobody."""

    def run(values: list[float], steps: int, stop: int | None = None) -> Any:
        def observe(number: int, *vectors: Any) -> None:
            if number == stop:
                raise KeyboardInterrupt

        chosen = settings(steps=steps, validate_every=2, save_every=4)
        base, scripted = BiEncoder.from_pretrained(tiny_model("bert")), _Scripted(values)
        return fit(
            base, prepared, tmp_path / "run", None, chosen, scripted, resume=True, say=silent, observe=observe,  # type: ignore[arg-type]
        )  # fmt: skip

    with pytest.raises(KeyboardInterrupt):
        run([0.1, 0.2, 0.15, 0.9], steps=8, stop=7)  # the checkpoint is of step 4, the best so far of step 6
    after = safetensors.torch.load_file(tmp_path / "run" / "best" / "model.safetensors")
    known = safetensors.torch.load_file(tmp_path / "run" / "checkpoint" / "best" / "model.safetensors")
    assert any(not torch.equal(after[name], known[name]) for name in known)
    fitted = run([0.12, 0.13], steps=8)
    assert (fitted.best, fitted.best_step) == (0.2, 2)
    best = safetensors.torch.load_file(tmp_path / "run" / "best" / "model.safetensors")
    assert all(torch.equal(best[name], known[name]) for name in known)
