"""What the paper claims about its tables 3 to 5, and about memory: sections 5.4 to 5.6, 1, 3 and 4."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from remargin.experiments.claim import Found, NotChecked, Numbers, claim, each, several
from remargin.experiments.results import MEASURE, RECALL

TARGETS = ("static", "static, in-batch", "adaptive", "adaptive, in-batch", "distributed")


def _variants(numbers: Numbers, measure: str, *rows: str) -> dict[str, dict[str, float]]:
    """A measure of some rows, for the backbones that have them all; an unfinished study may lack ours."""
    found = {model: of_model for model, of_model in numbers["variants"].items() if of_model.keys() >= set(rows)}
    if not found:
        raise NotChecked(f"no backbone has {', '.join(rows)}")
    return {model: {row: of_model[row][measure] for row in rows} for model, of_model in found.items()}


def _best(numbers: Numbers, measure: str, *rows: str) -> dict[str, dict[str, float]]:
    """The same, to be ranked: where all are level, as at a measure's ceiling, none is the best."""
    found = _variants(numbers, measure, *rows)
    for model, of_model in found.items():
        if len(set(of_model.values())) == 1:
            raise NotChecked(f"{model}: all are level at {next(iter(of_model.values())):.3f}")
    return found


def _shown(found: Mapping[str, float]) -> str:
    return ", ".join(f"{row} {value:.3f}" for row, value in found.items())


@claim("5.4")
def tuned_static_is_best(numbers: Numbers) -> Found:
    """Tuned static targets without in-batch negatives have the highest nDCG@10."""
    found = _best(numbers, MEASURE, *TARGETS)
    return all(max(v, key=v.__getitem__) == "static" for v in found.values()), each(found, _shown)


@claim("5.4")
def distributed_is_equivalent_to_tuned_static(numbers: Numbers) -> Found:
    """Distributed targets are statistically equivalent to the best in nDCG@10, without anything to tune (for most
    backbones).
    """
    found = {m: v["distributed"] for m, v in numbers["variants"].items()}
    good = [v[f"{MEASURE} equivalent"] or v[f"{MEASURE} best"] for v in found.values()]
    static = {m: v["static"][MEASURE] for m, v in numbers["variants"].items()}
    shown = {m: (v[MEASURE], static[m]) for m, v in found.items()}
    return sum(good) > len(good) / 2, each(shown, lambda v: f"{v[0]:.3f}, tuned static {v[1]:.3f}")


@claim("5.3")
def distributed_is_the_best_in_batch_target(numbers: Numbers) -> Found:
    """Of the targets with in-batch information, distributed ones have the highest nDCG@10."""
    found = _best(numbers, MEASURE, "distributed", "static, in-batch", "adaptive, in-batch")
    holds = all(max(v, key=v.__getitem__) == "distributed" for v in found.values())
    return holds, each(found, _shown)


@claim("5.4")
def adaptive_in_batch_has_the_best_recall(numbers: Numbers) -> Found:
    """Adaptive targets with in-batch negatives have the highest R@1000, for most backbones."""
    found = _best(numbers, RECALL, *TARGETS)
    highest = [max(v.values()) == v["adaptive, in-batch"] for v in found.values()]
    return sum(highest) > len(highest) / 2, each(found, _shown)


@claim("5.4")
def in_batch_negatives_harm_static_targets(numbers: Numbers) -> Found:
    """In-batch negatives lower the nDCG@10 of static targets on test."""
    found = _variants(numbers, MEASURE, "static", "static, in-batch")
    return all(v["static, in-batch"] < v["static"] for v in found.values()), each(found, _shown)


@claim("3")
def the_explicit_mean_does_not_work(numbers: Numbers) -> Found:
    """The mean of a triplet's targets, instead of all of them, does not work (more than 0.05 nDCG@10 behind)."""
    found = _variants(numbers, MEASURE, "distributed", "explicit mean")
    return all(v["explicit mean"] < v["distributed"] - 0.05 for v in found.values()), each(found, _shown)


