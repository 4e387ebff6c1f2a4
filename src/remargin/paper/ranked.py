"""How rankings came about, in words; and what the paper's index costs, in numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from remargin.paper.systems import over_seeds
from remargin.reports.tables import Block, Cell, Table, number
from remargin.study.full_ranking import AS_EXACT, DEPTH
from remargin.study.plan import DEV, EXACT, Plan
from remargin.study.results import MEASURE, RECALL, Result, Results

Rows = Mapping[str, Mapping[str, Sequence[Result]]]  # the training runs of each seed, by backbone and system


def validated(results: Results) -> str:
    """What validations of a study rank, for people.

    >>> from pathlib import Path
    >>> header = {"data": "faq", "models": {}, "zero_shot": [], "plan": {}}
    >>> validated(Results(Path("x"), header)), validated(Results(Path("x"), header | {"first_stage": "1f"}))
    ("faq, dev: BM25's documents re-ranked", "faq, dev: a first-stage run's documents re-ranked")
    """
    stage = "BM25's" if results.header.get("first_stage") is None else "a first-stage run's"
    ranked = "all documents ranked" if results.plan.full_validation else f"{stage} documents re-ranked"
    return f"{results.name}, {results.plan.validation_split}: {ranked}"


def chosen_on(plan: Plan) -> str:
    """Where margins, rates and the step to stop at were chosen.

    >>> chosen_on(Plan()), chosen_on(Plan(validation_split="test"))
    ('dev', 'the test queries of the study, as in the paper')
    """
    return "dev" if plan.validation_split == DEV else "the test queries of the study, as in the paper"


def ranking(plan: Plan) -> str:
    """How test queries are ranked.

    >>> ranking(Plan())
    'exact full ranking'
    """
    if plan.index == EXACT:
        return "exact full ranking"
    return f"full ranking through the paper's index (HNSW over 32-byte OPQ codes, the first {DEPTH:,} re-ranked)"


def index_costs(results: Results, rows: Rows) -> list[Table]:
    """What each system loses by the index, a table for each test collection; none where test queries rank exactly."""
    return [] if results.plan.index == EXACT else [_costs(results, rows, *test) for test in results.tests.items()]


def _costs(results: Results, rows: Rows, test: str, collection: str) -> Table:
    header, blocks, lost = ["target"], [], []
    for measure in (MEASURE, RECALL):
        header += [measure, f"exact {measure}", f"lost {measure}"]
    for model, by_system in rows.items():
        block = Block(model, [])
        for name, runs in by_system.items():
            scores = over_seeds(list(runs), test)
            cells = [Cell(name)]
            for measure in (MEASURE, RECALL):
                found, exact = (fmean(scores[key].values()) for key in (measure, f"{AS_EXACT}{measure}"))
                cells += [number(found), number(exact), number(exact - found)]
            lost.append(cells[3].value or 0.0)
            block.rows.append(cells)
        blocks.append(block)
    note = f"By the index, {MEASURE} is {fmean(lost):.3f} lower on average, and {max(lost):.3f} at most."
    return Table(f"What the index costs on {collection}", header, blocks, [note])
