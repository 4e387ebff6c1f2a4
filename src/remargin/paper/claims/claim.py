"""What a claim is: a predicate over the findings of experiments, with a name, a text and a place in the paper."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from remargin.paper.findings import Findings, NotFound

T = TypeVar("T")
Answer = tuple[bool, str]  # whether the claim holds, and the evidence in words
Check = Callable[[Findings], Answer]

HOLDS, FAILS, OPEN = "holds", "does not hold", "not checked"


class NotChecked(Exception):
    """Why a claim cannot be checked with these findings."""


@dataclass(frozen=True)
class Claim:
    """A claim: its name, what is claimed, where in the paper, and the predicate."""

    name: str
    text: str
    where: str
    check: Check

    def verdict(self, findings: Findings) -> Verdict:
        """What these findings say about it."""
        try:
            holds, evidence = self.check(findings)
        except (NotChecked, NotFound) as reason:
            return Verdict(self, OPEN, str(reason))
        return Verdict(self, HOLDS if holds else FAILS, evidence)


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
    ...     return True, "seen"
    >>> claims[0].name, claims[0].verdict(Findings()).verdict
    ('water is wet', 'holds')
    """

    def add(self, where: str) -> Callable[[Check], Check]:
        """Make a claim of a predicate: its name is the claim's, its docstring the text."""

        def take(check: Check) -> Check:
            name = check.__name__.replace("_", " ")
            self.append(Claim(name, " ".join((check.__doc__ or "").split()), where, check))
            return check

        return take


def each(values: Mapping[str, T], text: Callable[[T], str]) -> str:
    """The evidence of every backbone, for people.

    >>> each({"tiny": 0.651, "small": 0.66}, "{:.2f}".format)
    'tiny: 0.65; small: 0.66'
    """
    return "; ".join(f"{name}: {text(value)}" for name, value in values.items())


def listed(values: Mapping[str, float]) -> str:
    """The scores of several rows, for people.

    >>> listed({"static": 0.65, "adaptive": 0.54})
    'static 0.650, adaptive 0.540'
    """
    return ", ".join(f"{name} {value:.3f}" for name, value in values.items())


def several(by_model: Mapping[str, T]) -> Mapping[str, T]:
    """The same findings, if they are of several backbones, which some claims are about."""
    if len(by_model) < 2:
        raise NotChecked("needs two backbones")
    return by_model


def most(by_model: Mapping[str, bool]) -> bool:
    """Whether something is true of most backbones."""
    return sum(by_model.values()) > len(by_model) / 2
