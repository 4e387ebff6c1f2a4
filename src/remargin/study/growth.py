"""The numbers of a learning curve: what each share of the training data brought, and whether more would help."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Literal

from remargin.evaluation.significance import Interval, bootstrap, minimal_detectable_difference, paired_bootstrap
from remargin.reports.figures import LineFigure, Panel, Series
from remargin.reports.sections import Section
from remargin.reports.tables import MISSING, Block, Cell, Table, number

MATTERS = 0.01  # a gain below it is not worth more data
POWER = 0.8

Scores = Mapping[str, float]  # the measure of each query
Answer = Literal["yes", "no", "unclear"]


@dataclass(frozen=True)
class Trained:
    """What was trained on a share of the training queries: how many, and the test queries' scores for each seed."""

    share: float
    queries: int
    pairs: int
    scores: Mapping[int, Scores]

    def averaged(self) -> dict[str, float]:
        """Each test query's score, averaged over the seeds.

        >>> Trained(0.5, 10, 12, {0: {"q": 0.25}, 1: {"q": 0.75}}).averaged()
        {'q': 0.5}
        """
        first = next(iter(self.scores.values()))
        return {query: fmean(of_seed[query] for of_seed in self.scores.values()) for query in first}


@dataclass(frozen=True)
class Point:
    """A share of the training data, the measure with its 95% interval, and the paired gains.

    Attributes:
        share: of the training queries.
        queries: how many training queries that is.
        pairs: pairs of a query and a positive.
        seeds: the mean over the test queries for each seed.
        mean: the measure, seeds averaged within queries, queries bootstrapped.
        gain: over the model before training.
        step: over the share before; None for the first.
    """

    share: float
    queries: int
    pairs: int
    seeds: dict[int, float]
    mean: Interval
    gain: Interval
    step: Interval | None


@dataclass(frozen=True)
class Curve:
    """A learning curve: the measure before training and for each share, and what the last step says about more data.

    Attributes:
        measure: its ir_measures name.
        test_queries: how many queries it was measured on.
        before: the model before training.
        points: the shares, in ascending order.
        detectable: the smallest gain of the last step that the test queries would show with 80% power.
        answer: whether more data would help: yes, no, or unclear.
        verdict: the same in plain words, with numbers.

    Example:
        >>> queries = [f"q{i}" for i in range(50)]
        >>> before = {query: i % 2 / 4 for i, query in enumerate(queries)}
        >>> trained = [Trained(s, n, n, {0: {q: v + g for q, v in before.items()}}) for s, n, g in
        ...            [(0.25, 100, 0.125), (1.0, 400, 0.25)]]
        >>> curve = grown("nDCG@10", before, trained)
        >>> curve.answer, curve.points[1].step.mean
        ('yes', 0.125)
        >>> print(curve.verdict)  # doctest: +ELLIPSIS
        More data would probably help: the step from 100 to 400 pairs gained 0.125 nDCG@10 (95% interval 0.125 to ...
    """

    measure: str
    test_queries: int
    before: Interval
    points: list[Point]
    detectable: float
    answer: Answer
    verdict: str


def grown(measure: str, before: Scores, trained: Sequence[Trained]) -> Curve:
    """The learning curve of models that were trained on growing shares of the data.

    Raises:
        ValueError: if they were not all measured on the same queries.
    """
    points: list[Point] = []
    previous: dict[str, float] | None = None
    for each in trained:
        if any(of_seed.keys() != before.keys() for of_seed in each.scores.values()):
            raise ValueError("the models were measured on different queries")
        scores = each.averaged()
        points.append(
            Point(
                share=each.share,
                queries=each.queries,
                pairs=each.pairs,
                seeds={seed: fmean(of_seed.values()) for seed, of_seed in each.scores.items()},
                mean=bootstrap(list(scores.values())),
                gain=paired_bootstrap(scores, before),
                step=None if previous is None else paired_bootstrap(scores, previous),
            )
        )
        previous = scores
    small, large = (each.averaged() for each in trained[-2:])
    detectable = minimal_detectable_difference([large[query] - small[query] for query in before], power=POWER)
    step = paired_bootstrap(large, small)
    answer = _answer(step)
    verdict = _verdict(measure, points[-2], points[-1], step, answer, detectable, len(before))
    return Curve(measure, len(before), bootstrap(list(before.values())), points, detectable, answer, verdict)


