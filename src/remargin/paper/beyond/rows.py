"""What a study has of each system: every query's scores at home and away, without and with blending, and its cost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import fsum
from statistics import fmean
from typing import NamedTuple

from remargin.evaluation.comparison import Scores
from remargin.paper.beyond.systems import SYSTEMS, measures
from remargin.paper.compared import chosen_text
from remargin.paper.deciding import PerQuery
from remargin.paper.deciding import over_seeds as means_over_seeds
from remargin.study.blending import CHOSEN, blend_of, blended_at
from remargin.study.results import MEASURE, TEST, ZERO_SHOT, Result, Results
from remargin.study.systems import Choice, System, choose


class RowName(NamedTuple):
    """A row: a system, without or with blending.

    >>> RowName("softmax", True).text
    'softmax, blended'
    """

    system: str
    blended: bool = False

    @property
    def text(self) -> str:
        """For people."""
        return f"{self.system}, blended" if self.blended else self.system


UNTRAINED, BM25 = RowName("no training"), RowName("BM25")


@dataclass(frozen=True)
class Row:
    """A system on one collection, as nDCG@10.

    Attributes:
        home: of every test query of the collection that it was trained on, as the mean over seeds.
        away: of every query of other collections, by the names of their files.
        seconds: training with all trials that dev chose among, and blending: what one model costs.
        dev: the validation of the model that is measured, as the mean over seeds; None without training.
        trial_seconds: the part of `seconds` that went into trials.
        weight: of the trained weights, as the mean over seeds; None without blending.
        chosen: what dev chose, for people.
    """

    home: PerQuery
    away: Mapping[str, PerQuery] = field(default_factory=dict)
    seconds: float = 0.0
    dev: float | None = None
    weight: float | None = None
    chosen: str = ""
    trial_seconds: float = 0.0

    @property
    def home_mean(self) -> float:
        """Over the queries."""
        return fmean(self.home.values())

    @property
    def away_mean(self) -> float | None:
        """Over the other collections."""
        return fmean(fmean(scores.values()) for scores in self.away.values()) if self.away else None


@dataclass(frozen=True)
class CollectionRows:
    """The rows of one backbone on one collection.

    Attributes:
        name: the collection's.
        seeds: how many training runs the rows are means of.
        rows: those that are there.
    """

    name: str
    seeds: int
    rows: Mapping[RowName, Row]


def collection_rows(results: Results, model: str, required: Iterable[System]) -> CollectionRows:
    """All rows of a backbone that a study has.

    Raises:
        NotTrained: if one of the required systems, or the measurements without training, are not there.
    """
    needed = tuple(required)
    away = (ZERO_SHOT,) if results.columns else ()
    rows = {
        BM25: _plain_row(results.bm25(TEST, *away)),
        UNTRAINED: _plain_row(results.untrained(model, TEST, *away)),
    }
    for system in needed:
        rows |= _system_rows(results, model, system)
    others = {system.name: system for system in SYSTEMS if system not in needed}
    quiet = Results(results.out, results.header, lambda line: None, results.files, results.at_hand)
    for further in quiet.where_trained(others, lambda name: _system_rows(results, model, others[name])).values():
        rows |= further
    return CollectionRows(results.name, len(results.plan.seeds), rows)


def _plain_row(result: Result) -> Row:
    return Row(result.test()[MEASURE], _away([result], ZERO_SHOT))


def _system_rows(results: Results, model: str, system: System) -> dict[RowName, Row]:
    """The row of a system without blending, and that with it."""
    choice = choose(results, model, system)
    runs = [results.run(spec, *measures(results)) for spec in choice.with_seeds(results.plan.seeds)]
    blends = [blend_of(run) for run in runs]
    trials = _trial_seconds(results, choice)
    seconds = fmean(run.seconds for run in runs) + trials
    chosen = chosen_text(system, choice.tuned_to, choice.spec.rate)
    return {
        RowName(system.name): Row(
            over_seeds([run.test() for run in runs]),
            _away(runs, ZERO_SHOT),
            seconds,
            fmean(run.dev for run in runs),
            chosen=chosen,
            trial_seconds=trials,
        ),
        RowName(system.name, True): Row(
            over_seeds([run.test(blended_at(TEST, CHOSEN)) for run in runs]),
            _away(runs, blended_at(ZERO_SHOT, CHOSEN)),
            seconds + fmean(blend.seconds for blend in blends),
            fmean(blend.value for blend in blends),
            fmean(blend.chosen for blend in blends),
            chosen,
            trials,
        ),
    }


def _trial_seconds(results: Results, choice: Choice) -> float:
    """The training time of the runs that dev chose among, without the chosen one."""
    trials = dict.fromkeys(trial.spec for trial in choice.trials)
    return fsum(results.run(spec).seconds for spec in trials if spec != choice.spec)


def over_seeds(every: Sequence[Scores]) -> dict[str, float]:
    """Each query's nDCG@10, as the mean over seeds.

    >>> over_seeds([{"nDCG@10": {"q": 0.5}}, {"nDCG@10": {"q": 1.0}}])
    {'q': 0.75}
    """
    return means_over_seeds([scores[MEASURE] for scores in every])


def _away(runs: Sequence[Result], what: str) -> dict[str, dict[str, float]]:
    """The same on other collections, by the names of their files; none if the study has no other collections."""
    if not all(run.scores.get(what) for run in runs):
        return {}
    every = [run.zero_shot(what) for run in runs]
    return {stem: over_seeds([scores[stem] for scores in every]) for stem in every[0]}
