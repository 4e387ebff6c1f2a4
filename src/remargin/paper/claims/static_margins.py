"""What the paper claims about its figure 3, the static margin: section 5.1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from remargin.evaluation.significance import ROUNDING
from remargin.paper.claims.claim import Claims, NotTold, several
from remargin.paper.deciding import FROM_MEANS, Answer, every, in_resamples, share_of
from remargin.paper.dev_curves import DevCurve
from remargin.paper.findings import Findings
from remargin.paper.static_margins import EXPERIMENT, KINDS, MarginSweep
from remargin.study.results import HITS, MEASURE
from remargin.study.systems import UNTUNED_MARGIN

CLAIMS = Claims()
HARDLY = 0.02  # a difference on dev that is hardly one


def _configurations(findings: Findings) -> dict[str, MarginSweep]:
    """The sweeps of each backbone, without and with in-batch negatives."""
    return {
        f"{model}, {kind}": sweep
        for model, margins in findings[EXPERIMENT].items()
        for kind, sweep in margins.by_kind.items()
    }


def best_of(sweep: MarginSweep, measure: str) -> DevCurve:
    """The run with the highest validation."""
    return max(sweep.points[measure].values(), key=lambda curve: curve.highest)


def _gains(findings: Findings, bound: float) -> dict[str, Answer]:
    """Whether some margin is better than 1.0 by more than a bound, in each configuration."""
    answers = {}
    for name, sweep in _configurations(findings).items():
        points = sweep.points[MEASURE]
        if UNTUNED_MARGIN not in points:
            raise NotTold("1.0 is not among the margins")
        untuned = points[UNTUNED_MARGIN]
        tuned = [curve for margin, curve in several(points, "margins").items() if margin != UNTUNED_MARGIN]
        best = max(tuned, key=lambda curve: curve.highest)
        answers[name] = best.above(untuned, tried=len(tuned)).above(bound)
    return answers


@CLAIMS.add("5.1")
def tuning_the_margin_pays(findings: Findings) -> Answer:
    """Tuning the static margin beats 1.0 in every configuration."""
    return every(_gains(findings, 0.0))


@CLAIMS.add("5.1")
def tuning_the_margin_pays_much(findings: Findings) -> Answer:
    """It does so by more than 0.1 nDCG@10 in almost all configurations (5 of 6)."""
    return share_of(5 / 6, _gains(findings, 0.1))


@CLAIMS.add("5.1")
def the_margin_depends_on_the_model(findings: Findings) -> Answer:
    """The best static margin differs between backbones."""
    margins = several(findings[EXPERIMENT])
    return every(
        {
            f"{kind}, {one} and {other}": _apart(
                margins[one].by_kind[kind].points[MEASURE], margins[other].by_kind[kind].points[MEASURE]
            )
            for kind in KINDS
            for one, other in combinations(margins, 2)
        }
    )


@CLAIMS.add("5.1")
def the_margin_depends_on_the_measure(findings: Findings) -> Answer:
    """The best static margin for nDCG@10 is another than for Hits@100."""
    return every(
        {name: _apart(sweep.points[MEASURE], sweep.points[HITS]) for name, sweep in _configurations(findings).items()}
    )


def _apart(one: Mapping[float, DevCurve], other: Mapping[float, DevCurve]) -> Answer:
    """Whether no margin is the best of two sweeps; each may have several that are level."""
    words = " and ".join(_margins(points) for points in (one, other))
    sweeps = [list(several(points, "margins").values()) for points in (one, other)]
    if not all(curve.queries for curves in sweeps for curve in curves):
        return Answer(None, f"{words}, {FROM_MEANS}")
    queries = len(sweeps[0][0].queries)
    first, second = (_bests(curves) for curves in sweeps)
    shared = np.asarray((first & second).any(1))
    return in_resamples(~shared, queries).after(words)


def _bests(curves: Sequence[DevCurve]) -> NDArray[np.bool_]:
    """Which margins are the best in each bootstrap sample (rows)."""
    highest = np.stack([curve.resampled().max(1) for curve in curves], 1)
    best: NDArray[np.bool_] = highest >= highest.max(1, keepdims=True) - ROUNDING
    return best


def _margins(points: Mapping[float, DevCurve]) -> str:
    highest = max(curve.highest for curve in points.values())
    return " or ".join(f"{margin:g}" for margin, curve in points.items() if curve.highest == highest)


@CLAIMS.add("5.1")
def in_batch_negatives_do_not_help_static_targets(findings: Findings) -> Answer:
    """With static targets, in-batch negatives improve neither nDCG@10 nor Hits@100 on dev (by 0.02 or more)."""
    return every(
        {
            f"{model}, {measure}": best_of(margins.with_in_batch, measure)
            .above(best_of(margins.without_in_batch, measure))
            .below(HARDLY)
            for model, margins in findings[EXPERIMENT].items()
            for measure in (MEASURE, HITS)
        }
    )
