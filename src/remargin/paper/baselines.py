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
from remargin.paper.systems import ADAPTIVE, ADAPTIVE_IN_BATCH, BESIDE, DISTRIBUTED, UNTUNED, measured_runs, taught
from remargin.reports.comparison import DAGGER
from remargin.reports.sections import Section
from remargin.reports.tables import Block, Cell, Table, number
from remargin.study.experiment import Experiment
from remargin.study.hardware import total_energy
from remargin.study.results import MEASURE, RECALL, Result, Results
from remargin.study.systems import CONTRASTIVE, STATIC, STATIC_IN_BATCH, Choice, System, choose, sweep_of
from remargin.study.tasks import MeasureUntrained, Task
from remargin.study.teacher import DEPTH, FOLDER, REPORT, teacher_report

EASY_BINS_DROPPED = taught("TAS-B, easy bins dropped", sampler="tas-balanced", drop_bins=5)
TAS_B = (
    taught("TAS-B", sampler="tas-balanced"),
    taught("TAS-B, in-batch", sampler="tas-balanced", in_batch=True),
    EASY_BINS_DROPPED,
)
TEACHERS = (taught("MarginMSE"), taught("MarginMSE, in-batch", in_batch=True), *TAS_B)
BLOCKS: dict[str, tuple[System, ...]] = {
    "self-distillation": (ADAPTIVE, ADAPTIVE_IN_BATCH, DISTRIBUTED),
    "teacher distillation": TEACHERS,
    "no distillation": (STATIC, STATIC_IN_BATCH, UNTUNED),
    "beside the paper": BESIDE,
}
OURS = (EASY_BINS_DROPPED, *BESIDE)  # what the paper's table lacks
BM25 = "BM25"


@dataclass(frozen=True)
class BaselineRow:
    """A system of table 4: how good its first seed is, what dev chose for it, and what it cost.

    Attributes:
        scores: by measure, nDCG@10 and R@1000, beside the best TAS-B run.
        tuned_to: the margin, temperature or teacher scale that dev chose; None if the system has no such parameter.
        rate: the learning rate that dev chose.
        seconds: training up to the best model, with sweeps and teachers.
        triplets: seen by the best model; 0 if no validation was above that before training.
        joules: the energy of the GPU in `seconds`; None unless it was recorded for all of them.
        curves: nDCG@10 on dev over its training run.
    """

    scores: Mapping[str, RowScore]
    tuned_to: float | None
    rate: float
    seconds: float
    triplets: int
    joules: float | None = None
    curves: tuple[DevCurve, ...] = ()


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
            yield from measured_runs(results, model, system, every_seed=False)


def findings(results: Results) -> ByTest[BaselineTable]:
    """The first seed of each row against the best TAS-B run, for each backbone on each test collection."""
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
    tables += index_costs(results, {m: {s.name: [row.result] for s, row in rows[m].items()} for m in rows})
    settings = {"teacher": teacher, "bound": BOUND}
    return Section("baselines", "Baselines", summary, [*tables, _published()], [], settings, [])


@dataclass(frozen=True)
class FirstSeed:
    """What came of a row's first seed, and the seconds and joules until its best model, with sweeps and teachers."""

    chosen: Choice
    result: Result
    seconds: float
    joules: float | None


def _rows(results: Results, model: str) -> dict[System, FirstSeed]:
    """The paper's rows have to be there; of ours, what there is."""
    results.bm25(*results.tests)  # the table has that too
    if not results.files.has(results.out / FOLDER / REPORT):
        raise results.not_trained("the report on the teacher", model)
    ours = {system.name: system for system in OURS}
    papers = [system for systems in BLOCKS.values() for system in systems if system not in OURS]
    rows = {system: _first_seed(results, model, system) for system in papers}
    beside = results.where_trained(ours, lambda name: _first_seed(results, model, ours[name]))
    return rows | {ours[name]: row for name, row in beside.items()}


