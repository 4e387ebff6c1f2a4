"""What a claim is: a predicate over the numbers of experiments, with a name, a text and a place in the paper."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Numbers = Mapping[str, Any]  # of each experiment by its name; see `Outcome.numbers`
Found = tuple[bool, str]  # whether it holds, and the numbers that say so

HOLDS, FAILS, OPEN = "holds", "does not hold", "not checked"


class NotChecked(Exception):
    """Why a claim cannot be checked with these numbers."""


@dataclass(frozen=True)
class Claim:
    """A claim: its name, what is claimed, where in the paper, and the predicate."""

    name: str
    text: str
    where: str
    check: Callable[[Numbers], Found]

    def verdict(self, numbers: Numbers) -> Verdict:
        """What these numbers say about it."""
        try:
            holds, evidence = self.check(numbers)
        except NotChecked as reason:
            return Verdict(self, OPEN, str(reason))
        except KeyError as missing:
            return Verdict(self, OPEN, f"there is no {missing.args[0]}")
        return Verdict(self, HOLDS if holds else FAILS, evidence)


@dataclass(frozen=True)
class Verdict:
    """A claim, whether it holds here, and why."""

    claim: Claim
    verdict: str
    evidence: str


CLAIMS: list[Claim] = []


def claim(where: str) -> Callable[[Callable[[Numbers], Found]], Callable[[Numbers], Found]]:
    """Make a claim of a predicate: its name is the claim's, its docstring the text."""

    def add(check: Callable[[Numbers], Found]) -> Callable[[Numbers], Found]:
        name = check.__name__.replace("_", " ")
        CLAIMS.append(Claim(name, " ".join((check.__doc__ or "").split()), where, check))
        return check

    return add


def each(of_model: Mapping[str, Any], show: Callable[[Any], str]) -> str:
    """The evidence of every backbone, for people."""
    return "; ".join(f"{model}: {show(found)}" for model, found in of_model.items())


def several(of_model: Mapping[str, Any]) -> Mapping[str, Any]:
    """Numbers of several backbones, which some claims are about."""
    if len(of_model) < 2:
        raise NotChecked("needs two backbones")
    return of_model
