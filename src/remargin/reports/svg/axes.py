"""Axes: from numbers to places, with ticks that people can read."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_BREAK = 56.0  # pixels between the two parts of a broken axis
_TINY = 1e-100  # numbers that are no further apart are the same: their fractions would be no numbers any more


@dataclass(frozen=True)
class Part:
    """A stretch of an axis: numbers from `low` to `high` stand at pixels from `start` to `end`.

    >>> Part(0, 10, 100, 200, (0, 5, 10)).at(2.5)
    125.0
    """

    low: float
    high: float
    start: float
    end: float
    ticks: tuple[float, ...]

    def has(self, value: float) -> bool:
        """Whether a number is in it, but for rounding."""
        rounding = 1e-6 * (self.high - self.low)
        return self.low - rounding <= value <= self.high + rounding

    def at(self, value: float) -> float:
        """Where a number stands."""
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


@dataclass(frozen=True)
class Axis:
    """An axis of one part, or of two with numbers between them that are left out.

    >>> axis = Axis((Part(0, 10, 0, 100, (0, 10)), Part(90, 100, 130, 230, (90, 100))))
    >>> axis.at(5), axis.at(50), axis.at(95)
    (50.0, None, 180.0)
    """

    parts: tuple[Part, ...]

    def at(self, value: float) -> float | None:
        """Where a number stands; None if it is left out."""
        part = self.part(value)
        return None if part is None else self.parts[part].at(value)

    def part(self, value: float) -> int | None:
        """In which part a number is; None if it is left out."""
        return next((i for i, part in enumerate(self.parts) if part.has(value)), None)

    @property
    def start(self) -> float:
        """The pixel at which it begins."""
        return self.parts[0].start

    @property
    def end(self) -> float:
        """The pixel at which it ends."""
        return self.parts[-1].end

    @property
    def ticks(self) -> list[float]:
        """The ticks of all parts."""
        return [tick for part in self.parts for tick in part.ticks]

    def labels(self) -> list[tuple[float, str]]:
        """Where each tick is and what it says."""
        return [(part.at(tick), label) for part in self.parts for tick, label in _labelled(part.ticks)]


def value_axis(values: Iterable[float], start: float, end: float, count: int = 5) -> Axis:
    """An axis whose ticks reach as far as the values, and further to the next tick.

    >>> value_axis([0.31, 0.68], 200, 0).ticks
    [0.3, 0.4, 0.5, 0.6, 0.7]
    """
    places = ticks(*_span(values), count)
    return Axis((Part(places[0], places[-1], start, end, tuple(places)),))


def step_axis(
    values: Sequence[float], start: float, end: float, gap: tuple[float, float] | None = None, count: int = 5
) -> Axis:
    """An axis that ends where the values end, with ticks between. Those inside `gap` are left out of it.

    >>> step_axis([1, 437], 0, 500).ticks
    [100, 200, 300, 400]
    >>> axis = step_axis([0, 400, 500, 9500, 10000], 0, 500, gap=(500, 9500))
    >>> [(part.low, part.high) for part in axis.parts]
    [(0, 500), (9500, 10000)]
    """
    groups = [list(values)]
    if gap is not None:
        groups = [[v for v in values if v <= gap[0]], [v for v in values if v >= gap[1]]]
        groups = [group for group in groups if group]
    whole = all(float(value).is_integer() for value in values)
    spans = [_span(group, whole) for group in groups or [[]]]
    room = (end - start) - _BREAK * (len(spans) - 1)
    total = sum(high - low for low, high in spans)
    parts, at = [], start
    for low, high in spans:
        width = room * max((high - low) / total, 0.2) if len(spans) > 1 else room
        width = min(width, 0.8 * room) if len(spans) > 1 else width
        wanted = max(2, round(count * width / room))
        parts.append(Part(low, high, at, at + width, tuple(_inside(low, high, wanted, whole))))
        at += width + _BREAK
    return Axis(tuple(parts))


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round numbers, steps of 1, 2 or 5 times a power of ten apart, from at most `low` to at least `high`.

    >>> ticks(0.13, 0.58), ticks(-3, 12)
    ([0.1, 0.2, 0.3, 0.4, 0.5, 0.6], [-5, 0, 5, 10, 15])
    """
    step = _step((high - low) / count)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [_multiple(i, step) for i in range(first, last + 1)]


def tick_label(value: float, step: float, largest: float = 0) -> str:
    """A tick's text, with as many decimals as the steps between ticks have, in millions if the largest one is.

    >>> tick_label(0.2, 0.1), tick_label(12000, 2000), tick_label(5e5, 5e5, 2e6), tick_label(2e-05, 1e-05)
    ('0.2', '12,000', '0.5M', '2e-05')
    """
    if step < 1e-4 or abs(value) >= 1e9:
        digits = math.ceil(math.log10(max(1.0, abs(value) / step))) + 1
        return f"{value:.{max(6, digits)}g}"
    if value and step >= 1e5 and max(abs(value), largest) >= 1e6:
        return f"{value / 1e6:.6g}M"
    return f"{value:z,.{_decimals(step)}f}"


def _labelled(of_part: tuple[float, ...]) -> list[tuple[float, str]]:
    step = min((b - a for a, b in itertools.pairwise(of_part)), default=1.0)
    return [(tick, tick_label(tick, step, max(map(abs, of_part)))) for tick in of_part]


def _span(values: Iterable[float], whole: bool = False) -> tuple[float, float]:
    """The lowest and the highest, with some room around if they are the same. Nothing at all is from 0 to 1."""
    numbers = list(values)
    if not numbers:
        return 0, 1
    low, high = min(numbers), max(numbers)
    if high - low > max(1e-9 * max(abs(low), abs(high)), _TINY):
        return low, high
    room = 1 if whole else 0.1 * abs(low) or 1
    return low - room, high + room


def _inside(low: float, high: float, count: int, whole: bool) -> list[float]:
    """Ticks between two numbers, at least two of them."""
    while True:
        step = max(_step((high - low) / count), 1 if whole else 0)
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        if last > first or (whole and step == 1):
            return [_multiple(i, step) for i in range(first, last + 1)]
        count *= 2


def _step(at_least: float) -> float:
    power = math.floor(math.log10(at_least))
    for factor in (1, 2, 5, 10):
        step = _multiple(factor, 10.0**power)
        if step >= at_least * (1 - 1e-9):
            break
    return step


def _multiple(i: int, step: float) -> float:
    """`i` times a step, without the error of binary fractions, and an int where it is whole."""
    value = round(i * step, _decimals(step) + 1)
    return int(value) if step >= 1 and float(value).is_integer() else value


def _decimals(step: float) -> int:
    return max(0, -math.floor(math.log10(step) + 1e-9))
