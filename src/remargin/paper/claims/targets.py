"""What the paper claims about its figure 6 and table 2, the targets themselves: section 5.3."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations, pairwise

from remargin.paper.claims.claim import Claims, NotTold, several
from remargin.paper.deciding import Answer, Gap, every, gap_of
from remargin.paper.findings import Findings
from remargin.paper.instance import EXPERIMENT as INSTANCE
from remargin.paper.target_evolution import EXPERIMENT as TARGET_EVOLUTION
from remargin.paper.target_evolution import WINDOW, TargetEvolution
from remargin.study.targets import BatchTargets
from remargin.training.inspection import Passage

CLAIMS = Claims()
FEWEST_BATCHES = 2 * WINDOW
NEAR = 0.1  # of a similarity of 0


def _evolution(findings: Findings) -> Mapping[str, TargetEvolution]:
    """How the targets moved, of runs that are long enough to have a beginning and an end."""
    by_model = findings[TARGET_EVOLUTION]
    for model, moved in by_model.items():
        if moved.batches < FEWEST_BATCHES:
            raise NotTold(f"{model}: {moved.batches} batches have no beginning and end")
    return by_model


def _gap(values: Sequence[float], others: Sequence[float] | None = None) -> Gap:
    """The mean over batches, or its difference to that of others; batches take the place of queries."""
    one, other = ({str(i): value for i, value in enumerate(v)} for v in (values, others or [0.0] * len(values)))
    return gap_of(([one], [other]), fewest=WINDOW)


def _means(batches: Sequence[BatchTargets]) -> list[float]:
    return [batch.mean for batch in batches]


def _near_one_half(batches: Mapping[str, Sequence[BatchTargets]]) -> Answer:
    """Whether mean similarities are near 0, which is a target of 0.5."""
    return every({model: _gap(_means(some)).within(NEAR) for model, some in batches.items()})


@CLAIMS.add("5.3")
def targets_settle_at_one_half(findings: Findings) -> Answer:
    """The mean target settles near 0.5: positives and negatives are orthogonal on average (similarity within 0.1 of
    0).
    """
    return _near_one_half({model: moved.last for model, moved in _evolution(findings).items()})


@CLAIMS.add("5.3")
def targets_settle_rapidly(findings: Findings) -> Answer:
    """The mean target is near 0.5 within the first 500 batches (similarity within 0.1 of 0)."""
    by_model = _evolution(findings)
    if not all(moved.early for moved in by_model.values()):
        raise NotTold("a run is no longer than that")
    return _near_one_half({model: moved.early for model, moved in by_model.items()})


@CLAIMS.add("5.3")
def outliers_are_positive(findings: Findings) -> Answer:
    """The largest target is further from the mean than the smallest."""

    def further(moved: TargetEvolution) -> Answer:
        words = f"similarities {moved.last_low:.2f}, mean {moved.last_mean:.2f}, {moved.last_high:.2f}"
        return _gap([batch.high + batch.low - 2 * batch.mean for batch in moved.last]).above().after(words)

    return every({model: further(moved) for model, moved in _evolution(findings).items()})


@CLAIMS.add("5.3")
def backbones_end_alike(findings: Findings) -> Answer:
    """The mean similarities differ between backbones at first, and are alike after training (less than half as far
    apart).
    """
    by_model = several(_evolution(findings))
    first = [moved.first_mean for moved in by_model.values()]
    half = (max(first) - min(first)) / 2

    def alike(one: TargetEvolution, other: TargetEvolution) -> Answer:
        words = f"{one.first_mean:.2f} and {other.first_mean:.2f} at first"
        return _gap(_means(one.last), _means(other.last)).within(round(half, 3)).after(words)

    return every({f"{a} and {b}": alike(by_model[a], by_model[b]) for a, b in combinations(by_model, 2)})


def _follows_targets(findings: Findings, name: str, number: Callable[[Passage], float | None]) -> Answer:
    """Whether a number of the example's negatives, which are in the order of their targets, has the same order.

    The claim is about this one example, so that there is no sample to draw again.
    """
    answers = {}
    for model, instance in findings[INSTANCE].items():
        pairs = [(_measured(passage.target), _measured(number(passage))) for passage in instance.negatives]
        words = "; ".join(f"target {target:.2f}, {name} {value:.3f}" for target, value in pairs)
        answers[model] = Answer(all(one >= other for (_, one), (_, other) in pairwise(pairs)), words)
    return every(answers)


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
