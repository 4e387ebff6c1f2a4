"""What mixed precision and 8-bit optimiser states save: the set-up's claim of half the memory."""

from __future__ import annotations

import shutil
from typing import Annotated, Any, TypedDict

import torch

from remargin.errors import InputError
from remargin.experiments.columns import file_name
from remargin.experiments.hardware import hardware, peak_memory
from remargin.experiments.outcome import Outcome
from remargin.experiments.study import Study
from remargin.files.headers import read_header, write_header
from remargin.files.shapes import Check, Count
from remargin.model.encoder import BiEncoder
from remargin.report.sections import Section
from remargin.report.tables import Block, Cell, Table, number
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


def memory(study: Study) -> Outcome:
    """The most memory in use during a few steps, for each backbone."""
    rows: list[list[Cell]] = []
    reasons: list[str] = []
    numbers: dict[str, Any] = {}
    measured = study.of_models(lambda model: _measured(study, model))
    for model, found in measured.items():
        reasons += [f"{model}, {reason}" for reason in found["reasons"].values() if reason]
        numbers[model] = {way: size for way, size in found["bytes"].items() if size is not None}
        full = found["bytes"]["32"]
        for way, size in found["bytes"].items():
            share = None if size is None or full is None else size / full
            rows.append([Cell(model), Cell(way), number(None if size is None else size / 2**30, 2), number(share, 2)])
    notes = [f"{STEPS} steps of {study.plan.batch_size} triplets, distributed targets, {_where(measured)}."]
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


def _measured(study: Study, model: str) -> dict[str, Any]:
    path = study.out / "runs" / f"memory-{file_name(model)}" / "memory.json"
    if path.exists():
        before: dict[str, Any] = dict(read_header(path, MemoryHeader, FORMAT, f"delete {path.parent} and go on"))
        complete = before["hardware"] and not any(before["reasons"].values())
        can_measure = study.can_train and model in study.backbones and torch.cuda.is_available()
        if complete or not can_measure:  # else what was missing may be there now
            return before
    study.require_trainable(f"the memory of {model}", model)
    found: dict[str, Any] = {"hardware": None, "bytes": dict.fromkeys(WAYS), "reasons": dict.fromkeys(WAYS)}
    if torch.cuda.is_available():
        found["hardware"] = hardware()
        for way, chosen in WAYS.items():
            try:
                found["bytes"][way] = _peak(study, model, chosen)
            except InputError as error:
                found["reasons"][way] = f"{way}: {error}"
    write_header(path, {"format": FORMAT, **found})
    return found


def _peak(study: Study, model: str, chosen: dict[str, Any]) -> int | None:
    """The most memory in use during a few steps."""
    settings = FitSettings.preset(
        steps=STEPS, batch_size=study.plan.batch_size, log_every=STEPS, graphs=False, **chosen
    )
    data, encoder = study.training.prepared(model), BiEncoder.from_pretrained(study.backbones[model])
    folder = study.work / "memory"
    shutil.rmtree(folder, ignore_errors=True)
    peak_memory(reset=True)
    try:
        train(encoder, data, folder, None, settings, say=lambda line: None)
        return peak_memory()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
