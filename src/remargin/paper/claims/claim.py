"""What a claim is: a predicate over the numbers of experiments, with a name, a text and a place in the paper."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Numbers = Mapping[str, Any]  # of each experiment by its name; see `Outcome.numbers`
Found = tuple[bool, str]  # whether it holds, and the numbers that say so
Check = Callable[[Numbers], Found]

HOLDS, FAILS, OPEN = "holds", "does not hold", "not checked"


class NotChecked(Exception):
    """Why a claim cannot be checked with these numbers."""


@dataclass(frozen=True)
class Claim:
    """A claim: its name, what is claimed, where in the paper, and the predicate."""

    name: str
    text: str
    where: str
    check: Check

    def verdict(self, numbers: Numbers) -> Verdict:
        """What these numbers say about it."""
        try:
            holds, evidence = self.check(numbers)
        except NotChecked as reason:
            return Verdict(self, OPEN, str(reason))
        except KeyError as missing:  # an experiment that was not made, or by a version that did not count this
            return Verdict(self, OPEN, f"there is no {missing.args[0]}")
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
    ... def water_is_wet(numbers):
    ...     '''Water is wet.'''
    ...     return True, "seen"
    >>> claims[0].name, claims[0].verdict({}).verdict
    ('water is wet', 'holds')
    """

    def add(self, where: str) -> Callable[[Check], Check]:
        """Make a claim of a predicate: its name is the claim's, its docstring the text."""

        def take(check: Check) -> Check:
            name = check.__name__.replace("_", " ")
            self.append(Claim(name, " ".join((check.__doc__ or "").split()), where, check))
            return check

        return take


def each(of_model: Mapping[str, Any], show: Callable[[Any], str]) -> str:
    """The evidence of every backbone, for people."""
    return "; ".join(f"{model}: {show(found)}" for model, found in of_model.items())


def several(of_model: Mapping[str, Any]) -> Mapping[str, Any]:
    """Numbers of several backbones, which some claims are about."""
    if len(of_model) < 2:
        raise NotChecked("needs two backbones")
    return of_model


def most(of_model: Mapping[str, bool]) -> bool:
    """Whether it is so for most backbones."""
    return sum(of_model.values()) > len(of_model) / 2
