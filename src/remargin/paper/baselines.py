"""The paper's table 4: self-distillation beside teachers and baselines, measured here and as published."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from math import fsum
from statistics import fmean
from typing import Any

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
from remargin.paper.published import published_baselines
from remargin.paper.ranked import index_costs
from remargin.paper.seeds import OverSeeds, mean_and_deviation, trained_row
from remargin.paper.systems import (
    ADAPTIVE,
    ADAPTIVE_IN_BATCH,
    BESIDE,
    DISTRIBUTED,
    EASY_BINS_DROPPED,
    TAS_B,
    TAUGHT_BY_MARGIN_MSE,
    TEACHERS,
    UNTUNED,
    measured_runs,
)
from remargin.reports.comparison import DAGGER
from remargin.reports.sections import Section
from remargin.reports.tables import Block, Cell, Table, number
from remargin.study.experiment import Experiment
from remargin.study.hardware import total_energy
from remargin.study.results import MEASURE, RECALL, Results
from remargin.study.systems import STATIC, STATIC_IN_BATCH, System, sweep_of
from remargin.study.tasks import MeasureUntrained, Task
from remargin.study.teacher import DEPTH, FOLDER, REPORT, teacher_report

BLOCKS: dict[str, tuple[System, ...]] = {
    "self-distillation": (ADAPTIVE, ADAPTIVE_IN_BATCH, DISTRIBUTED),
    "teacher distillation": TEACHERS,
    "no distillation": (STATIC, STATIC_IN_BATCH, UNTUNED),
    "beside the paper": BESIDE,
}
OURS = (EASY_BINS_DROPPED, *TAUGHT_BY_MARGIN_MSE, *BESIDE)  # what the paper's table lacks
BM25 = "BM25"


@dataclass(frozen=True)
class BaselineRow:
    """A system of table 4: how good it is, what dev chose for it, and what it cost; as the mean over seeds.

    Attributes:
        scores: by measure, nDCG@10 and R@1000, beside the best TAS-B run.
        tuned_to: the margin, temperature or teacher scale that dev chose; None if the system has no such parameter.
        rate: the learning rate that dev chose.
        seconds: training up to the best model, with sweeps and teachers.
        triplets: seen by the best model; 0 if no validation was above that before training.
        joules: the energy of the GPU in `seconds`; None unless it was recorded for all of them.
        curves: nDCG@10 on dev over the training run of each seed.
    """

    scores: Mapping[str, RowScore]
    tuned_to: float | None
    rate: float
    seconds: float
    triplets: float
    joules: float | None = None
    curves: tuple[DevCurve, ...] = ()

    @property
    def seeds(self) -> int:
        """How many training runs it is the mean of."""
        return len(self.curves)


@dataclass(frozen=True)
class BaselineTable:
    """Table 4 for one backbone and test collection.

    Attributes:
        rows: by system: all of the paper's, and of ours those that are trained.
        bm25: the scores of BM25, by measure.
        reference: the best TAS-B run by nDCG@10, which all rows are compared with.
        best_teacher: the best of all systems with a teacher.
    """

    rows: Mapping[System, BaselineRow]
    bm25: Mapping[str, RowScore]
    reference: System
    best_teacher: System


def _tasks(results: Results) -> Iterator[Task]:
    yield MeasureUntrained(None, tuple(results.tests))
    for model in results.models:
        for system in chain.from_iterable(BLOCKS.values()):
            yield from measured_runs(results, model, system)


def findings(results: Results) -> ByTest[BaselineTable]:
    """Each row against the best TAS-B run, for each backbone on each test collection."""
    rows = results.of_models(lambda model: _rows(results, model))
    return ByTest.of(results, rows, lambda model, test: _baseline_table(results, rows[model], test))


def draw(results: Results, findings: ByTest[BaselineTable]) -> Section:
    """A table for each backbone and test collection, and the published rows."""
    teacher = teacher_report(results.out, results.files)
    tables = [
        _table(results, teacher, model, by_collection[model], collection)
        for model in findings.own
        for collection, by_collection in findings.collections()
    ]
    summary = [_summary(model, table) for model, table in findings.own.items()]
    rows = {model: _rows(results, model) for model in findings.own}
    tables += index_costs(results, {m: {s.name: row.trained.results for s, row in rows[m].items()} for m in rows})
    settings = {"teacher": teacher, "bound": BOUND}
    return Section("baselines", "Baselines", summary, [*tables, _published()], [], settings, [])


@dataclass(frozen=True)
class Row:
    """The training runs of a row, and the seconds and joules until its best model, with sweeps and teachers."""

    trained: OverSeeds
    seconds: float
    joules: float | None


def _rows(results: Results, model: str) -> dict[System, Row]:
    """The paper's rows have to be there; of ours, what there is."""
    results.bm25(*results.tests)  # the table has that too
    if not results.files.has(results.out / FOLDER / REPORT):
        raise results.not_trained("the report on the teacher", model)
    ours = {system.name: system for system in OURS}
    papers = [system for systems in BLOCKS.values() for system in systems if system not in OURS]
    rows = {system: _row(results, model, system) for system in papers}
    beside = results.where_trained(ours, lambda name: _row(results, model, ours[name]))
    return rows | {ours[name]: row for name, row in beside.items()}