def _answer(step: Interval) -> Answer:
    """Whether more data would help, by the interval of the last step.

    >>> _answer(Interval(0.02, 0.005, 0.03)), _answer(Interval(0.0, -0.01, 0.009)), _answer(Interval(0.0, -0.05, 0.05))
    ('yes', 'no', 'unclear')
    """
    if step.low > 0:
        return "yes"
    return "no" if step.high < MATTERS else "unclear"


def _verdict(
    measure: str, small: Point, large: Point, step: Interval, answer: Answer, detectable: float, queries: int
) -> str:
    by_seed = ", ".join(f"{large.seeds[seed] - small.seeds[seed]:+.3f}" for seed in large.seeds)
    interval = f"(95% interval {step.low:.3f} to {step.high:.3f}; by seed {by_seed})"
    change = f"{'gained' if step.mean >= 0 else 'lost'} {abs(step.mean):.3f} {measure} {interval}"
    what = f"the step from {small.pairs:,} to {large.pairs:,} pairs {change}"
    power = (
        f"With {queries:,} test queries, a gain of {detectable:.3f} or more shows with a probability of {POWER:.0%}."
    )
    if answer == "yes":
        doublings = math.log2(large.pairs / small.pairs)  # 0 if triplets of further queries were not given
        each = f", about {step.mean / doublings:.3f} for each doubling" if doublings else ""
        return f"More data would probably help: {what}{each}. {power}"
    if answer == "no":
        rest = "no gain" if step.high <= 0 else f"no gain of {MATTERS} or more"
        return f"More data of this kind would hardly help: {what}, so there was {rest}. {power}"
    return (
        f"It is unclear whether more data would help: {what}. {power} A smaller one needs more test queries, or a "
        "larger step."
    )


def curve_json(curve: Curve) -> dict[str, Any]:
    """A learning curve as plain values, intervals with the names of their numbers."""
    points = [{name: _named(value) for name, value in vars(point).items()} for point in curve.points]
    return {**{name: _named(value) for name, value in vars(curve).items()}, "points": points}


def _named(value: Any) -> Any:
    return value._asdict() if isinstance(value, Interval) else value


def curve_section(curve: Curve, settings: Mapping[str, object]) -> Section:
    """The table, the figure and the verdict of a learning curve.

    Args:
        curve: the numbers.
        settings: what is needed to repeat it.
    """
    rows = [[Cell("none"), Cell("0", value=0), number(curve.before.mean, 4), _between(curve.before), *[MISSING] * 3]]
    for point in curve.points:
        rows.append(
            [
                Cell(f"{point.share:g}"),
                Cell(f"{point.pairs:,}", value=point.pairs),
                number(point.mean.mean, 4),
                _between(point.mean),
                _change(point.gain),
                MISSING if point.step is None else _change(point.step),
                Cell(" ".join(f"{mean:.4f}" for mean in point.seeds.values())),
            ]
        )
    header = ["share", "pairs", curve.measure, "95% interval", "over the start", "over the share before", "by seed"]
    notes = [
        f"{curve.test_queries:,} test queries; seeds are averaged within queries, and queries are bootstrapped. A pair "
        "is a training query and one of its positives; each share contains the smaller ones."
    ]
    table = Table("More training data", header, [Block("", rows)], notes)
    means = [curve.before, *(point.mean for point in curve.points)]
    pairs = [0, *(point.pairs for point in curve.points)]
    trained = Series("trained", pairs, [m.mean for m in means], [m.low for m in means], [m.high for m in means])
    start = Series("before training", pairs, [curve.before.mean] * len(pairs))
    caption = "The mean over the test queries; the band is its 95% interval."
    panel = Panel("", "pairs of a training query and a positive", curve.measure, [trained, start])
    figure = LineFigure("curve", "More training data", caption, [[panel]])
    return Section("curve", "Would more data help?", [curve.verdict], [table], [figure], dict(settings), [])


def _between(interval: Interval) -> Cell:
    return Cell(f"{interval.low:.4f} to {interval.high:.4f}")


def _change(interval: Interval) -> Cell:
    return Cell(f"{interval.mean:+.4f} ({interval.low:+.4f} to {interval.high:+.4f})", value=interval.mean)
