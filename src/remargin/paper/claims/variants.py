"""What the paper claims about its table 3: section 5.4, and section 3 on the explicit mean."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import combinations

import numpy as np
from scipy.stats import rankdata, spearmanr

from remargin.paper.claims.claim import FEWEST_SEEDS, Claims, NotTold, fixed, listed, several
from remargin.paper.compared import BOUND
from remargin.paper.deciding import (
    FROM_MEANS,
    Answer,
    Array,
    Gap,
    every,
    gap_of,
    in_resamples,
    is_less,
    most,
    over_seeds,
    resampled,
    share_of,
    too_few,
)
from remargin.paper.dev_curves import triplets_to_best
from remargin.paper.findings import Findings
from remargin.paper.systems import ADAPTIVE, ADAPTIVE_IN_BATCH, DISTRIBUTED, EXPLICIT_MEAN, PAPER
from remargin.paper.variants import EXPERIMENT, VariantRow, VariantTable
from remargin.study.results import MEASURE, RECALL
from remargin.study.systems import STATIC, STATIC_IN_BATCH, System

CLAIMS = Claims()
Rows = Mapping[System, VariantRow]


def _rows(tables: Mapping[str, VariantTable], *systems: System) -> dict[str, Rows]:
    """The rows of the backbones that have some of them all; an unfinished study may lack ours."""
    complete = {model: table.rows for model, table in tables.items() if table.rows.keys() >= set(systems)}
    if not complete:
        raise NotTold(f"no backbone has {', '.join(system.name for system in systems)}")
    return complete


def _tested(findings: Findings, *systems: System) -> dict[str, Rows]:
    """The same on every test collection, unless all rows of a backbone are the model before training."""
    tables = findings[EXPERIMENT]
    for model, rows in _rows(tables.own, *systems).items():
        if not any(rows[system].triplets for system in systems):
            raise NotTold(f"{model}: no validation was better than that before training")
    return _rows(tables.labelled(), *systems)


def _trained(findings: Findings, *systems: System) -> dict[str, Rows]:
    """The rows on the study's own collection, if training brought a model for each."""
    every_row = _rows(findings[EXPERIMENT].own, *systems)
    for model, rows in every_row.items():
        for system in systems:
            if not rows[system].triplets:
                raise NotTold(f"{model}, {system.name}: no validation was better than that before training")
    return every_row


def _gap(one: VariantRow, other: VariantRow, measure: str) -> Gap:
    return gap_of((one.scores[measure].per_seed, other.scores[measure].per_seed), seeds=FEWEST_SEEDS)


def _means(rows: Rows, measure: str, systems: Iterable[System] = PAPER) -> dict[str, float]:
    return {system.name: rows[system].scores[measure].mean for system in systems}


def _is_best(rows: Rows, system: System, measure: str) -> Answer:
    """Whether a row is above all others of the paper's."""
    gaps = {f"to {other.name}": _gap(rows[system], rows[other], measure).above() for other in PAPER if other != system}
    return every(gaps).after(listed(_means(rows, measure)))


def _is_as_good(rows: Rows, system: System, measure: str) -> Answer:
    """Whether a row is equivalent to the best of the paper's, or is it."""
    best = max(PAPER, key=lambda other: rows[other].scores[measure].mean)
    words = listed(_means(rows, measure, dict.fromkeys([system, best])))
    if system == best:
        return Answer(True, f"{words}, the best")
    return _gap(rows[system], rows[best], measure).within(BOUND).after(words)


def _is_above(rows: Rows, system: System, other: System, bound: float = 0.0) -> Answer:
    return _gap(rows[system], rows[other], MEASURE).above(bound).after(listed(_means(rows, MEASURE, (system, other))))


@CLAIMS.add("5.4")
def tuned_static_is_best(findings: Findings) -> Answer:
    """Tuned static targets without in-batch negatives have the highest nDCG@10."""
    return every({name: _is_best(rows, STATIC, MEASURE) for name, rows in _tested(findings, *PAPER).items()})


