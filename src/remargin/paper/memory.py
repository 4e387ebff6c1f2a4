"""What mixed precision and 8-bit optimiser states save: the set-up's claim of half the memory."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypedDict

import torch

from remargin.errors import InputError
from remargin.files.headers import write_header
from remargin.files.shapes import Check, Count
from remargin.model.encoder import PAPER_LENGTHS, BiEncoder
from remargin.reports.sections import Section
from remargin.reports.tables import Block, Cell, Table, number
from remargin.study.columns import file_name
from remargin.study.experiment import Experiment
from remargin.study.hardware import hardware, peak_memory
from remargin.study.pinned import pinned
from remargin.study.results import Results
from remargin.study.study import Study
from remargin.study.tasks import Task
from remargin.training.loop import train

FORMAT = "remargin-memory-1"
STEPS = 5
FULL, MIXED, EIGHT_BIT = "32", "bf16", "bf16, 8-bit states"
WAYS: dict[str, dict[str, Any]] = {
    FULL: {"precision": "32"},
    MIXED: {"precision": "bf16"},
    EIGHT_BIT: {"precision": "bf16", "eight_bit": True},
}


class MemoryHeader(TypedDict):
    """The most memory in use by each way of `WAYS`, or why it could not be measured."""

    format: str
    hardware: str | None
    bytes: Annotated[dict[str, Count | None], Check("of the known ways", lambda sizes: {*sizes} == {*WAYS})]
    reasons: dict[str, str | None]


@dataclass(frozen=True)
class PeakMemory:
    """The most memory in use by each way of `WAYS`; None, and a reason, where it could not be measured.

    >>> PeakMemory("a GPU", {FULL: 100, MIXED: None, EIGHT_BIT: 50}).share(EIGHT_BIT)
    0.5
    """

    hardware: str | None
    bytes: Mapping[str, int | None]
    reasons: Mapping[str, str | None] = field(default_factory=dict)

    def share(self, way: str) -> float | None:
        """The share of the memory of full precision; None where one of the two could not be measured."""
        size, full = self.bytes[way], self.bytes[FULL]
        return None if size is None or not full else size / full


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
        complete = before.hardware and not any(before.reasons.values())
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
        settings = pinned(steps=STEPS, batch_size=self.batch_size, log_every=STEPS, graphs=False, **chosen)
        data, encoder = (
            study.training.prepared(self.model),
            BiEncoder.from_pretrained(study.backbones[self.model], lengths=PAPER_LENGTHS),
        )
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


def findings(results: Results) -> Mapping[str, PeakMemory]:
    """What was measured for each backbone."""
    return results.of_models(lambda model: _read(results, model))


def draw(results: Results, findings: Mapping[str, PeakMemory]) -> Section:
    """The most memory in use during a few steps, for each backbone."""
    rows = [
        [Cell(model), Cell(way), number(None if size is None else size / 2**30, 2), number(peak.share(way), 2)]
        for model, peak in findings.items()
        for way, size in peak.bytes.items()
    ]
    reasons = [f"{model}, {reason}" for model, peak in findings.items() for reason in peak.reasons.values() if reason]
    notes = [f"{STEPS} steps of {results.plan.batch_size} triplets, distributed targets, {_where(findings)}."]
    table = Table("Peak memory", ["model", "precision", "GiB", "of full precision"], [Block("", rows)], notes + reasons)
    shares = [
        share for peak in findings.values() for way in WAYS if way != FULL and (share := peak.share(way)) is not None
    ]
    summary = ["Memory is only measured on a GPU."]
    if shares:
        summary = [
            f"Mixed precision takes {min(shares):.0%} to {max(shares):.0%} of the memory of full precision here."
        ]
    return Section("memory", "Memory", summary, [table], [], {"steps": STEPS}, [])


def _where(findings: Mapping[str, PeakMemory]) -> str:
    """The hardware; of each backbone, where it was not the same."""
    places = {model: peak.hardware or "no GPU" for model, peak in findings.items()}
    if len(set(places.values())) == 1:
        return next(iter(places.values()))
    return ", ".join(f"{model} on {place}" for model, place in places.items())


def _path(results: Results, model: str) -> Path:
    return results.folder(f"memory-{file_name(model)}") / "memory.json"


def _read(results: Results, model: str) -> PeakMemory:
    path = _path(results, model)
    if not results.files.has(path):
        raise results.not_trained(f"the memory of {model}", model)
    header = results.files.header(path, MemoryHeader, FORMAT, f"delete {path.parent} and go on")
    return PeakMemory(header["hardware"], header["bytes"], header["reasons"])


EXPERIMENT = Experiment(
    "memory",
    tasks=_tasks,
    findings=findings,
    draw=draw,
)