@claim("5.4")
def tuned_static_costs_three_times_as_much(numbers: Numbers) -> Found:
    """With its sweep, the tuned static target takes at least three times as long as distributed and adaptive ones."""
    found = _variants(numbers, "seconds", "static", "distributed", "adaptive", "adaptive, in-batch")
    _triplets(numbers, "static", "distributed", "adaptive", "adaptive, in-batch")  # else a time says nothing
    ratios = {model: {row: v["static"] / v[row] for row in v if row != "static"} for model, v in found.items()}
    shown = each(ratios, lambda of: ", ".join(f"{ratio:.1f}x {row}" for row, ratio in of.items()))
    sweeps = {m: v["static"]["sweep_seconds"] / v["distributed"]["run_seconds"] for m, v in numbers["variants"].items()}
    of_sweep = each({m: share for m, share in sweeps.items() if m in found}, "{:.1f}".format)
    holds = all(ratio >= 3 for of_model in ratios.values() for ratio in of_model.values())
    return holds, f"{shown} (the sweep alone takes as long as so many whole distributed runs: {of_sweep})"


def _triplets(numbers: Numbers, *rows: str) -> dict[str, dict[str, float]]:
    """Triplets to the best model, where training brought one."""
    found = _variants(numbers, "triplets", *rows)
    for model, of_model in found.items():
        for row, count in of_model.items():
            _learned(f"{model}, {row}", {"triplets": count})
    return found


def _learned(name: str, row: Mapping[str, Any]) -> None:
    """See that a row is not the model before training."""
    if not row["triplets"]:
        raise NotChecked(f"{name}: no validation was better than that before training")


def _counts(found: Mapping[str, float]) -> str:
    return ", ".join(f"{row} {count:,.0f}" for row, count in found.items())


@claim("5.4")
def in_batch_information_saves_data(numbers: Numbers) -> Found:
    """In-batch negatives lower the number of triplets to the best model, mostly, for static and adaptive targets."""
    found = _triplets(numbers, "static", "static, in-batch", "adaptive", "adaptive, in-batch")
    fewer = [v[f"{row}, in-batch"] < v[row] for v in found.values() for row in ("static", "adaptive")]
    return sum(fewer) > len(fewer) / 2, each(found, _counts)


@claim("5.4")
def self_distillation_saves_data(numbers: Numbers) -> Found:
    """Adaptive and distributed targets need fewer triplets to their best model than their static counterparts, in all
    but one of nine cases.
    """
    found = _triplets(numbers, *TARGETS)
    pairs = (("adaptive", "static"), ("adaptive, in-batch", "static, in-batch"), ("distributed", "static"))
    fewer = [v[ours] < v[static] for v in found.values() for ours, static in pairs]
    return sum(fewer) >= len(fewer) * 8 / 9, each(found, _counts)


@claim("5.4")
def the_backbone_does_not_matter(numbers: Numbers) -> Found:
    """The backbone makes no clear difference: within 0.1 nDCG@10 for each target, as in the paper's table."""
    found = several(_variants(numbers, MEASURE, *TARGETS))
    spreads = {row: max(v[row] for v in found.values()) - min(v[row] for v in found.values()) for row in TARGETS}
    return max(spreads.values()) < 0.1, _shown(spreads)


@claim("5.4")
def distributed_is_often_equivalent_in_recall(numbers: Numbers) -> Found:
    """Distributed targets are statistically equivalent to the best in R@1000 for half of the backbones or more."""
    found = {m: v["distributed"] for m, v in numbers["variants"].items()}
    equal = {m: v[f"{RECALL} equivalent"] or v[f"{RECALL} best"] for m, v in found.items()}
    shown = {m: f"{v[RECALL]:.3f}, {'' if equal[m] else 'not '}equivalent" for m, v in found.items()}
    return sum(equal.values()) >= len(equal) / 2, each(shown, str)


