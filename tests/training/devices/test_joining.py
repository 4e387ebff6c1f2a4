"""Processes that come together, and what happens when one of them ends."""

from __future__ import annotations

import csv
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from remargin import InputError, fit
from remargin.training.devices.joining import World
from remargin.training.devices.lifeline import Follow, Lead

from .conftest import together
from .on_ranks import fail

TORCHRUN = {"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}


def test_how_many_processes_there_are_is_checked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert World.of(None, {}) == World.of(1, {}) == World() == World.of(None, {"RANK": "0", "WORLD_SIZE": "1"})
    assert World.of(2, TORCHRUN) == World.of(None, TORCHRUN) == World(1, 4, 1, 2, started=True)
    with pytest.raises(InputError, match="devices is 0; it must be at least 1"):
        World.of(0, {})
    with pytest.raises(InputError, match="devices is 3, but torchrun started 2 processes on this machine; leave out"):
        World.of(3, TORCHRUN)
    with pytest.raises(InputError, match="not one of torchrun: RANK=x, WORLD_SIZE=4"):
        World.of(None, {**TORCHRUN, "RANK": "x"})
    assert [World.of(4, {}).faster, World(0, 4, 0, 2, True).faster] == [1, 2]  # by the CPUs of two machines
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert [World.of(2, {}).faster, World(0, 4, 0, 2, True).faster] == [2, 4]
    with pytest.raises(InputError, match="3 devices, but this machine has 2 GPUs; use at most 2"):
        World.of(3, {})


def test_bad_numbers_of_devices_leave_nothing_behind(
    beir: Path, tiny_model: Any, tmp_path: Path, remargin: Any
) -> None:
    result = remargin("fit", "--data", beir, "--model", tiny_model(), "--out", tmp_path / "run", "--devices", "-1")
    assert result.returncode == 2
    assert "devices is -1" in result.stderr
    assert not (tmp_path / "run").exists()


def test_a_stranger_at_the_door_is_none_of_the_processes() -> None:
    lead = Lead("127.0.0.1", 2, "runs/x", "resume it")
    port = int(lead.address.split()[1])
    with socket.create_connection(("127.0.0.1", port)) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\n\n")
        known = Follow(lead.address, 1, 2)
        lead.accept(lambda: None, lambda rank: None)
        known.report(ValueError("a bug\nin two lines"))
        known.close()
        with pytest.raises(ChildProcessError, match=r"process 1 of 2 .* \(ValueError: a bug in two lines\); resume it"):
            lead.raise_failure(10)
        lead.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "expected", "words"),
    [
        (InputError("no such file", file="data"), InputError, "process 1 of 2: data: no such file"),
        (MemoryError("of this machine"), ChildProcessError, r"has ended \(MemoryError: of this machine\)"),
        (int(signal.SIGKILL), ChildProcessError, r"process 1 of 2 .* has ended \(killed by SIGKILL\)"),
    ],
)
def test_what_one_process_ends_with_the_leader_says(
    how: Any, expected: type[Exception], words: str, tmp_path: Path
) -> None:
    began = []

    def lead() -> None:
        with together(2, tmp_path) as ranks:
            for rank in (None, 1):  # first nobody: the others have to import this
                began.append(time.monotonic())
                ranks.send(fail, rank, how)
                fail(ranks, rank, how)

    with pytest.raises(expected, match=words):
        lead()
    assert time.monotonic() - began[1] < 10


@pytest.fixture
def command(beir: Path, tiny_model: Any) -> Callable[..., list[str]]:
    options = ["--batch-size", "8", "--precision", "32", "--also", str(beir)]

    def get(*more: str) -> list[str]:
        given = ["fit", "--data", str(beir), "--model", str(tiny_model("bert")), *options, *more]
        return [str(word) for word in given]

    return get


REMARGIN = [sys.executable, "-m", "remargin"]


def step(run: Path) -> int:
    metrics = run / "metrics.csv"
    lines = metrics.read_text().splitlines() if metrics.exists() else []
    return int(lines[-1].split(",")[0]) if len(lines) > 1 else -1