@CLAIMS.add("5.4")
def distributed_is_equivalent_to_the_best(findings: Findings) -> Answer:
    """Distributed targets are statistically equivalent to the best in nDCG@10, without anything to tune (for most
    backbones).
    """
    return most({name: _is_as_good(rows, DISTRIBUTED, MEASURE) for name, rows in _tested(findings, *PAPER).items()})


@CLAIMS.add("5.4")
def adaptive_in_batch_has_the_best_recall(findings: Findings) -> Answer:
    """Adaptive targets with in-batch negatives have the highest R@1000, for most backbones."""
    return most({name: _is_best(rows, ADAPTIVE_IN_BATCH, RECALL) for name, rows in _tested(findings, *PAPER).items()})


@CLAIMS.add("5.4")
def distributed_is_often_equivalent_in_recall(findings: Findings) -> Answer:
    """Distributed targets are statistically equivalent to the best in R@1000 for half of the backbones or more."""
    every_row = _tested(findings, *PAPER)
    for name, rows in every_row.items():
        if all(_is_as_good(rows, system, RECALL).told for system in PAPER):
            raise NotTold(f"{name}: all targets are equivalent: {listed(_means(rows, RECALL))}")
    return share_of(1 / 2, {name: _is_as_good(rows, DISTRIBUTED, RECALL) for name, rows in every_row.items()})


@CLAIMS.add("5.4")
def in_batch_negatives_harm_static_targets(findings: Findings) -> Answer:
    """In-batch negatives lower the nDCG@10 of static targets on test."""
    every_row = _tested(findings, STATIC, STATIC_IN_BATCH)
    return every({name: _is_above(rows, STATIC, STATIC_IN_BATCH) for name, rows in every_row.items()})


@CLAIMS.add("3")
def the_explicit_mean_does_not_work(findings: Findings) -> Answer:
    """The mean of a triplet's targets, instead of all of them, does not work (more than 0.05 nDCG@10 behind)."""
    every_row = _tested(findings, DISTRIBUTED, EXPLICIT_MEAN)
    return every({name: _is_above(rows, DISTRIBUTED, EXPLICIT_MEAN, 0.05) for name, rows in every_row.items()})


def _costs(findings: Findings, times: float, *systems: System) -> Answer:
    """Whether the tuned static target takes so many times as long as some rows: with each of the seeds."""

    def ratio(rows: Rows, system: System) -> Answer:
        static, row = rows[STATIC], rows[system]
        if not all(run.seconds for run in row.by_seed):
            return Answer(None, "with some seed, no validation was better than that before training")
        ratios = [ours.seconds / theirs.seconds for ours, theirs in zip(static.by_seed, row.by_seed, strict=True)]
        sweep = (static.sweep_seconds or 0.0) / row.run_seconds
        told = True if min(ratios) >= times else False if max(ratios) < times else None
        answer = Answer(
            told, f"{static.seconds / row.seconds:.1f}x ({min(ratios):.1f}x to {max(ratios):.1f}x by seeds)"
        )
        if sweep >= times:
            return fixed(answer, f"the sweep alone takes {sweep:.1f} whole runs")
        lacking = too_few({"seeds": (len(ratios), FEWEST_SEEDS)})
        return answer.but(lacking) if lacking else answer

    every_row = _trained(findings, STATIC, *systems)  # else a time says nothing
    return every(
        {f"{model}, {system.name}": ratio(rows, system) for model, rows in every_row.items() for system in systems}
    )


@CLAIMS.add("5.4")
def tuned_static_costs_three_times_as_much(findings: Findings) -> Answer:
    """With its sweep, the tuned static target takes at least three times as long as the distributed one."""
    return _costs(findings, 3, DISTRIBUTED)


@CLAIMS.add("5.4")
def tuned_static_costs_seven_times_as_much(findings: Findings) -> Answer:
    """With its sweep, the tuned static target takes at least seven times as long as adaptive ones."""
    return _costs(findings, 7, ADAPTIVE, ADAPTIVE_IN_BATCH)


