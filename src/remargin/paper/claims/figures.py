"""What the paper claims about its figures 3 to 6 and the instance of table 2: sections 5.1 to 5.3."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from remargin.paper.claims.claim import Claims, Found, NotChecked, Numbers, each, most, several
from remargin.paper.systems import WITH, WITHOUT
from remargin.study.results import HITS, MEASURE

CLAIMS = Claims()
ROLES = tuple(f"negative, {which} target" for which in ("highest", "middle", "lowest"))
FEWEST_BATCHES = 64  # two of the windows over which target-evolution takes means
SIMILAR = 0.02


def _configurations(numbers: Numbers, name: str) -> dict[str, Any]:
    """A number of figure 3 for each backbone, without and with in-batch negatives."""
    return {f"{m}, {kind}": of[name] for m, kinds in numbers["static-margins"].items() for kind, of in kinds.items()}


def _gains(numbers: Numbers) -> dict[str, float]:
    gains = _configurations(numbers, "gain")
    if None in gains.values():
        raise NotChecked("1.0 is not among the margins")
    return gains


@CLAIMS.add("5.1")
def tuning_the_margin_pays(numbers: Numbers) -> Found:
    """Tuning the static margin beats 1.0 in every configuration."""
    gains = _gains(numbers)
    return all(gain > 0 for gain in gains.values()), each(gains, lambda gain: f"+{gain:.3f}")


@CLAIMS.add("5.1")
def tuning_the_margin_pays_much(numbers: Numbers) -> Found:
    """It does so by more than 0.1 nDCG@10 in almost all configurations (5 of 6)."""
    gains = _gains(numbers)
    return sum(gain > 0.1 for gain in gains.values()) >= len(gains) * 5 / 6, each(gains, lambda gain: f"+{gain:.3f}")


@CLAIMS.add("5.1")
def the_margin_depends_on_the_model(numbers: Numbers) -> Found:
    """The best static margin differs between backbones."""
    found = several(numbers["static-margins"])
    best = {kind: {m: kinds[kind]["best"][MEASURE] for m, kinds in found.items()} for kind in (WITHOUT, WITH)}
    shown = {kind: each(of_kind, _margins) for kind, of_kind in best.items()}
    return all(_apart(*of_kind.values()) for of_kind in best.values()), each(shown, str)


@CLAIMS.add("5.1")
def the_margin_depends_on_the_measure(numbers: Numbers) -> Found:
    """The best static margin for nDCG@10 is another than for Hits@100."""
    best = _configurations(numbers, "best")
    differ = all(_apart(found[MEASURE], found[HITS]) for found in best.values())
    return differ, each(best, lambda found: f"{_margins(found[MEASURE])} and {_margins(found[HITS])}")


def _apart(*best: list[float]) -> bool:
    """Whether no value is the best of two; each may have several that are level."""
    return len(set().union(*best)) == sum(map(len, best))


def _margins(best: list[float]) -> str:
    return " or ".join(f"{value:g}" for value in best)


@CLAIMS.add("5.1")
def in_batch_negatives_do_not_help_static_targets(numbers: Numbers) -> Found:
    """With static targets, in-batch negatives improve neither nDCG@10 nor Hits@100 on dev."""
    found = numbers["static-margins"]
    holds = all(
        kinds[WITH][name] <= kinds[WITHOUT][name] for kinds in found.values() for name in ("highest", "highest_hits")
    )
    return holds, each(
        found,
        lambda k: "; ".join(
            f"{measure} {k[WITHOUT][name]:.3f} without, {k[WITH][name]:.3f} with"
            for measure, name in ((MEASURE, "highest"), (HITS, "highest_hits"))
        ),
    )


def _curve(numbers: Numbers, experiment: str, row: str, measure: str = MEASURE, which: int = -1) -> dict[str, Any]:
    """The maximum of a curve for each model: of the largest batch, or of the smallest (0)."""
    found = {}
    for model, rows in numbers[experiment].items():
        sizes = sorted(rows[row], key=int)
        found[model] = rows[row][sizes[which]][measure]
    return found


def _adaptive(numbers: Numbers, measure: str = MEASURE, which: int = -1) -> dict[str, tuple[Any, Any]]:
    """The maxima of adaptive targets, without and with in-batch negatives."""
    rows = ("adaptive", "adaptive, in-batch")
    without, with_ = (_curve(numbers, "adaptive-margins", row, measure, which) for row in rows)
    return {model: (without[model], with_[model]) for model in without}


def _sooner(found: Mapping[str, tuple[Any, Any]]) -> bool:
    """Whether the first maximum is always at an earlier validation; between validations nothing is known."""
    if any(one["validation"] > other["validation"] for one, other in found.values()):
        return False
    for model, (one, other) in found.items():
        if one["validation"] == other["validation"]:
            raise NotChecked(f"{model}: both are highest at validation {one['validation']}")
    return True


def _peak(maximum: Mapping[str, Any]) -> str:
    return f"{maximum['highest']:.3f} after {maximum['at']:.0%}"


def _both(v: tuple[Any, Any]) -> str:
    return f"{_peak(v[0])} without, {_peak(v[1])} with"


@CLAIMS.add("5.2")
def adaptive_targets_peak_half_way(numbers: Numbers) -> Found:
    """With adaptive targets nDCG@10 is highest after about half of training (between a quarter and three quarters)."""
    found = _curve(numbers, "adaptive-margins", "adaptive")
    return all(0.25 <= v["at"] <= 0.75 for v in found.values()), each(found, _peak)


@CLAIMS.add("5.2")
def adaptive_targets_decline(numbers: Numbers) -> Found:
    """With adaptive targets nDCG@10 declines after its maximum (by 0.01 or more)."""
    return _decline(_curve(numbers, "adaptive-margins", "adaptive"))


def _decline(found: dict[str, Any]) -> Found:
    holds = all(v["last"] <= v["highest"] - 0.01 for v in found.values())
    return holds, each(found, lambda v: f"highest {v['highest']:.3f}, {v['last']:.3f} at the end")


@CLAIMS.add("5.2")
def in_batch_negatives_lower_adaptive_targets(numbers: Numbers) -> Found:
    """With adaptive targets and in-batch negatives the highest nDCG@10 is lower than without."""
    found = _adaptive(numbers)
    return all(with_["highest"] < without["highest"] for without, with_ in found.values()), each(found, _both)


@CLAIMS.add("5.2")
def in_batch_negatives_slow_adaptive_targets(numbers: Numbers) -> Found:
    """With adaptive targets and in-batch negatives the highest nDCG@10 is reached later than without."""
    found = _adaptive(numbers)
    return _sooner(found), each(found, _both)


@CLAIMS.add("5.2")
def in_batch_negatives_help_adaptive_targets_hits(numbers: Numbers) -> Found:
    """With adaptive targets, in-batch negatives raise Hits@100 for most backbones."""
    found = _adaptive(numbers, HITS)
    higher = {m: with_["highest"] > without["highest"] for m, (without, with_) in found.items()}
    return most(higher), each(found, _both)


@CLAIMS.add("5.2")
def in_batch_negatives_slow_hits_less(numbers: Numbers) -> Found:
    """With adaptive targets, in-batch negatives delay the highest Hits@100 less than the highest nDCG@10."""
    delays = {
        measure: {m: with_["at"] - without["at"] for m, (without, with_) in _adaptive(numbers, measure).items()}
        for measure in (HITS, MEASURE)
    }
    if min(delays[MEASURE].values()) <= 0:
        raise NotChecked("in-batch negatives do not delay the highest nDCG@10")
    shown = {m: ", ".join(f"{measure} {delays[measure][m]:+.0%}" for measure in delays) for m in delays[HITS]}
    return all(delays[HITS][m] < delays[MEASURE][m] for m in shown), each(shown, str)


@CLAIMS.add("5.2")
def smaller_batches_show_the_same_trends(numbers: Numbers) -> Found:
    """With the smaller batch, in-batch negatives change the highest nDCG@10 and Hits@100 of adaptive targets in no
    other directions.
    """
    _require_batch_sizes(numbers, "adaptive-margins")
    changes = {
        f"{m}, {measure}": [_adaptive_change(numbers, m, measure, which) for which in (0, -1)]
        for m in numbers["adaptive-margins"]
        for measure in (MEASURE, HITS)
    }
    holds = all(small * large >= 0 for small, large in changes.values())
    return holds, each(changes, lambda v: f"{v[0]:+.3f} with the smaller, {v[1]:+.3f} with the larger")


def _adaptive_change(numbers: Numbers, model: str, measure: str, which: int) -> float:
    without, with_ = _adaptive(numbers, measure, which)[model]
    return float(with_["highest"] - without["highest"])


def _static_and_adaptive(numbers: Numbers, name: str, measure: str) -> dict[str, tuple[float, float]]:
    """The highest validation of either, without or with in-batch negatives, of the backbones that have both."""
    static = {m: max(of[name] for of in kinds.values()) for m, kinds in numbers["static-margins"].items()}
    adaptive = {m: max(v["highest"] for v in both) for m, both in _adaptive(numbers, measure).items()}
    return _common(static, adaptive)


def _common(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    found = {m: (one[m], other[m]) for m in one if m in other}
    if not found:
        raise NotChecked("no backbone has both")
    return found


@CLAIMS.add("5.2")
def adaptive_targets_favour_retrieval(numbers: Numbers) -> Found:
    """Adaptive targets reach a higher Hits@100 than static ones, for most backbones."""
    found = _static_and_adaptive(numbers, "highest_hits", HITS)
    higher = {m: adaptive > static for m, (static, adaptive) in found.items()}
    return most(higher), each(found, lambda v: f"{v[1]:.3f}, static {v[0]:.3f}")


@CLAIMS.add("5.2")
def adaptive_targets_do_so_at_the_expense_of_ranking(numbers: Numbers) -> Found:
    """Adaptive targets reach a lower nDCG@10 than static ones, for most backbones."""
    found = _static_and_adaptive(numbers, "highest", MEASURE)
    lower = {m: adaptive < static for m, (static, adaptive) in found.items()}
    return most(lower), each(found, lambda v: f"{v[1]:.3f}, static {v[0]:.3f}")


def _adaptive_and_distributed(numbers: Numbers, measure: str = MEASURE) -> dict[str, tuple[Any, Any]]:
    adaptive = _curve(numbers, "adaptive-margins", "adaptive", measure)
    return _common(adaptive, _curve(numbers, "distributed-margins", "distributed", measure))


@CLAIMS.add("5.3")
def distributed_targets_converge_sooner(numbers: Numbers) -> Found:
    """Distributed targets reach their highest nDCG@10 sooner than adaptive ones."""
    found = _adaptive_and_distributed(numbers)
    holds = _sooner({m: (distributed, adaptive) for m, (adaptive, distributed) in found.items()})
    return holds, each(found, lambda v: f"after {v[1]['at']:.0%}, adaptive {v[0]['at']:.0%}")


@CLAIMS.add("5.3")
def smaller_batches_converge_sooner(numbers: Numbers) -> Found:
    """With distributed targets, smaller batches need fewer triplets to their highest nDCG@10 (an earlier validation,
    all being after as many triplets).
    """
    found = _batch_sizes(numbers)
    return _sooner(found), each(
        found, lambda v: f"{v[0]['triplets']:,} with the smaller, {v[1]['triplets']:,} with the larger"
    )


@CLAIMS.add("5.3")
def distributed_is_the_best_in_batch_target(numbers: Numbers) -> Found:
    """Of the targets with in-batch information, distributed ones have the highest nDCG@10 on dev."""
    static = {m: kinds[WITH]["highest"] for m, kinds in numbers["static-margins"].items()}
    adaptive = {m: v["highest"] for m, v in _curve(numbers, "adaptive-margins", "adaptive, in-batch").items()}
    distributed = {m: v["highest"] for m, v in _curve(numbers, "distributed-margins", "distributed").items()}
    found = _common(distributed, _common(static, adaptive))
    return all(ours > max(others) for ours, others in found.values()), each(
        found, lambda v: f"{v[0]:.3f}, static {v[1][0]:.3f}, adaptive {v[1][1]:.3f}"
    )


@CLAIMS.add("5.3")
def batch_size_hardly_matters(numbers: Numbers) -> Found:
    """The highest nDCG@10 of distributed targets hardly depends on the batch size (less than 0.02)."""
    found = _batch_sizes(numbers)
    return all(abs(small["highest"] - large["highest"]) < SIMILAR for small, large in found.values()), each(
        found, _small_and_large
    )


@CLAIMS.add("5.3")
def larger_batches_are_slightly_better(numbers: Numbers) -> Found:
    """With distributed targets, larger batches reach a slightly higher nDCG@10 (by less than 0.02), for most
    backbones.
    """
    found = _batch_sizes(numbers)
    higher = {m: 0 < large["highest"] - small["highest"] < SIMILAR for m, (small, large) in found.items()}
    return most(higher), each(found, _small_and_large)


def _small_and_large(v: tuple[Any, Any]) -> str:
    return f"{v[0]['highest']:.3f} with the smaller, {v[1]['highest']:.3f} with the larger"


def _batch_sizes(numbers: Numbers) -> dict[str, tuple[Any, Any]]:
    """The maxima of distributed targets with the smaller and the larger batch."""
    _require_batch_sizes(numbers, "distributed-margins")
    small, large = (_curve(numbers, "distributed-margins", "distributed", which=which) for which in (0, -1))
    return {model: (small[model], large[model]) for model in small}


def _require_batch_sizes(numbers: Numbers, experiment: str) -> None:
    if any(len(sizes) < 2 for rows in numbers[experiment].values() for sizes in rows.values()):
        raise NotChecked("needs two batch sizes")


@CLAIMS.add("5.3")
def distributed_targets_rank_better_than_adaptive_ones(numbers: Numbers) -> Found:
    """Distributed targets reach a higher nDCG@10 than adaptive ones."""
    found = _adaptive_and_distributed(numbers)
    return all(distributed["highest"] > adaptive["highest"] for adaptive, distributed in found.values()), each(
        found, _distributed_beside_adaptive
    )


@CLAIMS.add("5.3")
def distributed_targets_retrieve_as_adaptive_ones_do(numbers: Numbers) -> Found:
    """The highest Hits@100 of distributed targets is similar to that of adaptive ones (less than 0.02 apart)."""
    found = _adaptive_and_distributed(numbers, HITS)
    return all(abs(d["highest"] - a["highest"]) < SIMILAR for a, d in found.values()), each(
        found, _distributed_beside_adaptive
    )


def _distributed_beside_adaptive(v: tuple[Any, Any]) -> str:
    return f"{v[1]['highest']:.3f}, adaptive {v[0]['highest']:.3f}"


@CLAIMS.add("5.4")
def distributed_targets_decline(numbers: Numbers) -> Found:
    """With distributed targets, too, nDCG@10 declines after its maximum (by 0.01 or more)."""
    return _decline(_curve(numbers, "distributed-margins", "distributed"))


def _evolution(numbers: Numbers) -> Mapping[str, Any]:
    """How the targets moved, of runs that are long enough to have a beginning and an end."""
    found: Mapping[str, Any] = numbers["target-evolution"]
    for model, of_model in found.items():
        if of_model["batches"] < FEWEST_BATCHES:
            raise NotChecked(f"{model}: {of_model['batches']} batches have no beginning and end")
    return found


@CLAIMS.add("5.3")
def targets_settle_at_one_half(numbers: Numbers) -> Found:
    """The mean target settles near 0.5: positives and negatives are orthogonal on average (similarity within 0.1 of
    0).
    """
    means = {m: v["last_mean"] for m, v in _evolution(numbers).items()}
    return all(abs(mean) < 0.1 for mean in means.values()), each(means, lambda mean: f"{(1 + mean) / 2:.2f}")


@CLAIMS.add("5.3")
def targets_settle_rapidly(numbers: Numbers) -> Found:
    """The mean target is near 0.5 within the first 500 batches (similarity within 0.1 of 0)."""
    means = {m: v["early_mean"] for m, v in _evolution(numbers).items()}
    if None in means.values():
        raise NotChecked("a run is no longer than that")
    return all(abs(mean) < 0.1 for mean in means.values()), each(means, lambda mean: f"{(1 + mean) / 2:.2f}")


@CLAIMS.add("5.3")
def outliers_are_positive(numbers: Numbers) -> Found:
    """The largest target is further from the mean than the smallest."""
    found = _evolution(numbers)
    holds = all(v["last_high"] - v["last_mean"] > v["last_mean"] - v["last_low"] for v in found.values())
    return holds, each(
        found, lambda v: f"similarities {v['last_low']:.2f}, mean {v['last_mean']:.2f}, {v['last_high']:.2f}"
    )


@CLAIMS.add("5.3")
def backbones_end_alike(numbers: Numbers) -> Found:
    """The mean similarities differ between backbones at first, and are alike after training (less than half as far
    apart).
    """
    found = several(_evolution(numbers))

    def spread(name: str) -> float:
        values = [v[name] for v in found.values()]
        return float(max(values) - min(values))

    return spread("last_mean") < spread("first_mean") / 2, each(
        found, lambda v: f"mean {v['first_mean']:.2f} at first, {v['last_mean']:.2f} at the end"
    )


def _instance(numbers: Numbers, name: str) -> Found:
    """Whether a number of the example's negatives follows the order of their targets."""
    found = {m: [v[role] for role in ROLES] for m, v in numbers["instance"].items()}
    holds = all(higher[name] >= lower[name] for v in found.values() for higher, lower in pairwise(v))
    return holds, each(found, lambda v: "; ".join(f"target {n['target']:.2f}, {name} {n[name]:.3f}" for n in v))


@CLAIMS.add("5.3")
def targets_order_negatives_as_relevance_does(numbers: Numbers) -> Found:
    """In the example instance the relevance of the negatives follows the order of their targets."""
    return _instance(numbers, "relevance")


@CLAIMS.add("5.3")
def unrelated_negatives_add_less_to_the_loss(numbers: Numbers) -> Found:
    """In the example instance, the less related a negative is to the positive, the less it adds to the loss."""
    return _instance(numbers, "loss")