def followers(leader: int) -> list[int]:
    children = Path(f"/proc/{leader}/task/{leader}/children").read_text().split()
    return [int(pid) for pid in children if b"joining" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def gone(pid: int) -> bool:
    status = Path(f"/proc/{pid}/stat")
    return not status.exists() or status.read_text().rpartition(")")[2].split()[0] == "Z"


def started(words: list[str], run: Path) -> subprocess.Popen[str]:
    """A training run that has come some steps far."""
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    while step(run) < 12:
        assert process.poll() is None, process.stderr.read() if process.stderr else ""
        time.sleep(0.05)
    return process


@pytest.mark.slow
@pytest.mark.parametrize("devices", [2, 3])
def test_a_process_that_is_killed_ends_the_training_run_in_seconds(
    devices: int, command: Callable[..., list[str]], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    options = ["--out", str(run), "--steps", "100000", "--save-every", "5", "--log-every", "1"]
    process = started([*REMARGIN, *command(*options), "--devices", str(devices)], run)
    pids = followers(process.pid)
    assert len(pids) == devices - 1
    assert process.stderr is not None
    began = time.monotonic()
    os.kill(pids[-1], signal.SIGKILL)
    with process.stderr as stderr:
        said = stderr.readline()
        assert time.monotonic() - began < 10
        assert process.wait(60) == 2  # to take an interpreter down is computing, which a busy machine draws out
        said += stderr.read()
    assert said.strip().splitlines() == [
        f"error: {run}: process {devices - 1} of {devices} of the training run has ended (killed by SIGKILL); "
        f"the last checkpoint is kept: remargin fit --resume {run}"
    ]
    assert all(gone(pid) for pid in pids)


@pytest.mark.slow
def test_the_others_end_with_a_leader_that_is_killed(command: Callable[..., list[str]], tmp_path: Path) -> None:
    run = tmp_path / "run"
    options = ["--out", str(run), "--steps", "100000", "--save-every", "5", "--log-every", "1", "--devices", "3"]
    process = started([*REMARGIN, *command(*options)], run)
    pids = followers(process.pid)
    process.kill()
    end = time.monotonic() + 10
    while not all(gone(pid) for pid in pids) and time.monotonic() < end:
        time.sleep(0.1)
    assert all(gone(pid) for pid in pids)
    said = process.communicate(timeout=10)[1]
    assert said.strip() == "error: process 0 of 3 of the training run has ended; the others end too"


@pytest.mark.slow
def test_asked_to_stop_all_processes_keep_the_step_they_are_in(
    command: Callable[..., list[str]], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    options = ["--out", str(run), "--steps", "100000", "--save-every", "100000", "--log-every", "1", "--devices", "2"]
    process = started([*REMARGIN, *command(*options)], run)
    pids = followers(process.pid)
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 130
    assert "stopping after this step, to keep it" in said
    assert "Traceback" not in said
    assert all(gone(pid) for pid in pids)
    assert (run / "checkpoint" / "progress.json").exists()


def weights(run: Path) -> dict[str, torch.Tensor]:
    return safetensors.torch.load_file(run / "last" / "model.safetensors")


def files(run: Path) -> set[str]:
    return {str(path.relative_to(run)) for path in run.rglob("*")}


@pytest.mark.slow
def test_torchrun_and_devices_are_the_same_training_run(
    command: Callable[..., list[str]], tmp_path: Path, remargin: Any
) -> None:
    """With two rounds, validation and blending: on one machine, and on two that talk to each other."""
    options = ["--steps", "6", "--validate-every", "3", "--rounds", "2", "--log-every", "1"]
    single = remargin(*command(*options, "--out", str(tmp_path / "single")))
    assert single.returncode == 0
    several = remargin(*command(*options, "--out", str(tmp_path / "devices"), "--devices", "2"))
    assert several.returncode == 0
    assert several.stdout.count("step 1/6") == 2  # in each round once
    assert files(tmp_path / "devices") == files(tmp_path / "single")
    run = [sys.executable, "-m", "torch.distributed.run"]
    torchrun = [*run, "--standalone", "--nproc-per-node", "2", "-m", "remargin"]
    done = subprocess.run(
        [*torchrun, *command(*options, "--out", str(tmp_path / "torchrun"))], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("step 1/6") == 2
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    nodes = ["--nnodes", "2", "--nproc-per-node", "1", "--master-addr", "127.0.0.1", "--master-port", str(port)]
    words = ["remargin", *command(*options, "--out", str(tmp_path / "nodes"))]
    machines = [
        subprocess.Popen(
            [*run, *nodes, "--node-rank", str(rank), "-m", *words],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    said = [machine.communicate(timeout=300) for machine in machines]
    assert [machine.returncode for machine in machines] == [0, 0], said
    assert [out.count("step 1/6") for out, _ in said] == [2, 0]
    expected = weights(tmp_path / "devices")
    for other in ("torchrun", "nodes"):
        same = weights(tmp_path / other)
        assert all(torch.equal(expected[name], same[name]) for name in expected), other


@pytest.mark.slow
def test_fit_on_two_devices_from_start_to_end(beir: Path, encoder: Path, tmp_path: Path) -> None:
    """As from a notebook. Resumed on one device, it goes on with the settings alone."""
    said: list[str] = []
    options: dict[str, Any] = {"also": str(beir), "batch_size": 8, "log_every": 1, "say": said.append}
    fitted = fit(str(beir), str(encoder), tmp_path / "run", steps=4, devices=2, **options)
    assert [line for line in said if re.search("4 steps of 8 triplets .* on 2 devices", line)]
    assert sum(line.startswith("step 1/4") for line in said) == 1
    assert fitted.path is not None  # blended
    with open(tmp_path / "run" / "metrics.csv") as file:
        rows = [row for row in csv.DictReader(file) if row["loss"]]
    assert [row["step"] for row in rows] == ["1", "2", "3", "4"]
    assert not torch.distributed.is_initialized()
    assert fit(resume=tmp_path / "run", devices=1, say=said.append).steps == 4