def _taught(numbers: Numbers) -> Mapping[str, Any]:
    """Table 4, where a teacher taught anything: the best TAS-B run is not the model before training."""
    for model, of_model in numbers["baselines"].items():
        if not of_model["reference"]["triplets"]:
            raise NotChecked(f"{model}: the best TAS-B run is the model before training")
    return numbers["baselines"]  # type: ignore[no-any-return]


def _as_good(of_model: Mapping[str, Any], name: str, measure: str) -> bool:
    """Whether a row is equivalent to the best TAS-B run, or ahead."""
    row, teacher = of_model[name], of_model["reference"]
    return bool(row["equivalent" if measure == MEASURE else "recall_equivalent"]) or row[measure] > teacher[measure]


@claim("5.5")
def self_distillation_matches_teachers(numbers: Numbers) -> Found:
    """Distributed targets are statistically equivalent in nDCG@10 to the best TAS-B run, or ahead."""
    found = _taught(numbers)
    holds = all(_as_good(v, "distributed", MEASURE) for v in found.values())
    return holds, each(found, lambda v: _beside_teacher(v, "distributed", MEASURE))


@claim("5.5")
def tuned_static_matches_teachers(numbers: Numbers) -> Found:
    """So are tuned static targets: a teacher is hardly worth its price in nDCG@10."""
    found = _taught(numbers)
    holds = all(_as_good(v, "static", MEASURE) for v in found.values())
    return holds, each(found, lambda v: _beside_teacher(v, "static", MEASURE))


@claim("5.5")
def adaptive_in_batch_matches_teachers_in_recall(numbers: Numbers) -> Found:
    """Adaptive targets with in-batch negatives are statistically equivalent in R@1000 to the best TAS-B run, or
    ahead.
    """
    found = _taught(numbers)
    holds = all(_as_good(v, "adaptive, in-batch", RECALL) for v in found.values())
    return holds, each(found, lambda v: _beside_teacher(v, "adaptive, in-batch", RECALL))


@claim("5.5")
def tuning_raises_recall_more_than_ndcg(numbers: Numbers) -> Found:
    """Tuning the static margin raises R@1000 by more than nDCG@10, against 1.0."""
    for m, v in numbers["baselines"].items():
        _learned(f"{m}, static 1.0", v["static 1.0"])
    found = {
        m: {name: v["static"][name] - v["static 1.0"][name] for name in (RECALL, MEASURE)}
        for m, v in numbers["baselines"].items()
    }
    return all(v[RECALL] > v[MEASURE] and v[RECALL] > 0 for v in found.values()), each(
        found, lambda v: ", ".join(f"{gain:+.3f} {name}" for name, gain in v.items())
    )


def _beside_teacher(found: Mapping[str, Any], row: str, measure: str) -> str:
    shown = f"{found[row][measure]:.3f}, {found['reference']['name']} {found['reference'][measure]:.3f}"
    best = found["best teacher"]
    if best["name"] == found["reference"]["name"]:
        return shown
    return f"{shown} (of all runs with a teacher {best['name']} {best[measure]:.3f})"


PAPERS_SHARE = 0.136  # 1.98 of 14.6 million triplets, which the paper calls 13.5%
SELF_DISTILLED = ("adaptive", "adaptive, in-batch", "distributed")


def _data_shares(numbers: Numbers) -> dict[str, dict[str, float]]:
    """What share of the triplets of the best TAS-B run the self-distilled ones needed."""
    shares: dict[str, dict[str, float]] = {}
    for model, of_model in _taught(numbers).items():
        counts = {row: of_model[row]["triplets"] for row in SELF_DISTILLED}
        if not all(counts.values()):
            raise NotChecked(f"{model}: a run was best before training")
        shares[model] = {row: count / of_model["reference"]["triplets"] for row, count in counts.items()}
    return shares


