"""The measures of every dev query at each validation of a run: what curves and sweeps are compared by.

They lie in dev.json beside run.json. Runs of older studies have means alone, and no such file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from remargin.errors import InputError
from remargin.evaluation.comparison import Scores
from remargin.files.headers import read_header, write_header
from remargin.files.shapes import Count, Finite

FILE, FORMAT = "dev.json", "remargin-run-dev-1"
DIGITS = 6  # as in other files of scores


class DevHeader(TypedDict):
    """dev.json: for each measure a list for each query, with a value for each validation."""

    format: str
    steps: list[Count]
    queries: list[str]
    values: dict[str, list[list[Finite]]]


@dataclass(frozen=True)
class DevScores:
    """The measures of every dev query at each validation after training began.

    Attributes:
        steps: of the validations.
        queries: the ids.
        values: for each measure a row for each query, with a value for each validation.

    Example:
        >>> scores = DevScores((10, 20), ("q", "r"), {"RR": ((0.5, 1.0), (0.25, 0.25))})
        >>> scores.at(1, "RR")
        {'q': 1.0, 'r': 0.25}
    """

    steps: tuple[int, ...]
    queries: tuple[str, ...]
    values: Mapping[str, Sequence[Sequence[float]]]

    def at(self, validation: int, measure: str) -> dict[str, float]:
        """Each query's measure at a validation, counted from 0."""
        return {query: row[validation] for query, row in zip(self.queries, self.values[measure], strict=True)}

    @classmethod
    def of(cls, header: DevHeader, path: Path, remedy: str) -> DevScores:
        """What a header holds.

        Raises:
            InputError: if it lacks values.
        """
        steps, queries, values = header["steps"], header["queries"], header["values"]
        whole = all(len(rows) == len(queries) and {*map(len, rows)} <= {len(steps)} for rows in values.values())
        if not whole:
            raise InputError("lacks values of queries or validations", file=path, do=remedy)
        return cls(tuple(steps), tuple(queries), values)

    def save(self, path: Path) -> None:
        """Write dev.json."""
        values = {name: [list(row) for row in rows] for name, rows in self.values.items()}
        write_header(
            path, {"format": FORMAT, "steps": list(self.steps), "queries": list(self.queries), "values": values}
        )


class DevLog:
    """Takes down the measures of every query at each validation; see `train`. A resumed run adds to what is there.

    >>> import tempfile
    >>> log = DevLog(Path(tempfile.mkdtemp()) / "dev.json")
    >>> log(0, {"RR": {"q": 0.25}})  # before training: says nothing about a loss
    >>> log(10, {"RR": {"q": 0.5}})
    >>> log(20, {"RR": {"q": 1.0}})
    >>> log.scores([10, 20]).values["RR"]
    [[0.5, 1.0]]
    >>> log.scores([5, 10, 20]) is None  # a run that began without a log
    True
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._by_step: dict[int, dict[str, dict[str, float]]] = {}
        if path.exists():
            do = f"delete {path.parent}, and give the same command again"
            before = DevScores.of(read_header(path, DevHeader, FORMAT, do), path, do)
            self._by_step = {
                step: {measure: before.at(i, measure) for measure in before.values}
                for i, step in enumerate(before.steps)
            }

    def __call__(self, step: int, scores: Scores) -> None:
        """Take down a validation, and write all that there are: a checkpoint follows, and a resumed run needs them."""
        if step == 0:
            return
        self._by_step[step] = {
            measure: {query: round(value, DIGITS) for query, value in values.items()}
            for measure, values in scores.items()
        }
        kept = self.scores([other for other in sorted(self._by_step) if other <= step])
        assert kept is not None
        kept.save(self.path)

    def scores(self, steps: Sequence[int]) -> DevScores | None:
        """Those of a run with these validations; None unless all of them were taken down."""
        if not steps or not self._by_step.keys() >= set(steps):
            return None
        first = self._by_step[steps[0]]
        queries = list(next(iter(first.values())))
        values = {name: [[self._by_step[step][name][query] for step in steps] for query in queries] for name in first}
        return DevScores(tuple(steps), tuple(queries), values)
