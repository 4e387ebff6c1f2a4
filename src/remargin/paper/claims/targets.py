"""What the paper claims about its figure 6 and table 2, the targets themselves: section 5.3."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise

from remargin.paper.claims.claim import Answer, Claims, NotChecked, each, several
from remargin.paper.findings import Findings
from remargin.paper.instance import EXPERIMENT as INSTANCE
from remargin.paper.target_evolution import EXPERIMENT as TARGET_EVOLUTION
from remargin.paper.target_evolution import TargetEvolution
from remargin.training.inspection import Passage

CLAIMS = Claims()
FEWEST_BATCHES = 64  # two of the windows over which target-evolution takes means


def _evolution(findings: Findings) -> Mapping[str, TargetEvolution]:
    """How the targets moved, of runs that are long enough to have a beginning and an end."""
    by_model = findings[TARGET_EVOLUTION]
    for model, moved in by_model.items():
        if moved.batches < FEWEST_BATCHES:
            raise NotChecked(f"{model}: {moved.batches} batches have no beginning and end")
    return by_model


def _near_one_half(means: Mapping[str, float]) -> Answer:
    """Whether mean similarities are near 0, which is a target of 0.5."""
    return all(abs(mean) < 0.1 for mean in means.values()), each(means, lambda mean: f"{(1 + mean) / 2:.2f}")


@CLAIMS.add("5.3")
def targets_settle_at_one_half(findings: Findings) -> Answer:
    """The mean target settles near 0.5: positives and negatives are orthogonal on average (similarity within 0.1 of
    0).
    """
    return _near_one_half({model: moved.last_mean for model, moved in _evolution(findings).items()})


@CLAIMS.add("5.3")
def targets_settle_rapidly(findings: Findings) -> Answer:
    """The mean target is near 0.5 within the first 500 batches (similarity within 0.1 of 0)."""
    by_model = _evolution(findings)
    means = {model: moved.early_mean for model, moved in by_model.items() if moved.early_mean is not None}
    if len(means) < len(by_model):
        raise NotChecked("a run is no longer than that")
    return _near_one_half(means)


@CLAIMS.add("5.3")
def outliers_are_positive(findings: Findings) -> Answer:
    """The largest target is further from the mean than the smallest."""
    by_model = _evolution(findings)
    holds = all(moved.last_high - moved.last_mean > moved.last_mean - moved.last_low for moved in by_model.values())
    return holds, each(
        by_model, lambda moved: f"similarities {moved.last_low:.2f}, mean {moved.last_mean:.2f}, {moved.last_high:.2f}"
    )


@CLAIMS.add("5.3")
def backbones_end_alike(findings: Findings) -> Answer:
    """The mean similarities differ between backbones at first, and are alike after training (less than half as far
    apart).
    """
    by_model = several(_evolution(findings))
    first, last = ([moved.first_mean for moved in by_model.values()], [moved.last_mean for moved in by_model.values()])
    return max(last) - min(last) < (max(first) - min(first)) / 2, each(
        by_model, lambda moved: f"mean {moved.first_mean:.2f} at first, {moved.last_mean:.2f} at the end"
    )


def _follows_targets(findings: Findings, name: str, number: Callable[[Passage], float | None]) -> Answer:
    """Whether a number of the example's negatives, which are in the order of their targets, has the same order."""
    negatives = {
        model: [(_measured(passage.target), _measured(number(passage))) for passage in instance.negatives]
        for model, instance in findings[INSTANCE].items()
    }
    holds = all(higher >= lower for pairs in negatives.values() for (_, higher), (_, lower) in pairwise(pairs))
    return holds, each(
        negatives, lambda pairs: "; ".join(f"target {target:.2f}, {name} {value:.3f}" for target, value in pairs)
    )


def _measured(number: float | None) -> float:
    assert number is not None, "a negative has all numbers; queries and positives lack some"
    return number


@CLAIMS.add("5.3")
def targets_order_negatives_as_relevance_does(findings: Findings) -> Answer:
    """In the example instance the relevance of the negatives follows the order of their targets."""
    return _follows_targets(findings, "relevance", lambda passage: passage.relevance)


@CLAIMS.add("5.3")
def unrelated_negatives_add_less_to_the_loss(findings: Findings) -> Answer:
    """In the example instance, the less related a negative is to the positive, the less it adds to the loss."""
    return _follows_targets(findings, "loss", lambda passage: passage.loss)
