"""What the paper claims about its figures 4 and 5, effectiveness over training: sections 5.2 to 5.4."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from remargin.paper.claims.claim import Answer, Claims, NotChecked, each, most
from remargin.paper.curves import ADAPTIVE_MARGINS, DISTRIBUTED_MARGINS, Maxima, Maximum
from remargin.paper.findings import Findings
from remargin.paper.static_margins import EXPERIMENT as STATIC_MARGINS
from remargin.paper.systems import ADAPTIVE, ADAPTIVE_IN_BATCH, DISTRIBUTED
from remargin.study.results import HITS, MEASURE
from remargin.study.systems import System

A = TypeVar("A")
B = TypeVar("B")
Pairs = Mapping[str, tuple[Maximum, Maximum]]  # by backbone

CLAIMS = Claims()
SIMILAR = 0.02


def _maxima(
    by_model: Mapping[str, Maxima], system: System, measure: str = MEASURE, smaller: bool = False
) -> dict[str, Maximum]:
    """The maximum of a system's curve for each backbone, with the largest or the smaller batch."""
    size = min if smaller else max
    return {model: maxima[system][size(maxima[system])][measure] for model, maxima in by_model.items()}


def _adaptive(findings: Findings, measure: str = MEASURE, smaller: bool = False) -> dict[str, tuple[Maximum, Maximum]]:
    """The maxima of adaptive targets, without and with in-batch negatives."""
    by_model = findings[ADAPTIVE_MARGINS]
    without, with_ = (_maxima(by_model, system, measure, smaller) for system in (ADAPTIVE, ADAPTIVE_IN_BATCH))
    return {model: (without[model], with_[model]) for model in without}


def _is_sooner(pairs: Pairs) -> bool:
    """Whether the first maximum is always at an earlier validation; between validations nothing is known."""
    if any(one.validation > other.validation for one, other in pairs.values()):
        return False
    for model, (one, other) in pairs.items():
        if one.validation == other.validation:
            raise NotChecked(f"{model}: both are highest at validation {one.validation}")
    return True


def _common(one: Mapping[str, A], other: Mapping[str, B]) -> dict[str, tuple[A, B]]:
    """The values of the backbones that both have."""
    pairs = {model: (one[model], other[model]) for model in one if model in other}
    if not pairs:
        raise NotChecked("no backbone has both")
    return pairs


def _peak(maximum: Maximum) -> str:
    return f"{maximum.highest:.3f} after {maximum.at:.0%}"


def _without_and_with(pair: tuple[Maximum, Maximum]) -> str:
    return f"{_peak(pair[0])} without, {_peak(pair[1])} with"


@CLAIMS.add("5.2")
def adaptive_targets_peak_half_way(findings: Findings) -> Answer:
    """With adaptive targets nDCG@10 is highest after about half of training (between a quarter and three quarters)."""
    maxima = _maxima(findings[ADAPTIVE_MARGINS], ADAPTIVE)
    return all(0.25 <= maximum.at <= 0.75 for maximum in maxima.values()), each(maxima, _peak)


@CLAIMS.add("5.2")
def adaptive_targets_decline(findings: Findings) -> Answer:
    """With adaptive targets nDCG@10 declines after its maximum (by 0.01 or more)."""
    return _decline(_maxima(findings[ADAPTIVE_MARGINS], ADAPTIVE))


def _decline(maxima: Mapping[str, Maximum]) -> Answer:
    holds = all(maximum.last <= maximum.highest - 0.01 for maximum in maxima.values())
    return holds, each(maxima, lambda maximum: f"highest {maximum.highest:.3f}, {maximum.last:.3f} at the end")


@CLAIMS.add("5.2")
def in_batch_negatives_lower_adaptive_targets(findings: Findings) -> Answer:
    """With adaptive targets and in-batch negatives the highest nDCG@10 is lower than without."""
    pairs = _adaptive(findings)
    return all(with_.highest < without.highest for without, with_ in pairs.values()), each(pairs, _without_and_with)


@CLAIMS.add("5.2")
def in_batch_negatives_slow_adaptive_targets(findings: Findings) -> Answer:
    """With adaptive targets and in-batch negatives the highest nDCG@10 is reached later than without."""
    pairs = _adaptive(findings)
    return _is_sooner(pairs), each(pairs, _without_and_with)


