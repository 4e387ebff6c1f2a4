"""The folder of a training run: whose it is, what was asked for, and what it was made from."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from remargin.errors import InputError
from remargin.files.atomic import locked, new_file, on_disk, remove_left, resolved
from remargin.versions import versions

CONFIG = "config.yaml"


class RunFolder:
    """A folder that is free for a new run, or that holds this very run, which is then to be resumed.

    Args:
        path: the folder; it need not exist.
        asked: what the run is asked to do, in plain values: the request and its settings.
        resume: whether a run that is there may go on.

    Raises:
        InputError: if there is something else in the folder, a run that is not to be resumed, or one with other
            settings.
    """

    def __init__(self, path: Path, asked: dict[str, Any], resume: bool) -> None:
        resolved(path)  # refuses a loop of links
        self.path, self._asked, self._resume = path, asked, resume
        self._check()

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Keep other processes out meanwhile, and write the config of a new run.

        Bad input that shows before the first step leaves nothing behind, so that the corrected command finds the folder
        as it was.
        """
        made = not self.path.exists()
        self.path.mkdir(parents=True, exist_ok=True)
        with locked(self.path):
            remove_left(self.path)
            self._check()  # another process may have been faster
            new = self._is_new()
            try:
                if new:
                    self._write({"command": " ".join(sys.argv), "asked": self._asked, "versions": versions()})
                yield
            except InputError:
                if new and not (self.path / "metrics.csv").exists():
                    self._clear(made)
                raise

    def add_hashes(self, hashes: dict[str, str]) -> None:
        """Put the hashes of the input into the config; a run that goes on must find what it was started on."""
        config = self._read()
        before = config.setdefault("sha256", hashes)
        if changed := [name for name in hashes if hashes[name] != before.get(name)]:
            problem = f"the run was started on other data: {', '.join(changed)} changed"
            raise InputError(problem, file=self.path, do="put back what it was, or start another run")
        self._write(config)

    def write_report(self, report: dict[str, Any]) -> None:
        """Say what came of the run."""
        with new_file(self.path / "report.json", overwrite=True) as file:
            file.write(json.dumps(report, indent=1).encode())

    @property
    def _config(self) -> Path:
        return self.path / CONFIG

    def _is_new(self) -> bool:
        """Whether nothing was made in it yet. With a config alone it is as good as new."""
        return not self.path.exists() or {*self.path.iterdir()} <= {self._config}

    def _check(self) -> None:
        if self._is_new():
            if self._config.exists():
                self._read()  # another file of that name is an error
            return
        if not self._resume:
            do = "choose another place, or go on with that run (--resume)"
            raise InputError("already exists", file=self.path, do=do)
        changed = _differences(_placed(self._read()["asked"]), _placed(json.loads(json.dumps(self._asked))))
        if changed:
            problem = f"the run was started with other settings: {', '.join(changed)}"
            raise InputError(problem, file=self._config, do="resume with the same settings, or start another run")

    def _clear(self, made: bool) -> None:
        """Remove all that is in it, and the folder itself if it was made for this run."""
        for path in self.path.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        if made:
            self.path.rmdir()

    def _read(self) -> dict[str, Any]:
        do = "choose another place"
        try:
            config = yaml.safe_load(self._config.read_text(encoding="utf-8"))
        except FileNotFoundError:
            problem = f"no run to go on with: there is no {CONFIG} in it"
            raise InputError(problem, file=self.path, do=do) from None
        except (OSError, UnicodeDecodeError, yaml.YAMLError):
            config = None
        if not isinstance(config, dict) or not isinstance(config.get("asked"), dict):
            raise InputError("not the config of a training run", file=self._config, do=do)
        return config

    def _write(self, config: dict[str, Any]) -> None:
        plain = json.loads(json.dumps(config))
        with new_file(self._config, overwrite=True) as file:
            file.write(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True).encode())


def _placed(asked: dict[str, Any]) -> dict[str, Any]:
    """What was asked for, with the paths of files made absolute and without the run's own folder, which may move."""
    paths = {n: str(Path(v).resolve()) for n, v in asked.items() if isinstance(v, str) and on_disk(v)}
    return {name: paths.get(name, value) for name, value in asked.items() if name != "out"}


def _differences(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """The names of values that differ, those inside a dict by their own names. What `before` lacks does not count.

    >>> _differences({"data": "faq", "settings": {"steps": 1}}, {"data": "faq", "settings": {"steps": 2}})
    ['steps']
    """
    found = []
    for name, value in now.items():
        old = before.get(name, value)
        if isinstance(old, dict) and isinstance(value, dict):
            found += _differences(old, value)
        elif old != value:
            found.append(name)
    return found
