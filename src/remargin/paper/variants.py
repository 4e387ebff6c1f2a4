"""The paper's table 3: all targets on each backbone, with what they cost; and four losses that the paper leaves out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import fsum
from statistics import fmean
from typing import Any

from remargin.evaluation.comparison import Scores
from remargin.paper.compared import BOUND, Compared, chosen_text, compare_in_groups, not_trained, time_text
from remargin.paper.published import published_variants, variants_source
from remargin.paper.systems import BESIDE, PAPER, mean_and_deviation, measured_runs, over_seeds, untrained
from remargin.report.comparison import DAGGER
from remargin.report.figures import Figure, Scatter, scatter_of
from remargin.report.sections import Section
from remargin.report.tables import Block, Cell, Table, number
from remargin.study.experiment import Experiment
from remargin.study.outcome import Outcome, with_tests
from remargin.study.results import MEASURE, RECALL, TEST, Result, Results
from remargin.study.systems import Choice, Sweep, System, choose, sweep_of
from remargin.study.tasks import Task

SWEPT = "*"
BETTER = "‡"
MENTIONED = {
    "contrastive": "the contrastive loss that the paper leaves out",
    "no training": "the model without training",
}


@dataclass(frozen=True)
class OverSeeds:
    """A row of the table: what dev chose, and what came of it for each seed."""

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
        """The energy of the same."""
        swept = [result for _, result in self.sweep.points] if self.sweep else []
        spent = [result.joules for result in (*self.results, *swept)]
        if None in spent:
            return None
        shares = [result.best_step / result.steps / len(self.results) for result in self.results] + [1.0] * len(swept)
        return fsum(share * (joules or 0.0) for share, joules in zip(shares, spent, strict=True))

    @property
    def triplets(self) -> float:
        """Triplets seen by the best model, on average."""
        return fmean(result.best_triplets for result in self.results)


def _tasks(results: Results) -> Iterator[Task]:
    yield from untrained(results, *results.tests)
    for model in results.models:
        for system in (*PAPER, *BESIDE):
            yield from measured_runs(results, model, system, every_seed=True)


def draw(results: Results) -> Outcome:
    """A table for each test collection; figures are about the first, the study's own."""
    rows = results.of_models(lambda model: _rows(results, model))
    tables, compared = [], {}
    for test in results.tests:
        compared[test] = {
            model: compare_in_groups({name: row.scores(test) for name, row in of_model.items()})
            for model, of_model in rows.items()
        }
        tables.append(_table(results, rows, compared[test], test))
    numbers = {
        model: with_tests(
            {
                collection: _numbers_of(results, model, of_model, compared[test][model], test)
                for test, collection in results.tests.items()
            },
            results.name,
        )
        for model, of_model in rows.items()
    }
    figures: list[Figure] = [_scatter(results, model, of_model) for model, of_model in rows.items()]
    tables.append(_published())
    return Outcome(Section("variants", "Variants", _summary(numbers), tables, figures, _settings(results), []), numbers)


def _rows(results: Results, model: str) -> dict[str, OverSeeds]:
    """The paper's rows have to be there; of ours, what there is."""
    as_they_are(results, model)
    beside = {row.name: row for row in BESIDE}
    rows = {row.name: _measured(results, model, row) for row in PAPER}
    return rows | results.where_trained(beside, lambda name: _measured(results, model, beside[name]))


def as_they_are(results: Results, model: str) -> dict[str, Result]:
    """What needs no training."""
    return {"no training": results.untrained(model, *results.tests), "BM25": results.bm25(*results.tests)}


def _measured(results: Results, model: str, row: System) -> OverSeeds:
    choice = choose(results, model, row)
    seeds = [results.run(spec, *results.tests) for spec in choice.with_seeds(results.plan.seeds)]
    return OverSeeds(choice, sweep_of(results, choice), seeds)


def _table(results: Results, rows: dict[str, dict[str, OverSeeds]], compared: dict[str, Compared], test: str) -> Table:
    """A block for each backbone; its best in bold, and marks for what is as good."""
    blocks: list[Block] = []
    for model, of_model in rows.items():
        cells = {name: _row(compared[model], name, row, test) for name, row in of_model.items()}
        blocks.append(Block(model, [cells[row.name] for row in PAPER]))
        others = [cells[row.name] for row in BESIDE if row.name in cells]
        others += [_untrained(name, _means(result, test)) for name, result in as_they_are(results, model).items()]
        blocks.append(Block(f"{model}, beside the paper", others))
    header = ["target", "chosen", MEASURE, "±", RECALL, "± ", "time", "triplets"]
    title = "Target variants" if len(results.tests) == 1 else f"Target variants on {results.tests[test]}"
    lacking = [line for model, of_model in rows.items() for line in not_trained(model, BESIDE, of_model)]
    return Table(title, header, blocks, _notes(results, test) + lacking)


def _numbers_of(
    results: Results, model: str, rows: dict[str, OverSeeds], compared: Compared, test: str
) -> dict[str, Any]:
    found: dict[str, Any] = {name: _numbers(compared, name, row, test) for name, row in rows.items()}
    return found | {name: _means(result, test) for name, result in as_they_are(results, model).items()}


