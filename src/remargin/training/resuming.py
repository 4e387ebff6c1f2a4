"""A training run that is resumed by its folder alone: its config.yaml says what was asked for."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from remargin.errors import InputError
from remargin.files.atomic import on_disk
from remargin.files.shapes import mismatch
from remargin.reports.run_files import CONFIG, read_config
from remargin.training.request import Request
from remargin.training.settings import FitSettings, LossSettings

PATHS = ("triplets", "validation_run")
OF_FILES = ("data", "model", "triplets", "validation_run", "also")  # what may name a file or folder


def recorded(folder: Path, given: Mapping[str, Any]) -> tuple[Request, FitSettings, bool]:
    """What a training run was asked for, and whether a number of steps was given.

    Args:
        folder: that of the training run.
        given: what is asked for now as well, by the names of the arguments of `fit`; it must be the same.

    Raises:
        InputError: if there is no training run, if it was asked for something else, and if its files are in another
            folder than the current one.
    """
    if not (folder / CONFIG).is_file():
        do = "name the folder of a training run (--out of `remargin fit`)"
        raise InputError(f"no training run to resume: there is no {CONFIG} in it", file=folder, do=do)
    config = read_config(folder, "start another training run")
    asked = dict(config["asked"])
    if "stream" in asked:
        raise InputError("a training run on a stream", file=folder, do="resume it with remargin.stream(resume=...)")
    plain = asked.pop("settings", None)
    given_steps = isinstance(plain, dict) and plain.get("steps") is not None
    if isinstance(plain, dict) and not given_steps:
        plain = {**plain, "steps": FitSettings.steps}  # they followed from the data; schedule.json has them
    places = {name: Path(asked[name]) for name in PATHS if isinstance(asked.get(name), str)}
    placed = {**asked, **places, "out": folder}
    if problem := mismatch(placed, Request) or mismatch(plain, FitSettings, "settings"):
        do = f"resume it with all of its options: {config['command']} --resume"
        raise InputError(f"not of this version of remargin: {problem}", file=folder / CONFIG, do=do)
    flat = {name: value for name, value in plain.items() if name != "loss"} | plain["loss"]
    request, settings = Request(**placed), FitSettings.preset(**flat)
    _refuse_elsewhere(folder, asked)
    _refuse_other(folder, request, settings if given_steps else None, flat, given)
    return request, settings, given_steps


def _refuse_elsewhere(folder: Path, asked: Mapping[str, Any]) -> None:
    """Refuse to look for files here that are in the folder where the training run was started."""
    start = started_in(folder, str(asked.get("out", "")))
    if start is None or start == Path.cwd():
        return
    for name in OF_FILES:
        file = _file(asked.get(name))
        if file and not Path(file).is_absolute() and on_disk(file) is None and on_disk(str(start / file)) is not None:
            command = f"cd {shlex.quote(str(start))} && remargin fit --resume {shlex.quote(str(asked['out']))}"
            problem = f"its {name} is {asked[name]!r}, which is not in the current folder"
            raise InputError(problem, file=folder / CONFIG, do=f"resume it where it was started: {command}")


def started_in(folder: Path, out: str) -> Path | None:
    """The current folder when a training run was started, which its own folder, as it was given then, leads to.

    >>> str(started_in(Path("/home/me/project/runs/faq"), "runs/faq")), started_in(Path("/moved"), "runs/faq")
    ('/home/me/project', None)
    """
    parts, place = Path(out).parts, folder.resolve()
    if Path(out).is_absolute() or ".." in parts or place.parts[-len(parts) :] != parts:
        return None
    return Path(*place.parts[: -len(parts)])


def _file(value: Any) -> str | None:
    """The file or folder in a value such as pairs:faq.csv?query=q, if there is one."""
    return None if value is None else str(value).partition("?")[0].rpartition(":")[2]


def _refuse_other(
    folder: Path, request: Request, settings: FitSettings | None, flat: Mapping[str, Any], given: Mapping[str, Any]
) -> None:
    """Refuse what differs from the record. Without `settings`, the number of steps followed from the data."""
    before = {**request.plain(), **flat, "steps": None if settings is None else settings.steps}
    own = {field.name for kind in (FitSettings, LossSettings) for field in fields(kind)}
    changes = {name: value for name, value in given.items() if name in own}
    new = asdict(FitSettings.preset(**{**flat, **changes})) if changes else {}
    now = {**given, **{name: (new["loss"] | new)[name] for name in changes}}
    for name, value in now.items():
        if name not in before:
            raise InputError(f"unknown setting {name!r}", do="leave it out")
        if not _same(before[name], value):
            was = "was not given" if before[name] is None else f"is {before[name]}"
            problem = f"the training run was started with other settings: {name} {was} there, not {value}"
            do = f"leave out --{name.replace('_', '-')}, or start another training run (--out)"
            raise InputError(problem, file=folder / CONFIG, do=do)


def _same(before: Any, now: Any) -> bool:
    """Whether two values are the same, or name the same file."""
    if isinstance(now, Path) or (isinstance(now, str) and isinstance(before, str)):
        first, second = str(before), str(now)
        placed = [path.resolve() for text in (first, second) if (path := on_disk(text)) is not None]
        return first == second or (len(placed) == 2 and placed[0] == placed[1])
    return bool(before == now or str(before) == str(now))
