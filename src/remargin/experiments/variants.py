"""The paper's table 3: all targets on each backbone, with what they cost; and four losses that the paper leaves out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from remargin.evaluation.comparison import Comparison, Scores, compare_scores
from remargin.experiments.outcome import Outcome
from remargin.experiments.results import MEASURE, RECALL, TEST, Result
from remargin.experiments.rows import BESIDE, PAPER, Chosen, choose, mean_and_spread, over_seeds
from remargin.experiments.study import Study
from remargin.report.comparison import DAGGER
from remargin.report.figures import Figure, Scatter
from remargin.report.runs import scatter_of
from remargin.report.sections import Section
from remargin.report.tables import Block, Cell, Table, number

BOUND = 0.05  # the paper's: differences below it do not matter
SWEPT = "*"
BETTER = "‡"


@dataclass(frozen=True)
class Measured:
    """A row of the table: what dev chose, what came of it for each seed, and each query's mean over the seeds."""

    chosen: Chosen
    results: list[Result]
    scores: Scores

    @property
    def seconds(self) -> float:
        """Training up to the best model, with the sweep."""
        own = sum(result.seconds_to_best for result in self.results) / len(self.results)
        return own + (self.chosen.sweep.seconds if self.chosen.sweep else 0.0)

    @property
    def triplets(self) -> float:
        """Triplets seen by the best model, on average."""
        return sum(result.best_triplets for result in self.results) / len(self.results)


def variants(study: Study) -> Outcome:
    """A block for each backbone; its best in bold, and marks for what is as good."""
    blocks: list[Block] = []
    figures: list[Figure] = []
    numbers: dict[str, Any] = {}
    for model in study.models:
        rows = {row.name: _measured(study, model, row) for row in (*PAPER, *BESIDE)}
        untrained, bm25 = study.untrained(model, TEST), study.bm25(TEST)
        comparison = _comparison({name: row.scores for name, row in rows.items()})
        paper, beside = ({row.name: rows[row.name] for row in group} for group in (PAPER, BESIDE))
        blocks.append(Block(model, [_row(comparison, name, row, paper) for name, row in paper.items()]))
        others = [_row(comparison, name, row, paper) for name, row in beside.items()]
        others += [_untrained("no training", untrained), _untrained("BM25", bm25)]
        blocks.append(Block(f"{model}, beside the paper", others))
        numbers[model] = {name: _numbers(comparison, name, row) for name, row in rows.items()}
        numbers[model] |= {name: _means(r) for name, r in (("no training", untrained), ("BM25", bm25))}
        figures.append(_scatter(study, model, rows))
    header = ["target", "chosen", MEASURE, "±", RECALL, "± ", "time", "triplets"]
    table = Table("Target variants", header, blocks, _notes(study))
    return Outcome(Section("variants", "Variants", _summary(numbers), [table], figures, _settings(study), []), numbers)


def _measured(study: Study, model: str, row: Any) -> Measured:
    chosen = choose(study, model, row)
    results = chosen.results(study)
    return Measured(chosen, results, over_seeds(results))


def _comparison(scores: dict[str, Scores]) -> dict[str, Comparison]:
    """Every row against the best of the paper's, for each measure: one group of tests each."""
    found = {}
    for measure in (MEASURE, RECALL):
        of_measure = {name: {measure: of_row[measure]} for name, of_row in scores.items()}
        means = {row.name: _mean(of_measure[row.name][measure]) for row in PAPER}
        found[measure] = compare_scores(of_measure, reference=max(means, key=means.__getitem__), bound=BOUND)
    return found


def _row(comparison: dict[str, Comparison], name: str, row: Measured, best_of: dict[str, Measured]) -> list[Cell]:
    cells = [Cell(name), Cell(_chosen(row.chosen))]
    for measure in (MEASURE, RECALL):
        found = comparison[measure].row(measure, name)
        mean, spread = mean_and_spread(row.results, measure)
        better = found.difference is not None and found.difference.different and found.difference.mean.mean > 0
        marks = (DAGGER if found.equivalent else "") + (BETTER if better else "")
        cells += [number(mean, bold=name in best_of and found.difference is None, marks=marks), number(spread)]
    swept = SWEPT if row.chosen.sweep else ""
    return [
        *cells,
        Cell(time_text(row.seconds), marks=swept, value=row.seconds),
        Cell(f"{row.triplets:,.0f}", value=row.triplets),
    ]


