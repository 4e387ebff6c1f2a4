"""The similarities of positives and negatives in each batch: what the distributed targets are made of."""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from remargin.errors import InputError
from remargin.files.atomic import new_file
from remargin.files.unpacking import open_binary
from remargin.losses.inputs import Similarity

TARGETS = "targets.csv"
SHOWN = 500  # batches at the beginning and at the end


class BatchTargets(NamedTuple):
    """Mean, smallest and largest similarity of a batch's positives and negatives."""

    batch: int
    mean: float
    low: float
    high: float


def never(batch: int) -> bool:
    """No batch."""
    return False


class TargetLog:
    """Takes down the similarities of the first and last batches; an observer for `fit`. Never waits for the device.

    A resumed run goes on with the file that it had written when it was stopped: `save_at` says after which batches it
    is written, those before a checkpoint above all.

    >>> import tempfile
    >>> log = TargetLog(Path(tempfile.mkdtemp()) / "targets.csv")
    >>> log(0, torch.eye(2), torch.eye(2), torch.eye(2))
    >>> log.save()
    >>> read_targets(log.path)
    [BatchTargets(batch=0, mean=0.5, low=0.0, high=1.0)]
    """

    def __init__(
        self, path: Path, similarity: Similarity = "cosine", shown: int = SHOWN, save_at: Callable[[int], bool] = never
    ) -> None:
        self.path = path
        self._cosine = similarity == "cosine"
        self._shown = shown
        self._save_at = save_at
        self._first: dict[int, Tensor] = {}
        self._last: deque[tuple[int, Tensor]] = deque(maxlen=shown)
        self._before = {row.batch: row for row in read_targets(path)} if path.exists() else {}

    def __call__(self, batch: int, queries: Tensor, positives: Tensor, negatives: Tensor) -> None:
        """Take down a batch."""
        p, n = positives.float(), negatives.float()
        if self._cosine:
            p, n = (torch.nn.functional.normalize(vectors, dim=1) for vectors in (p, n))
        similarities = p @ n.T
        summary = torch.stack([similarities.mean(), similarities.amin(), similarities.amax()])
        if batch < self._shown:
            self._first[batch] = summary
        else:
            self._last.append((batch, summary))
        if self._save_at(batch):
            self.save()  # a stopped run keeps these

    def __enter__(self) -> TargetLog:
        return self

    def __exit__(self, *_: object) -> None:
        if self._first or self._last:
            self.save()  # also of a run that was stopped: the batches before its checkpoint do not come again

    def save(self) -> None:
        """Write the file."""
        rows = dict(self._before)
        for batch, summary in [*self._first.items(), *self._last]:
            rows[batch] = BatchTargets(batch, *summary.tolist())
        end = max(rows, default=0)
        write_targets(
            self.path, [rows[batch] for batch in sorted(rows) if batch < self._shown or batch > end - self._shown]
        )


def write_targets(path: Path, rows: Iterable[BatchTargets]) -> None:
    """What `read_targets` reads, a line for each batch."""
    with new_file(path, overwrite=True) as out, io.TextIOWrapper(out, encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(BatchTargets._fields)
        for row in rows:
            table.writerow([row.batch, *(f"{value:.6g}" for value in row[1:])])


def read_targets(path: Path) -> list[BatchTargets]:
    """What a `TargetLog` wrote, gzipped or not. A last line that was cut is left out."""
    try:
        with io.TextIOWrapper(open_binary(path), encoding="utf-8") as file:
            rows = csv.DictReader(line for line in file if line.endswith("\n"))
            return [BatchTargets(int(r["batch"]), float(r["mean"]), float(r["low"]), float(r["high"])) for r in rows]
    except (gzip.BadGzipFile, EOFError, zlib.error, csv.Error, KeyError, TypeError, ValueError):
        raise InputError("damaged", file=path, do="delete the run's folder and train it again") from None


def rolling_mean(values: list[float], window: int = 32) -> list[float]:
    """The mean over the last values, as many as there are up to `window`.

    >>> rolling_mean([1.0, 2.0, 3.0, 4.0], window=2)
    [1.0, 1.5, 2.5, 3.5]
    """
    means, total = [], 0.0
    for i, value in enumerate(values):
        total += value - (values[i - window] if i >= window else 0.0)
        means.append(total / min(i + 1, window))
    return means