def _row(comparison: Compared, name: str, row: OverSeeds, test: str) -> list[Cell]:
    cells = [Cell(name), Cell(chosen_text(row.chosen))]
    for measure in (MEASURE, RECALL):
        found = comparison[measure][name]
        mean, spread = mean_and_deviation(row.results, measure, test)
        better = found.difference is not None and found.difference.different and found.difference.mean.mean > 0
        marks = (DAGGER if found.equivalent else "") + (BETTER if better else "")
        cells += [number(mean, bold=found.difference is None, marks=marks), number(spread)]
    swept = SWEPT if row.sweep else ""
    return [
        *cells,
        Cell(time_text(row.seconds), marks=swept, value=row.seconds),
        Cell(f"{row.triplets:,.0f}", value=row.triplets),
    ]


def _untrained(name: str, means: dict[str, float]) -> list[Cell]:
    return [Cell(name), Cell(""), number(means[MEASURE]), Cell(""), number(means[RECALL]), *[Cell("")] * 3]


def _numbers(comparison: Compared, name: str, row: OverSeeds, test: str) -> dict[str, Any]:
    found: dict[str, Any] = {
        "seconds": row.seconds,
        "sweep_seconds": row.sweep.seconds if row.sweep else 0.0,
        "triplets": row.triplets,
        "tuned_to": row.chosen.tuned_to,
        "rate": row.chosen.spec.rate,
        "run_seconds": fmean(result.seconds for result in row.results),
        "joules": row.joules,
    }
    for measure in (MEASURE, RECALL):
        compared = comparison[measure][name]
        found[measure] = mean_and_deviation(row.results, measure, test)[0]
        found[f"{measure} best"] = compared.difference is None
        found[f"{measure} equivalent"] = compared.equivalent
    return found


def _means(result: Result, test: str) -> dict[str, float]:
    return {measure: fmean(values.values()) for measure, values in result.test(test).items()}


def _published() -> Table:
    """What the paper printed, for MS MARCO."""
    blocks: dict[str, list[list[Cell]]] = {}
    for row in published_variants():
        cells = [Cell(row.target)]
        for values, equal in ((row.ndcg, row.ndcg_equivalent), (row.recall, row.recall_equivalent)):
            cells += [number(v, marks=DAGGER if e else "") for v, e in zip(values, equal, strict=True)]
        swept = SWEPT if row.target.startswith("static") else ""
        time, seen = Cell(f"{row.time} h", marks=swept, value=row.seconds), number(row.triplets, 2)
        blocks.setdefault(row.model, []).append([*cells, time, seen])
    header = ["target", "nDCG@10 DL19", "DL20", "R@1000 DL19", "DL20 ", "time", "triplets (M)"]
    source = variants_source()
    notes = [f"{source.label}: {source.citation}"]
    return Table("Published for MS MARCO", header, [Block(m, rows) for m, rows in blocks.items()], notes)


def _scatter(results: Results, model: str, rows: dict[str, OverSeeds]) -> Scatter:
    """Distributed against the tuned static margin, query by query."""
    return scatter_of(
        {name: rows[name].scores(TEST)[MEASURE] for name in ("static", "distributed")},
        results.queries(),
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
        level = [name for name in names if rows[name][MEASURE] == distributed[MEASURE]]
        ahead = rows[best][MEASURE] > distributed[MEASURE]
        verdict = f"is behind {best} ({rows[best][MEASURE]:.3f})" if ahead else "is the best"
        verdict += f", level with {'; '.join(n for n in level if n != 'distributed')}" if len(level) > 1 else ""
        equal = ", and statistically equivalent to it" if ahead and distributed[f"{MEASURE} equivalent"] else ""
        if not any(rows[name]["triplets"] for name in names):
            lines.append(f"{model}: training never came above the model before it on dev, so all rows are that model.")
        beside = [f"{text} {rows[name][MEASURE]:.3f}" for name, text in MENTIONED.items() if name in rows]
        lines.append(
            f"{model}: of the paper's targets, distributed ({distributed[MEASURE]:.3f} {MEASURE}) {verdict}{equal}. "
            f"Beside them: {', '.join(beside)}."
        )
    return lines


def _notes(results: Results, test: str) -> list[str]:
    seeds = len(results.plan.seeds)
    spread = f" ± is the standard deviation over {seeds} seeds; each query counts with its mean over seeds."
    return [
        f"Bold: the best of the paper's targets for a backbone. {DAGGER} equivalent to it (paired TOST within {BOUND}, "
        f"Bonferroni: the paper's targets are one group, the others another). {BETTER} better than it (paired t-test, "
        f"Bonferroni).{spread if seeds > 1 else ' One seed.'}",
        f"{SWEPT} with the sweep over margins or temperatures. Time and triplets are those until the best model by "
        "dev; the choice of the learning rate, from one grid for every row, is not counted. Where triplets are 0, "
        "training never came above the model before it on dev, so that is what was measured.",
        f"Test: exact full ranking of {results.tests[test]}. Margin, temperature, learning rate and when to stop: dev.",
    ]


def _settings(results: Results) -> dict[str, Any]:
    plan = results.plan
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


EXPERIMENT = Experiment(
    "variants",
    "Table 3: all targets, with what they cost, and which are equivalent to the best.",
    tasks=_tasks,
    draw=draw,
    compares=True,
)
