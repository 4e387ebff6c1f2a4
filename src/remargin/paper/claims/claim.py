"""What a claim is: a check of the findings of experiments, with a name, a text and a place in the paper."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from remargin.paper.deciding import OPEN, Answer, too_few
from remargin.paper.findings import Findings, NotFound

K = TypeVar("K")
T = TypeVar("T")
Check = Callable[[Findings], Answer]

FEWEST_TRIPLETS = 50_000  # of a training run; with fewer, a plan's grids lose points, see `Plan.scaled`
FEWEST_SEEDS = 3  # of table 3, whose rows are means over seeds


class NotTold(Exception):
    """Why a claim cannot be told with these findings."""


@dataclass(frozen=True)
class Claim:
    """A claim: its name, what is claimed, where in the paper, and the check.

    `trains` says that the outcome depends on how long training runs are.
    """

    name: str
    text: str
    where: str
    check: Check
    trains: bool = True

    def verdict(self, findings: Findings) -> Verdict:
        """What these findings say about it."""
        try:
            answer = self.check(findings)
        except (NotTold, NotFound) as reason:
            return Verdict(self, OPEN, str(reason))
        if self.trains and findings.triplets is not None:
            lacking = too_few({"triplets of a training run": (findings.triplets, FEWEST_TRIPLETS)})
            answer = answer.but(lacking) if lacking else answer
        return Verdict(self, answer.verdict, answer.evidence)


@dataclass(frozen=True)
class Verdict:
    """A claim, whether it holds here, and why."""

    claim: Claim
    verdict: str
    evidence: str


class Claims(list[Claim]):
    """A list of claims that takes functions as they are written.

    >>> claims = Claims()
    >>> @claims.add("5.1")
    ... def water_is_wet(findings):
    ...     '''Water is wet.'''
    ...     return Answer(True, "seen")
    >>> claims[0].name, claims[0].verdict(Findings()).verdict
    ('water is wet', 'holds')
    """

    def add(self, where: str, trains: bool = True) -> Callable[[Check], Check]:
        """Make a claim of a check: its name is the claim's, its docstring the text."""

        def take(check: Check) -> Check:
            name = check.__name__.replace("_", " ")
            self.append(Claim(name, " ".join((check.__doc__ or "").split()), where, check, trains))
            return check

        return take


def fixed(answer: Answer, reason: str) -> Answer:
    """An answer that the set-up would give whatever came of training: it says nothing.

    >>> fixed(Answer(True, "ratio 6.1"), "the sweep alone takes 6 runs").told is None
    True
    """
    return answer.but(f"fixed by the set-up: {reason}")


def listed(values: Mapping[str, float]) -> str:
    """The scores of several rows, for people.

    >>> listed({"static": 0.65, "adaptive": 0.54})
    'static 0.650, adaptive 0.540'
    """
    return ", ".join(f"{name} {value:.3f}" for name, value in values.items())


def several(findings: Mapping[K, T], of: str = "backbones") -> Mapping[K, T]:
    """The same findings, if they are of several backbones, or whatever else a claim compares."""
    if len(findings) < 2:
        raise NotTold(f"needs two {of}")
    return findings