@CLAIMS.add("5.2")
def in_batch_negatives_help_adaptive_targets_hits(findings: Findings) -> Answer:
    """With adaptive targets, in-batch negatives raise Hits@100 for most backbones."""
    pairs = _adaptive(findings, HITS)
    higher = {model: with_.highest > without.highest for model, (without, with_) in pairs.items()}
    return most(higher), each(pairs, _without_and_with)


@CLAIMS.add("5.2")
def in_batch_negatives_slow_hits_less(findings: Findings) -> Answer:
    """With adaptive targets, in-batch negatives delay the highest Hits@100 less than the highest nDCG@10."""
    delays = {
        measure: {model: with_.at - without.at for model, (without, with_) in _adaptive(findings, measure).items()}
        for measure in (HITS, MEASURE)
    }
    if min(delays[MEASURE].values()) <= 0:
        raise NotChecked("in-batch negatives do not delay the highest nDCG@10")
    texts = {m: ", ".join(f"{measure} {delays[measure][m]:+.0%}" for measure in delays) for m in delays[HITS]}
    return all(delays[HITS][model] < delays[MEASURE][model] for model in texts), each(texts, str)


@CLAIMS.add("5.2")
def smaller_batches_show_the_same_trends(findings: Findings) -> Answer:
    """With the smaller batch, in-batch negatives change the highest nDCG@10 and Hits@100 of adaptive targets in no
    other directions.
    """
    _require_batch_sizes(findings[ADAPTIVE_MARGINS])

    def change(model: str, measure: str, smaller: bool) -> float:
        without, with_ = _adaptive(findings, measure, smaller)[model]
        return with_.highest - without.highest

    changes = {
        f"{model}, {measure}": (change(model, measure, smaller=True), change(model, measure, smaller=False))
        for model in findings[ADAPTIVE_MARGINS]
        for measure in (MEASURE, HITS)
    }
    holds = all(small * large >= 0 for small, large in changes.values())
    return holds, each(changes, lambda pair: f"{pair[0]:+.3f} with the smaller, {pair[1]:+.3f} with the larger")


def _static_and_adaptive(findings: Findings, measure: str) -> dict[str, tuple[float, float]]:
    """The highest validation of either, without or with in-batch negatives, of the backbones that have both."""
    static = {
        model: max(sweep.peaks[measure].value for sweep in margins.by_kind.values())
        for model, margins in findings[STATIC_MARGINS].items()
    }
    adaptive = {model: max(maximum.highest for maximum in pair) for model, pair in _adaptive(findings, measure).items()}
    return _common(static, adaptive)


def _adaptive_beside_static(pair: tuple[float, float]) -> str:
    return f"{pair[1]:.3f}, static {pair[0]:.3f}"


@CLAIMS.add("5.2")
def adaptive_targets_favour_retrieval(findings: Findings) -> Answer:
    """Adaptive targets reach a higher Hits@100 than static ones, for most backbones."""
    pairs = _static_and_adaptive(findings, HITS)
    higher = {model: adaptive > static for model, (static, adaptive) in pairs.items()}
    return most(higher), each(pairs, _adaptive_beside_static)


@CLAIMS.add("5.2")
def adaptive_targets_do_so_at_the_expense_of_ranking(findings: Findings) -> Answer:
    """Adaptive targets reach a lower nDCG@10 than static ones, for most backbones."""
    pairs = _static_and_adaptive(findings, MEASURE)
    lower = {model: adaptive < static for model, (static, adaptive) in pairs.items()}
    return most(lower), each(pairs, _adaptive_beside_static)


def _adaptive_and_distributed(findings: Findings, measure: str = MEASURE) -> dict[str, tuple[Maximum, Maximum]]:
    adaptive = _maxima(findings[ADAPTIVE_MARGINS], ADAPTIVE, measure)
    return _common(adaptive, _maxima(findings[DISTRIBUTED_MARGINS], DISTRIBUTED, measure))


@CLAIMS.add("5.3")
def distributed_targets_converge_sooner(findings: Findings) -> Answer:
    """Distributed targets reach their highest nDCG@10 sooner than adaptive ones."""
    pairs = _adaptive_and_distributed(findings)
    holds = _is_sooner({model: (distributed, adaptive) for model, (adaptive, distributed) in pairs.items()})
    return holds, each(pairs, lambda pair: f"after {pair[1].at:.0%}, adaptive {pair[0].at:.0%}")


