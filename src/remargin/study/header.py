"""study.json: what a study is about, with hashes, so that it never goes on with something else."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, NotRequired, TypedDict

from remargin.data.triplets import triplets_hash
from remargin.errors import InputError
from remargin.files.atomic import is_scratch, locked, resolved
from remargin.files.headers import read_header, write_header
from remargin.files.shapes import Count, FieldsOf
from remargin.model.encoder import PAPER_LENGTHS, BiEncoder
from remargin.model.tokenizer import TextSettings
from remargin.reports.sections import FILE as SECTION
from remargin.study.columns import Column, judgments_hash, require_distinct, stems, test_name, texts_hash
from remargin.study.first_stage import first_stage_hash
from remargin.study.plan import DEV, EXACT, Plan

FILE = "study.json"
FORMAT = "remargin-study-1"
AGAIN = "choose another place, or delete it"
RUNS, WORK = "runs", "work"
PAPERS_STUDY = "regime-paper"  # the study in the paper's regime, within the one in the shared regime
GRIDS = ("margins", "temperatures", "teacher_scales")
SPLITS = ("train", "dev", "test")
OPTIONAL = ("zero_shot", "also_test")  # not every experiment needs them
AS_BEFORE = {"validation_split": DEV, "index": EXACT}  # of the plan of a study that does not know them


class Backbone(TypedDict):
    """What a backbone is, for people."""

    parameters: Count
    pooling: str
    dimension: Count


class StudyHeader(TypedDict):
    """study.json. Older studies lack some of it."""

    format: str
    data: str
    judgments: NotRequired[dict[str, str | None]]
    texts: NotRequired[str]
    models: dict[str, str]
    lengths: NotRequired[dict[str, Annotated[dict[str, Any], FieldsOf(TextSettings)]]]
    backbones: NotRequired[dict[str, Backbone]]
    zero_shot: list[str]
    stems: NotRequired[dict[str, list[str]]]
    also_test: NotRequired[list[str]]
    tested_on: NotRequired[dict[str, str]]
    triplets: NotRequired[str | None]
    first_stage: NotRequired[str | None]
    plan: Annotated[dict[str, Any], FieldsOf(Plan)]


def read_study(out: Path, remedy: str = "name a folder that `reproduce` wrote") -> dict[str, Any]:
    """What the study in a folder is about."""
    return dict(read_header(out / FILE, StudyHeader, FORMAT, remedy))


def require_own_folder(out: Path) -> None:
    """Refuse a folder for a study that has files in it, unless they are those of a study."""
    if resolved(out).exists() and not out.is_dir():
        raise InputError("is not a folder", file=out, do="choose another place")
    ours = [out / FILE, out / PAPERS_STUDY / FILE, out / "loss-geometry" / SECTION]
    if not out.exists() or any(path.exists() for path in ours):
        return
    begun = ("loss-geometry", PAPERS_STUDY)  # if it was stopped
    if any(path.name not in begun and not is_scratch(path) for path in out.iterdir()):
        raise InputError("has other files in it", file=out, do="choose another place")


def is_study(out: Path) -> bool:
    """Whether a folder has a study."""
    return (out / FILE).exists()


def planned_before(out: Path) -> Plan | None:
    """The plan of the study in a folder, if there is one."""
    return Plan.of(read_study(out)["plan"]) if (out / FILE).exists() else None


def describe(
    column: Column,
    backbones: Mapping[str, str],
    plan: Plan,
    zero_shot: Sequence[Column],
    also_test: Sequence[Column],
    triplets: Path | None,
    first_stage: Path | None,
) -> dict[str, Any]:
    """What a study is about, as study.json has it. It reads the collection and the backbones once.

    Raises:
        InputError: for a split without judgments, and for a first-stage run of other queries or documents.
    """
    (data,) = column.parts
    models, lengths, described = {}, {}, {}
    for name, path in backbones.items():
        encoder = BiEncoder.from_pretrained(path, lengths=PAPER_LENGTHS)
        models[name], lengths[name] = encoder.fingerprint(), asdict(encoder.text_settings)
        parameters = sum(weights.numel() for weights in encoder.parameters())
        described[name] = Backbone(parameters=parameters, pooling=encoder.pooling, dimension=encoder.dimension)
    return {
        "format": FORMAT,
        "data": column.name,
        "judgments": {split: judgments_hash(data, split) for split in SPLITS},
        "texts": texts_hash(data),
        "models": models,
        "lengths": lengths,
        "backbones": described,
        "zero_shot": [column.name for column in zero_shot],
        "stems": {column.name: stems(column) for column in zero_shot},
        "also_test": [column.name for column in also_test],
        "tested_on": _judgments(zero_shot) | {test_name(c): h for c in also_test for h in _judgments([c]).values()},
        "triplets": None if triplets is None else triplets_hash(triplets),
        "first_stage": None if first_stage is None else first_stage_hash(first_stage, data, plan.validation_split),
        "plan": plan.plain(),
    }


def _judgments(columns: Sequence[Column]) -> dict[str, str]:
    """A hash of the judgments of collections, by the names of their files."""
    return {
        stem: judgments_hash(part, column.split, skip_bad=True)
        for column in columns
        for part, stem in zip(column.parts, stems(column), strict=True)
    }


def take_folder(out: Path, header: dict[str, Any], own_grids: bool = False) -> dict[str, Any]:
    """Make a folder this study's own, or see that it is. Returns what study.json says now.

    A study that has no results yet, as bad input has stopped it, is begun anew.

    Args:
        out: the folder.
        header: what the study is about, see `describe`.
        own_grids: that the plan's margins, temperatures and scales are for this time alone; the folder keeps its own.

    Raises:
        InputError: if the study in the folder is about something else, or if two backbones would share files.
    """
    path = out / FILE
    out.mkdir(parents=True, exist_ok=True)
    with locked(out):
        before = read_study(out, AGAIN) if path.exists() else None
        if before is not None and not _has_results(out) and _differences(header, before):
            shutil.rmtree(out / WORK, ignore_errors=True)
        elif before is not None:
            header = _joined(header, before, path, own_grids)
        require_distinct(header["models"], "model", "--model")
        write_header(path, header)
    return header


def _has_results(out: Path) -> bool:
    """Whether anything was trained or measured; figure 2 needs neither."""
    sections = (path.parent.name for path in out.glob(f"*/{SECTION}"))
    return (out / RUNS).exists() or any(name != "loss-geometry" for name in sections)


def _joined(now: dict[str, Any], before: dict[str, Any], path: Path, own_grids: bool) -> dict[str, Any]:
    """The study of before with what is new: backbones, and collections to test on if it had none."""
    now = dict(now)
    for name in (*OPTIONAL, "stems"):
        now[name] = now[name] or before.get(name, now[name])
    if own_grids:
        now["plan"] = now["plan"] | {name: before["plan"][name] for name in GRIDS if name in before["plan"]}
    if different := _differences(now, before):
        raise InputError(f"is of another study: {', '.join(different)}", file=path, do=AGAIN)
    for name in ("models", "lengths", "backbones", "tested_on"):
        now[name] = before.get(name, {}) | now[name]
    return now


def _differences(now: Mapping[str, Any], before: Mapping[str, Any]) -> list[str]:
    """What is not as it was. What an older study does not know is not compared."""
    different = []
    if now["data"] != before["data"]:
        different.append(f"data was {before['data']}, is {now['data']} now")
    hashed = ("judgments", "texts", "triplets")
    different += [f"other {name}" for name in hashed if now[name] != before.get(name, now[name])]
    if now["first_stage"] != before.get("first_stage"):
        different.append("another --first-stage")
    for name in OPTIONAL:
        if now[name] != (before.get(name) or now[name]):
            different.append(f"--{name.replace('_', '-')} was {' '.join(before[name])}, is {' '.join(now[name])} now")
    for name, value in now["plan"].items():
        was = before["plan"].get(name, AS_BEFORE.get(name, value))
        if was != value:
            different.append(f"{name} was {was}, is {value} now")
    by_name = {"models": "weights of", "lengths": "lengths or prefixes of", "tested_on": "judgments of"}
    for part, what in by_name.items():
        known = before.get(part, {})
        different += [f"other {what} {name}" for name, value in now[part].items() if known.get(name, value) != value]
    return different
