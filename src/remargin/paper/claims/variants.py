"""What the paper claims about its table 3: section 5.4, and section 3 on the explicit mean."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import Any

from scipy.stats import spearmanr

from remargin.paper.claims.claim import Claims, Found, NotChecked, Numbers, each, most, several
from remargin.study.outcome import by_test, every_test
from remargin.study.results import MEASURE, RECALL

CLAIMS = Claims()
TARGETS = ("static", "static, in-batch", "adaptive", "adaptive, in-batch", "distributed")


def _rows(of_models: Mapping[str, Any], name: str, rows: tuple[str, ...]) -> dict[str, dict[str, float]]:
    """A number of some rows, for the backbones that have them all; an unfinished study may lack ours."""
    found = {model: of_model for model, of_model in of_models.items() if of_model.keys() >= set(rows)}
    if not found:
        raise NotChecked(f"no backbone has {', '.join(rows)}")
    return {model: {row: of_model[row][name] for row in rows} for model, of_model in found.items()}


def _measured(numbers: Numbers, measure: str, *rows: str) -> dict[str, dict[str, float]]:
    """A measure of some rows, on every test collection, unless all are the model before training."""
    for model, counts in _rows(numbers["variants"], "triplets", rows).items():
        if not any(counts.values()):
            raise NotChecked(f"{model}: no validation was better than that before training")
    return _rows(every_test(numbers["variants"]), measure, rows)


def _ranked(numbers: Numbers, measure: str, *rows: str) -> dict[str, dict[str, float]]:
    """The same, to be ranked: where all are level, as at a measure's ceiling, none is the best."""
    return _not_level(_measured(numbers, measure, *rows))


