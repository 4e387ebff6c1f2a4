"""The folder of a training run: whose it is, what was asked for, and what it was made from."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from remargin.errors import InputError
from remargin.files.atomic import is_scratch, locked, on_disk, remove_left, resolved
from remargin.reports.run_files import CONFIG, METRICS, RunConfig, read_config, write_config
from remargin.versions import versions


class TrainingFolder:
    """A folder that is free for a new training run, or that holds this very training run, which is to be resumed.

    Args:
        path: the folder; it need not exist.
        asked: what `fit` was asked for, in plain values, and its settings.
        resume: whether a training run that is there may continue.

    Raises:
        InputError: if there is something else in the folder, or a training run that is not to be resumed or has other
            settings.
    """

    def __init__(self, path: Path, asked: dict[str, Any], resume: bool) -> None:
        resolved(path)  # refuses a loop of links
        self.path, self._asked, self._resume = path, asked, resume
        self._check()

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Keep other processes out meanwhile, and write the config of a new training run.

        Bad input that shows before the first step leaves nothing behind, so that the corrected command finds the folder
        as it was.
        """
        made = not self.path.exists()
        self.path.mkdir(parents=True, exist_ok=True)
        with locked(self.path):
            remove_left(self.path, deep=True)
            self._check()  # another process may have been faster
            new = self._is_new()
            try:
                if new:
                    about = {"command": " ".join(sys.argv), "asked": self._asked, "versions": versions()}
                    write_config(self.path, about)
                yield
            except InputError:
                rounds = self.path.glob(f"rounds/*/{METRICS}")  # before the last one
                if new and not (self.path / METRICS).exists() and not any(rounds):
                    self._clear(made)
                raise

    def add_hashes(self, hashes: dict[str, str]) -> None:
        """Put the hashes of the input into the config; a training run that is resumed must find the same input."""
        config = self._read()
        before = config.setdefault("sha256", hashes)
        if changed := [name for name in hashes if hashes[name] != before.get(name)]:
            problem = f"the training run was started on other data: {', '.join(changed)} changed"
            raise InputError(problem, file=self.path, do="put back the data, or start another training run")
        write_config(self.path, config)

    @property
    def _config(self) -> Path:
        return self.path / CONFIG

    def _is_new(self) -> bool:
        """Whether nothing was made in it yet. With a config alone it is as good as new."""
        return not self.path.exists() or all(path == self._config or is_scratch(path) for path in self.path.iterdir())

    def _check(self) -> None:
        if self._is_new():
            if self._config.exists():
                self._read()  # another file of that name is an error
            return
        if not self._resume:
            do = f"choose another place, or continue that training run: remargin fit --resume {self.path}"
            raise InputError("already exists", file=self.path, do=do)
        changed = _differences(_placed(self._read()["asked"]), _placed(json.loads(json.dumps(self._asked))))
        if changed:
            problem = f"the training run was started with other settings: {', '.join(changed)}"
            raise InputError(
                problem, file=self._config, do="resume with the same settings, or start another training run"
            )

    def _clear(self, made: bool) -> None:
        """Remove all that is in it, and the folder itself if it was made for this training run."""
        for path in self.path.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        if made:
            self.path.rmdir()

    def _read(self) -> RunConfig:
        do = "choose another place"
        if not self._config.exists():
            raise InputError(f"no training run to resume: there is no {CONFIG} in it", file=self.path, do=do)
        return read_config(self.path, do)


def _placed(asked: dict[str, Any]) -> dict[str, Any]:
    """What was asked for, with absolute paths of files and without the training run's own folder, which may move."""
    paths = {n: str(Path(v).resolve()) for n, v in asked.items() if isinstance(v, str) and on_disk(v)}
    return {name: paths.get(name, value) for name, value in asked.items() if name != "out"}


def _differences(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """The names of values that differ, those inside a dict by their own names. What `before` lacks does not count.

    >>> _differences({"data": "faq", "settings": {"steps": 1}}, {"data": "faq", "settings": {"steps": 2}})
    ['steps']
    """
    names = []
    for name, value in now.items():
        old = before.get(name, value)
        if isinstance(old, dict) and isinstance(value, dict):
            names += _differences(old, value)
        elif old != value:
            names.append(name)
    return names
