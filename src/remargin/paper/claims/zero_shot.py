"""What the paper claims about its table 5, other collections than that of training: section 5.6."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from remargin.paper.claims.claim import Answer, Claims, NotChecked, each, listed
from remargin.paper.findings import Findings
from remargin.paper.zero_shot import (
    ADAPTIVE_IN_BATCH_ROW,
    ADAPTIVE_ROW,
    EARLY_STOPPING_ROW,
    EXPERIMENT,
    TO_THE_END_ROW,
    TUNED_IN_BATCH_ROW,
    TUNED_ROW,
    UNTUNED_IN_BATCH_ROW,
    UNTUNED_ROW,
    ZeroShotRow,
    ZeroShotSystem,
)

CLAIMS = Claims()
Values = dict[str, dict[ZeroShotSystem, float]]  # by backbone and row


def _values(findings: Findings, value: Callable[[ZeroShotRow], float], *systems: ZeroShotSystem) -> Values:
    """A number of some rows."""
    return {
        model: {system: value(table.rows[system]) for system in systems}
        for model, table in findings[EXPERIMENT].items()
    }


def _in_domain(row: ZeroShotRow) -> float:
    return row.in_domain


def _mean(row: ZeroShotRow) -> float:
    return row.mean


def _scores_text(by_system: Mapping[ZeroShotSystem, float]) -> str:
    return listed({system.name: value for system, value in by_system.items()})


def _with_and_without(by_system: Mapping[ZeroShotSystem, float]) -> str:
    return f"{by_system[EARLY_STOPPING_ROW]:.3f} with, {by_system[TO_THE_END_ROW]:.3f} without"


@CLAIMS.add("5.6")
def in_domain_adaptive_is_slightly_worse(findings: Findings) -> Answer:
    """In-domain, adaptive targets are behind distributed and tuned static ones, without and with in-batch negatives."""
    values = _values(findings, _in_domain, EARLY_STOPPING_ROW, TUNED_ROW, ADAPTIVE_IN_BATCH_ROW, ADAPTIVE_ROW)
    holds = all(
        min(v[EARLY_STOPPING_ROW], v[TUNED_ROW]) > max(v[ADAPTIVE_IN_BATCH_ROW], v[ADAPTIVE_ROW])
        for v in values.values()
    )
    return holds, each(values, _scores_text)


@CLAIMS.add("5.6")
def early_stopping_helps_elsewhere(findings: Findings) -> Answer:
    """Early stopping raises the zero-shot mean of distributed targets."""
    values = _values(findings, _mean, EARLY_STOPPING_ROW, TO_THE_END_ROW)
    return all(v[EARLY_STOPPING_ROW] > v[TO_THE_END_ROW] for v in values.values()), each(values, _with_and_without)


@CLAIMS.add("5.6")
def early_stopping_costs_nothing_in_domain(findings: Findings) -> Answer:
    """In-domain, early stopping costs distributed targets nothing (0.01 at most)."""
    values = _values(findings, _in_domain, EARLY_STOPPING_ROW, TO_THE_END_ROW)
    holds = all(v[EARLY_STOPPING_ROW] >= v[TO_THE_END_ROW] - 0.01 for v in values.values())
    return holds, each(values, _with_and_without)


@CLAIMS.add("5.6")
def tuning_helps_elsewhere(findings: Findings) -> Answer:
    """A tuned static margin is better than 1.0 zero-shot, without and with in-batch negatives."""
    pairs = ((TUNED_ROW, UNTUNED_ROW), (TUNED_IN_BATCH_ROW, UNTUNED_IN_BATCH_ROW))
    for model, table in findings[EXPERIMENT].items():
        for system in (system for pair in pairs for system in pair):
            if not table.rows[system].triplets:
                raise NotChecked(f"{model}, {system.name}: no validation was better than that before training")
    values = _values(findings, _mean, *pairs[0], *pairs[1])
    holds = all(v[tuned] > v[untuned] for v in values.values() for tuned, untuned in pairs)
    return holds, each(values, _scores_text)


@CLAIMS.add("5.6")
def adaptive_without_in_batch_is_last_elsewhere(findings: Findings) -> Answer:
    """Zero-shot, distributed and tuned static targets are ahead of adaptive ones, which without in-batch negatives are
    last.
    """
    values = _values(findings, _mean, EARLY_STOPPING_ROW, TUNED_ROW, ADAPTIVE_IN_BATCH_ROW, ADAPTIVE_ROW)
    holds = all(
        min(v[EARLY_STOPPING_ROW], v[TUNED_ROW]) > v[ADAPTIVE_IN_BATCH_ROW] > v[ADAPTIVE_ROW] for v in values.values()
    )
    return holds, each(values, _scores_text)
