"""What is in a folder: as values that can be compared, and as remargin's own readers see it."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from remargin import BiEncoder, Collection, Run
from remargin.data.tokens import TokenStore
from remargin.model.cross_encoder import CrossEncoder
from remargin.reports.sections import Section
from remargin.retrieval.searching import load_index
from remargin.retrieval.vectors import Vectors
from remargin.study.header import read_study
from remargin.study.results import Result

Contents = Mapping[str, Any]
# What no two runs have in common: durations, dates, memory, the command itself, and checksums of these.
CHANGING_KEYS = {
    "blocks_reused", "checksum", "command", "date", "joules", "metrics", "pairs_per_second", "peak_bytes", "seconds",
    "seconds_per_step", "seconds_to_best", "teacher_seconds", "training_seconds", "validation_seconds",
}  # fmt: skip
CHANGING_COLUMNS = {"triplets_per_second", "tokens_per_second", "utilisation", "data_wait", "checksum"}
SCRATCH = r"(?:[0-9a-f]{8}-)?[a-z0-9_]{8}"  # how the name of a scratch folder ends
UNFINISHED = r"[0-9a-f]{16,32}"  # how that of work to go on with ends
LEFT_OVER = "left over"
WORK_FOLDER = re.compile(r"(?<![\w.-])/[^\"'\s]*?/(start|whole|work)/")
# Folders of a training run that are put in place at once, and the file that is in each of them if it is complete.
RUN = "metrics.csv"
MODEL, PREPARED, PROGRESS = "remargin_model.json", "remargin.json", "progress.json"
WHOLE = {"best": MODEL, "last": MODEL, "model": MODEL, "checkpoint": PROGRESS, "data": PREPARED}


def contents(folder: Path) -> Contents:
    """Everything in a folder by name, hidden or not; None for a folder."""
    return {
        str(path.relative_to(folder)): None if path.is_dir() else _comparable(path)
        for path in sorted(folder.rglob("*"))
    }


def _comparable(path: Path) -> Any:
    """What is in a file, without what changes from run to run, and without the name of the folder that it ran in."""
    content = path.read_bytes()
    try:
        if path.suffix == ".json":
            return _lasting(json.loads(WORK_FOLDER.sub("", content.decode())))
        if path.name == "config.yaml":
            return _lasting(yaml.safe_load(content))
        if path.name == "metrics.csv":
            rows = csv.DictReader(io.StringIO(content.decode()))
            return [{name: row[name] for name in row if name not in CHANGING_COLUMNS} for row in rows]
    except (ValueError, yaml.YAMLError):  # it is not whole
        pass
    return content


def _lasting(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _lasting(item) for name, item in value.items() if name not in CHANGING_KEYS}
    return [_lasting(item) for item in value] if isinstance(value, list) else value


def differences(found: Contents, expected: Contents, times: tuple[str, ...] = ()) -> list[str]:
    """What is not as expected, a short line for each; of files named in `times`, only whether they are there."""
    more = {name for name in found if name not in expected}
    lines = [f"{LEFT_OVER}: {name}" for name in sorted(more) if str(Path(name).parent) not in more]
    lines += [f"missing: {name}" for name in expected if name not in found]
    both = [name for name in expected if name in found and Path(name).name not in times]
    return lines + [f"different: {name}" for name in both if found[name] != expected[name]]


def entry(found: Contents, name: str) -> Contents:
    """The part of a folder's contents that is one file or folder in it."""
    return {path: content for path, content in found.items() if Path(path).parts[0] == name}


def without_random(text: str) -> str:
    """A text without what is random in the names of scratch folders, of unfinished work, and of where it ran."""
    names = rf"(\.[\w.-]+?\.)(?:{UNFINISHED}|{SCRATCH})(?=[/\s:;]|$)"
    return re.sub(names, r"\1#", WORK_FOLDER.sub("", text))


def _read_checkpoint(folder: Path) -> None:
    expected = json.loads((folder / PROGRESS).read_text())["sha256"]
    assert hashlib.sha256((folder / "state.safetensors").read_bytes()).hexdigest() == expected


def _read_prepared(folder: Path) -> None:
    for kind in ("documents", "queries"):
        TokenStore(folder / "tokens" / kind).verify()
    Collection.load(folder, "test")


READERS: dict[str, Callable[[Path], object]] = {
    PREPARED: _read_prepared,
    PROGRESS: _read_checkpoint,
    MODEL: BiEncoder.from_pretrained,
    "remargin_cross_encoder.json": CrossEncoder.from_pretrained,
    "remargin_vectors.json": Vectors.load,
    "remargin_index.json": load_index,
    "remargin_bm25.json": load_index,
    "remargin_sparse.json": load_index,
    "section.json": Section.load,
    "study.json": read_study,
    "run.json": lambda folder: Result.load(folder, None),
}


_readable: set[str] = set()


def unreadable(folder: Path) -> list[str]:
    """What in a folder, at any depth, is not complete or cannot be read, a line for each; hidden work is left out."""
    found = []
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if any(part.startswith(".") for part in name.parts):
            continue
        if path.name in WHOLE and (path.parent / RUN).exists() and not (path / WHOLE[path.name]).is_file():
            found.append(f"incomplete: {name} has no {WHOLE[path.name]}")
        if path.name in READERS:
            found += _problems(path.parent, READERS[path.name], str(name.parent))
        elif path.name.endswith((".trec", ".trec.gz")):
            found += _problems(path, Run.load, str(name))
    return found


def _problems(path: Path, read: Callable[[Path], object], name: str) -> list[str]:
    """What a reader complains about. What it has read once it need not read again."""
    files = [path] if path.is_file() else [file for file in sorted(path.rglob("*")) if file.is_file()]
    digest = hashlib.sha256(repr([(file.name, file.read_bytes()) for file in files]).encode()).hexdigest()
    if digest in _readable:
        return []
    try:
        read(path)
    except Exception as error:  # whatever it is, it is a finding
        return [f"cannot be read: {name} ({error!r})"]
    _readable.add(digest)
    return []
