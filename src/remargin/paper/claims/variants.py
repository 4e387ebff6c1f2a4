"""What the paper claims about its table 3: section 5.4, and section 3 on the explicit mean."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import combinations

from scipy.stats import spearmanr

from remargin.paper.claims.claim import Answer, Claims, NotChecked, each, listed, most, several
from remargin.paper.findings import Findings
from remargin.paper.systems import ADAPTIVE, ADAPTIVE_IN_BATCH, DISTRIBUTED, EXPLICIT_MEAN, PAPER
from remargin.paper.variants import EXPERIMENT, VariantRow, VariantTable
from remargin.study.results import MEASURE, RECALL
from remargin.study.systems import STATIC, STATIC_IN_BATCH, System

CLAIMS = Claims()
Values = dict[str, dict[System, float]]  # by backbone and target


def _values(
    tables: Mapping[str, VariantTable], systems: tuple[System, ...], value: Callable[[VariantRow], float]
) -> Values:
    """A number of some rows, for the backbones that have them all; an unfinished study may lack ours."""
    complete = {model: table.rows for model, table in tables.items() if table.rows.keys() >= set(systems)}
    if not complete:
        raise NotChecked(f"no backbone has {', '.join(system.name for system in systems)}")
    return {model: {system: value(rows[system]) for system in systems} for model, rows in complete.items()}


def _means(tables: Mapping[str, VariantTable], systems: tuple[System, ...], measure: str) -> Values:
    return _values(tables, systems, lambda row: row.scores[measure].mean)


def _measured(findings: Findings, measure: str, *systems: System) -> Values:
    """A measure of some rows, on every test collection, unless all are the model before training."""
    tables = findings[EXPERIMENT]
    for model, counts in _values(tables.own, systems, lambda row: row.triplets).items():
        if not any(counts.values()):
            raise NotChecked(f"{model}: no validation was better than that before training")
    return _means(tables.labelled(), systems, measure)


def _ranked(findings: Findings, measure: str, *systems: System) -> Values:
    """The same, to be ranked: where all are level, as at a measure's ceiling, none is the best."""
    return _not_level(_measured(findings, measure, *systems))


def _not_level(values: Values) -> Values:
    for model, by_system in values.items():
        if len(set(by_system.values())) == 1:
            raise NotChecked(f"{model}: all are level at {next(iter(by_system.values())):.3f}")
    return values


def _triplets(findings: Findings, *systems: System) -> Values:
    """Triplets to the best model, where training brought one."""
    values = _values(findings[EXPERIMENT].own, systems, lambda row: row.triplets)
    for model, by_system in values.items():
        for system, count in by_system.items():
            if not count:
                raise NotChecked(f"{model}, {system.name}: no validation was better than that before training")
    return values


def _scores_text(by_system: Mapping[System, float]) -> str:
    return listed({system.name: value for system, value in by_system.items()})


def _counts_text(by_system: Mapping[System, float]) -> str:
    return ", ".join(f"{system.name} {count:,.0f}" for system, count in by_system.items())


@CLAIMS.add("5.4")
def tuned_static_is_best(findings: Findings) -> Answer:
    """Tuned static targets without in-batch negatives have the highest nDCG@10."""
    values = _ranked(findings, MEASURE, *PAPER)
    return all(max(v, key=v.__getitem__) == STATIC for v in values.values()), each(values, _scores_text)


@CLAIMS.add("5.4")
def distributed_is_equivalent_to_the_best(findings: Findings) -> Answer:
    """Distributed targets are statistically equivalent to the best in nDCG@10, without anything to tune (for most
    backbones).
    """
    tables = findings[EXPERIMENT].labelled()
    as_good = {model: _is_as_good(table, DISTRIBUTED, MEASURE) for model, table in tables.items()}
    values = _means(tables, (DISTRIBUTED, STATIC), MEASURE)
    return most(as_good), each(values, lambda v: f"{v[DISTRIBUTED]:.3f}, tuned static {v[STATIC]:.3f}")


def _is_as_good(table: VariantTable, system: System, measure: str) -> bool:
    """Whether a row is equivalent to the best, or is it."""
    score = table.rows[system].scores[measure]
    return score.equivalent or score.reference


@CLAIMS.add("5.4")
def adaptive_in_batch_has_the_best_recall(findings: Findings) -> Answer:
    """Adaptive targets with in-batch negatives have the highest R@1000, for most backbones."""
    values = _ranked(findings, RECALL, *PAPER)
    highest = {model: max(v.values()) == v[ADAPTIVE_IN_BATCH] for model, v in values.items()}
    return most(highest), each(values, _scores_text)


@CLAIMS.add("5.4")
def distributed_is_often_equivalent_in_recall(findings: Findings) -> Answer:
    """Distributed targets are statistically equivalent to the best in R@1000 for half of the backbones or more."""
    tables = findings[EXPERIMENT].labelled()
    for model, table in tables.items():
        if all(_is_as_good(table, system, RECALL) for system in PAPER):
            raise NotChecked(f"{model}: all targets are equivalent")
    equal = {model: _is_as_good(table, DISTRIBUTED, RECALL) for model, table in tables.items()}
    values = {model: table.rows[DISTRIBUTED].scores[RECALL].mean for model, table in tables.items()}
    texts = {model: f"{value:.3f}, {'' if equal[model] else 'not '}equivalent" for model, value in values.items()}
    return sum(equal.values()) >= len(equal) / 2, each(texts, str)