def _needs_fewer(rows: Rows, one: System, other: System) -> Answer:
    """Whether a row needs fewer triplets to its best model than another, as far as single dev queries tell."""
    words = f"{one.name} {rows[one].triplets:,.0f}, {other.name} {rows[other].triplets:,.0f}"
    curves = [[run.curve for run in rows[system].by_seed] for system in (one, other)]
    seen = [triplets_to_best(of_seeds) for of_seeds in curves]
    if seen[0] is None or seen[1] is None:
        return Answer(None, f"{words}, {FROM_MEANS}")
    answer = is_less(seen[0], seen[1], len(curves[0][0].queries)).after(words)
    lacking = too_few({"seeds": (min(map(len, curves)), FEWEST_SEEDS)})
    return answer.but(lacking) if lacking else answer


@CLAIMS.add("5.4")
def in_batch_information_saves_data(findings: Findings) -> Answer:
    """In-batch negatives lower the number of triplets to the best model, mostly, for static and adaptive targets."""
    pairs = ((STATIC_IN_BATCH, STATIC), (ADAPTIVE_IN_BATCH, ADAPTIVE))
    every_row = _trained(findings, *pairs[0], *pairs[1])
    return most(
        {
            f"{model}, {one.name}": _needs_fewer(rows, one, other)
            for model, rows in every_row.items()
            for one, other in pairs
        }
    )


@CLAIMS.add("5.4")
def self_distillation_saves_data(findings: Findings) -> Answer:
    """Distributed targets need fewer triplets to their best model than tuned static ones, for all backbones but one
    of three.
    """
    every_row = _trained(findings, STATIC, DISTRIBUTED)
    return share_of(2 / 3, {model: _needs_fewer(rows, DISTRIBUTED, STATIC) for model, rows in every_row.items()})


def _pairs(findings: Findings, answer: Callable[[Rows, Rows], Answer]) -> dict[str, Answer]:
    """Every two backbones on each test collection."""
    answers = {}
    for collection, tables in findings[EXPERIMENT].collections():
        rows = several(_rows(tables, *PAPER))
        for one, other in combinations(rows, 2):
            answers[f"{one} and {other}{collection and f' on {collection}'}"] = answer(rows[one], rows[other])
    return answers


@CLAIMS.add("5.4")
def the_backbone_does_not_matter(findings: Findings) -> Answer:
    """The backbone makes no clear difference: within 0.1 nDCG@10 for each target, as in the paper's table."""

    def alike(one: Rows, other: Rows) -> Answer:
        return every({system.name: _gap(one[system], other[system], MEASURE).within(0.1) for system in PAPER})

    return every(_pairs(findings, alike))


@CLAIMS.add("5.4")
def backbones_rank_targets_alike(findings: Findings) -> Answer:
    """The order of the targets by nDCG@10 is stable across backbones (a rank correlation of 0.6 or more, as in the
    paper's table).
    """

    def alike(one: Rows, other: Rows) -> Answer:
        means = [list(_means(rows, MEASURE).values()) for rows in (one, other)]
        if any(len(set(values)) == 1 for values in means):
            return Answer(None, "all targets are level")
        words = f"{float(spearmanr(*means).statistic):.2f}"
        ranks = [_ranks(rows) for rows in (one, other)]
        centred = [rank - rank.mean(1, keepdims=True) for rank in ranks]
        norms = np.prod([np.sqrt((values**2).sum(1)) for values in centred], axis=0)
        correlations = (centred[0] * centred[1]).sum(1) / np.maximum(norms, 1e-12)
        return in_resamples(correlations >= 0.6 - 1e-9, len(one[STATIC].scores[MEASURE].per_seed[0])).after(words)

    return every(_pairs(findings, alike))


def _ranks(rows: Rows) -> Array:
    """The ranks of the targets in each bootstrap sample of the queries, by their means over seeds."""
    values = [list(over_seeds(rows[system].scores[MEASURE].per_seed).values()) for system in PAPER]
    ranks: Array = rankdata(resampled(np.array(values).T).round(9), axis=1)
    return ranks