def _row(results: Results, model: str, system: System) -> Row:
    """The seeds of a row that are there: older studies have one of some rows."""
    trained = trained_row(results, model, system, every_seed=False)
    seconds, joules = [trained.seconds], [trained.joules]
    if trained.chosen.spec.taught:
        teacher = teacher_report(results.out, results.files)
        seconds += teacher["seconds"].values()
        joules.append(teacher.get("joules"))
    if (chosen := trained.chosen.second_teacher) is not None:
        second = OverSeeds(chosen, sweep_of(results, chosen), [results.run(chosen.spec)])
        seconds.append(second.seconds)
        joules.append(second.joules)
    return Row(trained, fsum(seconds), total_energy(joules))


def _baseline_table(results: Results, rows: dict[System, Row], test: str) -> BaselineTable:
    scores = {system.name: row.trained.scores(test) for system, row in rows.items()}
    scores[BM25] = results.bm25(test).test(test)

    def mean(name: str, measure: str = MEASURE) -> float:
        return fmean(scores[name][measure].values())

    def best(systems: Iterable[System]) -> System:
        return max((system for system in systems if system in rows), key=lambda system: mean(system.name))

    reference = best(TAS_B)
    compared = compare_in_groups(scores, reference.name)
    return BaselineTable(
        {system: _baseline_row(row, compared, test) for system, row in rows.items()},
        bm25={
            measure: row_score(compared[measure][BM25], mean(BM25, measure), None, [scores[BM25]])
            for measure in (MEASURE, RECALL)
        },
        reference=reference,
        best_teacher=best(TEACHERS),
    )


def _baseline_row(row: Row, compared: Compared, test: str) -> BaselineRow:
    chosen, seeds = row.trained.chosen, row.trained.results
    return BaselineRow(
        {
            measure: row_score(
                compared[measure][chosen.system.name],
                *mean_and_deviation(seeds, measure, test),
                [result.test(test) for result in seeds],
            )
            for measure in (MEASURE, RECALL)
        },
        chosen.tuned_to,
        chosen.spec.rate,
        row.seconds,
        row.trained.triplets,
        row.joules,
        tuple(dev_curve(result, MEASURE) for result in seeds),
    )


def _table(results: Results, teacher: dict[str, Any], model: str, table: BaselineTable, further: str) -> Table:
    """The teacher was only measured on the study's own test collection."""
    measured = None if further else teacher["test"]
    notes = _notes(results, table, teacher)
    if measured is not None:
        notes.append(_worth(table, measured))
    notes += at_edges(results, model, table.rows) + not_trained(model, OURS, table.rows)
    header = ["system", "chosen", MEASURE, "±", RECALL, "± ", "time", "energy", "triplets"]
    return Table(f"{model}, measured on {further or results.name}", header, _blocks(table, measured), notes)


