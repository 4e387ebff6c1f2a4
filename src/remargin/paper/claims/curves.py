"""What the paper claims about its figures 4 and 5, effectiveness over training: sections 5.2 to 5.4."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import numpy as np

from remargin.paper.claims.claim import Claims, NotTold
from remargin.paper.claims.static_margins import HARDLY, best_of
from remargin.paper.curves import ADAPTIVE_MARGINS, DISTRIBUTED_MARGINS, Curves
from remargin.paper.deciding import FROM_MEANS, Answer, every, in_resamples, is_less, most
from remargin.paper.dev_curves import DevCurve
from remargin.paper.findings import Findings
from remargin.paper.static_margins import EXPERIMENT as STATIC_MARGINS
from remargin.paper.systems import ADAPTIVE, ADAPTIVE_IN_BATCH, DISTRIBUTED
from remargin.study.results import HITS, MEASURE
from remargin.study.systems import System

A = TypeVar("A")
B = TypeVar("B")
Pairs = dict[str, tuple[DevCurve, DevCurve]]  # by backbone

CLAIMS = Claims()
DECLINE = 0.01


def _curves(
    by_model: Mapping[str, Curves], system: System, measure: str = MEASURE, smaller: bool = False
) -> dict[str, DevCurve]:
    """A system's curve for each backbone, with the largest or the smaller batch."""
    size = min if smaller else max
    return {model: curves[system][size(curves[system])][measure] for model, curves in by_model.items()}


def _adaptive(findings: Findings, measure: str = MEASURE, smaller: bool = False) -> Pairs:
    """The curves of adaptive targets, without and with in-batch negatives."""
    by_model = findings[ADAPTIVE_MARGINS]
    without, with_ = (_curves(by_model, system, measure, smaller) for system in (ADAPTIVE, ADAPTIVE_IN_BATCH))
    return {model: (without[model], with_[model]) for model in without}


def _common(one: Mapping[str, A], other: Mapping[str, B]) -> dict[str, tuple[A, B]]:
    """The values of the backbones that both have."""
    pairs = {model: (one[model], other[model]) for model in one if model in other}
    if not pairs:
        raise NotTold("no backbone has both")
    return pairs


def _is_sooner(pairs: Pairs) -> Answer:
    """Whether the first curve is highest at an earlier validation; between validations nothing is known."""

    def sooner(pair: tuple[DevCurve, DevCurve]) -> Answer:
        words = f"after {pair[0].triplets[pair[0].place]:,} and {pair[1].triplets[pair[1].place]:,} triplets"
        if not all(curve.queries for curve in pair):
            return Answer(None, f"{words}, {FROM_MEANS}")
        first, second = (curve.places() for curve in pair)
        return is_less(first, second, len(pair[0].queries)).after(words)

    return every({model: sooner(pair) for model, pair in pairs.items()})


def _values(one: DevCurve, other: DevCurve) -> str:
    return f"{one.highest:.3f} and {other.highest:.3f}"


def _is_higher(pairs: Pairs) -> dict[str, Answer]:
    """Whether the first curve has the higher maximum."""
    return {model: one.above(other).above().after(_values(one, other)) for model, (one, other) in pairs.items()}


def _is_similar(pairs: Pairs) -> Answer:
    """Whether both maxima are hardly apart."""
    return every({m: one.above(other).within(HARDLY).after(_values(one, other)) for m, (one, other) in pairs.items()})


def _swapped(pairs: Pairs) -> Pairs:
    return {model: (other, one) for model, (one, other) in pairs.items()}


@CLAIMS.add("5.2")
def adaptive_targets_peak_half_way(findings: Findings) -> Answer:
    """With adaptive targets nDCG@10 is highest after about half of training (between a quarter and three quarters)."""

    def half_way(curve: DevCurve) -> Answer:
        words = f"after {curve.at:.0%}"
        if not curve.queries:
            return Answer(None, f"{words}, {FROM_MEANS}")
        at = np.array(curve.triplets)[curve.places()] / curve.length
        return in_resamples((at >= 0.25) & (at <= 0.75), len(curve.queries)).after(words)

    return every({model: half_way(curve) for model, curve in _curves(findings[ADAPTIVE_MARGINS], ADAPTIVE).items()})


