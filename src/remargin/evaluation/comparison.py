"""Runs compared with one of them, query by query: which are equivalent, non-inferior or different."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from remargin.data.tables import Rejects, cell_text, read_rows
from remargin.errors import InputError
from remargin.evaluation.measures import evaluate
from remargin.evaluation.runs import Run
from remargin.evaluation.significance import (
    ROUNDING,
    Array,
    Interval,
    bonferroni,
    difference_interval,
    fisher_randomisation,
    holm,
    mean_interval,
    minimal_detectable_difference,
    non_inferiority,
    paired_t,
    tost,
)

BEST = "best"  # as the reference: whichever run has the highest mean
CORRECTIONS = ("bonferroni", "holm", "none")
POWER = 0.8  # of the smallest detectable difference

Scores = Mapping[str, Mapping[str, float]]  # values by measure and query


@dataclass(frozen=True)
class CompareSettings:
    """The run that the others are compared with, and the tests. See `compare_runs`.

    >>> CompareSettings(bound=-1)
    Traceback (most recent call last):
    remargin.errors.InputError: a bound of -1 is not a positive number; give the largest difference that does not matter
    """

    reference: str = BEST
    bound: float = 0.05
    alpha: float = 0.05
    correction: str = "bonferroni"
    samples: int = 10_000
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.bound < math.inf:
            problem = f"a bound of {self.bound} is not a positive number"
            raise InputError(problem, do="give the largest difference that does not matter")
        if not 0 < self.alpha < POWER:
            raise InputError(f"an alpha of {self.alpha} is not between 0 and {POWER}", do="0.05 is usual")
        if self.correction not in CORRECTIONS:
            raise InputError(f"unknown correction {self.correction!r}", do=f"choose one of {', '.join(CORRECTIONS)}")
        if self.samples < 1:
            raise InputError(f"{self.samples} samples are too few for a randomisation test", do="draw 10,000 or more")

    def check_runs(self, runs: Collection[str]) -> None:
        """There must be two runs or more, and the reference among them."""
        if len(runs) < 2:
            raise InputError(f"too few runs to compare: {len(runs)}", do="give two or more")
        if BEST in runs:
            raise InputError(f"a run is called {BEST!r}, which means whichever run is best", do="give it another name")
        if self.reference != BEST and self.reference not in runs:
            do = f"choose {BEST} or one of {', '.join(runs)}"
            raise InputError(f"no run {self.reference!r} to compare with", do=do)


@dataclass(frozen=True)
class PValue:
    """A p value as it is, and corrected for all comparisons of its group.

    >>> PValue(0.02, bonferroni=0.06, holm=0.04).corrected("holm")
    0.04
    """

    plain: float
    bonferroni: float
    holm: float

    def corrected(self, correction: str) -> float:
        """The one to decide by: bonferroni, holm or none."""
        return self.plain if correction == "none" else float(getattr(self, correction))


@dataclass(frozen=True)
class Difference:
    """How a run differs from the reference: run - reference over the same queries.

    Attributes:
        mean: the difference of the means, with its confidence interval, which is not corrected.
        tost: p of equivalence within the bound.
        non_inferiority: p of being worse by less than the bound.
        t: p of the paired t-test.
        fisher: p of Fisher's randomisation test.
        wins: queries on which the run is better; `ties` and `losses` are the others.
        detectable: the smallest difference that the t-test, corrected for its group, shows with a power of 0.8.
        equivalent: whether the corrected TOST says so; `non_inferior` and `different` (by the t-test) likewise.

    Example:
        >>> scores = {"a": {"RR": {"q1": 1.0, "q2": 0.5}}, "b": {"RR": {"q1": 0.5, "q2": 0.5}}}
        >>> difference = compare_scores(scores).row("RR", "b").difference
        >>> difference.mean.mean, difference.wins, difference.ties, difference.losses, difference.equivalent
        (-0.25, 0, 1, 1, False)
    """

    mean: Interval
    tost: PValue
    non_inferiority: PValue
    t: PValue
    fisher: PValue
    wins: int
    ties: int
    losses: int
    detectable: float
    equivalent: bool
    non_inferior: bool
    different: bool


@dataclass(frozen=True)
class ComparedRun:
    """One run and one measure: its mean with a confidence interval, and how it differs from the reference.

    `difference` is None for the reference itself. `missing` judged queries were not in the run and count as 0.

    >>> scores = {"a": {"RR": {"q1": 1.0, "q2": 0.5}}, "b": {"RR": {"q1": 0.5, "q2": 0.5}}}
    >>> best = compare_scores(scores).row("RR", "a")
    >>> best.mean.mean, best.is_best, best.difference
    (0.75, True, None)
    """

    measure: str
    run: str
    reference: str
    queries: int
    missing: int
    mean: Interval
    is_best: bool
    difference: Difference | None

    @property
    def equivalent(self) -> bool:
        """Whether it is equivalent to the reference, and not the reference itself: the paper's dagger."""
        return self.difference is not None and self.difference.equivalent


