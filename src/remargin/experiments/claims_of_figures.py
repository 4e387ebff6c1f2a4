"""What the paper claims about its figures 3 to 6 and the instance of table 2: sections 5.1 to 5.3."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from remargin.experiments.claim import Found, NotChecked, Numbers, claim, each, several
from remargin.experiments.results import HITS, MEASURE, WITH, WITHOUT

ROLES = tuple(f"negative, {which} target" for which in ("highest", "middle", "lowest"))
FEWEST_BATCHES = 64  # two of the windows over which target-evolution takes means


@claim("5.1")
def tuning_the_margin_pays(numbers: Numbers) -> Found:
    """Tuning the static margin beats 1.0 in every configuration, almost always (5 of 6) by more than 0.1 nDCG@10."""
    gains = {f"{m}, {k}": v["gain"] for m, kinds in numbers["static-margins"].items() for k, v in kinds.items()}
    if None in gains.values():
        raise NotChecked("1.0 is not among the margins")
    most = sum(gain > 0.1 for gain in gains.values()) >= len(gains) * 5 / 6
    return all(gain > 0 for gain in gains.values()) and most, each(gains, lambda gain: f"+{gain:.3f}")


@claim("5.1")
def the_margin_depends_on_the_model(numbers: Numbers) -> Found:
    """The best static margin differs between backbones."""
    found = several(numbers["static-margins"])
    best = {kind: {m: kinds[kind]["best"][MEASURE] for m, kinds in found.items()} for kind in (WITHOUT, WITH)}
    shown = {kind: each(of_kind, _margins) for kind, of_kind in best.items()}
    return all(_apart(*of_kind.values()) for of_kind in best.values()), each(shown, str)


@claim("5.1")
def the_margin_depends_on_the_measure(numbers: Numbers) -> Found:
    """The best static margin for nDCG@10 is another than for Hits@100."""
    best = {f"{m}, {k}": v["best"] for m, kinds in numbers["static-margins"].items() for k, v in kinds.items()}
    differ = all(_apart(found[MEASURE], found[HITS]) for found in best.values())
    return differ, each(best, lambda found: f"{_margins(found[MEASURE])} and {_margins(found[HITS])}")


def _apart(*best: list[float]) -> bool:
    """Whether no value is the best of two; each may have several that are level."""
    return len(set().union(*best)) == sum(map(len, best))


def _margins(best: list[float]) -> str:
    return " or ".join(f"{value:g}" for value in best)


@claim("5.1")
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


def _curve(numbers: Numbers, experiment: str, row: str, which: int = -1) -> dict[str, Any]:
    """The maxima of a curve for each model: of the largest batch, or of the smallest."""
    found = {}
    for model, rows in numbers[experiment].items():
        sizes = sorted(rows[row], key=int)
        found[model] = rows[row][sizes[which]]
    return found


@claim("5.2")
def adaptive_targets_peak_half_way(numbers: Numbers) -> Found:
    """With adaptive targets nDCG@10 is highest after about half of training (between a quarter and three quarters)
    and declines from there (by 0.01 or more).
    """
    found = {m: v[MEASURE] for m, v in _curve(numbers, "adaptive-margins", "adaptive").items()}
    holds = all(0.25 <= v["at"] <= 0.75 and v["last"] <= v["highest"] - 0.01 for v in found.values())
    return holds, each(found, lambda v: f"highest {v['highest']:.3f} after {v['at']:.0%}, {v['last']:.3f} at the end")


@claim("5.2")
def in_batch_negatives_slow_adaptive_targets(numbers: Numbers) -> Found:
    """With adaptive targets and in-batch negatives nDCG@10 is lower and reached later than without."""
    without, with_ = (
        {m: v[MEASURE] for m, v in _curve(numbers, "adaptive-margins", row).items()}
        for row in ("adaptive", "adaptive, in-batch")
    )
    holds = all(with_[m]["highest"] < without[m]["highest"] and with_[m]["at"] > without[m]["at"] for m in without)
    shown = {m: (without[m], with_[m]) for m in without}
    return holds, each(
        shown, lambda v: f"{v[0]['highest']:.3f} after {v[0]['at']:.0%}, {v[1]['highest']:.3f} after {v[1]['at']:.0%}"
    )


@claim("5.2")
def in_batch_negatives_help_adaptive_targets_hits(numbers: Numbers) -> Found:
    """With adaptive targets, in-batch negatives raise Hits@100 for most backbones."""
    without, with_ = (
        {m: v[HITS]["highest"] for m, v in _curve(numbers, "adaptive-margins", row).items()}
        for row in ("adaptive", "adaptive, in-batch")
    )
    holds = sum(with_[m] > without[m] for m in without) > len(without) / 2
    return holds, each({m: (without[m], with_[m]) for m in without}, lambda v: f"{v[0]:.3f} without, {v[1]:.3f} with")


@claim("5.3")
def distributed_targets_converge_sooner(numbers: Numbers) -> Found:
    """Distributed targets reach their highest nDCG@10 sooner than adaptive ones."""
    adaptive = {m: v[MEASURE]["at"] for m, v in _curve(numbers, "adaptive-margins", "adaptive").items()}
    distributed = {m: v[MEASURE]["at"] for m, v in _curve(numbers, "distributed-margins", "distributed").items()}
    shown = {m: (distributed[m], adaptive[m]) for m in distributed if m in adaptive}
    if not shown:
        raise NotChecked("no backbone has both")
    return all(d < a for d, a in shown.values()), each(shown, lambda v: f"after {v[0]:.0%}, adaptive {v[1]:.0%}")


@claim("5.3")
def smaller_batches_converge_sooner(numbers: Numbers) -> Found:
    """With distributed targets, smaller batches need fewer triplets to their highest nDCG@10 (an earlier validation,
    all being after as many triplets).
    """
    shown = {m: (small[MEASURE], large[MEASURE]) for m, (small, large) in _batch_sizes(numbers).items()}
    holds = all(small["validation"] < large["validation"] for small, large in shown.values())
    return holds, each(shown, lambda v: f"{v[0]['triplets']:,} with the smaller, {v[1]['triplets']:,} with the larger")


@claim("5.3")
def batch_size_hardly_matters(numbers: Numbers) -> Found:
    """The highest nDCG@10 of distributed targets hardly depends on the batch size (less than 0.02)."""
    shown = {m: [of[MEASURE]["highest"] for of in sizes] for m, sizes in _batch_sizes(numbers).items()}
    return all(max(v) - min(v) < 0.02 for v in shown.values()), each(shown, lambda v: f"{v[0]:.3f} and {v[1]:.3f}")


def _batch_sizes(numbers: Numbers) -> dict[str, tuple[Any, Any]]:
    """The maxima of distributed targets with the smaller and the larger batch."""
    if any(len(rows["distributed"]) < 2 for rows in numbers["distributed-margins"].values()):
        raise NotChecked("needs two batch sizes")
    small, large = (_curve(numbers, "distributed-margins", "distributed", which) for which in (0, -1))
    return {model: (small[model], large[model]) for model in small}


def _evolution(numbers: Numbers) -> Mapping[str, Any]:
    """How the targets moved, of runs that are long enough to have a beginning and an end."""
    found: Mapping[str, Any] = numbers["target-evolution"]
    for model, of_model in found.items():
        if of_model["batches"] < FEWEST_BATCHES:
            raise NotChecked(f"{model}: {of_model['batches']} batches have no beginning and end")
    return found


@claim("5.3")
def targets_settle_at_one_half(numbers: Numbers) -> Found:
    """The mean target settles near 0.5: positives and negatives are orthogonal on average (similarity within 0.1 of
    0).
    """
    means = {m: v["last_mean"] for m, v in _evolution(numbers).items()}
    return all(abs(mean) < 0.1 for mean in means.values()), each(means, lambda mean: f"{(1 + mean) / 2:.2f}")


@claim("5.3")
def outliers_are_positive(numbers: Numbers) -> Found:
    """The largest target is further from the mean than the smallest."""
    found = _evolution(numbers)
    holds = all(v["last_high"] - v["last_mean"] > v["last_mean"] - v["last_low"] for v in found.values())
    return holds, each(
        found, lambda v: f"similarities {v['last_low']:.2f}, mean {v['last_mean']:.2f}, {v['last_high']:.2f}"
    )


@claim("5.3")
def backbones_end_alike(numbers: Numbers) -> Found:
    """The similarities differ between backbones at first, and are alike after training."""
    found = several(_evolution(numbers))

    def spread(name: str) -> float:
        values = [v[name] for v in found.values()]
        return float(max(values) - min(values))

    return spread("last_mean") < spread("first_mean") / 2, each(
        found, lambda v: f"mean {v['first_mean']:.2f} at first, {v['last_mean']:.2f} at the end"
    )


@claim("5.3")
def targets_order_negatives_as_relevance_does(numbers: Numbers) -> Found:
    """In the example instance the relevance of the negatives follows the order of their targets, and the less related
    one is to the positive, the less it adds to the loss.
    """
    found = {m: [v[role] for role in ROLES] for m, v in numbers["instance"].items()}
    holds = all(
        negatives[i][name] >= negatives[i + 1][name]
        for negatives in found.values()
        for i in range(2)
        for name in ("relevance", "loss")
    )
    return holds, each(
        found,
        lambda v: "; ".join(
            f"target {n['target']:.2f}, relevance {n['relevance']:.2f}, loss {n['loss']:.3f}" for n in v
        ),
    )
