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

from remargin import BiEncoder, Collection, InputError, MarginLoss, mining
from remargin.data.prepare import TextSettings, prepare
from remargin.data.shuffle import Shuffle
from remargin.evaluation.runs import Run
from remargin.experiments.targets import TargetLog, read_targets
from remargin.files import read_header, write_header
from remargin.losses import DualTeacherLoss
from remargin.mining import MiningSettings, mine
from remargin.report.figures import LineFigure
from remargin.report.runs import run_section
from remargin.training import log, loop
from remargin.training.batches import TrainingData
from remargin.training.checkpoint import FORMAT, Progress, load_checkpoint, save_checkpoint
from remargin.training.engine import Engine
from remargin.training.loop import fit
from remargin.training.optimiser import learning_rate, make_optimiser
from remargin.training.run import RunRequest, start
from remargin.training.settings import PRESETS, FitSettings, fit_settings
from remargin.training.validation import Validator


def silent(line: str) -> None:
    pass


@pytest.fixture(scope="module")
def beir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A collection that can be learned: a query and its document share a made-up word."""
    folder = tmp_path_factory.mktemp("beir")
    (folder / "qrels").mkdir()
    rng = random.Random(0)
    words = ["".join(rng.choices("abcdefgh", k=4)) for _ in range(60)]
    documents = [
        {"_id": f"d{i}", "text": f"the value of {word} in {' '.join(rng.sample(words, 2))}"}
        for i, word in enumerate(words)
    ]
    queries = [{"_id": f"q{i}", "text": f"how is {word}"} for i, word in enumerate(words)]
    for name, records in {"corpus": documents, "queries": queries}.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    for split, rows in {"train": range(40), "dev": range(40, 50), "test": range(50, 60)}.items():
        (folder / "qrels" / f"{split}.tsv").write_text("".join(f"q{i}\td{i}\t1\n" for i in rows))
    return folder


@pytest.fixture(scope="module")
def prepared(beir: Path, tiny_model: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("prepared")
    mine(Collection.load(beir, "train"), folder / "t.tsv", MiningSettings(triplets=3))
    prepare(beir, tiny_model("bert"), folder / "data", folder / "t.tsv", TextSettings(30, 64))
    return folder / "data"


@pytest.fixture
def model(tiny_model: Any) -> BiEncoder:
    return BiEncoder.from_pretrained(tiny_model("bert"))


def settings(**options: Any) -> FitSettings:
    defaults = {
        "steps": 6,
        "batch_size": 8,
        "learning_rate": 1e-3,
        "precision": "32",
        "log_every": 2,
        "validate_every": 3,
    }
    return fit_settings(**{**defaults, **options})


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


def test_a_run_folder_holds_what_is_needed_to_repeat_it(beir: Path, tiny_model: Any, tmp_path: Path) -> None:
    import yaml

    request = RunRequest(
        str(beir), str(tiny_model("bert")), tmp_path / "run", also=str(beir),
        loggers=["lightning_fabric.loggers.CSVLogger name=theirs"], tensorboard=True,
    )  # fmt: skip
    start(request, settings(), say=silent)
    config = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert config["asked"]["settings"]["seed"] == 0
    assert {"corpus.jsonl.gz", "triplets/rows.bin", "model/model.safetensors"} <= set(config["sha256"])
    assert config["versions"]["torch"]
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert len(report["validations"]) == 3
    assert report["also"]["before"] >= 0
    assert (tmp_path / "run" / "best" / "modules.json").is_file()
    assert list((tmp_path / "run" / "tensorboard").rglob("events.*"))
    assert list((tmp_path / "run" / "theirs").rglob("metrics.csv"))
    with pytest.raises(InputError, match=r"already exists; .*--resume"):
        start(request, settings(), say=silent)
    with pytest.raises(InputError, match="the run was started with other settings: learning_rate"):
        start(request, settings(learning_rate=2e-3), resume=True, say=silent)
    request.loggers = ["nobody.Logger"]
    with pytest.raises(InputError, match="other settings: loggers"):
        start(request, settings(), resume=True, say=silent)


def test_prepared_triplets_are_trained_on_as_they_are(tiny_model: Any, tmp_path: Path) -> None:
    """The way for texts with a teacher's scores: prepare, then fit on that folder."""
    rows = ({"query": f"q {i}", "positive": f"p {i}", "negative": f"n {i}", "scores": [3, i % 3]} for i in range(16))
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    prepare(None, tiny_model("bert"), tmp_path / "data", tmp_path / "t.jsonl", TextSettings(30, 64))
    request = RunRequest(str(tmp_path / "data"), str(tiny_model("bert")), tmp_path / "run")
    lines: list[str] = []
    fitted = start(request, settings(target="teacher"), say=lines.append)
    assert fitted.steps == 6
    assert not (tmp_path / "run" / "triplets.tsv").exists()
    assert (tmp_path / "run" / "last" / "modules.json").is_file()
    with pytest.raises(InputError, match="made with length 64, not 32"):
        start(RunRequest(request.data, request.model, tmp_path / "b", document_length=32), settings(), say=lines.append)


