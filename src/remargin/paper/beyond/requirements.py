"""What the recipe has to show, and whether it does: each requirement with what was measured and a plain verdict."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import fsum

from remargin.evaluation.significance import Interval
from remargin.paper.beyond.rows import UNTRAINED, CollectionRows, RowName
from remargin.paper.beyond.statistics import (
    away_differences,
    home_differences,
    intervals,
    macro_interval,
)
from remargin.paper.beyond.systems import OURS, TUNED
from remargin.paper.deciding import ONE_SIDED, VERDICTS, interval_text, verdict

COLLECTIONS, SEEDS = 6, 3  # of the whole study; with less, nothing can be told for certain
HOME_BOUND, COLLECTION_BOUND, AWAY_BOUND, COMPUTE_SHARE = -0.01, -0.02, -0.02, 0.25
RECIPE, RIVAL, BLENDED_RIVAL = RowName(OURS.name, True), RowName(TUNED.name), RowName(TUNED.name, True)


@dataclass(frozen=True)
class Requirement:
    """Something that the recipe has to show.

    Attributes:
        name: what is compared.
        wanted: the bound, in words.
        measured: the difference or ratio, in words; empty if it could not be computed.
        so_far: whether the results that are there meet it; None if they say nothing.
        missing: what is missing before it can be told; empty if nothing is.
    """

    name: str
    wanted: str
    measured: str = ""
    so_far: bool | None = None
    missing: str = ""

    @property
    def verdict(self) -> str:
        """Whether it holds; see `deciding.verdict`.

        >>> Requirement("home", "above -0.01", so_far=True).verdict
        'holds'
        >>> Requirement("home", "above -0.01", so_far=True, missing="2 of 6 collections").verdict
        'cannot be told'
        """
        return verdict(None if self.missing else self.so_far)


def check_requirements(collections: Sequence[CollectionRows]) -> list[Requirement]:
    """Every requirement, from the rows of one backbone on one collection or more."""
    short = _missing(collections)
    return [
        _checked(collections, (RECIPE, RIVAL), _home(RIVAL), short),
        _checked(collections, (RECIPE, BLENDED_RIVAL), _home(BLENDED_RIVAL), short),
        _checked(collections, (RECIPE, RIVAL), _each_home(RIVAL), short),
        _checked(collections, (RECIPE, BLENDED_RIVAL), _each_home(BLENDED_RIVAL), short),
        _checked(collections, (RECIPE, UNTRAINED), _away(UNTRAINED, AWAY_BOUND), short),
        _checked(collections, (RECIPE, RIVAL), _away(RIVAL, 0.0), short),
        _checked(collections, (RECIPE, RIVAL), _compute, short),
    ]


Check = Callable[[Sequence[CollectionRows]], Requirement]


def _checked(collections: Sequence[CollectionRows], rows: Sequence[RowName], check: Check, short: str) -> Requirement:
    """A requirement, or what it lacks."""
    having = [collection for collection in collections if all(row in collection.rows for row in rows)]
    lacking = [collection.name for collection in collections if collection not in having]
    missing = "; ".join(filter(None, [short, f"runs on {', '.join(lacking)}" if lacking else ""]))
    found = check(having)
    return Requirement(found.name, found.wanted, found.measured, found.so_far, missing)


def _missing(collections: Sequence[CollectionRows]) -> str:
    """How many collections and seeds there are, if too few."""
    seeds = min((collection.seeds for collection in collections), default=0)
    counts = {"collections": (len(collections), COLLECTIONS), "seeds": (seeds, SEEDS)}
    return "; ".join(f"{have} of {need} {what}" for what, (have, need) in counts.items() if have < need)


def _home(rival: RowName) -> Check:
    name, wanted = f"home, to {rival.text}", f"one-sided 95% bound above {HOME_BOUND:g}"

    def check(collections: Sequence[CollectionRows]) -> Requirement:
        if not collections:
            return Requirement(name, wanted)
        interval = macro_interval(list(home_differences(collections, RECIPE, rival).values()), ONE_SIDED)
        return Requirement(name, wanted, bound_text(interval), interval.low > HOME_BOUND)

    return check


def _each_home(rival: RowName) -> Check:
    name = f"home on each collection, to {rival.text}"
    wanted = f"no 95% interval wholly below {COLLECTION_BOUND:g}"

    def check(collections: Sequence[CollectionRows]) -> Requirement:
        if not collections:
            return Requirement(name, wanted)
        each = intervals(home_differences(collections, RECIPE, rival))
        below = [name for name, interval in each.items() if interval.high < COLLECTION_BOUND]
        worst = min(each, key=lambda name: each[name].high)
        measured = f"below: {', '.join(below)}" if below else f"least on {worst}: {interval_text(each[worst])}"
        return Requirement(name, wanted, measured, not below)

    return check


def _away(reference: RowName, bound: float) -> Check:
    name, wanted = f"away, to {reference.text}", f"one-sided 95% bound above {bound:g}"

    def check(collections: Sequence[CollectionRows]) -> Requirement:
        groups = away_differences(collections, RECIPE, reference)
        if not groups:
            return Requirement(name, wanted)
        interval = macro_interval(list(groups.values()), ONE_SIDED)
        return Requirement(name, wanted, bound_text(interval), interval.low > bound)

    return check


def _compute(collections: Sequence[CollectionRows]) -> Requirement:
    name, wanted = f"total compute, to {RIVAL.text}", f"at most {COMPUTE_SHARE:g} of it"
    spent = {row: fsum(collection.rows[row].seconds for collection in collections) for row in (RECIPE, RIVAL)}
    if not spent[RIVAL]:
        return Requirement(name, wanted)
    share = spent[RECIPE] / spent[RIVAL]
    measured = f"{share:.2f} ({spent[RECIPE]:,.0f} s of {spent[RIVAL]:,.0f} s)"
    return Requirement(name, wanted, measured, share <= COMPUTE_SHARE)


def bound_text(interval: Interval) -> str:
    """A difference and its one-sided bound, for people.

    >>> bound_text(Interval(0.01, -0.002, 0.022))
    '+0.010, bound -0.002'
    """
    return f"{interval.mean:+.3f}, bound {interval.low:+.3f}"


def counts(requirements: Sequence[Requirement]) -> Mapping[str, int]:
    """How many requirements have each verdict."""
    return {word: sum(one.verdict == word for one in requirements) for word in VERDICTS}
