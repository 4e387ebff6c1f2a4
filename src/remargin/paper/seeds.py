"""The rows of tables 3 and 4, each over several random seeds."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean

import numpy as np

from remargin.evaluation.comparison import Scores
from remargin.study.hardware import total_energy
from remargin.study.results import TEST, Result, Results
from remargin.study.systems import Choice, Sweep, System, choose, sweep_of


@dataclass(frozen=True)
class OverSeeds:
    """The training runs behind a row: what dev chose, and what came of it for each seed."""

    chosen: Choice
    sweep: Sweep | None
    results: list[Result]

    def scores(self, test: str) -> Scores:
        """Each query's, as the mean over seeds."""
        return over_seeds(self.results, test)

    @property
    def seconds(self) -> float:
        """Training up to the best model, with the sweep."""
        own = fmean(result.seconds_to_best for result in self.results)
        return own + (self.sweep.seconds if self.sweep else 0.0)

    @property
    def joules(self) -> float | None:
        """The energy of the same; None unless it was recorded for every run."""
        own = total_energy(result.joules_to_best for result in self.results)
        mean = None if own is None else own / len(self.results)
        return total_energy([mean, self.sweep.joules]) if self.sweep else mean

    @property
    def triplets(self) -> float:
        """Triplets seen by the best model, on average."""
        return fmean(result.best_triplets for result in self.results)


def trained_row(results: Results, model: str, system: System, every_seed: bool = True) -> OverSeeds:
    """A system's runs with the seeds of the plan; without `every_seed`, with the first and with those that are there.

    Raises:
        NotTrained: naming a run that the row lacks.
    """
    choice = choose(results, model, system)
    first, *others = choice.with_seeds(results.plan.seeds)
    there = [spec for spec in others if every_seed or results.has(spec, *results.tests)]
    runs = [results.run(spec, *results.tests) for spec in (first, *there)]
    return OverSeeds(choice, sweep_of(results, choice), runs)


def over_seeds(results: list[Result], test: str = TEST) -> Scores:
    """Each query's scores, as the mean over seeds."""
    every = [result.test(test) for result in results]
    return {
        measure: {query: float(np.mean([scores[measure][query] for scores in every])) for query in queries}
        for measure, queries in every[0].items()
    }


def mean_and_deviation(results: list[Result], measure: str, test: str = TEST) -> tuple[float, float | None]:
    """The mean of a measure over queries and seeds, and the standard deviation of the seeds' means, if several."""
    means = [float(np.mean(list(result.test(test)[measure].values()))) for result in results]
    return float(np.mean(means)), float(np.std(means, ddof=1)) if len(means) > 1 else None
