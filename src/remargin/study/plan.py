"""How much to train in a study: an epoch of MS MARCO, or scaled down to what there is."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from remargin.errors import InputError
from remargin.study.pinned import pinned
from remargin.training.settings import PRESETS

# A scaled-down run is validated so often, and grids lose points below so many triplets.
VALIDATIONS = 10
AT_LEAST_ONE = (
    "triplets", "sweep_triplets", "validate_every", "batch_size", "other_batch_size", "validation_queries",
    "negatives_depth", "validation_depth", "relevant",
)  # fmt: skip
WHOLE_GRIDS, HALF_GRIDS = 50_000, 10_000
# In the shared regime, figures show the training runs of the tables; in the paper's, curves are runs of their own, and
# they and sweeps train at a constant rate.
SHARED, PAPERS = REGIMES = ("shared", "paper")
DEV, TEST = VALIDATION_SPLITS = ("dev", "test")
EXACT, FAISS = INDEXES = ("exact", "faiss")


@dataclass(frozen=True)
class Plan:
    """The paper's settings: an epoch of MS MARCO, validated every 500 steps of 128, sweeps on 2.56M triplets.

    Learning rates are a grid from which dev chooses, the same for every row; without any, it is the preset's alone.
    `preset` has the rest of the settings, see `pinned`.
    """

    triplets: int = 39_780_811
    sweep_triplets: int = 2_560_000
    validate_every: int = 64_000  # triplets
    patience: int | None = 16
    batch_size: int = 128
    other_batch_size: int = 64
    margins: tuple[float, ...] = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
    temperatures: tuple[float, ...] = (0.01, 0.02, 0.05, 0.1, 0.2)
    teacher_scales: tuple[float, ...] = (0.25, 0.5, 1.0)
    teacher_rates: tuple[float, ...] = (3e-5, 1e-4, 3e-4)  # of the teacher's own training
    teacher_epochs: tuple[int, ...] = (1, 2)
    rates: tuple[float, ...] = ()
    rate_extensions: int = 0  # further rates at most for a row whose best one is at an edge of the grid
    seeds: tuple[int, ...] = (0,)
    preset: str = "paper"
    validation_queries: int = 500
    negatives_depth: int = 1000
    relevant: int = 1  # the lowest grade that R and Success count where judgments are graded; 2 for TREC-DL
    validation_depth: int = 1000  # BM25's documents that are re-ranked for a dev query, as in the paper
    full_validation: bool = False  # rank all documents for a dev query instead
    regime: str = (
        SHARED  # `paper`: sweeps and curves at a constant rate, see `constant_rate` and `curve_validate_every`
    )
    validation_split: str = DEV  # `test`: validate on what the tables report, as the paper does
    index: str = EXACT  # what ranks the test queries; `faiss`: the paper's index, with exact search beside it

    def __post_init__(self) -> None:
        if self.preset not in PRESETS:
            raise InputError(f"unknown preset {self.preset!r}", do=f"use {', '.join(PRESETS)}")
        named = {"regime": REGIMES, "validation_split": VALIDATION_SPLITS, "index": INDEXES}
        for name, known in named.items():
            if getattr(self, name) not in known:
                problem = f"unknown {name.replace('_', ' ')} {getattr(self, name)!r}"
                raise InputError(problem, do=f"use {', '.join(known)}")
        if not self.rates:
            object.__setattr__(self, "rates", (pinned(self.preset, batch_size=self.batch_size).peak_rate,))
        for name in ("margins", "temperatures", "teacher_scales", "teacher_rates", "teacher_epochs", "rates", "seeds"):
            if not getattr(self, name):
                raise InputError(f"{name} is empty", do="give one value or more")
            if len(set(getattr(self, name))) < len(getattr(self, name)):
                raise InputError(f"{name} has a value twice", do="give each once")
        for name in AT_LEAST_ONE:
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}", do="it must be at least 1")
        for name in ("rates", "temperatures", "teacher_scales", "teacher_rates"):
            if bad := [value for value in getattr(self, name) if not 0 < value < math.inf]:
                raise InputError(f"{name} has {bad[0]:g}", do="all must be numbers above 0")
        if bad := [value for value in self.margins if not math.isfinite(value)]:
            raise InputError(f"margins has {bad[0]:g}", do="all must be numbers")
        if min(self.teacher_epochs) < 1:
            raise InputError(f"teacher_epochs has {min(self.teacher_epochs)}", do="all must be at least 1")
        if self.rate_extensions < 0:
            raise InputError(f"rate_extensions is {self.rate_extensions}", do="it must be at least 0")
        if min(self.seeds) < 0:
            raise InputError(f"seeds has {min(self.seeds)}", do="all must be at least 0")
        if self.patience is not None and self.patience < 1:
            raise InputError(f"patience is {self.patience}", do="it must be at least 1")

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Plan:
        """A plan from what a YAML or JSON file holds.

        >>> Plan.of({"triplets": 1000, "seeds": [0, 1]}).seeds
        (0, 1)
        """
        known = {f.name for f in fields(cls)}
        for name in values.keys() - known:
            raise InputError(f"unknown setting {name!r}", do=f"use {', '.join(sorted(known))}")
        plain: Any = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
        return cls(**plain)

    def plain(self) -> dict[str, Any]:
        """The plan as JSON has it."""
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return plain

    def steps(self, triplets: int, batch_size: int) -> int:
        """Steps for so many triplets."""
        return max(1, -(-triplets // batch_size))

    @property
    def constant_rate(self) -> dict[str, Any]:
        """What runs of sweeps and curves are told of the learning rate: nothing, or that it stays as it is.

        >>> Plan().constant_rate, Plan(regime="paper").constant_rate
        ({}, {'schedule': 'constant', 'warm_up': 0.0})
        """
        return {"schedule": "constant", "warm_up": 0.0} if self.regime == PAPERS else {}

    @property
    def curve_validate_every(self) -> int | None:
        """Triplets between validations of curves: None for as many as usual; twice as many in the paper's regime.

        >>> Plan().curve_validate_every, Plan(regime="paper").curve_validate_every
        (None, 128000)
        """
        return 2 * self.validate_every if self.regime == PAPERS else None

    def rate_for(self, rate: float, batch_size: int) -> float:
        """A learning rate for another batch size: the paper's is 5e-6 / B; other presets have one for all.

        >>> Plan().rate_for(5e-6 / 128, 64) == 5e-6 / 64, Plan(preset="default").rate_for(1e-4, 64)
        (True, 0.0001)
        """
        same = self.preset != "paper" or batch_size == self.batch_size
        return rate if same else rate * self.batch_size / batch_size

    def scaled(self, budget: int, keep: Collection[str] = ()) -> Plan:
        """The same with `budget` triplets in a run at most; sweeps, validations and grids shrink with it.

        What somebody has chosen shall not: the names in `keep` stay as they are.

        >>> small = Plan().scaled(20_000)
        >>> small.sweep_triplets, small.validate_every, small.margins
        (10000, 2000, (0.0, 0.2, 0.4, 0.6, 0.8, 1.0))
        >>> Plan(margins=(0.1, 0.2, 0.3, 0.4)).scaled(100, keep=["margins"]).margins
        (0.1, 0.2, 0.3, 0.4)
        """
        if budget < 1:
            raise InputError(f"a budget of {budget}", do="give the maximum number of triplets per training run")
        if budget >= self.triplets:
            return self
        share = budget / self.triplets
        smaller: dict[str, Any] = {
            "sweep_triplets": max(1, round(self.sweep_triplets * share), budget // 2),
            "validate_every": max(self.batch_size, round(self.validate_every * share), budget // VALIDATIONS),
            "patience": None,
            "margins": _thinned(self.margins, budget),
            "temperatures": _thinned(self.temperatures, budget),
            "teacher_scales": _thinned(self.teacher_scales, budget),
        }
        values = {name: getattr(self, name) if name in keep else value for name, value in smaller.items()}
        values["sweep_triplets"] = min(values["sweep_triplets"], self.sweep_triplets, budget)
        return replace(self, triplets=budget, **values)

    def changes(self, before: Plan) -> list[str]:
        """What differs from another plan, for people.

        >>> Plan().scaled(100_000).changes(Plan())[0]
        'triplets: 100000 instead of 39780811'
        """
        return [
            f"{f.name}: {shown(getattr(self, f.name))} instead of {shown(getattr(before, f.name))}"
            for f in fields(self)
            if getattr(self, f.name) != getattr(before, f.name)
        ]


def rate_beyond(rates: Collection[float], best: float) -> float | None:
    """The next learning rate beyond the edge of a grid, at the distance of the two before; None if the best is no edge.

    >>> rate_beyond([1e-5, 3e-5, 1e-4], 1e-4), rate_beyond([1e-4, 1e-5], 1e-5), rate_beyond([1e-5, 3e-5, 1e-4], 3e-5)
    (0.00033, 1e-06, None)
    """
    ordered = sorted(rates)
    inner = {ordered[-1]: ordered[-2], ordered[0]: ordered[1]}.get(best)
    return None if inner is None else float(f"{best * best / inner:.2g}")


def _thinned(grid: tuple[float, ...], budget: int) -> tuple[float, ...]:
    """Every point, every second, or only the ends and the middle."""
    if budget >= WHOLE_GRIDS or len(grid) < 4:
        return grid
    if budget >= HALF_GRIDS:
        return grid[::2]
    return grid[0], grid[len(grid) // 2], grid[-1]


def shown(value: Any) -> str:
    """A value of a plan, for people.

    >>> shown((0.1, 1.0)), shown(None)
    ('0.1 1', 'None')
    """
    return " ".join(f"{item:g}" for item in value) if isinstance(value, tuple) else str(value)