@CLAIMS.add("5.2")
def adaptive_targets_decline(findings: Findings) -> Answer:
    """With adaptive targets nDCG@10 declines after its maximum (by 0.01 or more)."""
    return _decline(_curves(findings[ADAPTIVE_MARGINS], ADAPTIVE))


def _decline(curves: Mapping[str, DevCurve]) -> Answer:
    return every({model: curve.decline.above(DECLINE) for model, curve in curves.items()})


@CLAIMS.add("5.2")
def in_batch_negatives_lower_adaptive_targets(findings: Findings) -> Answer:
    """With adaptive targets and in-batch negatives the highest nDCG@10 is lower than without."""
    return every(_is_higher(_adaptive(findings)))


@CLAIMS.add("5.2")
def in_batch_negatives_slow_adaptive_targets(findings: Findings) -> Answer:
    """With adaptive targets and in-batch negatives the highest nDCG@10 is reached later than without."""
    return _is_sooner(_adaptive(findings))


@CLAIMS.add("5.2")
def in_batch_negatives_help_adaptive_targets_hits(findings: Findings) -> Answer:
    """With adaptive targets, in-batch negatives raise Hits@100 for most backbones."""
    return most(_is_higher(_swapped(_adaptive(findings, HITS))))


@CLAIMS.add("5.2")
def in_batch_negatives_slow_hits_less(findings: Findings) -> Answer:
    """With adaptive targets, in-batch negatives delay the highest Hits@100 less than the highest nDCG@10."""

    def less(model: str) -> Answer:
        pairs = {measure: _adaptive(findings, measure)[model] for measure in (HITS, MEASURE)}
        delays = {measure: with_.at - without.at for measure, (without, with_) in pairs.items()}
        words = ", ".join(f"{measure} {delay:+.0%}" for measure, delay in delays.items())
        if delays[MEASURE] <= 0:
            return Answer(None, f"{words}, so that in-batch negatives do not delay the highest {MEASURE}")
        if not all(curve.queries for pair in pairs.values() for curve in pair):
            return Answer(None, f"{words}, {FROM_MEANS}")
        hits, ndcg = (
            np.array(with_.triplets)[with_.places()] - np.array(without.triplets)[without.places()]
            for without, with_ in pairs.values()
        )
        return is_less(hits, ndcg, len(pairs[HITS][0].queries)).after(words)

    return every({model: less(model) for model in findings[ADAPTIVE_MARGINS]})


@CLAIMS.add("5.2")
def smaller_batches_show_the_same_trends(findings: Findings) -> Answer:
    """With the smaller batch, in-batch negatives change the highest nDCG@10 and Hits@100 of adaptive targets in no
    other directions.
    """
    _require_batch_sizes(findings[ADAPTIVE_MARGINS])

    def direction(model: str, measure: str) -> Answer:
        small, large = (_adaptive(findings, measure, smaller)[model] for smaller in (True, False))
        changes = [with_.above(without).above() for without, with_ in (small, large)]
        words = f"with the smaller {changes[0].evidence}; with the larger {changes[1].evidence}"
        directions = {answer.told for answer in changes}
        return Answer(None if None in directions else len(directions) == 1, words)

    return every(
        {f"{m}, {measure}": direction(m, measure) for m in findings[ADAPTIVE_MARGINS] for measure in (MEASURE, HITS)}
    )


def _adaptive_and_static(findings: Findings, measure: str) -> Pairs:
    """The highest validation of either, without or with in-batch negatives, of the backbones that have both."""
    static = {
        model: max((best_of(sweep, measure) for sweep in margins.by_kind.values()), key=lambda curve: curve.highest)
        for model, margins in findings[STATIC_MARGINS].items()
    }
    adaptive = {model: max(pair, key=lambda c: c.highest) for model, pair in _adaptive(findings, measure).items()}
    return _common(adaptive, static)


@CLAIMS.add("5.2")
def adaptive_targets_favour_retrieval(findings: Findings) -> Answer:
    """Adaptive targets reach a higher Hits@100 than static ones, for most backbones."""
    return most(_is_higher(_adaptive_and_static(findings, HITS)))