def _blocks(table: BaselineTable, teacher: float | None) -> list[Block]:
    blocks = {
        label: [_cells(system, table.rows[system]) for system in systems if system in table.rows]
        for label, systems in BLOCKS.items()
    }
    blocks["no distillation"].insert(0, [Cell(BM25), Cell(""), *_score_cells(table.bm25), *[Cell("")] * 3])
    for rows in blocks.values():
        _embolden(rows)
    if teacher is not None:
        blocks["teacher distillation"].append([Cell("the teacher itself"), Cell(""), number(teacher), *[Cell("")] * 6])
    return [Block(label, rows) for label, rows in blocks.items()]


def _cells(system: System, row: BaselineRow) -> list[Cell]:
    return [
        Cell(system.name),
        Cell(chosen_text(system, row.tuned_to, row.rate)),
        *_score_cells(row.scores),
        Cell(time_text(row.seconds), value=row.seconds),
        energy_cell(row.joules),
        Cell(f"{row.triplets:,.0f}", value=row.triplets),
    ]


def _score_cells(scores: Mapping[str, RowScore]) -> list[Cell]:
    cells = []
    for score in (scores[MEASURE], scores[RECALL]):
        cells += [number(score.mean, marks=DAGGER if score.equivalent else ""), number(score.deviation)]
    return cells


def _embolden(rows: list[list[Cell]]) -> None:
    """The best of a block, in each measure."""
    for column in (2, 4):
        best = max(value for row in rows if (value := row[column].value) is not None)
        for row in rows:
            row[column] = replace(row[column], bold=row[column].value == best)


def _notes(results: Results, table: BaselineTable, teacher: dict[str, Any]) -> list[str]:
    untrained = [system.name for system, row in table.rows.items() if not row.triplets]
    return [
        f"Bold: the best of a block. {DAGGER} equivalent to {table.reference.name}, the best TAS-B run, which is what "
        f"the paper compares with (paired TOST within {BOUND}, Bonferroni: the paper's targets are one group, the "
        "others another). Time and energy are those until the best model, with sweeps, and for teachers "
        f"{_cost(teacher)}, and those of a second teacher. {ENERGY} A teacher scale of 1 brings 99% of the "
        "teacher's margins within 1, for cosines.",
        f"{_over_seeds(results, table)} Batches by topic differ in size: how many triplets a run sees in all is only "
        "about the same."
        + (f" Training never came above the model before it, on dev: {'; '.join(untrained)}." if untrained else ""),
        f"{_origin(teacher)} As for TAS-B, in-batch scores come from a second teacher: the contrastive row's model "
        f"with seed {results.plan.seeds[0]}, or MarginMSE's, which only the first teacher has taught.",
        "TAS-B's topics are k-means over the query vectors of the backbone as it is. The bins are of each query's own "
        "range of margins; the variant drops the upper half of them.",
    ]


def _over_seeds(results: Results, table: BaselineTable) -> str:
    """How many training runs a row is the mean of, and which rows have fewer."""
    seeds = len(results.plan.seeds)
    if seeds == 1:
        return f"Each row is one run, with seed {results.plan.seeds[0]}."
    fewer = [f"{system.name} ({row.seeds})" for system, row in table.rows.items() if row.seeds < seeds]
    text = f"± is the standard deviation over {seeds} seeds; each query counts with its mean over seeds."
    return f"{text} Fewer seeds: {'; '.join(fewer)}." if fewer else text


def _cost(teacher: dict[str, Any]) -> str:
    if not teacher["seconds"]:
        return "without their scores, whose cost is not known"
    *parts, last = (f"{part} ({seconds:.0f} s)" for part, seconds in teacher["seconds"].items())
    return f"with their {', '.join(parts)} and {last}"


