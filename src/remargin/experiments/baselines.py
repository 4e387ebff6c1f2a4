"""The paper's table 4: self-distillation beside teachers and baselines, measured here and as published."""

from __future__ import annotations

from typing import Any

from remargin.evaluation.comparison import Scores, compare_scores
from remargin.experiments.outcome import Outcome
from remargin.experiments.published import published_baselines
from remargin.experiments.results import MEASURE, RECALL, TEST, Result
from remargin.experiments.rows import (
    ADAPTIVE,
    ADAPTIVE_IN_BATCH,
    BESIDE,
    DISTRIBUTED,
    STATIC,
    STATIC_IN_BATCH,
    UNTUNED,
    Row,
    choose,
    teacher_row,
)
from remargin.experiments.study import Study
from remargin.experiments.teacher import teacher_report
from remargin.experiments.variants import BOUND, time_text
from remargin.report.comparison import DAGGER
from remargin.report.sections import Section
from remargin.report.tables import Block, Cell, Table, number

TEACHERS = (
    teacher_row("MarginMSE"),
    teacher_row("MarginMSE, in-batch", in_batch=True),
    teacher_row("TAS-B", sampler="tas-balanced"),
    teacher_row("TAS-B, in-batch", sampler="tas-balanced", in_batch=True),
    teacher_row("TAS-B, easy bins dropped", sampler="tas-balanced", drop_bins=5),
)
BLOCKS: dict[str, tuple[Row, ...]] = {
    "self-distillation": (ADAPTIVE, ADAPTIVE_IN_BATCH, DISTRIBUTED),
    "teacher distillation": TEACHERS,
    "no distillation": (STATIC, STATIC_IN_BATCH, UNTUNED),
    "beside the paper": BESIDE,
}


def baselines(study: Study) -> Outcome:
    """The first seed of each row, for each backbone, against the best run with a teacher; and the published rows."""
    tables, numbers = [], {}
    for model in study.models:
        found = {row.name: _first_seed(study, model, row) for rows in BLOCKS.values() for row in rows}
        scores = {name: result.test() for name, (result, _) in found.items()}
        scores["BM25"] = study.bm25(TEST).test()
        reference = max((row.name for row in TEACHERS), key=lambda name: _mean(scores[name], MEASURE))
        equivalent = _equivalent(scores, reference)
        teacher = teacher_report(study)
        cost = sum(teacher["seconds"].values())
        blocks = [
            Block(label, [_row(row.name, *found[row.name], scores, equivalent, cost) for row in rows])
            for label, rows in BLOCKS.items()
        ]
        blocks[2].rows.insert(0, _bare("BM25", scores["BM25"], equivalent))
        blocks[1].rows.append([Cell("the teacher itself"), number(teacher["test"]), *[Cell("")] * 3])
        title = f"{model}, measured on {study.name}"
        tables.append(Table(title, ["system", MEASURE, RECALL, "time", "triplets"], blocks, _notes(reference, teacher)))
        numbers[model] = _numbers(study, found, scores, equivalent, reference)
    tables.append(_published())
    summary = [_said(model, of_model) for model, of_model in numbers.items()]
    settings = {"teacher": teacher_report(study), "bound": BOUND}
    return Outcome(Section("baselines", "Baselines", summary, tables, [], settings, []), numbers)


def _first_seed(study: Study, model: str, row: Row) -> tuple[Result, float]:
    """What came of a row, and the seconds of its sweep."""
    chosen = choose(study, model, row)
    (result,) = chosen.results(study, every_seed=False)
    return result, chosen.sweep.seconds if chosen.sweep else 0.0


def _equivalent(scores: dict[str, Scores], reference: str) -> set[tuple[str, str]]:
    """Which rows are equivalent to the reference, by name and measure."""
    found = set()
    for measure in (MEASURE, RECALL):
        of_measure = {name: {measure: values[measure]} for name, values in scores.items()}
        compared = compare_scores(of_measure, reference=reference, bound=BOUND)
        found |= {(row.run, measure) for row in compared.rows if row.equivalent}
    return found


def _row(
    name: str, result: Result, swept: float, scores: dict[str, Scores], equivalent: set[tuple[str, str]], cost: float
) -> list[Cell]:
    seconds = result.seconds_to_best + swept + (cost if result.spec is not None and result.spec.taught else 0.0)
    cells = _bare(name, scores[name], equivalent)
    seen = result.best_triplets
    return [*cells[:3], Cell(time_text(seconds), value=seconds), Cell(f"{seen:,}", value=seen)]


def _bare(name: str, scores: Scores, equivalent: set[tuple[str, str]]) -> list[Cell]:
    cells = [Cell(name)]
    for measure in (MEASURE, RECALL):
        cells.append(number(_mean(scores, measure), marks=DAGGER if (name, measure) in equivalent else ""))
    return [*cells, Cell(""), Cell("")]


def _mean(scores: Scores, measure: str) -> float:
    return sum(scores[measure].values()) / len(scores[measure])


def _numbers(
    study: Study,
    found: dict[str, tuple[Result, float]],
    scores: dict[str, Scores],
    equivalent: set[tuple[str, str]],
    reference: str,
) -> dict[str, Any]:
    numbers: dict[str, Any] = {
        name: {
            MEASURE: _mean(of_row, MEASURE),
            RECALL: _mean(of_row, RECALL),
            "equivalent": (name, MEASURE) in equivalent,
            "share_of_epoch": found[name][0].best_triplets / study.plan.triplets if name in found else 0.0,
        }
        for name, of_row in scores.items()
    }
    return numbers | {"best teacher": numbers[reference][MEASURE], "reference": reference}


def _notes(reference: str, teacher: dict[str, Any]) -> list[str]:
    return [
        f"{DAGGER} equivalent to {reference}, the best run with a teacher (paired TOST within {BOUND}, Bonferroni). "
        "Time is that until the best model, with sweeps, and for teachers with their training "
        f"({teacher['seconds']['training']:.0f} s) and scoring ({teacher['seconds']['scoring']:.0f} s).",
        f"The teacher is a cross-encoder trained on the same triplets. Re-ranking BM25 it has {teacher['test']:.3f} "
        f"{MEASURE}. In-batch scores come from the contrastive row's model, as TAS-B takes them from a second teacher.",
    ]


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
        cells += [number(value, 2) for value in (*row.ndcg, *row.recall)]
        blocks.setdefault(row.block, []).append([*cells, number(row.triplets, 1)])
    sources = sorted({f"{row.source.label}: {row.source.citation}" for row in rows})
    return Table("Published for MS MARCO, distilBERT", header, [Block(b, r) for b, r in blocks.items()], sources)


def _said(model: str, numbers: dict[str, Any]) -> str:
    best, ours = numbers["best teacher"], numbers["distributed"]
    word = "equivalent to" if ours["equivalent"] else "behind" if ours[MEASURE] < best else "ahead of"
    return (
        f"{model}: distributed targets reach {ours[MEASURE]:.3f} {MEASURE}, {word} the best run with a teacher "
        f"({numbers['reference']}, {best:.3f}); BM25 {numbers['BM25'][MEASURE]:.3f}."
    )
