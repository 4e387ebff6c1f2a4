"""What an experiment gives: a section for the report, and the numbers that claims are checked against."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remargin.errors import InputError
from remargin.files import new_file
from remargin.report.sections import Section

NUMBERS = "numbers.json"


@dataclass
class Outcome:
    """A section and the numbers behind it: plain values by name."""

    section: Section
    numbers: dict[str, Any]

    def save(self, folder: Path) -> Path:
        """Write both into a folder of their own, and return it."""
        self.section.save(folder, overwrite=True)
        with new_file(folder / NUMBERS, overwrite=True) as file:
            file.write(json.dumps(self.numbers, indent=1, sort_keys=True).encode() + b"\n")
        return folder


def read_numbers(folder: Path) -> dict[str, Any]:
    """The numbers of every experiment in a folder, by the experiment's name."""
    return {path.parent.name: _read(path) for path in sorted(folder.glob(f"*/{NUMBERS}"))}


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        raise InputError("damaged", file=path, do=f"make it again (`remargin reproduce {path.parent.name}`)") from None