def test_the_reported_split_is_not_taken_for_stopping_unasked(beir: Path, tiny_model: Any, tmp_path: Path) -> None:
    shutil.copytree(beir, tmp_path / "nodev")
    (tmp_path / "nodev" / "qrels" / "dev.tsv").unlink()
    request = RunRequest(str(tmp_path / "nodev"), str(tiny_model("bert")), tmp_path / "a")
    with pytest.raises(
        InputError, match=r"patience needs a dev split, and there is none; .* not the one that you will"
    ):
        start(request, settings(patience=2), say=silent)
    lines: list[str] = []
    fitted = start(RunRequest(request.data, request.model, tmp_path / "b"), settings(), say=lines.append)
    assert "no dev split: training without validation" in lines
    assert fitted.best is None
    by_name = RunRequest(request.data, request.model, tmp_path / "c", validation_split="test")
    assert start(by_name, settings(patience=2), say=silent).best is not None


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"target": "teachr"}, "unknown target 'teachr'; use adaptive"),
        ({"validation_measure": "nDCGG@10"}, "unknown measure 'nDCGG@10'"),
        ({"target": "teacher"}, '"teacher" needs scores; give --triplets'),
        ({"loggers": [""]}, "cannot make logger ''"),
        ({"loggers": ["some.Logger name='x"]}, "cannot make logger .*No closing quotation"),
        ({"validation_split": "nowhere"}, "no split 'nowhere'; it has: train, dev, test"),
        ({"also": "nowhere"}, "nowhere"),
    ],
)
def test_a_wrong_command_leaves_nothing_behind(
    options: dict[str, Any], words: str, beir: Path, tiny_model: Any, tmp_path: Path
) -> None:
    asked = {name: options.pop(name) for name in ("loggers", "validation_split", "also") if name in options}
    request = RunRequest(str(beir), str(tiny_model("bert")), tmp_path / "run", **asked)
    with pytest.raises(InputError, match=words):
        start(request, settings(**options), say=silent)
    assert not (tmp_path / "run").exists()


def test_a_command_that_fails_before_anything_is_made_can_be_corrected(
    beir: Path, tiny_model: Any, tmp_path: Path
) -> None:
    request = RunRequest(str(beir), str(tiny_model("bert")), tmp_path / "run", triplets=tmp_path / "t.tvs")
    with pytest.raises(InputError, match="no such file"):
        start(request, settings(steps=1), say=silent)
    mine(Collection.load(beir, "train"), tmp_path / "t.tsv")
    request.triplets = tmp_path / "t.tsv"
    assert start(request, settings(steps=1), say=silent).steps == 1


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


def test_only_a_margin_loss_has_two_parts(beir: Path, tiny_model: Any, tmp_path: Path) -> None:
    for target, has_parts in (("contrastive", False), ("0.3", True)):
        lines: list[str] = []
        request = RunRequest(str(beir), str(tiny_model("bert")), tmp_path / target)
        start(request, settings(target=target, steps=2), say=lines.append)
        with open(tmp_path / target / "metrics.csv", newline="") as file:
            rows = [row for row in csv.DictReader(file) if row["loss"]]
        assert rows
        for row in rows:
            assert bool(row["explicit_mean"]) == bool(row["spread"]) == has_parts
            assert row["margin_mean"]
            assert row["target_max"]
        said = [line for line in lines if line.startswith("step 2/2  loss")]
        assert len(said) == 1
        assert ("(mean " in said[0]) == has_parts
        figure = run_section(tmp_path / target).figures[0]
        assert isinstance(figure, LineFigure)
        assert (figure.caption == "The loss.") == (not has_parts)
        assert len(figure.panels[0].series) == (3 if has_parts else 1)


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
    state.write_bytes(state.read_bytes()[:1000])
    for _ in range(2):
        with pytest.raises(InputError, match=r"state.safetensors: damaged or missing; start the run anew"):
            fit(model, prepared, tmp_path, settings=settings(steps=2), say=silent, resume=True)
        state.unlink(missing_ok=True)