def _not_level(found: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    for model, of_model in found.items():
        if len(set(of_model.values())) == 1:
            raise NotChecked(f"{model}: all are level at {next(iter(of_model.values())):.3f}")
    return found


def _triplets(numbers: Numbers, *rows: str) -> dict[str, dict[str, float]]:
    """Triplets to the best model, where training brought one."""
    found = _rows(numbers["variants"], "triplets", rows)
    for model, of_model in found.items():
        for row, count in of_model.items():
            if not count:
                raise NotChecked(f"{model}, {row}: no validation was better than that before training")
    return found


def _shown(found: Mapping[str, float]) -> str:
    return ", ".join(f"{row} {value:.3f}" for row, value in found.items())


def _counts(found: Mapping[str, float]) -> str:
    return ", ".join(f"{row} {count:,.0f}" for row, count in found.items())


@CLAIMS.add("5.4")
def tuned_static_is_best(numbers: Numbers) -> Found:
    """Tuned static targets without in-batch negatives have the highest nDCG@10."""
    found = _ranked(numbers, MEASURE, *TARGETS)
    return all(max(v, key=v.__getitem__) == "static" for v in found.values()), each(found, _shown)


@CLAIMS.add("5.4")
def distributed_is_equivalent_to_the_best(numbers: Numbers) -> Found:
    """Distributed targets are statistically equivalent to the best in nDCG@10, without anything to tune (for most
    backbones).
    """
    tables = every_test(numbers["variants"])
    shown = {m: (v["distributed"][MEASURE], v["static"][MEASURE]) for m, v in tables.items()}
    good = {m: _equivalent(v, "distributed", MEASURE) for m, v in tables.items()}
    return most(good), each(shown, lambda v: f"{v[0]:.3f}, tuned static {v[1]:.3f}")


def _equivalent(table: Mapping[str, Any], row: str, measure: str) -> bool:
    """Whether a row is as good as the best, or is it."""
    return bool(table[row][f"{measure} equivalent"] or table[row][f"{measure} best"])


@CLAIMS.add("5.4")
def adaptive_in_batch_has_the_best_recall(numbers: Numbers) -> Found:
    """Adaptive targets with in-batch negatives have the highest R@1000, for most backbones."""
    found = _ranked(numbers, RECALL, *TARGETS)
    highest = {m: max(v.values()) == v["adaptive, in-batch"] for m, v in found.items()}
    return most(highest), each(found, _shown)


@CLAIMS.add("5.4")
def distributed_is_often_equivalent_in_recall(numbers: Numbers) -> Found:
    """Distributed targets are statistically equivalent to the best in R@1000 for half of the backbones or more."""
    tables = every_test(numbers["variants"])
    for model, table in tables.items():
        if all(_equivalent(table, row, RECALL) for row in TARGETS):
            raise NotChecked(f"{model}: all targets are equivalent")
    equal = {m: _equivalent(v, "distributed", RECALL) for m, v in tables.items()}
    shown = {m: f"{v['distributed'][RECALL]:.3f}, {'' if equal[m] else 'not '}equivalent" for m, v in tables.items()}
    return sum(equal.values()) >= len(equal) / 2, each(shown, str)


@CLAIMS.add("5.4")
def in_batch_negatives_harm_static_targets(numbers: Numbers) -> Found:
    """In-batch negatives lower the nDCG@10 of static targets on test."""
    found = _measured(numbers, MEASURE, "static", "static, in-batch")
    return all(v["static, in-batch"] < v["static"] for v in found.values()), each(found, _shown)


@CLAIMS.add("3")
def the_explicit_mean_does_not_work(numbers: Numbers) -> Found:
    """The mean of a triplet's targets, instead of all of them, does not work (more than 0.05 nDCG@10 behind)."""
    found = _measured(numbers, MEASURE, "distributed", "explicit mean")
    return all(v["explicit mean"] < v["distributed"] - 0.05 for v in found.values()), each(found, _shown)


def _times(numbers: Numbers, *rows: str) -> dict[str, dict[str, float]]:
    """How many times as long as each of some rows the tuned static target takes, with its sweep."""
    _triplets(numbers, "static", *rows)  # else a time says nothing
    found = _rows(numbers["variants"], "seconds", ("static", *rows))
    return {model: {row: v["static"] / v[row] for row in rows} for model, v in found.items()}


def _times_shown(numbers: Numbers, times: Mapping[str, Mapping[str, float]]) -> str:
    """The factors, and how much of them the sweep decides, which is as long as the plan says."""
    shown = each(times, lambda of: ", ".join(f"{ratio:.1f}x {row}" for row, ratio in of.items()))
    tables = {m: numbers["variants"][m] for m in times}
    sweeps = {m: v["static"]["sweep_seconds"] / v["distributed"]["run_seconds"] for m, v in tables.items()}
    return f"{shown} (the sweep alone takes as long as so many whole distributed runs: {each(sweeps, '{:.1f}'.format)})"


@CLAIMS.add("5.4")
def tuned_static_costs_three_times_as_much(numbers: Numbers) -> Found:
    """With its sweep, the tuned static target takes at least three times as long as the distributed one."""
    times = _times(numbers, "distributed")
    return all(v["distributed"] >= 3 for v in times.values()), _times_shown(numbers, times)


@CLAIMS.add("5.4")
def tuned_static_costs_seven_times_as_much(numbers: Numbers) -> Found:
    """With its sweep, the tuned static target takes at least seven times as long as adaptive ones."""
    times = _times(numbers, "adaptive", "adaptive, in-batch")
    return all(ratio >= 7 for v in times.values() for ratio in v.values()), _times_shown(numbers, times)


@CLAIMS.add("5.4")
def in_batch_information_saves_data(numbers: Numbers) -> Found:
    """In-batch negatives lower the number of triplets to the best model, mostly, for static and adaptive targets."""
    found = _triplets(numbers, "static", "static, in-batch", "adaptive", "adaptive, in-batch")
    fewer = [v[f"{row}, in-batch"] < v[row] for v in found.values() for row in ("static", "adaptive")]
    return sum(fewer) > len(fewer) / 2, each(found, _counts)


@CLAIMS.add("5.4")
def self_distillation_saves_data(numbers: Numbers) -> Found:
    """Distributed targets need fewer triplets to their best model than tuned static ones, for all backbones but one
    of three.
    """
    found = _triplets(numbers, "static", "distributed")
    fewer = [v["distributed"] < v["static"] for v in found.values()]
    return sum(fewer) >= len(fewer) * 2 / 3, each(found, _counts)


@CLAIMS.add("5.4")
def the_backbone_does_not_matter(numbers: Numbers) -> Found:
    """The backbone makes no clear difference: within 0.1 nDCG@10 for each target, as in the paper's table."""
    spreads = {}
    for test, of_models in by_test(numbers["variants"]).items():
        found = several(_rows(of_models, MEASURE, TARGETS))
        for row in TARGETS:
            values = [v[row] for v in found.values()]
            spreads[f"{row}{test and f' on {test}'}"] = max(values) - min(values)
    return max(spreads.values()) < 0.1, _shown(spreads)


@CLAIMS.add("5.4")
def backbones_rank_targets_alike(numbers: Numbers) -> Found:
    """The order of the targets by nDCG@10 is stable across backbones (a rank correlation of 0.6 or more, as in the
    paper's table).
    """
    correlations = {}
    for test, of_models in by_test(numbers["variants"]).items():
        found = several(_not_level(_rows(of_models, MEASURE, TARGETS)))
        for one, other in combinations(found, 2):
            pair = f"{one} and {other}{test and f' on {test}'}"
            correlations[pair] = float(spearmanr(list(found[one].values()), list(found[other].values())).statistic)
    return min(correlations.values()) >= 0.6 - 1e-9, each(correlations, "{:.2f}".format)
