"""What an experiment gives: a section for the report, and the numbers that claims are checked against."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

from remargin.files.headers import read_header, write_header
from remargin.report.sections import Section

NUMBERS = "numbers.json"
FORMAT = "remargin-numbers-1"
ALSO = "also"  # the numbers of a table for further test collections


@dataclass
class Outcome:
    """A section and the numbers behind it: plain values by name."""

    section: Section
    numbers: dict[str, Any]

    def save(self, folder: Path) -> Path:
        """Write both into a folder of their own, and return it."""
        self.section.save(folder, overwrite=True)
        numbers = json.loads(json.dumps(self.numbers, sort_keys=True))
        write_header(folder / NUMBERS, {"format": FORMAT, "numbers": numbers})
        return folder


class NumbersHeader(TypedDict):
    """numbers.json: the numbers of an experiment."""

    format: str
    numbers: dict[str, Any]


def read_numbers(folder: Path) -> dict[str, Any]:
    """The numbers that `Outcome.save` wrote into a folder.

    Raises:
        InputError: if they are missing, or not as they were written.
    """
    again = f"make it again (`remargin reproduce {folder.name}`)"
    return read_header(folder / NUMBERS, NumbersHeader, FORMAT, again)["numbers"]


def all_numbers(study: Path) -> dict[str, Any]:
    """The numbers of every experiment in a study's folder, by the experiment's name."""
    return {path.parent.name: read_numbers(path.parent) for path in sorted(study.glob(f"*/{NUMBERS}"))}


def with_tests(tables: Mapping[str, dict[str, Any]], first: str) -> dict[str, Any]:
    """Numbers of a backbone's table: that of the first test collection, with those of further ones inside.

    >>> with_tests({"DL19": {"static": 0.65}, "DL20": {"static": 0.63}}, "DL19")
    {'static': 0.65, 'also': {'DL20': {'static': 0.63}}}
    """
    further = {test: table for test, table in tables.items() if test != first}
    return {**tables[first], **({ALSO: further} if further else {})}


def by_test(of_models: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The tables of each test collection, by backbone; the first collection has no name.

    >>> by_test({"tiny": {"static": 0.65, "also": {"DL20": {"static": 0.63}}}})["DL20"]
    {'tiny': {'static': 0.63}}
    """
    found: dict[str, dict[str, Any]] = {"": dict(of_models)}
    for model, table in of_models.items():
        for test, further in table.get(ALSO, {}).items():
            found.setdefault(test, {})[model] = further
    return found


def every_test(of_models: Mapping[str, Any]) -> dict[str, Any]:
    """All these tables, by backbone and test collection.

    >>> list(every_test({"tiny": {"static": 0.65, "also": {"DL20": {"static": 0.63}}}}))
    ['tiny', 'tiny on DL20']
    """
    tables = by_test(of_models)
    return {f"{m} on {test}" if test else m: table for test, of_test in tables.items() for m, table in of_test.items()}
