"""The paper's table 4: self-distillation beside teachers and baselines, measured here and as published."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from math import fsum
from statistics import fmean
from typing import Any

from remargin.evaluation.comparison import Scores
from remargin.paper.compared import BOUND, Compared, chosen_text, compare_in_groups, not_trained, time_text
from remargin.paper.published import published_baselines
from remargin.paper.systems import ADAPTIVE, ADAPTIVE_IN_BATCH, BESIDE, DISTRIBUTED, UNTUNED, measured_runs, taught
from remargin.report.comparison import DAGGER
from remargin.report.sections import Section
from remargin.report.tables import Block, Cell, Table, number
from remargin.study.experiment import Experiment
from remargin.study.outcome import Outcome, with_tests
from remargin.study.results import MEASURE, RECALL, TEST, Result, Results
from remargin.study.systems import CONTRASTIVE, STATIC, STATIC_IN_BATCH, Choice, System, choose, sweep_of
from remargin.study.tasks import MeasureUntrained, Task
from remargin.study.teacher import DEPTH, teacher_report

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


def _tasks(results: Results) -> Iterator[Task]:
    yield MeasureUntrained(None, tuple(results.tests))
    for model in results.models:
        for system in chain.from_iterable(BLOCKS.values()):
            yield from measured_runs(results, model, system, every_seed=False)


def draw(results: Results) -> Outcome:
    """The first seed of each row, for each backbone, against the best TAS-B run; and the published rows."""
    tables, numbers = [], {}
    for model, found in results.of_models(lambda model: _rows(results, model)).items():
        of_tests: dict[str, dict[str, Any]] = {}
        for test, collection in results.tests.items():
            scores = {name: row.result.test(test) for name, row in found.items()}
            scores["BM25"] = results.bm25(test).test(test)
            reference, best = (_best(scores, rows) for rows in (TAS_B, TEACHERS))
            compared = compare_in_groups(scores, reference)
            teacher = teacher_report(results.out, results.files)
            blocks = _blocks(found, scores, compared, teacher["test"] if test == TEST else None)
            header = ["system", "chosen", MEASURE, RECALL, "time", "triplets"]
            notes = _notes(results, found, reference, teacher)
            if test == TEST and teacher["test"] is not None:
                notes.append(_worth(scores, teacher))
            notes += not_trained(model, OURS, found)
            tables.append(Table(f"{model}, measured on {collection}", header, blocks, notes))
            of_tests[collection] = _numbers(found, scores, compared, reference, best)
        numbers[model] = with_tests(of_tests, results.name)
    tables.append(_published())
    summary = [_said(model, of_model) for model, of_model in numbers.items()]
    settings = {"teacher": teacher_report(results.out, results.files), "bound": BOUND}
    return Outcome(Section("baselines", "Baselines", summary, tables, [], settings, []), numbers)


def _rows(results: Results, model: str) -> dict[str, FirstSeed]:
    """The paper's rows have to be there; of ours, what there is."""
    results.bm25(*results.tests)  # the table has that too
    ours = {row.name: row for row in OURS}
    papers = [row for rows in BLOCKS.values() for row in rows if row.name not in ours]
    found = {row.name: _first_seed(results, model, row) for row in papers}
    return found | results.where_trained(ours, lambda name: _first_seed(results, model, ours[name]))


def _blocks(
    found: dict[str, FirstSeed], scores: dict[str, Scores], compared: Compared, teacher: float | None
) -> list[Block]:
    rows = {
        label: [_row(row.name, found, scores, compared) for row in rows if row.name in found]
        for label, rows in BLOCKS.items()
    }
    rows["no distillation"].insert(0, _row("BM25", found, scores, compared))
    for of_block in rows.values():
        _embolden(of_block)
    if teacher is not None:
        rows["teacher distillation"].append([Cell("the teacher itself"), Cell(""), number(teacher), *[Cell("")] * 3])
    return [Block(label, of_block) for label, of_block in rows.items()]


@dataclass(frozen=True)
class FirstSeed:
    """What came of a row's first seed, and the seconds until its best model, with sweeps and teachers."""

    chosen: Choice
    result: Result
    seconds: float


def _first_seed(results: Results, model: str, row: System) -> FirstSeed:
    chosen = choose(results, model, row)
    sweep, result = sweep_of(results, chosen), results.run(chosen.spec, *results.tests)
    seconds = result.seconds_to_best + (sweep.seconds if sweep else 0.0)
    if chosen.spec.taught:
        seconds += fsum(teacher_report(results.out, results.files)["seconds"].values())
        if chosen.spec.in_batch:  # its second teacher
            seconds += _first_seed(results, model, CONTRASTIVE).seconds
    return FirstSeed(chosen, result, seconds)