@CLAIMS.add("5.3")
def smaller_batches_converge_sooner(findings: Findings) -> Answer:
    """With distributed targets, smaller batches need fewer triplets to their highest nDCG@10 (an earlier validation,
    all being after as many triplets).
    """
    pairs = _batch_sizes(findings)
    return _is_sooner(pairs), each(
        pairs, lambda pair: f"{pair[0].triplets:,} with the smaller, {pair[1].triplets:,} with the larger"
    )


@CLAIMS.add("5.3")
def distributed_is_the_best_in_batch_target(findings: Findings) -> Answer:
    """Of the targets with in-batch information, distributed ones have the highest nDCG@10 on dev."""
    static = {m: margins.with_in_batch.peaks[MEASURE].value for m, margins in findings[STATIC_MARGINS].items()}
    adaptive = _maxima(findings[ADAPTIVE_MARGINS], ADAPTIVE_IN_BATCH)
    distributed = _maxima(findings[DISTRIBUTED_MARGINS], DISTRIBUTED)
    highest = {
        model: (ours.highest, static_value, others.highest)
        for model, (ours, (static_value, others)) in _common(distributed, _common(static, adaptive)).items()
    }
    return all(ours > max(others) for ours, *others in highest.values()), each(
        highest, lambda values: "{:.3f}, static {:.3f}, adaptive {:.3f}".format(*values)
    )


@CLAIMS.add("5.3")
def batch_size_hardly_matters(findings: Findings) -> Answer:
    """The highest nDCG@10 of distributed targets hardly depends on the batch size (less than 0.02)."""
    pairs = _batch_sizes(findings)
    holds = all(abs(small.highest - large.highest) < SIMILAR for small, large in pairs.values())
    return holds, each(pairs, _smaller_and_larger)


@CLAIMS.add("5.3")
def larger_batches_are_slightly_better(findings: Findings) -> Answer:
    """With distributed targets, larger batches reach a slightly higher nDCG@10 (by less than 0.02), for most
    backbones.
    """
    pairs = _batch_sizes(findings)
    higher = {model: 0 < large.highest - small.highest < SIMILAR for model, (small, large) in pairs.items()}
    return most(higher), each(pairs, _smaller_and_larger)


def _smaller_and_larger(pair: tuple[Maximum, Maximum]) -> str:
    return f"{pair[0].highest:.3f} with the smaller, {pair[1].highest:.3f} with the larger"


def _batch_sizes(findings: Findings) -> dict[str, tuple[Maximum, Maximum]]:
    """The maxima of distributed targets with the smaller and the larger batch."""
    by_model = findings[DISTRIBUTED_MARGINS]
    _require_batch_sizes(by_model)
    small, large = (_maxima(by_model, DISTRIBUTED, smaller=smaller) for smaller in (True, False))
    return {model: (small[model], large[model]) for model in small}


def _require_batch_sizes(by_model: Mapping[str, Maxima]) -> None:
    if any(len(by_size) < 2 for maxima in by_model.values() for by_size in maxima.values()):
        raise NotChecked("needs two batch sizes")


@CLAIMS.add("5.3")
def distributed_targets_rank_better_than_adaptive_ones(findings: Findings) -> Answer:
    """Distributed targets reach a higher nDCG@10 than adaptive ones."""
    pairs = _adaptive_and_distributed(findings)
    holds = all(distributed.highest > adaptive.highest for adaptive, distributed in pairs.values())
    return holds, each(pairs, _distributed_beside_adaptive)


@CLAIMS.add("5.3")
def distributed_targets_retrieve_as_adaptive_ones_do(findings: Findings) -> Answer:
    """The highest Hits@100 of distributed targets is similar to that of adaptive ones (less than 0.02 apart)."""
    pairs = _adaptive_and_distributed(findings, HITS)
    holds = all(abs(distributed.highest - adaptive.highest) < SIMILAR for adaptive, distributed in pairs.values())
    return holds, each(pairs, _distributed_beside_adaptive)


def _distributed_beside_adaptive(pair: tuple[Maximum, Maximum]) -> str:
    return f"{pair[1].highest:.3f}, adaptive {pair[0].highest:.3f}"


@CLAIMS.add("5.4")
def distributed_targets_decline(findings: Findings) -> Answer:
    """With distributed targets, too, nDCG@10 declines after its maximum (by 0.01 or more)."""
    return _decline(_maxima(findings[DISTRIBUTED_MARGINS], DISTRIBUTED))
