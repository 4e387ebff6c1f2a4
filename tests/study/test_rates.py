"""The grid of learning rates grows where its edge wins on dev: for that row alone, and not without end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from remargin.errors import InputError
from remargin.paper.compared import at_edges
from remargin.paper.systems import ADAPTIVE, DISTRIBUTED
from remargin.study.plan import Plan
from remargin.study.results import Results
from remargin.study.specs import RunSpec
from remargin.study.systems import STATIC, declare, sweep_runs, system

from ..small_study import silent

PLAN = Plan(rates=(3e-5, 1e-5, 1e-4), rate_extensions=2, margins=(0.5, 1.0))


@dataclass
class OfDev:
    dev: float


@dataclass
class MadeUp:
    """As much of `Results` as choosing takes: runs whose validations follow from their spec, once they are trained."""

    dev: Callable[[RunSpec], float]
    plan: Plan = PLAN
    trained: set[RunSpec] = field(default_factory=set)

    def has(self, spec: RunSpec) -> bool:
        return spec in self.trained

    def run(self, spec: RunSpec) -> OfDev:
        assert spec in self.trained
        return OfDev(self.dev(spec))

    def tried(self, what: Any) -> list[float]:
        """Train what is declared for a system, wave after wave; the learning rates that were tried."""
        results: Any = self
        while True:
            choice = declare(results, "A", what)
            waiting = [trial.spec for trial in choice.trials if trial.settled and trial.spec not in self.trained]
            if not waiting:
                assert choice.settled
                return sorted({trial.spec.rate for trial in choice.trials})
            self.trained.update(waiting)

    def chosen(self, what: Any) -> tuple[float, bool]:
        results: Any = self
        choice = declare(results, "A", what)
        return choice.spec.rate, choice.at_edge


def best_near(rate: float) -> Callable[[RunSpec], float]:
    return lambda spec: -abs(spec.rate - rate)


@pytest.mark.parametrize(
    ("best", "tried", "chosen"),
    [
        (3e-5, [1e-5, 3e-5, 1e-4], (3e-5, False)),  # inside: nothing further
        (1e-4, [1e-5, 3e-5, 1e-4, 3.3e-4], (1e-4, False)),  # the next one beyond loses
        (3e-4, [1e-5, 3e-5, 1e-4, 3.3e-4, 1.1e-3], (3.3e-4, False)),
        (1.0, [1e-5, 3e-5, 1e-4, 3.3e-4, 1.1e-3], (1.1e-3, True)),  # two further ones at most
        (0.0, [1.1e-6, 3.3e-6, 1e-5, 3e-5, 1e-4], (1.1e-6, True)),
    ],
)
def test_the_grid_grows_where_its_edge_wins(best: float, tried: list[float], chosen: tuple[float, bool]) -> None:
    results = MadeUp(best_near(best))
    assert results.tried(DISTRIBUTED) == tried
    assert results.chosen(DISTRIBUTED) == chosen


def test_it_grows_for_the_row_whose_edge_wins() -> None:
    results = MadeUp(lambda spec: -abs(spec.rate - (1e-4 if spec.target == "adaptive" else 3e-5)))
    assert len(results.tried(ADAPTIVE)) == 4
    assert len(results.tried(DISTRIBUTED)) == 3


def test_a_sweep_has_the_rate_of_the_grown_grid() -> None:
    results: Any = MadeUp(best_near(3e-4))
    assert max(results.tried(STATIC)) == 1.1e-3
    sweep = [run.spec for run in sweep_runs(results, "A", STATIC) if run.spec.triplets == PLAN.sweep_triplets]
    assert [spec.target for spec in sweep] == ["0.5", "1"]
    assert {spec.rate for spec in sweep} == {3.3e-4}


def test_it_does_not_grow_unless_it_is_told_to() -> None:
    before = MadeUp(best_near(1.0), replace(PLAN, rate_extensions=0))
    assert before.tried(DISTRIBUTED) == sorted(PLAN.rates)
    assert before.chosen(DISTRIBUTED) == (1e-4, True)
    assert at_edges(before, "A", [DISTRIBUTED]) == [  # type: ignore[arg-type]
        "A: the learning rate is the lowest or highest that was tried for distributed."
    ]
    one = MadeUp(best_near(1.0), replace(PLAN, rates=(1e-4,)))
    assert one.tried(DISTRIBUTED) == []
    assert one.chosen(DISTRIBUTED) == (1e-4, False)
    assert MadeUp(best_near(1.0)).tried(system("own", target="softmax", rate=2e-4)) == []  # a rate of its own
    with pytest.raises(InputError, match="rate_extensions is -1"):
        Plan(rate_extensions=-1)


def test_as_long_as_a_rate_is_not_trained_nothing_is_chosen() -> None:
    results: Any = MadeUp(best_near(1.0))
    results.trained = {replace(declare(results, "A", DISTRIBUTED).spec, rate=rate) for rate in PLAN.rates}
    choice = declare(results, "A", DISTRIBUTED)
    assert [trial.spec.rate for trial in choice.trials if trial.spec not in results.trained] == [3.3e-4]
    assert not choice.settled
    header = {"data": "x", "models": {"A": ""}, "zero_shot": [], "also_test": [], "plan": PLAN.plain()}
    assert Results(Path("nowhere"), header, silent).plan == PLAN
