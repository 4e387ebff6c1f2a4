"""The paper's tables 1 and 3: the backbones; all targets on each of them, and four losses that the paper leaves out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from remargin.evaluation.comparison import Scores
from remargin.paper.backbones import backbones_table
from remargin.paper.compared import (
    BOUND,
    ENERGY,
    Compared,
    RowScore,
    at_edges,
    chosen_text,
    compare_in_groups,
    energy_cell,
    not_trained,
    row_score,
    time_text,
)
from remargin.paper.dev_curves import DevCurve, dev_curve
from remargin.paper.findings import ByTest
from remargin.paper.published import published_variants, variants_source
from remargin.paper.ranked import chosen_on, index_costs, ranking
from remargin.paper.systems import BESIDE, DISTRIBUTED, PAPER, mean_and_deviation, measured_runs, over_seeds, untrained
from remargin.reports.comparison import DAGGER
from remargin.reports.figures import Figure, Scatter, scatter_of
from remargin.reports.sections import Section
from remargin.reports.tables import Block, Cell, Table, number
from remargin.study.experiment import Experiment
from remargin.study.hardware import total_energy
from remargin.study.results import MEASURE, RECALL, TEST, Result, Results
from remargin.study.systems import CONTRASTIVE, STATIC, Choice, Sweep, System, choose, sweep_of
from remargin.study.tasks import Task

SWEPT = "*"
BETTER = "‡"


@dataclass(frozen=True)
class SeedRun:
    """The cost of one training run of a row: seconds to its best model, with the sweep, and nDCG@10 on dev over it."""

    seconds: float
    curve: DevCurve


@dataclass(frozen=True)
class VariantRow:
    """A target of table 3: how good it is, what dev chose for it, and what it cost.

    Attributes:
        scores: by measure, nDCG@10 and R@1000, beside the best of the paper's targets.
        tuned_to: the margin or temperature that dev chose; None if the target has no such parameter.
        rate: the learning rate that dev chose.
        seconds: training up to the best model, as the mean over seeds, with the sweep.
        sweep_seconds: the sweep alone; None if there was none.
        run_seconds: a whole training run, as the mean over seeds.
        triplets: seen by the best model, as the mean over seeds; 0 if no validation was above that before training.
        joules: the energy of the GPU in `seconds`; None unless it was recorded for all of them.
        by_seed: what the training run of each seed took.
    """

    scores: Mapping[str, RowScore]
    tuned_to: float | None
    rate: float
    seconds: float
    sweep_seconds: float | None
    run_seconds: float
    triplets: float
    joules: float | None = None
    by_seed: tuple[SeedRun, ...] = ()


@dataclass(frozen=True)
class VariantTable:
    """Table 3 for one backbone and test collection: all of the paper's targets, and of ours those that are trained.

    `no_training` and `bm25` are means by measure.
    """

    rows: Mapping[System, VariantRow]
    no_training: Mapping[str, float]
    bm25: Mapping[str, float]


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


def _tasks(results: Results) -> Iterator[Task]:
    yield from untrained(results, *results.tests)
    for model in results.models:
        for system in (*PAPER, *BESIDE):
            yield from measured_runs(results, model, system, every_seed=True)


def findings(results: Results) -> ByTest[VariantTable]:
    """The table of each backbone on each test collection."""
    rows = results.of_models(lambda model: _rows(results, model))
    return ByTest.of(results, rows, lambda model, test: _variant_table(results, model, rows[model], test))


def draw(results: Results, findings: ByTest[VariantTable]) -> Section:
    """A table for each test collection; figures are about the first, the study's own."""
    tables = [_table(results, by_model, collection) for collection, by_model in findings.collections()]
    figures: list[Figure] = [_scatter(results, model) for model in findings.own]
    summary = [line for model, table in findings.own.items() for line in _summary(model, table)]
    tables += index_costs(results, {model: _runs(results, model) for model in findings.own})
    tables += [_published(), backbones_table(results, list(findings.own))]
    return Section("variants", "Variants", summary, tables, figures, _settings(results), [])


def _runs(results: Results, model: str) -> dict[str, list[Result]]:
    return {system.name: row.results for system, row in _rows(results, model).items()}


def _rows(results: Results, model: str) -> dict[System, OverSeeds]:
    """The paper's rows have to be there; of ours, what there is."""
    results.untrained(model, *results.tests)  # the table has these two as well
    results.bm25(*results.tests)
    beside = {system.name: system for system in BESIDE}
    rows = {system: _over_seeds(results, model, system) for system in PAPER}
    ours = results.where_trained(beside, lambda name: _over_seeds(results, model, beside[name]))
    return rows | {beside[name]: row for name, row in ours.items()}


def _over_seeds(results: Results, model: str, system: System) -> OverSeeds:
    choice = choose(results, model, system)
    seeds = [results.run(spec, *results.tests) for spec in choice.with_seeds(results.plan.seeds)]
    return OverSeeds(choice, sweep_of(results, choice), seeds)


def _variant_table(results: Results, model: str, rows: dict[System, OverSeeds], test: str) -> VariantTable:
    compared = compare_in_groups({system.name: row.scores(test) for system, row in rows.items()})
    return VariantTable(
        {system: _variant_row(row, compared, test) for system, row in rows.items()},
        no_training=_means(results.untrained(model).test(test)),
        bm25=_means(results.bm25().test(test)),
    )


