"""How much to train: budgets, and plans that cannot be carried out."""

from __future__ import annotations

from typing import Any

import pytest

from remargin import InputError
from remargin.study.plan import Plan


def test_a_budget_says_what_it_changes() -> None:
    small = Plan().scaled(100_000)
    assert small.changes(Plan()) == [
        "triplets: 100000 instead of 39780811",
        "sweep_triplets: 50000 instead of 2560000",
        "validate_every: 10000 instead of 64000",
        "patience: None instead of 16",
    ]
    assert Plan().scaled(10**9) == Plan()
    typed = Plan(sweep_triplets=3000, patience=4, margins=(0.1, 0.2, 0.3, 0.4))
    kept = typed.scaled(2000, keep=["sweep_triplets", "patience", "margins"])
    assert (kept.sweep_triplets, kept.patience, kept.margins) == (2000, 4, typed.margins)
    assert len(typed.scaled(2000).margins) == 3
    with pytest.raises(InputError, match="a budget of 0"):
        Plan().scaled(0)
    with pytest.raises(InputError, match="unknown setting 'marginz'"):
        Plan.of({"marginz": 1})


@pytest.mark.parametrize(
    ("setting", "problem"),
    [
        ({"margins": [0.5, float("nan")]}, "margins has nan"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"rates": [float("nan")]}, "rates has nan"),
        ({"seeds": [0, 0]}, "seeds has a value twice"),
        ({"seeds": [-1]}, "seeds has -1"),
        ({"validation_queries": 0}, "validation_queries is 0"),
        ({"relevant": -5}, "relevant is -5"),
    ],
)
def test_a_plan_that_cannot_be_carried_out_is_refused_at_once(setting: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        Plan.of(setting)
