"""What the paper claims about its figure 3, the static margin: section 5.1."""

from __future__ import annotations

from collections.abc import Sequence

from remargin.paper.claims.claim import Answer, Claims, NotChecked, each, several
from remargin.paper.findings import Findings
from remargin.paper.static_margins import EXPERIMENT, MarginSweep, StaticMargins
from remargin.paper.systems import WITH, WITHOUT
from remargin.study.results import HITS, MEASURE

CLAIMS = Claims()


def _configurations(findings: Findings) -> dict[str, MarginSweep]:
    """The sweeps of each backbone, with and without in-batch negatives."""
    return {
        f"{model}, {kind}": sweep
        for model, margins in findings[EXPERIMENT].items()
        for kind, sweep in ((WITH, margins.with_in_batch), (WITHOUT, margins.without_in_batch))
    }


def _gains(findings: Findings) -> dict[str, float]:
    sweeps = _configurations(findings)
    gains = {name: sweep.gain for name, sweep in sweeps.items() if sweep.gain is not None}
    if len(gains) < len(sweeps):
        raise NotChecked("1.0 is not among the margins")
    return gains


@CLAIMS.add("5.1")
def tuning_the_margin_pays(findings: Findings) -> Answer:
    """Tuning the static margin beats 1.0 in every configuration."""
    gains = _gains(findings)
    return all(gain > 0 for gain in gains.values()), each(gains, lambda gain: f"+{gain:.3f}")


@CLAIMS.add("5.1")
def tuning_the_margin_pays_much(findings: Findings) -> Answer:
    """It does so by more than 0.1 nDCG@10 in almost all configurations (5 of 6)."""
    gains = _gains(findings)
    return sum(gain > 0.1 for gain in gains.values()) >= len(gains) * 5 / 6, each(gains, lambda gain: f"+{gain:.3f}")


@CLAIMS.add("5.1")
def the_margin_depends_on_the_model(findings: Findings) -> Answer:
    """The best static margin differs between backbones."""
    margins = several(findings[EXPERIMENT])
    best = {
        kind: {model: both.by_kind[kind].peaks[MEASURE].margins for model, both in margins.items()}
        for kind in (WITHOUT, WITH)
    }
    evidence = each(best, lambda by_model: each(by_model, _margins))
    return all(_apart(*by_model.values()) for by_model in best.values()), evidence


@CLAIMS.add("5.1")
def the_margin_depends_on_the_measure(findings: Findings) -> Answer:
    """The best static margin for nDCG@10 is another than for Hits@100."""
    best = {
        name: (sweep.peaks[MEASURE].margins, sweep.peaks[HITS].margins)
        for name, sweep in _configurations(findings).items()
    }
    return all(_apart(*both) for both in best.values()), each(best, lambda both: " and ".join(map(_margins, both)))


def _apart(*best: Sequence[float]) -> bool:
    """Whether no value is the best of two; each may have several that are level."""
    return len(set().union(*best)) == sum(map(len, best))


def _margins(best: Sequence[float]) -> str:
    return " or ".join(f"{value:g}" for value in best)


@CLAIMS.add("5.1")
def in_batch_negatives_do_not_help_static_targets(findings: Findings) -> Answer:
    """With static targets, in-batch negatives improve neither nDCG@10 nor Hits@100 on dev."""
    by_model = findings[EXPERIMENT]
    holds = all(
        margins.with_in_batch.peaks[measure].value <= margins.without_in_batch.peaks[measure].value
        for margins in by_model.values()
        for measure in (MEASURE, HITS)
    )
    return holds, each(by_model, _without_and_with)


def _without_and_with(margins: StaticMargins) -> str:
    values = {
        measure: (margins.without_in_batch.peaks[measure].value, margins.with_in_batch.peaks[measure].value)
        for measure in (MEASURE, HITS)
    }
    return "; ".join(
        f"{measure} {without:.3f} without, {with_:.3f} with" for measure, (without, with_) in values.items()
    )