def _first_seed(results: Results, model: str, system: System) -> FirstSeed:
    chosen = choose(results, model, system)
    sweep, result = sweep_of(results, chosen), results.run(chosen.spec, *results.tests)
    seconds, joules = [result.seconds_to_best], [result.joules_to_best]
    if sweep:
        seconds.append(sweep.seconds)
        joules.append(sweep.joules)
    if chosen.spec.taught:
        teacher = teacher_report(results.out, results.files)
        seconds += teacher["seconds"].values()
        joules.append(teacher.get("joules"))
        if chosen.spec.in_batch:
            second = _first_seed(results, model, CONTRASTIVE)
            seconds.append(second.seconds)
            joules.append(second.joules)
    return FirstSeed(chosen, result, fsum(seconds), total_energy(joules))


def _baseline_table(results: Results, rows: dict[System, FirstSeed], test: str) -> BaselineTable:
    scores = {system.name: row.result.test(test) for system, row in rows.items()}
    scores[BM25] = results.bm25(test).test(test)

    def mean(name: str, measure: str) -> float:
        return fmean(scores[name][measure].values())

    def best(systems: Iterable[System]) -> System:
        return max((system for system in systems if system in rows), key=lambda system: mean(system.name, MEASURE))

    reference = best(TAS_B)
    compared = compare_in_groups(scores, reference.name)
    row_scores = {
        name: {
            measure: row_score(compared[measure][name], mean(name, measure), None, [scores[name]])
            for measure in (MEASURE, RECALL)
        }
        for name in scores
    }
    return BaselineTable(
        {
            system: BaselineRow(
                row_scores[system.name],
                row.chosen.tuned_to,
                row.chosen.spec.rate,
                row.seconds,
                row.result.best_triplets,
                row.joules,
                (dev_curve(row.result, MEASURE),),
            )
            for system, row in rows.items()
        },
        bm25=row_scores[BM25],
        reference=reference,
        best_teacher=best(TEACHERS),
    )


def _table(results: Results, teacher: dict[str, Any], model: str, table: BaselineTable, further: str) -> Table:
    """The teacher was only measured on the study's own test collection."""
    measured = None if further else teacher["test"]
    notes = _notes(results, table, teacher)
    if measured is not None:
        notes.append(_worth(table, measured))
    notes += at_edges(results, model, table.rows) + not_trained(model, OURS, table.rows)
    header = ["system", "chosen", MEASURE, RECALL, "time", "energy", "triplets"]
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
        blocks["teacher distillation"].append([Cell("the teacher itself"), Cell(""), number(teacher), *[Cell("")] * 4])
    return [Block(label, rows) for label, rows in blocks.items()]


def _cells(system: System, row: BaselineRow) -> list[Cell]:
    return [
        Cell(system.name),
        Cell(chosen_text(system, row.tuned_to, row.rate)),
        *_score_cells(row.scores),
        Cell(time_text(row.seconds), value=row.seconds),
        energy_cell(row.joules),
        Cell(f"{row.triplets:,}", value=row.triplets),
    ]


def _score_cells(scores: Mapping[str, RowScore]) -> list[Cell]:
    both = (scores[MEASURE], scores[RECALL])
    return [number(score.mean, marks=DAGGER if score.equivalent else "") for score in both]


def _embolden(rows: list[list[Cell]]) -> None:
    """The best of a block, in each measure."""
    for column in (2, 3):
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
        f"Each row is one run, with seed {results.plan.seeds[0]}. Batches by topic differ in size: how many triplets a "
        "run sees in all is only about the same."
        + (f" Training never came above the model before it, on dev: {'; '.join(untrained)}." if untrained else ""),
        f"{_origin(teacher)} In-batch scores come from the contrastive row's model, as TAS-B takes "
        "them from a second teacher.",
        "TAS-B's topics are k-means over the query vectors of the backbone as it is. The bins are of each query's own "
        "range of margins; the variant drops the upper half of them.",
    ]


def _cost(teacher: dict[str, Any]) -> str:
    if not teacher["seconds"]:
        return "without their scores, whose cost is not known"
    return "with their " + " and ".join(f"{part} ({seconds:.0f} s)" for part, seconds in teacher["seconds"].items())


def _origin(teacher: dict[str, Any]) -> str:
    if teacher["test"] is None:
        return f"The teacher's scores are those in {teacher['given']}."
    return (
        f"The teacher is a cross-encoder trained on the same triplets. It re-ranks BM25's first {DEPTH} documents; all "
        "other rows rank all documents."
    )


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