def _variant_row(row: OverSeeds, compared: Compared, test: str) -> VariantRow:
    name = row.chosen.system.name
    return VariantRow(
        scores={
            measure: row_score(
                compared[measure][name],
                *mean_and_deviation(row.results, measure, test),
                [result.test(test) for result in row.results],
            )
            for measure in (MEASURE, RECALL)
        },
        tuned_to=row.chosen.tuned_to,
        rate=row.chosen.spec.rate,
        seconds=row.seconds,
        sweep_seconds=row.sweep.seconds if row.sweep else None,
        run_seconds=fmean(result.seconds for result in row.results),
        triplets=row.triplets,
        joules=row.joules,
        by_seed=tuple(_seed(row, result) for result in row.results),
    )


def _seed(row: OverSeeds, result: Result) -> SeedRun:
    swept = row.sweep.seconds if row.sweep else 0.0
    return SeedRun(result.seconds_to_best + swept, dev_curve(result, MEASURE))


def _means(scores: Scores) -> dict[str, float]:
    return {measure: fmean(values.values()) for measure, values in scores.items()}


def _table(results: Results, by_model: Mapping[str, VariantTable], further: str) -> Table:
    """A block for each backbone; its best in bold, and marks for what is as good."""
    blocks: list[Block] = []
    for model, table in by_model.items():
        cells = {system: _cells(system, row) for system, row in table.rows.items()}
        blocks.append(Block(model, [cells[system] for system in PAPER]))
        others = [cells[system] for system in BESIDE if system in cells]
        others += [_untrained_cells("no training", table.no_training), _untrained_cells("BM25", table.bm25)]
        blocks.append(Block(f"{model}, beside the paper", others))
    header = ["target", "chosen", MEASURE, "±", RECALL, "± ", "time", "energy", "triplets"]
    collection = further or results.name
    title = "Target variants" if len(results.tests) == 1 else f"Target variants on {collection}"
    lacking = [line for model, table in by_model.items() for line in not_trained(model, BESIDE, table.rows)]
    edges = [line for model, table in by_model.items() for line in at_edges(results, model, table.rows)]
    return Table(title, header, blocks, _notes(results, collection) + edges + lacking)


def _cells(system: System, row: VariantRow) -> list[Cell]:
    cells = [Cell(system.name), Cell(chosen_text(system, row.tuned_to, row.rate))]
    for measure in (MEASURE, RECALL):
        score = row.scores[measure]
        marks = (DAGGER if score.equivalent else "") + (BETTER if score.better else "")
        cells += [number(score.mean, bold=score.reference, marks=marks), number(score.deviation)]
    swept = "" if row.sweep_seconds is None else SWEPT
    return [
        *cells,
        Cell(time_text(row.seconds), marks=swept, value=row.seconds),
        energy_cell(row.joules, swept),
        Cell(f"{row.triplets:,.0f}", value=row.triplets),
    ]


def _untrained_cells(name: str, means: Mapping[str, float]) -> list[Cell]:
    return [Cell(name), Cell(""), number(means[MEASURE]), Cell(""), number(means[RECALL]), *[Cell("")] * 4]


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


def _scatter(results: Results, model: str) -> Scatter:
    """Distributed against the tuned static margin, query by query."""
    return scatter_of(
        {system.name: _over_seeds(results, model, system).scores(TEST)[MEASURE] for system in (STATIC, DISTRIBUTED)},
        results.queries(),
        MEASURE,
        name=f"queries-{model}",
        title=f"{model}: distributed and tuned static targets, query by query",
        caption="Test queries, mean over seeds.",
    )


def _summary(model: str, table: VariantTable) -> list[str]:
    """How distributed targets compare, in a sentence or two."""
    targets = {system.name: table.rows[system].scores[MEASURE].mean for system in PAPER}
    best = max(targets, key=targets.__getitem__)
    distributed = table.rows[DISTRIBUTED].scores[MEASURE]
    level = [name for name, mean in targets.items() if mean == distributed.mean and name != DISTRIBUTED.name]
    ahead = targets[best] > distributed.mean
    verdict = f"is behind {best} ({targets[best]:.3f})" if ahead else "is the best"
    verdict += f", level with {'; '.join(level)}" if level else ""
    verdict += ", and statistically equivalent to it" if ahead and distributed.equivalent else ""
    beside = [f"the model without training {table.no_training[MEASURE]:.3f}"]
    if CONTRASTIVE in table.rows:
        mean = table.rows[CONTRASTIVE].scores[MEASURE].mean
        beside.insert(0, f"the contrastive loss that the paper leaves out {mean:.3f}")
    lines = []
    if not any(table.rows[system].triplets for system in PAPER):
        lines.append(f"{model}: training never came above the model before it on dev, so all rows are that model.")
    return [
        *lines,
        f"{model}: of the paper's targets, distributed ({distributed.mean:.3f} {MEASURE}) {verdict}. "
        f"Beside them: {', '.join(beside)}.",
    ]


def _notes(results: Results, collection: str) -> list[str]:
    plan, seeds = results.plan, len(results.plan.seeds)
    spread = f" ± is the standard deviation over {seeds} seeds; each query counts with its mean over seeds."
    return [
        f"Bold: the best of the paper's targets for a backbone. {DAGGER} equivalent to it (paired TOST within {BOUND}, "
        f"Bonferroni: the paper's targets are one group, the others another). {BETTER} better than it (paired t-test, "
        f"Bonferroni).{spread if seeds > 1 else ' One seed.'}",
        f"{SWEPT} with the sweep over margins or temperatures. Time, energy and triplets are those until the best "
        f"model by dev. {ENERGY} The choice of the learning rate, from one grid for every row, is not counted. Where "
        "triplets are 0, training never came above the model before it on dev, so that is what was measured.",
        f"Test: {ranking(plan)} of {collection}. Margin, temperature, learning rate and when to stop: "
        f"{chosen_on(plan)}.",
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
    tasks=_tasks,
    findings=findings,
    draw=draw,
    compares=True,
)