def _origin(teacher: dict[str, Any]) -> str:
    if teacher["test"] is None:
        return f"The teacher's scores are those in {teacher['given']}."
    return (
        f"The teacher is a cross-encoder trained on the same triplets. It re-ranks BM25's first {DEPTH} documents; all "
        f"other rows rank all documents. {_how_long(teacher)}"
    )


def _how_long(teacher: dict[str, Any]) -> str:
    """The teacher's own learning rate and length, and who chose them."""
    settings, others = teacher["settings"], teacher.get("others")
    chosen = f"The teacher's learning rate is {settings['learning_rate']:g}, its length {_epochs(settings['epochs'])}"
    if not others:
        return f"{chosen}, without a choice on dev."
    tried = (
        f"rate {other['learning_rate']:g} and {_epochs(other['epochs'])} "
        + ("(diverged)" if other["dev"] is None else f"({other['dev']:.3f})")
        for other in others
    )
    return f"{chosen}: {teacher['dev']:.3f} {MEASURE} on dev. Also tried: {', '.join(tried)}."


def _epochs(number: int) -> str:
    return f"{number} epoch{'s' if number > 1 else ''}"


def _worth(table: BaselineTable, teacher: float) -> str:
    """Whether the teacher is better than its students."""
    students = {system.name: table.rows[system].scores[MEASURE].mean for system in TEACHERS if system in table.rows}
    ahead = [name for name, value in students.items() if value > teacher]
    if not ahead:
        return f"The teacher ({teacher:.3f} {MEASURE}) is better than any of its students."
    return f"The teacher ({teacher:.3f} {MEASURE}) does not beat its students: {'; '.join(ahead)} are ahead."


def _published() -> Table:
    """What the paper printed, for MS MARCO and distilBERT."""
    rows = published_baselines()
    header = ["system", "in-batch", "source", "nDCG@10 DL19", "DL20", "R@1000 DL19", "DL20 ", "triplets (M)"]
    blocks: dict[str, list[list[Cell]]] = {}
    for row in rows:
        cells = [
            Cell(row.system),
            Cell("" if row.in_batch is None else "yes" if row.in_batch else "no"),
            Cell(row.source.label),
        ]
        for values, equal in ((row.ndcg, row.ndcg_equivalent), (row.recall, row.recall_equivalent)):
            cells += [number(v, 2, marks=DAGGER if e else "") for v, e in zip(values, equal, strict=True)]
        seen = number(row.triplets, 2)
        blocks.setdefault(row.block, []).append([*cells, replace(seen, text=f"≈ {seen.text}") if row.about else seen])
    (reference,) = (row for row in rows if row.reference)
    sources = [
        f"{DAGGER} equivalent to {reference.system} without in-batch negatives of {reference.source.label}.",
        *sorted({f"{row.source.label}: {row.source.citation}" for row in rows}),
    ]
    return Table("Published for MS MARCO, distilBERT", header, [Block(b, r) for b, r in blocks.items()], sources)


def _summary(model: str, table: BaselineTable) -> str:
    """How distributed targets compare with teachers, in a sentence."""
    reference, ours = table.rows[table.reference].scores[MEASURE], table.rows[DISTRIBUTED].scores[MEASURE]
    word = "equivalent to" if ours.equivalent else "behind" if ours.mean < reference.mean else "ahead of"
    best = table.rows[table.best_teacher].scores[MEASURE]
    other = f"; the best with a teacher is {table.best_teacher.name}, {best.mean:.3f}"
    return (
        f"{model}: distributed targets reach {ours.mean:.3f} {MEASURE}, {word} the best TAS-B run "
        f"({table.reference.name}, {reference.mean:.3f}){'' if table.best_teacher == table.reference else other}; "
        f"BM25 {table.bm25[MEASURE].mean:.3f}."
    )


EXPERIMENT = Experiment(
    "baselines",
    tasks=_tasks,
    findings=findings,
    draw=draw,
    compares=True,
)
