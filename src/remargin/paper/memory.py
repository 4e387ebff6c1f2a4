"""What mixed precision and 8-bit optimiser states save: the set-up's claim of half the memory."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypedDict

import torch

from remargin.errors import InputError
from remargin.files.headers import write_header
from remargin.files.shapes import Check, Count
from remargin.model.encoder import BiEncoder
from remargin.report.sections import Section
from remargin.report.tables import Block, Cell, Table, number
from remargin.study.columns import file_name
from remargin.study.experiment import Experiment
from remargin.study.hardware import hardware, peak_memory
from remargin.study.outcome import Outcome
from remargin.study.results import Results
from remargin.study.study import Study
from remargin.study.tasks import Task
from remargin.training.loop import train
from remargin.training.settings import FitSettings

FORMAT = "remargin-memory-1"
STEPS = 5
WAYS: dict[str, dict[str, Any]] = {
    "32": {"precision": "32"},
    "bf16": {"precision": "bf16"},
    "bf16, 8-bit states": {"precision": "bf16", "eight_bit": True},
}


class MemoryHeader(TypedDict):
    """The most memory in use by each way of `WAYS`, or why it could not be measured."""

    format: str
    hardware: str | None
    bytes: Annotated[dict[str, Count | None], Check("of the known ways", lambda sizes: {*sizes} == {*WAYS})]
    reasons: dict[str, str | None]


@dataclass(frozen=True)
class MeasureMemory:
    """Trains a few steps in each of `WAYS` on a GPU, and takes down the most memory in use."""

    model: str
    batch_size: int
    settled: bool = True
    triplets: int = 0

    @property
    def key(self) -> str:
        """The name of its folder."""
        return f"memory-{file_name(self.model)}"

    def is_done(self, results: Results) -> bool:
        """Whether all is measured; where a GPU was missing before, it may be there now."""
        path = _path(results, self.model)
        if not results.files.has(path):
            return False
        before = _read(results, self.model)
        complete = before["hardware"] and not any(before["reasons"].values())
        return bool(complete) or not torch.cuda.is_available()

    def is_ready(self, results: Results) -> bool:
        """It always is."""
        return True

    def do(self, study: Study) -> None:
        """Measure, or take down why that is not possible."""
        measured: dict[str, Any] = {"hardware": None, "bytes": dict.fromkeys(WAYS), "reasons": dict.fromkeys(WAYS)}
        if torch.cuda.is_available():
            measured["hardware"] = hardware()
            for way, settings in WAYS.items():
                try:
                    measured["bytes"][way] = self._peak(study, settings)
                except InputError as error:
                    measured["reasons"][way] = f"{way}: {error}"
        write_header(_path(study.results, self.model), {"format": FORMAT, **measured})

    def _peak(self, study: Study, chosen: dict[str, Any]) -> int | None:
        """The most memory in use during a few steps."""
        settings = FitSettings.preset(steps=STEPS, batch_size=self.batch_size, log_every=STEPS, graphs=False, **chosen)
        data, encoder = study.training.prepared(self.model), BiEncoder.from_pretrained(study.backbones[self.model])
        folder = study.work / "memory"
        shutil.rmtree(folder, ignore_errors=True)
        peak_memory(reset=True)
        try:
            train(encoder, data, folder, None, settings, say=lambda line: None)
            return peak_memory()
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _tasks(results: Results) -> Iterator[Task]:
    for model in results.models:
        yield MeasureMemory(model, results.plan.batch_size)


def draw(results: Results) -> Outcome:
    """The most memory in use during a few steps, for each backbone."""
    rows: list[list[Cell]] = []
    reasons: list[str] = []
    numbers: dict[str, Any] = {}
    measured = results.of_models(lambda model: _read(results, model))
    for model, found in measured.items():
        reasons += [f"{model}, {reason}" for reason in found["reasons"].values() if reason]
        numbers[model] = {way: size for way, size in found["bytes"].items() if size is not None}
        full = found["bytes"]["32"]
        for way, size in found["bytes"].items():
            share = None if size is None or full is None else size / full
            rows.append([Cell(model), Cell(way), number(None if size is None else size / 2**30, 2), number(share, 2)])
    notes = [f"{STEPS} steps of {results.plan.batch_size} triplets, distributed targets, {_where(measured)}."]
    table = Table("Peak memory", ["model", "precision", "GiB", "of full precision"], [Block("", rows)], notes + reasons)
    shares = [size / of["32"] for of in numbers.values() if "32" in of for way, size in of.items() if way != "32"]
    summary = ["Memory is only measured on a GPU."]
    if shares:
        summary = [
            f"Mixed precision takes {min(shares):.0%} to {max(shares):.0%} of the memory of full precision here."
        ]
    return Outcome(Section("memory", "Memory", summary, [table], [], {"steps": STEPS}, []), numbers)


def _where(measured: dict[str, dict[str, Any]]) -> str:
    """The hardware; of each backbone, where it was not the same."""
    places = {model: found["hardware"] or "no GPU" for model, found in measured.items()}
    if len(set(places.values())) == 1:
        return next(iter(places.values()))
    return ", ".join(f"{model} on {place}" for model, place in places.items())


def _path(results: Results, model: str) -> Path:
    return results.folder(f"memory-{file_name(model)}") / "memory.json"


def _read(results: Results, model: str) -> dict[str, Any]:
    path = _path(results, model)
    if not results.files.has(path):
        raise results.not_trained(f"the memory of {model}", model)
    return dict(results.files.header(path, MemoryHeader, FORMAT, f"delete {path.parent} and go on"))


EXPERIMENT = Experiment(
    "memory",
    "The set-up's claim: what mixed precision and 8-bit states save.",
    tasks=_tasks,
    draw=draw,
)