def _untrained(name: str, result: Result) -> list[Cell]:
    means = _means(result)
    return [Cell(name), Cell(""), number(means[MEASURE]), Cell(""), number(means[RECALL]), *[Cell("")] * 3]


def _chosen(chosen: Chosen) -> str:
    """What dev chose, for people."""
    tuned = {"margin": "margin ", "temperature": "temperature "}
    value = f"{tuned[chosen.row.tuned]}{chosen.tuned_to:g}, " if chosen.row.tuned else ""
    return f"{value}rate {chosen.spec.rate:g}"


def time_text(seconds: float) -> str:
    """Minutes and seconds, or hours and minutes where there are hours.

    >>> time_text(75), time_text(54420)
    ('1:15 min', '15:07 h')
    """
    if seconds < 3600:
        return f"{int(seconds) // 60}:{int(seconds) % 60:02} min"
    return f"{int(seconds) // 3600}:{int(seconds) % 3600 // 60:02} h"


def _numbers(comparison: dict[str, Comparison], name: str, row: Measured) -> dict[str, Any]:
    found: dict[str, Any] = {
        "seconds": row.seconds,
        "sweep_seconds": row.chosen.sweep.seconds if row.chosen.sweep else 0.0,
        "triplets": row.triplets,
        "tuned_to": row.chosen.tuned_to,
        "rate": row.chosen.spec.rate,
        "joules": _sum([result.joules for result in row.results]),
    }
    for measure in (MEASURE, RECALL):
        compared = comparison[measure].row(measure, name)
        found[measure] = mean_and_spread(row.results, measure)[0]
        found[f"{measure} best"] = compared.difference is None
        found[f"{measure} equivalent"] = compared.equivalent
    return found


def _means(result: Result) -> dict[str, float]:
    return {measure: _mean(values) for measure, values in result.test().items()}


def _mean(values: Any) -> float:
    return float(sum(values.values()) / len(values))


def _sum(values: list[float | None]) -> float | None:
    return None if None in values else sum(value for value in values if value is not None)


def _scatter(study: Study, model: str, rows: dict[str, Measured]) -> Scatter:
    """Distributed against the tuned static margin, query by query."""
    return scatter_of(
        {"static": rows["static"].scores[MEASURE], "distributed": rows["distributed"].scores[MEASURE]},
        study.queries(),
        MEASURE,
        name=f"queries-{model}",
        title=f"{model}: distributed and tuned static targets, query by query",
        caption="Test queries, mean over seeds.",
    )


def _summary(numbers: dict[str, Any]) -> list[str]:
    lines = []
    for model, rows in numbers.items():
        names = [row.name for row in PAPER]
        best = max(names, key=lambda name: rows[name][MEASURE])
        distributed = rows["distributed"]
        verdict = "is the best" if best == "distributed" else f"is behind {best} ({rows[best][MEASURE]:.3f})"
        equal = ", and statistically equivalent to it" if distributed[f"{MEASURE} equivalent"] else ""
        lines.append(
            f"{model}: of the paper's targets, distributed ({distributed[MEASURE]:.3f} {MEASURE}) {verdict}{equal}. "
            f"The contrastive loss that the paper leaves out reaches {rows['contrastive'][MEASURE]:.3f}, the model "
            f"without training {rows['no training'][MEASURE]:.3f}."
        )
    return lines


def _notes(study: Study) -> list[str]:
    seeds = len(study.plan.seeds)
    return [
        f"Bold: the best of the paper's targets for a backbone. {DAGGER} equivalent to it (paired TOST within {BOUND}, "
        f"Bonferroni). {BETTER} better than it (paired t-test, Bonferroni). ± is the standard deviation over {seeds} "
        f"seeds; each query counts with its mean over seeds.",
        f"{SWEPT} with the sweep over margins or temperatures. Time and triplets are those until the best model by "
        "dev; the choice of the learning rate, from one grid for every row, is not counted.",
        f"Test: exact full ranking of {study.name}. Margin, temperature, learning rate and when to stop: dev.",
    ]


def _settings(study: Study) -> dict[str, Any]:
    plan = study.plan
    return {
        "triplets": plan.triplets,
        "batch size": plan.batch_size,
        "rates": plan.rates,
        "seeds": plan.seeds,
        "margins": plan.margins,
        "temperatures": plan.temperatures,
        "triplets of a sweep": plan.sweep_triplets,
        "preset": plan.preset,
    }