@claim("1")
def an_eighth_of_the_data_is_enough(numbers: Numbers) -> Found:
    """Self-distillation matches teachers with 13.5% of the data: some self-distilled row that is equivalent in nDCG@10
    or R@1000 to the best TAS-B run, or ahead, needs at most that share of its triplets.
    """
    shares, holds, shown = _data_shares(numbers), [], {}
    for model, of_model in shares.items():
        found = numbers["baselines"][model]
        as_good = {row: [name for name in (MEASURE, RECALL) if _as_good(found, row, name)] for row in of_model}
        holds.append(any(share <= PAPERS_SHARE and as_good[row] for row, share in of_model.items()))
        shown[model] = [
            f"{row} {share:.0%}, as good in {' and '.join(as_good[row]) or 'neither measure'}"
            for row, share in of_model.items()
        ]
    return all(holds), each(shown, "; ".join)


@claim("5.5")
def self_distillation_needs_less_data_than_teachers(numbers: Numbers) -> Found:
    """Distributed targets need at most half of the triplets of the best TAS-B run, adaptive ones with in-batch
    negatives at most a seventh.
    """
    shares = _data_shares(numbers)
    holds = all(v["distributed"] <= 1 / 2 and v["adaptive, in-batch"] <= 1 / 7 for v in shares.values())
    return holds, each(shares, lambda v: ", ".join(f"{row} {share:.0%}" for row, share in v.items()))


@claim("5.6")
def early_stopping_helps_elsewhere(numbers: Numbers) -> Found:
    """Early stopping raises the zero-shot mean of distributed targets and costs nothing in-domain (0.01 at most)."""
    found = {
        m: (v["distributed, early stopping"], v["distributed, to the end"]) for m, v in numbers["zero-shot"].items()
    }
    holds = all(
        stopped["mean"] > last["mean"] and stopped["in-domain"] >= last["in-domain"] - 0.01
        for stopped, last in found.values()
    )
    return holds, each(
        found,
        lambda v: (
            f"{v[0]['mean']:.3f} with, {v[1]['mean']:.3f} without; in-domain {v[0]['in-domain']:.3f}, "
            f"{v[1]['in-domain']:.3f}"
        ),
    )


@claim("5.6")
def tuning_helps_elsewhere(numbers: Numbers) -> Found:
    """A tuned static margin is better than 1.0 zero-shot, without and with in-batch negatives."""
    names = ("static tuned", "static untuned", "static tuned, in-batch", "static untuned, in-batch")
    for m, v in numbers["zero-shot"].items():
        for name in names:
            _learned(f"{m}, {name}", v[name])
    found = {m: {name: v[name]["mean"] for name in names} for m, v in numbers["zero-shot"].items()}
    holds = all(v["static tuned" + s] > v["static untuned" + s] for v in found.values() for s in ("", ", in-batch"))
    return holds, each(found, _shown)


@claim("5.6")
def adaptive_without_in_batch_is_last_elsewhere(numbers: Numbers) -> Found:
    """Zero-shot, distributed and tuned static targets are ahead of adaptive ones, which without in-batch negatives are
    last.
    """
    names = ("distributed, early stopping", "static tuned", "adaptive, in-batch", "adaptive")
    found = {m: {name: v[name]["mean"] for name in names} for m, v in numbers["zero-shot"].items()}
    holds = all(min(v[names[0]], v[names[1]]) > v["adaptive, in-batch"] > v["adaptive"] for v in found.values())
    return holds, each(found, _shown)


@claim("4")
def half_the_memory(numbers: Numbers) -> Found:
    """Mixed precision and 8-bit optimiser states take about half of the memory of full precision (at most 60%)."""
    found = {m: v["bf16, 8-bit states"] / v["32"] for m, v in numbers["memory"].items()}
    return all(share <= 0.6 for share in found.values()), each(found, lambda share: f"{share:.0%}")