@CLAIMS.add("5.2")
def adaptive_targets_do_so_at_the_expense_of_ranking(findings: Findings) -> Answer:
    """Adaptive targets reach a lower nDCG@10 than static ones, for most backbones."""
    return most(_is_higher(_swapped(_adaptive_and_static(findings, MEASURE))))


def _distributed_and_adaptive(findings: Findings, measure: str = MEASURE) -> Pairs:
    adaptive = _curves(findings[ADAPTIVE_MARGINS], ADAPTIVE, measure)
    return _common(_curves(findings[DISTRIBUTED_MARGINS], DISTRIBUTED, measure), adaptive)


@CLAIMS.add("5.3")
def distributed_targets_converge_sooner(findings: Findings) -> Answer:
    """Distributed targets reach their highest nDCG@10 sooner than adaptive ones."""
    return _is_sooner(_distributed_and_adaptive(findings))


@CLAIMS.add("5.3")
def smaller_batches_converge_sooner(findings: Findings) -> Answer:
    """With distributed targets, smaller batches need fewer triplets to their highest nDCG@10 (an earlier validation,
    all being after as many triplets).
    """
    return _is_sooner(_batch_sizes(findings))


@CLAIMS.add("5.3")
def distributed_is_the_best_in_batch_target(findings: Findings) -> Answer:
    """Of the targets with in-batch information, distributed ones have the highest nDCG@10 on dev."""
    static = {model: best_of(margins.with_in_batch, MEASURE) for model, margins in findings[STATIC_MARGINS].items()}
    adaptive = _curves(findings[ADAPTIVE_MARGINS], ADAPTIVE_IN_BATCH)
    distributed = _curves(findings[DISTRIBUTED_MARGINS], DISTRIBUTED)
    pairs = {
        f"{model}, to {name}": (ours, other)
        for name, others in (("static", static), ("adaptive", adaptive))
        for model, (ours, other) in _common(distributed, others).items()
    }
    return every(_is_higher(pairs))


@CLAIMS.add("5.3")
def batch_size_hardly_matters(findings: Findings) -> Answer:
    """The highest nDCG@10 of distributed targets hardly depends on the batch size (less than 0.02)."""
    return _is_similar(_batch_sizes(findings))


@CLAIMS.add("5.3")
def larger_batches_are_slightly_better(findings: Findings) -> Answer:
    """With distributed targets, larger batches reach a slightly higher nDCG@10 (by less than 0.02), for most
    backbones.
    """

    def slightly(small: DevCurve, large: DevCurve) -> Answer:
        gap = large.above(small)
        return every({"higher": gap.above(), f"by less than {HARDLY:g}": gap.below(HARDLY)})

    return most({model: slightly(small, large) for model, (small, large) in _batch_sizes(findings).items()})


def _batch_sizes(findings: Findings) -> Pairs:
    """The curves of distributed targets with the smaller and the larger batch."""
    by_model = findings[DISTRIBUTED_MARGINS]
    _require_batch_sizes(by_model)
    small, large = (_curves(by_model, DISTRIBUTED, smaller=smaller) for smaller in (True, False))
    return {model: (small[model], large[model]) for model in small}


def _require_batch_sizes(by_model: Mapping[str, Curves]) -> None:
    if any(len(by_size) < 2 for curves in by_model.values() for by_size in curves.values()):
        raise NotTold("needs two batch sizes")


@CLAIMS.add("5.3")
def distributed_targets_rank_better_than_adaptive_ones(findings: Findings) -> Answer:
    """Distributed targets reach a higher nDCG@10 than adaptive ones."""
    return every(_is_higher(_distributed_and_adaptive(findings)))


@CLAIMS.add("5.3")
def distributed_targets_retrieve_as_adaptive_ones_do(findings: Findings) -> Answer:
    """The highest Hits@100 of distributed targets is similar to that of adaptive ones (less than 0.02 apart)."""
    return _is_similar(_distributed_and_adaptive(findings, HITS))


@CLAIMS.add("5.4")
def distributed_targets_decline(findings: Findings) -> Answer:
    """With distributed targets, too, nDCG@10 declines after its maximum (by 0.01 or more)."""
    return _decline(_curves(findings[DISTRIBUTED_MARGINS], DISTRIBUTED))
