"""Runs that are stopped, killed or damaged, and go on."""

from __future__ import annotations

import csv
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from remargin import BiEncoder, ContrastiveLoss, InputError, MarginLoss
from remargin.files.headers import read_header, write_header
from remargin.files.ledger import Ledger
from remargin.model.checkpoint import FORMAT, Progress, load_checkpoint, save_checkpoint
from remargin.study.targets import TargetLog, read_targets
from remargin.training import log, loop
from remargin.training.fitting import fit
from remargin.training.loop import train
from remargin.training.optimiser import make_optimiser
from remargin.training.validation import Validator

from .conftest import settings, silent


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return safetensors.torch.load_file(folder / "last" / "model.safetensors")


ARGUMENTS = ["--steps", "60", "--batch-size", "8", "--precision", "32", "--save-every", "7", "--validate-every", "10"]


@pytest.mark.parametrize("lows", [(20,), pytest.param((2, 20, 38), marks=pytest.mark.slow)])
def test_killed_at_random_steps_and_resumed_it_ends_with_the_same_weights(
    lows: tuple[int, ...], remargin: Any, beir: Path, tiny_model: Any, tmp_path: Path
) -> None:
    """A real kill -9, once or often, against a run that nobody disturbed: equal bit for bit, dropout included."""
    command = ["fit", "--data", str(beir), "--model", str(tiny_model("bert")), *ARGUMENTS]
    resumed = [*command, "--out", str(tmp_path / "broken"), "--resume", "--log-every", "1"]
    assert remargin(*command, "--out", tmp_path / "whole").returncode == 0
    rng, kills = random.Random(time.time_ns()), []
    metrics = tmp_path / "broken" / "metrics.csv"

    def step() -> int:
        lines = metrics.read_text().splitlines() if metrics.exists() else []
        return int(lines[-1].split(",")[0]) if len(lines) > 1 else -1

    for low in lows:
        target = low + rng.randrange(15)
        process = subprocess.Popen(
            [sys.executable, "-m", "remargin", *resumed], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        while process.poll() is None and step() < target:
            time.sleep(0.002)
        assert process.poll() is None, "it ended before it could be killed"
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        kills.append(step())
    assert len(set(kills)) == len(lows)
    assert remargin(*resumed).returncode == 0
    whole, broken = weights(tmp_path / "whole"), weights(tmp_path / "broken")
    assert whole.keys() == broken.keys()
    for name, tensor in whole.items():
        assert torch.equal(tensor, broken[name]), (name, kills)
    reports = [json.loads((tmp_path / name / "report.json").read_text()) for name in ("whole", "broken")]
    assert reports[0]["validations"] == reports[1]["validations"]
    with open(metrics, newline="") as file:
        steps = [int(row["step"]) for row in csv.DictReader(file) if row["loss"]]
    assert steps == list(range(1, 61))


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
        train(model, prepared, tmp_path / "run", settings=chosen, say=silent, observe=stop_at(2))
    stopped = json.loads((tmp_path / "run" / "checkpoint" / "progress.json").read_text())["progress"]["seconds"]
    assert stopped >= 2
    model = BiEncoder.from_pretrained(tiny_model("bert"))
    fitted = train(model, prepared, tmp_path / "run", settings=chosen, say=silent, resume=True)
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
        train(alike(), prepared, run, settings=chosen, say=silent, observe=stop_at(2))
    shutil.copytree(run, tmp_path / "old")
    assert train(alike(), prepared, run, settings=chosen, say=silent, resume=True).steps == 4
    header = read_header(tmp_path / "old" / "checkpoint" / "progress.json", dict, FORMAT, "")
    del header["progress"]["began_alike"]  # as it was written before there was such a field
    write_header(tmp_path / "old" / "checkpoint" / "progress.json", header)
    with pytest.raises(InputError, match="the encoder has collapsed at step 3"):
        train(alike(), prepared, tmp_path / "old", settings=chosen, say=silent, resume=True)


def test_a_kill_while_a_table_is_rewritten_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Killed:
        def __init__(self, *_: Any, **__: Any) -> None:
            raise KeyboardInterrupt

    Ledger(tmp_path / "metrics.csv", ["step", "loss"], [{"step": 1, "loss": 0.5}, {"step": 2, "loss": 0.4}])
    targets = TargetLog(tmp_path / "targets.csv")
    targets(0, *torch.eye(2).expand(3, 2, 2))
    targets.save()
    before = {path.name: path.read_text() for path in tmp_path.iterdir()}
    monkeypatch.setattr(csv, "writer", Killed)
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
    train(model, prepared, tmp_path, settings=settings(steps=1), say=silent)
    state = tmp_path / "checkpoint" / "state.safetensors"
    whole = state.read_bytes()
    flipped = bytearray(whole)
    flipped[-1000] ^= 1
    for damaged in (bytes(flipped), whole[:1000], None):
        state.unlink()
        if damaged is not None:
            state.write_bytes(damaged)
        with pytest.raises(InputError, match=r"state.safetensors: damaged or missing; start the training run anew"):
            train(model, prepared, tmp_path, settings=settings(steps=2), say=silent, resume=True)
        state.touch()


def test_a_log_whose_first_line_is_damaged_is_not_lost(model: BiEncoder, prepared: Path, tmp_path: Path) -> None:
    train(model, prepared, tmp_path, settings=settings(steps=1), say=silent)
    metrics = tmp_path / "metrics.csv"
    for damaged in (b"stfp" + metrics.read_bytes()[4:], b"\xff" + metrics.read_bytes()):
        metrics.write_bytes(damaged)
        with pytest.raises(InputError, match=r"metrics.csv: its first line is damaged; put it back, or delete it"):
            train(model, prepared, tmp_path, settings=settings(steps=2), say=silent, resume=True)
        assert metrics.read_bytes() == damaged


def test_a_run_is_neither_overwritten_nor_gone_on_with_otherwise(
    model: BiEncoder, prepared: Path, tmp_path: Path
) -> None:
    run, validator = tmp_path / "run", Validator(prepared, "dev", settings())
    train(model, prepared, run, settings=settings(steps=1), validator=validator, say=silent)

    def refused(words: str, out: Path = run, resume: bool = True, loss: Any = None, **others: Any) -> None:
        measured = Validator(prepared, "dev", settings(**others))
        before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
        with pytest.raises(InputError, match=words):
            train(model, prepared, out, loss, settings(steps=2, **others), measured, resume=resume, say=silent)
        assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before

    refused("run: has a training run already; choose another place", resume=False)
    refused("the training run was started with another seed and another learning_rate", seed=1, learning_rate=1.0)
    refused("the training run was started with another loss", loss=MarginLoss(0.2))
    refused("another warm_up and another weight_decay and another clip", warm_up=0.5, weight_decay=1.0, clip=0.1)
    refused("the training run was not validated by RR before", validation_measure="RR")
    train(model, prepared, tmp_path / "warm", ContrastiveLoss(0.05), settings(steps=1), validator, say=silent)
    refused("the training run was started with another loss", tmp_path / "warm", loss=ContrastiveLoss(0.5))
    (run / "best").rename(tmp_path / "lost")
    refused("best: the best model of the training run is missing")
    (tmp_path / "foreign" / "last").mkdir(parents=True)
    (tmp_path / "foreign" / "last" / "mine.txt").touch()
    refused("last: exists and is not ours to overwrite", tmp_path / "foreign")


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
        return train(base, prepared, tmp_path / name, settings=chosen, resume=True, say=silent, observe=observe)

    def gone(*_: Any) -> None:
        raise SystemExit

    before = signal.signal(number, gone)
    try:
        with pytest.raises(SystemExit):
            run("stopped", ask=(3,))
        assert "stopping after this step" in capfd.readouterr().err
        assert json.loads((tmp_path / "stopped" / "checkpoint" / "progress.json").read_text())["progress"]["step"] == 4
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
        train(model, prepared, tmp_path, settings=chosen, validator=asks, say=silent, observe=targets)
    assert json.loads((tmp_path / "checkpoint" / "progress.json").read_text())["progress"]["step"] == 2
    assert [row.batch for row in read_targets(tmp_path / "targets.csv")] == [0, 1]
    assert train(model, prepared, tmp_path, settings=chosen, validator=asks, resume=True, say=silent).steps == 2


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
        return train(
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


def damaged(content: bytes) -> Iterator[bytes]:
    """Half of the content, and all of it with one other bit."""
    yield content[: len(content) // 2]
    middle = len(content) // 2
    yield content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "config.json", "remargin_model.json"])
def test_a_finished_run_does_not_vouch_for_a_damaged_model(
    name: str, beir: Path, tiny_model: Any, tmp_path: Path
) -> None:
    """The best one has nothing that it could be made from. The last one comes from the checkpoint, and the model to
    use from either: both are made anew.
    """
    start = partial(fit, str(beir), str(tiny_model("bert")), tmp_path / "run", blend="off", also=str(beir))
    again = partial(start, settings(steps=2, validate_every=1), resume=True, say=silent)
    fitted = start(settings(steps=2, validate_every=1), say=silent)
    assert fitted.model.name == "model"
    before = contents(tmp_path / "run")
    best = tmp_path / "run" / "best"
    whole = (best / name).read_bytes()
    for content in (*damaged(whole), None):
        (best / name).unlink()
        if content is not None:
            (best / name).write_bytes(content)
        with pytest.raises(InputError, match=r"best.*; start the training run anew in another folder"):
            again()
        (best / name).write_bytes(whole)
    for folder in ("last", "model"):
        for content in damaged((tmp_path / "run" / folder / name).read_bytes()):
            (tmp_path / "run" / folder / name).write_bytes(content)
        assert again().model == fitted.model
        assert contents(tmp_path / "run") == before


def contents(run: Path) -> dict[str, bytes]:
    """The files of all models of a training run."""
    models = (path for name in ("best", "last", "model") for path in (run / name).rglob("*") if path.is_file())
    return {str(path.relative_to(run)): path.read_bytes() for path in models}


@pytest.mark.parametrize("name", ["config.yaml", "metrics.csv"])
def test_a_run_with_a_damaged_record_is_not_resumed(name: str, beir: Path, tiny_model: Any, tmp_path: Path) -> None:
    start = partial(fit, str(beir), str(tiny_model("bert")), tmp_path / "run")
    start(settings(steps=2), say=silent)
    path = tmp_path / "run" / name
    digit = re.sub(rb"0\.(\d)", lambda found: b"0.7" if found[1] != b"7" else b"0.6", path.read_bytes(), count=1)
    assert digit != path.read_bytes()
    path.write_bytes(digit)
    with pytest.raises(InputError, match=name):
        start(settings(steps=2), resume=True, say=silent)
    assert path.read_bytes() == digit  # nothing is lost
