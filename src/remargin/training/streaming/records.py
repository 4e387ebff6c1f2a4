"""What training on a stream writes down: the lines of each step before they are trained on, and metrics.csv."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypedDict

from remargin.errors import InputError
from remargin.files.appended import Appended
from remargin.files.ledger import Ledger, read_ledger
from remargin.files.shapes import Size
from remargin.reports.run_files import METRICS

TRAINED = "trained.jsonl"
REMEDY = "put it back, or start another training run"
COLUMNS = (
    "step", "examples", "loss", "explicit_mean", "spread", "margin_mean", "margin_min", "margin_max",
    "target_mean", "target_min", "target_max", "temperature", "learning_rate", "triplets_per_second",
    "rejected", "waiting", "weight", "validation", "away",
)  # fmt: skip
Ranges = list[tuple[int, int]]


class Step(TypedDict):
    """The lines of the journal that a step trained on, as ranges, and those of them that were replayed."""

    step: Size
    lines: Ranges
    replayed: Ranges


class TrainedLines:
    """Says of each step which lines it trains on, before it does: so a kill leaves no step that is not written down.

    Args:
        folder: of the training run.
        checkpoint: the step of the last checkpoint. What was trained on since is trained on again.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> trained = TrainedLines(folder, 0)
        >>> trained.add(1, [1, 2]), trained.add(2, [5, 3, 4])
        (None, None)
        >>> TrainedLines(folder, 1).replay()
        'lines 3 to 5 of the stream'
    """

    def __init__(self, folder: Path, checkpoint: int) -> None:
        self._file = Appended(folder / TRAINED, Step, REMEDY)
        later = (stored.entry["lines"] for stored in self._file.scan() if stored.entry["step"] > checkpoint)
        self._again = {(first, last) for ranges in later for first, last in ranges}
        self._replayed = set[int]()

    def replay(self) -> str | None:
        """The lines that were trained on after the checkpoint, in words; None if there are none."""
        listed = [f"{first:,} to {last:,}" if last > first else f"{first:,}" for first, last in joined(self._again)]
        return f"lines {', '.join(listed)} of the stream" if listed else None

    def add(self, step: int, lines: Iterable[int]) -> None:
        """Write down what a step is about to train on."""
        numbers = set(lines)
        replayed = {n for n in numbers - self._replayed if any(first <= n <= last for first, last in self._again)}
        self._replayed |= replayed
        made = {name: joined((n, n) for n in of) for name, of in (("lines", numbers), ("replayed", replayed))}
        self._file.append([{"step": step, **made}], flush=False)


class Metrics:
    """metrics.csv: a row for each log line and each validation.

    Args:
        folder: of the training run.
        step: of the checkpoint that training goes on from; later rows go. None if there is none: all rows go.
    """

    def __init__(self, folder: Path, step: int | None) -> None:
        path = folder / METRICS
        rows = read_ledger(path, REMEDY, COLUMNS).rows if step is not None and path.exists() else []
        for line, row in enumerate(rows, start=2):
            if not row.get("step", "").isdecimal():
                raise InputError("no step", file=path, line=line, do=REMEDY)
        self._ledger = Ledger(path, COLUMNS, [row for row in rows if int(row["step"]) <= (step or 0)])

    def add(self, **values: Any) -> None:
        """Write a row. What is None stays empty."""
        given = {name: value for name, value in values.items() if value is not None}
        self._ledger.append({name: f"{v:.6g}" if isinstance(v, float) else v for name, v in given.items()})


def joined(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Ranges, each by its first and its last number, in order and without gaps between them where there are none.

    >>> joined([(7, 7), (1, 2), (3, 3), (2, 3)])
    [(1, 3), (7, 7)]
    """
    made: Ranges = []
    for first, last in sorted(ranges):
        if made and first <= made[-1][1] + 1:
            made[-1] = made[-1][0], max(made[-1][1], last)
        else:
            made.append((first, last))
    return made
