"""The log of a training run: metrics.csv, Lightning's loggers, and a live line."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import Tensor

from remargin.errors import InputError
from remargin.files.ledger import Ledger, read_ledger
from remargin.progress import end_live, is_live, show_live
from remargin.reports.run_files import METRICS
from remargin.training.devices.ranks import ALONE, Ranks

COLUMNS = (
    "step", "loss", "explicit_mean", "spread", "margin_mean", "margin_min", "margin_max",
    "target_mean", "target_min", "target_max", "temperature", "learning_rate",
    "triplets_per_second", "tokens_per_second", "utilisation", "padding", "data_wait", "validation",
)  # fmt: skip


class Meter:
    """How fast training is: counts what was trained on since it was last read. Time spent on validation is left out.

    Args:
        operations_per_token: floating-point operations of a token that is not padding, forward and backward.
        rate: floating-point operations per second that the device reaches in a large matrix product; utilisation is
            the share of them that training uses. None where that is not known, as on a CPU: its matrix products are of
            many kinds, and other ones than ours may be slower. There is no utilisation then.
        ranks: the processes that train together, of which each counts the tokens of its own texts.
    """

    def __init__(self, operations_per_token: float, rate: float | None, ranks: Ranks = ALONE) -> None:
        self._per_token = operations_per_token
        self._rate = None if rate is None else rate * ranks.size
        self._ranks = ranks
        self.pauses: list[float] = []  # all of them, in seconds
        self._start()

    def _start(self) -> None:
        self._triplets = self._tokens = self._computed = 0
        self._waited = self._paused = 0.0
        self._since = time.perf_counter()

    def count(self, triplets: int, tokens: int, computed: int, waited: float) -> None:
        """Add a batch.

        Args:
            triplets: how many were trained on.
            tokens: how many their texts have.
            computed: how many were computed: the tokens and the padding.
            waited: for the batch to be loaded, in seconds.
        """
        self._triplets += triplets
        self._tokens += tokens
        self._computed += computed
        self._waited += waited

    def pause(self, seconds: float) -> None:
        """Leave out seconds that were spent on something else than training."""
        self._paused += seconds
        self.pauses.append(seconds)

    def read(self) -> dict[str, float]:
        """The speeds since the last call, by the names of the columns in metrics.csv; all processes ask together."""
        counted = torch.tensor([self._tokens, self._computed])
        self._tokens, self._computed = self._ranks.total(counted).tolist()
        seconds = max(time.perf_counter() - self._since - self._paused, 1e-9)
        speeds = {
            "triplets_per_second": self._triplets / seconds,
            "tokens_per_second": self._tokens / seconds,
            "padding": 1 - self._tokens / max(1, self._computed),
            "data_wait": self._waited / seconds,
        }
        if self._rate is not None:  # which was measured for a moment, so that it can be a little too low
            speeds["utilisation"] = min(1.0, self._tokens * self._per_token / seconds / self._rate)
        self._start()
        return speeds


def duration(seconds: float) -> str:
    """A time in words.

    >>> duration(45), duration(400), duration(9000)
    ('45 s', '7 min', '2.5 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


class TimeLeft:
    """How long training will still take, validations included, corrected as it goes.

    The speed is that of the later half of the steps so far: the first ones are slow, and a machine may become busy.

    Args:
        start: the step from which this process trains.
        steps: how many there will be in all.
        validate_every: steps between validations.

    Example:
        >>> left = TimeLeft(start=0, steps=100, validate_every=50)
        >>> left.trained(step=1, seconds=5)
        >>> left.trained(step=10, seconds=14)
        >>> left.seconds(validations=[10.0])  # 90 steps of a second, and two validations
        110.0
    """

    def __init__(self, start: int, steps: int, validate_every: int | None = None) -> None:
        self._marks = [(start, 0.0)]
        self._steps, self._every = steps, validate_every

    def trained(self, step: int, seconds: float) -> None:
        """Training has come to a step, so many seconds after the start, without those of validations."""
        self._marks.append((step, seconds))

    def seconds(self, validations: Sequence[float] = ()) -> float:
        """How many are left, from how long each validation took so far; one at the step itself is still to come."""
        begin, (step, now) = self._marks[0][0], self._marks[-1]
        since, then = max(mark for mark in self._marks[:-1] if mark[0] <= max(begin + 1, (begin + step) // 2))
        left = (now - then) / (step - since) * (self._steps - step)
        if self._every and validations:
            coming = self._steps // self._every - (step - 1) // self._every + bool(self._steps % self._every)
            left += coming * sum(validations) / len(validations)
        return left


class Log:
    """Writes each value to `out/metrics.csv` and to the loggers, and keeps one line on the terminal up to date."""

    def __init__(
        self,
        out: Path,
        fabric: Any,
        start: int,
        steps: int,
        say: Callable[[str], None],
        meter: Meter,
        validate_every: int | None = None,
    ) -> None:
        self._path = out / METRICS
        self._fabric = fabric
        self._start = start
        self._steps = steps
        self._say = say
        self._meter = meter
        self._left = TimeLeft(start, steps, validate_every)
        self._live = is_live()

    def __enter__(self) -> Log:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        kept = self._rows_before(self._start) if self._start and self._path.exists() else []
        self._ledger = Ledger(self._path, COLUMNS, kept)
        self._began = time.perf_counter()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        end_live()
        for logger in self._fabric.loggers:
            logger.finalize("success" if kind is None else "failed")

    def training(self, step: int, loss: Tensor, learning_rate: float, statistics: dict[str, float]) -> None:
        """Log the loss, learning rate, statistics and speeds of a step."""
        speeds = self._meter.read()
        values = {"loss": loss.item(), "learning_rate": learning_rate, **speeds, **statistics}
        self._write({"step": step, **values})
        self._fabric.log_dict({f"train/{name}": value for name, value in values.items()}, step)
        parts = "(mean {explicit_mean:.4f} + spread {spread:.4f})  ".format(**values) if "spread" in values else " "
        target = "target {target_mean:.2f}  ".format(**values) if "target_mean" in values else ""
        target += "temperature {temperature:.3f}  ".format(**values) if "temperature" in values else ""
        utilised = f"{speeds['utilisation']:.0%} utilised  " if "utilisation" in speeds else ""
        self._left.trained(step, time.perf_counter() - self._began - sum(self._meter.pauses))
        left = duration(self._left.seconds(self._meter.pauses))
        at = f"step {step:,}/{self._steps:,}  loss {values['loss']:.4f} "
        if self._live:  # in a line of 80 characters
            show_live(f"{at} {speeds['triplets_per_second']:,.1f} triplets/s  {left} left  {target}".rstrip())
            return
        self._say(
            f"{at}{parts}{target}lr {learning_rate:.1e}  "
            f"{speeds['triplets_per_second']:,.1f} triplets/s  {speeds['tokens_per_second']:,.0f} tokens/s  "
            f"{utilised}{speeds['padding']:.0%} padding  {speeds['data_wait']:.0%} waiting  {left} left"
        )

    def validation(self, step: int, values: dict[str, float]) -> None:
        """Log the result of a validation. The first measure is the one by which the best model is chosen."""
        self._write({"step": step, "validation": next(iter(values.values()))})
        self._fabric.log_dict({f"validation/{measure}": value for measure, value in values.items()}, step)
        self._say(f"step {step:,}: validation " + ", ".join(f"{name} {value:.4f}" for name, value in values.items()))

    def _write(self, row: dict[str, Any]) -> None:
        self._ledger.append({name: f"{v:.6g}" if isinstance(v, float) else v for name, v in row.items()})

    def _rows_before(self, step: int) -> list[dict[str, str]]:
        """The rows that a resumed training run keeps: those up to its checkpoint."""
        do = "put it back, or delete it: training continues without it"
        rows = read_ledger(self._path, do, COLUMNS).rows
        for line, row in enumerate(rows, start=2):
            if not row.get("step", "").isdecimal():
                raise InputError("no step", file=self._path, line=line, do=do)
        return [row for row in rows if int(row["step"]) <= step]