@dataclass
class Comparison:
    """Runs compared with a reference, and how. A group of tests is all comparisons within one measure.

    `self_matches` counts, for each run, the documents left out because they are the query itself.

    >>> scores = {"a": {"RR": {"q1": 1.0, "q2": 0.5}}, "b": {"RR": {"q1": 0.5, "q2": 0.5}}}
    >>> comparison = compare_scores(scores, reference="b")
    >>> comparison.runs, comparison.measures, comparison.row("RR", "a").difference.mean.mean
    (['a', 'b'], ['RR'], 0.25)
    """

    rows: list[ComparedRun] = field(repr=False)
    settings: CompareSettings
    unit: str = "queries"
    self_matches: dict[str, int] = field(default_factory=dict, repr=False)

    @property
    def runs(self) -> list[str]:
        """The runs, in the order in which they were given."""
        return list(dict.fromkeys(row.run for row in self.rows))

    @property
    def measures(self) -> list[str]:
        """The measures, in the order in which they were given."""
        return list(dict.fromkeys(row.measure for row in self.rows))

    def row(self, measure: str, run: str) -> ComparedRun:
        """The row of a run and a measure."""
        return next(row for row in self.rows if (row.measure, row.run) == (measure, run))


def compare_runs(
    runs: Mapping[str, Run],
    qrels: Mapping[str, Mapping[str, int]],
    measures: Sequence[str] = ("nDCG@10",),
    reference: str = BEST,
    bound: float = 0.05,
    alpha: float = 0.05,
    correction: str = "bonferroni",
    samples: int = 10_000,
    seed: int = 0,
) -> Comparison:
    """Compare runs with one of them, with paired tests over all judged queries.

    Args:
        runs: two runs or more, by name.
        qrels: grades by query and document. A judged query that a run lacks counts as 0 and is counted.
        measures: names such as nDCG@10 or R@1000.
        reference: the name of a run, or best: the one with the highest mean, for each measure.
        bound: the largest difference that does not matter.
        alpha: p values below it count. Confidence intervals cover 1 - alpha.
        correction: bonferroni, holm or none, over all comparisons within a measure.
        samples: samples of Fisher's randomisation test, where the exact test would need more.
        seed: the seed of those samples.

    Raises:
        InputError: for fewer than two runs or two judged queries, and for an unknown reference, measure or correction.

    Example:
        >>> qrels = {f"q{i}": {"a": 1} for i in range(9)}
        >>> good = Run.of({query: {"a": 2.0, "b": 1.0} for query in qrels})
        >>> bad = Run.of({query: {"b": 2.0, "a": 1.0} for query in qrels})
        >>> comparison = compare_runs({"good": good, "same": good, "bad": bad}, qrels, ["RR"])
        >>> [(row.run, row.mean.mean, row.is_best, row.equivalent) for row in comparison.rows]
        [('good', 1.0, True, False), ('same', 1.0, True, True), ('bad', 0.5, False, False)]
    """
    settings = CompareSettings(reference, bound, alpha, correction, samples, seed)
    settings.check_runs(runs)  # before the work, not after it
    evaluations = {name: evaluate(run, qrels, measures) for name, run in runs.items()}
    scores = {name: evaluation.per_query for name, evaluation in evaluations.items()}
    missing = {name: len(evaluation.missing) for name, evaluation in evaluations.items()}
    return _compare(scores, settings, missing, "queries")


def compare_scores(
    scores: Mapping[str, Scores],
    reference: str = BEST,
    bound: float = 0.05,
    alpha: float = 0.05,
    correction: str = "bonferroni",
    samples: int = 10_000,
    seed: int = 0,
    missing: Mapping[str, int] | None = None,
    unit: str = "queries",
) -> Comparison:
    """Compare runs that are already measured: values by run, measure and query. Otherwise like `compare_runs`.

    Args:
        scores: for each run the same measures, for each measure the same queries. See `read_query_scores`.
        reference: the name of a run, or best.
        bound: the largest difference that does not matter.
        alpha: p values below it count.
        correction: bonferroni, holm or none.
        samples: samples of Fisher's randomisation test.
        seed: the seed of those samples.
        missing: for each run, how many of its values stand for something that it lacked.
        unit: the unit that the values belong to, if not queries: data sets, say.

    Example:
        >>> means = {"ours": {"nDCG@10": {"fiqa": 0.31, "scifact": 0.64, "quora": 0.83}}}
        >>> means["theirs"] = {"nDCG@10": {"fiqa": 0.30, "scifact": 0.65, "quora": 0.83}}
        >>> row = compare_scores(means, reference="theirs", unit="data sets").row("nDCG@10", "ours")
        >>> row.queries, round(row.difference.tost.plain, 3), row.equivalent
        (3, 0.007, True)
    """
    settings = CompareSettings(reference, bound, alpha, correction, samples, seed)
    settings.check_runs(scores)
    return _compare(scores, settings, missing or {}, unit)