def _row(name: str, found: dict[str, FirstSeed], scores: dict[str, Scores], compared: Compared) -> list[Cell]:
    cells = [Cell(name), Cell(chosen_text(found[name].chosen) if name in found else "")]
    for measure in (MEASURE, RECALL):
        marks = DAGGER if compared[measure][name].equivalent else ""
        cells.append(number(_mean(scores[name], measure), marks=marks))
    if name not in found:
        return [*cells, Cell(""), Cell("")]
    seconds, seen = found[name].seconds, found[name].result.best_triplets
    return [*cells, Cell(time_text(seconds), value=seconds), Cell(f"{seen:,}", value=seen)]


def _embolden(rows: list[list[Cell]]) -> None:
    """The best of a block, in each measure."""
    for column in (2, 3):
        best = max(value for row in rows if (value := row[column].value) is not None)
        for row in rows:
            row[column] = replace(row[column], bold=row[column].value == best)


def _best(scores: dict[str, Scores], rows: Iterable[System]) -> str:
    """The row with the highest nDCG@10, of those that are there."""
    return max((row.name for row in rows if row.name in scores), key=lambda name: _mean(scores[name], MEASURE))


def _mean(scores: Scores, measure: str) -> float:
    return fmean(scores[measure].values())


def _numbers(
    found: dict[str, FirstSeed], scores: dict[str, Scores], compared: Compared, reference: str, best: str
) -> dict[str, Any]:
    numbers: dict[str, Any] = {
        name: {
            MEASURE: _mean(of_row, MEASURE),
            RECALL: _mean(of_row, RECALL),
            "equivalent": compared[MEASURE][name].equivalent,
            "recall_equivalent": compared[RECALL][name].equivalent,
            "triplets": found[name].result.best_triplets if name in found else None,
        }
        for name, of_row in scores.items()
    }
    named = {"reference": reference, "best teacher": best}
    return numbers | {role: {"name": name, **numbers[name]} for role, name in named.items()}


def _notes(results: Results, found: dict[str, FirstSeed], reference: str, teacher: dict[str, Any]) -> list[str]:
    untrained = [name for name, row in found.items() if not row.result.best_triplets]
    return [
        f"Bold: the best of a block. {DAGGER} equivalent to {reference}, the best TAS-B run, which is what the paper "
        f"compares with (paired TOST within {BOUND}, Bonferroni: the paper's targets are one group, the others "
        f"another). Time is that until the best model, with sweeps, and for teachers {_cost(teacher)}, and that of a "
        "second teacher. A teacher scale of 1 brings 99% of the teacher's margins within 1, for cosines.",
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
    return "with their " + " and ".join(f"{what} ({seconds:.0f} s)" for what, seconds in teacher["seconds"].items())


def _origin(teacher: dict[str, Any]) -> str:
    if teacher["test"] is None:
        return f"The teacher's scores are those in {teacher['given']}."
    return (
        f"The teacher is a cross-encoder trained on the same triplets. It re-ranks BM25's first {DEPTH} documents; all "
        "other rows rank all documents."
    )


def _worth(scores: dict[str, Scores], teacher: dict[str, Any]) -> str:
    """Whether the teacher is better than its students."""
    students = {row.name: _mean(scores[row.name], MEASURE) for row in TEACHERS if row.name in scores}
    ahead = [name for name, value in students.items() if value > teacher["test"]]
    if not ahead:
        return f"The teacher ({teacher['test']:.3f} {MEASURE}) is better than any of its students."
    return f"The teacher ({teacher['test']:.3f} {MEASURE}) does not beat its students: {'; '.join(ahead)} are ahead."


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


def _said(model: str, numbers: dict[str, Any]) -> str:
    reference, ours = numbers["reference"], numbers["distributed"]
    word = "equivalent to" if ours["equivalent"] else "behind" if ours[MEASURE] < reference[MEASURE] else "ahead of"
    best = numbers["best teacher"]
    other = "" if best["name"] == reference["name"] else f"; the best with a teacher is {_named(best)}"
    return (
        f"{model}: distributed targets reach {ours[MEASURE]:.3f} {MEASURE}, {word} the best TAS-B run "
        f"({_named(reference)}){other}; BM25 {numbers['BM25'][MEASURE]:.3f}."
    )


def _named(row: dict[str, Any]) -> str:
    return f"{row['name']}, {row[MEASURE]:.3f}"


EXPERIMENT = Experiment(
    "baselines",
    "Table 4: beside teachers (MarginMSE, TAS-B), static margins and BM25.",
    tasks=_tasks,
    draw=draw,
    compares=True,
)