@CLAIMS.add("5.4")
def in_batch_negatives_harm_static_targets(findings: Findings) -> Answer:
    """In-batch negatives lower the nDCG@10 of static targets on test."""
    values = _measured(findings, MEASURE, STATIC, STATIC_IN_BATCH)
    return all(v[STATIC_IN_BATCH] < v[STATIC] for v in values.values()), each(values, _scores_text)


@CLAIMS.add("3")
def the_explicit_mean_does_not_work(findings: Findings) -> Answer:
    """The mean of a triplet's targets, instead of all of them, does not work (more than 0.05 nDCG@10 behind)."""
    values = _measured(findings, MEASURE, DISTRIBUTED, EXPLICIT_MEAN)
    return all(v[EXPLICIT_MEAN] < v[DISTRIBUTED] - 0.05 for v in values.values()), each(values, _scores_text)


def _ratios(findings: Findings, *systems: System) -> Values:
    """How many times as long as each of some rows the tuned static target takes, with its sweep."""
    _triplets(findings, STATIC, *systems)  # else a time says nothing
    seconds = _values(findings[EXPERIMENT].own, (STATIC, *systems), lambda row: row.seconds)
    return {model: {system: v[STATIC] / v[system] for system in systems} for model, v in seconds.items()}


def _ratios_text(findings: Findings, ratios: Values) -> str:
    """The factors, and how much of them the sweep decides, which is as long as the plan says."""
    text = each(ratios, lambda v: ", ".join(f"{ratio:.1f}x {system.name}" for system, ratio in v.items()))
    rows = {model: findings[EXPERIMENT].own[model].rows for model in ratios}
    sweeps = {model: (v[STATIC].sweep_seconds or 0.0) / v[DISTRIBUTED].run_seconds for model, v in rows.items()}
    return f"{text} (the sweep alone takes as long as so many whole distributed runs: {each(sweeps, '{:.1f}'.format)})"


@CLAIMS.add("5.4")
def tuned_static_costs_three_times_as_much(findings: Findings) -> Answer:
    """With its sweep, the tuned static target takes at least three times as long as the distributed one."""
    ratios = _ratios(findings, DISTRIBUTED)
    return all(v[DISTRIBUTED] >= 3 for v in ratios.values()), _ratios_text(findings, ratios)


@CLAIMS.add("5.4")
def tuned_static_costs_seven_times_as_much(findings: Findings) -> Answer:
    """With its sweep, the tuned static target takes at least seven times as long as adaptive ones."""
    ratios = _ratios(findings, ADAPTIVE, ADAPTIVE_IN_BATCH)
    return all(ratio >= 7 for v in ratios.values() for ratio in v.values()), _ratios_text(findings, ratios)


@CLAIMS.add("5.4")
def in_batch_information_saves_data(findings: Findings) -> Answer:
    """In-batch negatives lower the number of triplets to the best model, mostly, for static and adaptive targets."""
    counts = _triplets(findings, STATIC, STATIC_IN_BATCH, ADAPTIVE, ADAPTIVE_IN_BATCH)
    pairs = ((STATIC, STATIC_IN_BATCH), (ADAPTIVE, ADAPTIVE_IN_BATCH))
    fewer = [v[in_batch] < v[without] for v in counts.values() for without, in_batch in pairs]
    return sum(fewer) > len(fewer) / 2, each(counts, _counts_text)


@CLAIMS.add("5.4")
def self_distillation_saves_data(findings: Findings) -> Answer:
    """Distributed targets need fewer triplets to their best model than tuned static ones, for all backbones but one
    of three.
    """
    counts = _triplets(findings, STATIC, DISTRIBUTED)
    fewer = [v[DISTRIBUTED] < v[STATIC] for v in counts.values()]
    return sum(fewer) >= len(fewer) * 2 / 3, each(counts, _counts_text)


@CLAIMS.add("5.4")
def the_backbone_does_not_matter(findings: Findings) -> Answer:
    """The backbone makes no clear difference: within 0.1 nDCG@10 for each target, as in the paper's table."""
    spreads = {}
    for collection, tables in findings[EXPERIMENT].collections():
        values = several(_means(tables, PAPER, MEASURE))
        for system in PAPER:
            means = [v[system] for v in values.values()]
            spreads[f"{system.name}{collection and f' on {collection}'}"] = max(means) - min(means)
    return max(spreads.values()) < 0.1, listed(spreads)


@CLAIMS.add("5.4")
def backbones_rank_targets_alike(findings: Findings) -> Answer:
    """The order of the targets by nDCG@10 is stable across backbones (a rank correlation of 0.6 or more, as in the
    paper's table).
    """
    correlations = {}
    for collection, tables in findings[EXPERIMENT].collections():
        values = several(_not_level(_means(tables, PAPER, MEASURE)))
        for one, other in combinations(values, 2):
            pair = f"{one} and {other}{collection and f' on {collection}'}"
            correlations[pair] = float(spearmanr(list(values[one].values()), list(values[other].values())).statistic)
    return min(correlations.values()) >= 0.6 - 1e-9, each(correlations, "{:.2f}".format)