def test_what_is_no_run_is_not_resumed(beir: Path, tiny_model: Any, tmp_path: Path) -> None:
    request = RunRequest(str(beir), str(tiny_model("bert")), tmp_path)
    (tmp_path / "triplets.tsv").write_text("query_id\tpositive_id\tnegative_id\nq0\td0\td1\n")
    with pytest.raises(InputError, match=r"no run to go on with: there is no config.yaml in it"):
        start(request, settings(), resume=True, say=silent)
    for content in ("", "a: [", "asked: 3"):
        (tmp_path / "config.yaml").write_text(content)
        with pytest.raises(InputError, match=r"config.yaml: not the config of a training run"):
            start(request, settings(), resume=True, say=silent)


def test_a_run_stopped_while_mining_goes_on(
    beir: Path, tiny_model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = RunRequest(str(beir), str(tiny_model("bert")), tmp_path / "run")
    original, mined = mining._Candidates.triplets, []

    def stopped(self: Any, chunk: list[str], *rest: Any) -> Any:
        if len(mined) == 2:
            raise KeyboardInterrupt
        mined.append(chunk)
        return original(self, chunk, *rest)

    monkeypatch.setattr(mining, "QUERIES_AT_ONCE", 15)
    monkeypatch.setattr(mining._Candidates, "triplets", stopped)
    with pytest.raises(KeyboardInterrupt):
        start(request, settings(steps=1), say=silent)
    with pytest.raises(InputError, match="other settings: seed"):
        start(request, settings(steps=1, seed=1), resume=True, say=silent)
    monkeypatch.setattr(mining._Candidates, "triplets", original)
    assert start(request, settings(steps=1), resume=True, say=silent).steps == 1
    config = (tmp_path / "run" / "config.yaml").read_text()
    assert "triplets/rows.bin" in config
    assert "transformers" in config


def test_a_small_table_trains_without_validation(tiny_model: Any, tmp_path: Path) -> None:
    """Its dev split is empty: that is no split."""
    rows = [f"how is {word},the value of {word}" for word in ("abc", "abd", "abe", "abf", "abg")]
    (tmp_path / "faq.csv").write_text("\n".join(["query,document", *rows]) + "\n")
    request = RunRequest(f"pairs:{tmp_path / 'faq.csv'}", str(tiny_model("bert")), tmp_path / "run")
    lines: list[str] = []
    start(request, settings(steps=2, batch_size=2), say=lines.append)
    assert "no dev split: training without validation" in lines
    assert (tmp_path / "run" / "last" / "model.safetensors").exists()


def test_what_differs_is_named(beir: Path, tiny_model: Any, tmp_path: Path) -> None:
    request = RunRequest(str(beir), str(tiny_model("bert")), tmp_path / "run")
    start(request, settings(steps=1), say=silent)
    with pytest.raises(InputError, match="the run was started with other settings: target, temperature, steps;"):
        start(request, settings(steps=2, target="contrastive", temperature=0.1), resume=True, say=silent)


def test_bad_triplets_can_be_skipped(beir: Path, tiny_model: Any, tmp_path: Path) -> None:
    (tmp_path / "t.tsv").write_text("".join(f"q{i}\td{i}\td{i + 1}\n" for i in range(8)) + "q1\td1\tnowhere\n")
    request = RunRequest(str(beir), str(tiny_model("bert")), tmp_path / "run", triplets=tmp_path / "t.tsv")
    with pytest.raises(InputError, match=r"t\.tsv:9.*skip bad input"):
        start(request, settings(steps=1), say=silent)
    request.skip_bad = True
    lines: list[str] = []
    start(request, settings(steps=1), say=lines.append)
    assert any(line.startswith("set aside as bad input: 1; see ") for line in lines)


@pytest.mark.parametrize("name", ["triplets/rows.bin", "tokens/documents/tokens.bin"])
def test_damaged_data_is_not_trained_on(name: str, prepared: Path, tiny_model: Any, tmp_path: Path) -> None:
    shutil.copytree(prepared, tmp_path / "data")
    content = bytearray((tmp_path / "data" / name).read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "data" / name).write_bytes(content)
    request = RunRequest(str(tmp_path / "data"), str(tiny_model("bert")), tmp_path / "run")
    with pytest.raises(InputError, match=Path(name).name):
        start(request, settings(steps=1), say=silent)