def _compare(
    scores: Mapping[str, Scores], settings: CompareSettings, missing: Mapping[str, int], unit: str
) -> Comparison:
    measures = list(next(iter(scores.values())))
    if not measures:
        raise InputError("there is no measure to compare by", do="give one or more, such as nDCG@10")
    for run, values_by_measure in scores.items():
        for measure in values_by_measure.keys() ^ set(measures):
            raise InputError(f"not all runs were measured by {measure}: see {run}", do="measure them all alike")
    rows = []
    for measure in measures:
        values = _aligned(scores, measure)
        means = {run: mean_interval(run_values, 1 - settings.alpha) for run, run_values in values.items()}
        highest = max(interval.mean for interval in means.values())
        is_best = {run: means[run].mean >= highest - ROUNDING for run in means}
        reference = settings.reference if settings.reference != BEST else next(run for run in means if is_best[run])
        differences = _differences(values, reference, settings)
        rows += [
            ComparedRun(
                measure=measure,
                run=run,
                reference=reference,
                queries=len(values[run]),
                missing=missing.get(run, 0),
                mean=means[run],
                is_best=is_best[run],
                difference=differences.get(run),
            )
            for run in values
        ]
    return Comparison(rows, settings, unit)


def read_query_scores(path: str | Path) -> dict[str, dict[str, float]]:
    """Values by measure and query from a table that `Evaluation.save` wrote, or any other with a column `query`.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "scores.csv"
    >>> _ = file.write_text("query,nDCG@10,RR\\nq1,0.5,1.0\\nq2,0.25,0.5\\n")
    >>> read_query_scores(file)
    {'nDCG@10': {'q1': 0.5, 'q2': 0.25}, 'RR': {'q1': 1.0, 'q2': 0.5}}
    """
    path = Path(path)
    scores: dict[str, dict[str, float]] = {}
    for line, row in read_rows(path, Rejects()):
        cell = row.pop("query", None)
        if cell is None:
            raise InputError("no column 'query'", file=path, line=line, do="use a table that `evaluate` wrote")
        query = cell_text(str(cell))
        for measure, text in row.items():
            values = scores.setdefault(measure, {})
            if query in values:
                raise InputError(
                    "appears a second time", file=path, line=line, id=query, do="keep one of the two lines"
                )
            values[query] = _number(text, path, line, query)
    if not scores:
        raise InputError("no values", file=path, do="use a table that `evaluate` wrote")
    return scores


def _number(text: str, path: Path, line: int, query: str) -> float:
    try:
        value = float(text)
    except (TypeError, ValueError):
        value = math.nan
    if not math.isfinite(value):
        do = "write a finite number there"
        raise InputError(f"{text!r} is not a number", file=path, line=line, id=query, do=do)
    return value


def _aligned(scores: Mapping[str, Scores], measure: str) -> dict[str, Array]:
    """Each run's values of a measure, in the same order of queries."""
    first = next(iter(scores))
    queries = list(scores[first][measure])
    values = {run: run_scores[measure] for run, run_scores in scores.items()}
    for run, run_values in values.items():
        different = run_values.keys() ^ set(queries)
        if different:
            problem = f"{first} and {run} were measured on different queries, such as {min(different)!r}"
            raise InputError(problem, do="measure all runs on the same ones")
        for query, value in run_values.items():
            if not math.isfinite(value):
                raise InputError(f"{measure} of {run} is {value}", id=query, do="measure it again")
    return {run: np.array([run_values[query] for query in queries], float) for run, run_values in values.items()}


def _differences(values: dict[str, Array], reference: str, settings: CompareSettings) -> dict[str, Difference]:
    """Every other run against the reference: one group of tests."""
    bound, alpha, correction = settings.bound, settings.alpha, settings.correction
    b = values[reference]
    others = {run: a for run, a in values.items() if run != reference}
    equivalence = _group([tost(a, b, bound) for a in others.values()])
    no_worse = _group([non_inferiority(a, b, bound) for a in others.values()])
    t = _group([paired_t(a, b) for a in others.values()])
    fisher = _group([fisher_randomisation(a, b, settings.samples, settings.seed) for a in others.values()])
    level = alpha if correction == "none" else alpha / len(others)
    return {
        run: Difference(
            mean=difference_interval(a, b, 1 - alpha),
            tost=equivalence[i],
            non_inferiority=no_worse[i],
            t=t[i],
            fisher=fisher[i],
            wins=int((a - b > ROUNDING).sum()),
            ties=int((np.abs(a - b) <= ROUNDING).sum()),
            losses=int((b - a > ROUNDING).sum()),
            detectable=minimal_detectable_difference(a - b, level, POWER),
            equivalent=equivalence[i].corrected(correction) < alpha,
            non_inferior=no_worse[i].corrected(correction) < alpha,
            different=t[i].corrected(correction) < alpha,
        )
        for i, (run, a) in enumerate(others.items())
    }


def _group(p_values: list[float]) -> list[PValue]:
    return [PValue(*p) for p in zip(p_values, bonferroni(p_values), holm(p_values), strict=True)]
