"""What the paper claims about its tables 4 and 5, and about memory: sections 5.5, 5.6, 1 and 4."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from remargin.paper.claims.claim import Claims, Found, NotChecked, Numbers, each
from remargin.study.outcome import every_test
from remargin.study.results import MEASURE, RECALL

CLAIMS = Claims()
EQUIVALENT = {MEASURE: "equivalent", RECALL: "recall_equivalent"}
PAPERS_SHARE = 0.136  # 1.98 of 14.6 million triplets, which the paper calls 13.5%
ROUNDING = 1e-9
SELF_DISTILLED = ("adaptive", "adaptive, in-batch", "distributed")


def _taught(numbers: Numbers) -> dict[str, Any]:
    """Table 4, where a teacher taught anything: the best TAS-B run is not the model before training."""
    tables = every_test(numbers["baselines"])
    for model, table in tables.items():
        if not table["reference"]["triplets"]:
            raise NotChecked(f"{model}: the best TAS-B run is the model before training")
    return tables


def _learned(name: str, row: Mapping[str, Any]) -> None:
    """See that a row is not the model before training."""
    if not row["triplets"]:
        raise NotChecked(f"{name}: no validation was better than that before training")


def _as_good(table: Mapping[str, Any], name: str, measure: str) -> bool:
    """Whether a row is equivalent to the best TAS-B run, or ahead."""
    row, teacher = table[name], table["reference"]
    return bool(row[EQUIVALENT[measure]]) or row[measure] > teacher[measure]


def _discerning(tables: Mapping[str, Any], measure: str) -> Mapping[str, Any]:
    """The same, if the measure tells a trained model from BM25: where even that is equivalent, all are."""
    for model, table in tables.items():
        if table["BM25"][EQUIVALENT[measure]]:
            raise NotChecked(f"{model}: even BM25 is equivalent in {measure}")
    return tables


def _beside_teacher(table: Mapping[str, Any], row: str, measure: str) -> str:
    shown = f"{table[row][measure]:.3f}, {table['reference']['name']} {table['reference'][measure]:.3f}"
    best = table["best teacher"]
    if best["name"] == table["reference"]["name"]:
        return shown
    return f"{shown} (of all runs with a teacher {best['name']} {best[measure]:.3f})"


def _matches(tables: Mapping[str, Any], row: str, measure: str) -> Found:
    holds = all(_as_good(table, row, measure) for table in tables.values())
    return holds, each(tables, lambda table: _beside_teacher(table, row, measure))


def _is_close(tables: Mapping[str, Any], row: str, measure: str, gap: float) -> Found:
    """Whether a row is at most so far behind the best run with a teacher."""
    gaps = [table["best teacher"][measure] - table[row][measure] for table in tables.values()]
    return max(gaps) <= gap + ROUNDING, each(tables, lambda table: _beside_teacher(table, row, measure))


@CLAIMS.add("5.5")
def self_distillation_matches_teachers(numbers: Numbers) -> Found:
    """Distributed targets are statistically equivalent in nDCG@10 to the best TAS-B run, or ahead."""
    return _matches(_taught(numbers), "distributed", MEASURE)


@CLAIMS.add("5.5")
def self_distillation_is_close_to_teachers(numbers: Numbers) -> Found:
    """Distributed targets are at most 0.07 nDCG@10 behind the best run with a teacher."""
    return _is_close(_taught(numbers), "distributed", MEASURE, 0.07)


@CLAIMS.add("5.5")
def tuned_static_matches_teachers(numbers: Numbers) -> Found:
    """Tuned static targets are equivalent to it or ahead, too: a teacher is hardly worth its price in nDCG@10."""
    return _matches(_taught(numbers), "static", MEASURE)


@CLAIMS.add("5.5")
def adaptive_in_batch_matches_teachers_in_recall(numbers: Numbers) -> Found:
    """Adaptive targets with in-batch negatives are statistically equivalent in R@1000 to the best TAS-B run, or
    ahead.
    """
    return _matches(_discerning(_taught(numbers), RECALL), "adaptive, in-batch", RECALL)


@CLAIMS.add("5.5")
def adaptive_in_batch_is_close_to_teachers_in_recall(numbers: Numbers) -> Found:
    """Adaptive targets with in-batch negatives are at most 0.06 R@1000 behind the best run with a teacher."""
    return _is_close(_discerning(_taught(numbers), RECALL), "adaptive, in-batch", RECALL, 0.06)


@CLAIMS.add("5.5")
def tuning_raises_recall_more_than_ndcg(numbers: Numbers) -> Found:
    """Tuning the static margin raises R@1000 by more than nDCG@10, against 1.0."""
    tables = every_test(numbers["baselines"])
    for m, v in tables.items():
        _learned(f"{m}, static 1.0", v["static 1.0"])
    gains = {
        m: {name: v["static"][name] - v["static 1.0"][name] for name in (RECALL, MEASURE)} for m, v in tables.items()
    }
    return all(v[RECALL] > v[MEASURE] and v[RECALL] > 0 for v in gains.values()), each(
        gains, lambda v: ", ".join(f"{gain:+.3f} {name}" for name, gain in v.items())
    )


def _data_shares(tables: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """What share of the triplets of the best TAS-B run the self-distilled ones needed."""
    shares: dict[str, dict[str, float]] = {}
    for model, table in tables.items():
        for row in SELF_DISTILLED:
            _learned(f"{model}, {row}", table[row])
        shares[model] = {row: table[row]["triplets"] / table["reference"]["triplets"] for row in SELF_DISTILLED}
    return shares


@CLAIMS.add("1")
def an_eighth_of_the_data_is_enough(numbers: Numbers) -> Found:
    """Self-distillation matches teachers with 13.5% of the data: some self-distilled row that is equivalent in nDCG@10
    or R@1000 (unless even BM25 is) to the best TAS-B run, or ahead, needs at most that share of its triplets.
    """
    tables = _taught(numbers)
    holds, shown = [], {}
    for model, shares in _data_shares(tables).items():
        table = tables[model]
        measures = [name for name in (MEASURE, RECALL) if not table["BM25"][EQUIVALENT[name]]]
        if not measures:
            raise NotChecked(f"{model}: even BM25 is equivalent in both measures")
        as_good = {row: [name for name in measures if _as_good(table, row, name)] for row in shares}
        holds.append(any(share <= PAPERS_SHARE and as_good[row] for row, share in shares.items()))
        shown[model] = [
            f"{row} {share:.0%}, as good in {' and '.join(as_good[row]) or 'no measure'}"
            for row, share in shares.items()
        ]
    return all(holds), each(shown, "; ".join)


def _shares_shown(shares: Mapping[str, float]) -> str:
    return ", ".join(f"{row} {share:.0%}" for row, share in shares.items())


@CLAIMS.add("5.5")
def distributed_needs_half_of_the_data_of_teachers(numbers: Numbers) -> Found:
    """Distributed targets need at most half of the triplets of the best TAS-B run."""
    shares = _data_shares(_taught(numbers))
    return all(v["distributed"] <= 1 / 2 for v in shares.values()), each(shares, _shares_shown)


@CLAIMS.add("5.5")
def adaptive_needs_a_seventh_of_the_data_of_teachers(numbers: Numbers) -> Found:
    """Adaptive targets with in-batch negatives need at most a seventh of the triplets of the best TAS-B run."""
    shares = _data_shares(_taught(numbers))
    return all(v["adaptive, in-batch"] <= 1 / 7 for v in shares.values()), each(shares, _shares_shown)


@CLAIMS.add("5.6")
def in_domain_teachers_are_behind(numbers: Numbers) -> Found:
    """In-domain, distributed and tuned static targets are ahead of TAS-B."""
    tables = _taught(numbers)
    found = {m: {row: v[row][MEASURE] for row in ("distributed", "static", "reference")} for m, v in tables.items()}
    return all(min(v["distributed"], v["static"]) > v["reference"] for v in found.values()), each(
        found, lambda v: f"distributed {v['distributed']:.3f}, static {v['static']:.3f}, TAS-B {v['reference']:.3f}"
    )


@CLAIMS.add("5.6")
def in_domain_adaptive_is_slightly_worse(numbers: Numbers) -> Found:
    """In-domain, adaptive targets are behind distributed and tuned static ones, without and with in-batch negatives."""
    names = ("distributed, early stopping", "static tuned", "adaptive, in-batch", "adaptive")
    found = {m: {name: v[name]["in-domain"] for name in names} for m, v in numbers["zero-shot"].items()}
    holds = all(min(v[names[0]], v[names[1]]) > max(v[names[2]], v[names[3]]) for v in found.values())
    return holds, each(found, _shown)


def _stopping(numbers: Numbers, where: str) -> dict[str, tuple[float, float]]:
    """Distributed targets with early stopping and to the end."""
    rows = ("distributed, early stopping", "distributed, to the end")
    return {m: (v[rows[0]][where], v[rows[1]][where]) for m, v in numbers["zero-shot"].items()}


@CLAIMS.add("5.6")
def early_stopping_helps_elsewhere(numbers: Numbers) -> Found:
    """Early stopping raises the zero-shot mean of distributed targets."""
    found = _stopping(numbers, "mean")
    return all(stopped > last for stopped, last in found.values()), each(found, _with_and_without)


@CLAIMS.add("5.6")
def early_stopping_costs_nothing_in_domain(numbers: Numbers) -> Found:
    """In-domain, early stopping costs distributed targets nothing (0.01 at most)."""
    found = _stopping(numbers, "in-domain")
    return all(stopped >= last - 0.01 for stopped, last in found.values()), each(found, _with_and_without)


def _with_and_without(v: tuple[float, float]) -> str:
    return f"{v[0]:.3f} with, {v[1]:.3f} without"


@CLAIMS.add("5.6")
def tuning_helps_elsewhere(numbers: Numbers) -> Found:
    """A tuned static margin is better than 1.0 zero-shot, without and with in-batch negatives."""
    names = ("static tuned", "static untuned", "static tuned, in-batch", "static untuned, in-batch")
    for m, v in numbers["zero-shot"].items():
        for name in names:
            _learned(f"{m}, {name}", v[name])
    found = {m: {name: v[name]["mean"] for name in names} for m, v in numbers["zero-shot"].items()}
    holds = all(v["static tuned" + s] > v["static untuned" + s] for v in found.values() for s in ("", ", in-batch"))
    return holds, each(found, _shown)


@CLAIMS.add("5.6")
def adaptive_without_in_batch_is_last_elsewhere(numbers: Numbers) -> Found:
    """Zero-shot, distributed and tuned static targets are ahead of adaptive ones, which without in-batch negatives are
    last.
    """
    names = ("distributed, early stopping", "static tuned", "adaptive, in-batch", "adaptive")
    found = {m: {name: v[name]["mean"] for name in names} for m, v in numbers["zero-shot"].items()}
    holds = all(min(v[names[0]], v[names[1]]) > v["adaptive, in-batch"] > v["adaptive"] for v in found.values())
    return holds, each(found, _shown)


def _shown(found: Mapping[str, float]) -> str:
    return ", ".join(f"{row} {value:.3f}" for row, value in found.items())


@CLAIMS.add("4")
def half_the_memory(numbers: Numbers) -> Found:
    """Mixed precision and 8-bit optimiser states take about half of the memory of full precision (at most 60%)."""
    ways = "bf16, 8-bit states", "32"
    found = {m: v[ways[0]] / v[ways[1]] for m, v in numbers["memory"].items() if v.keys() >= set(ways)}
    if not found:
        raise NotChecked(f"no GPU measured {ways[0]}")
    return all(share <= 0.6 for share in found.values()), each(found, lambda share: f"{share:.0%}")
