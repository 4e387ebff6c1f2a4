"""What tables 3 and 4 share: which rows are equivalent to the best, and how cells are written."""

from __future__ import annotations

from collections.abc import Container, Iterable
from statistics import fmean

from remargin.evaluation.comparison import ComparedRun, Scores, compare_scores
from remargin.paper.systems import PAPER
from remargin.study.results import MEASURE, RECALL
from remargin.study.systems import Choice, System

BOUND = 0.05  # the paper's: differences below it do not matter
PAPER_NAMES = {row.name for row in PAPER}
Compared = dict[str, dict[str, ComparedRun]]  # by measure and row


def compare_in_groups(scores: dict[str, Scores], reference: str | None = None) -> Compared:
    """Every row against the best of the paper's, or a given one. The paper's rows are one group of tests, ours another.

    So what the paper leaves out does not make its own tests stricter.
    """
    groups = [[name for name in scores if (name in PAPER_NAMES) == of_paper] for of_paper in (True, False)]
    found: Compared = {}
    for measure in (MEASURE, RECALL):
        means = {name: fmean(scores[name][measure].values()) for name in groups[0]}
        best = reference or max(means, key=means.__getitem__)
        found[measure] = {}
        for group in filter(None, groups):
            of_measure = {name: {measure: scores[name][measure]} for name in dict.fromkeys([best, *group])}
            compared = compare_scores(of_measure, reference=best, bound=BOUND, samples=1)  # Fisher's test is not shown
            found[measure] |= {row.run: row for row in compared.rows}
    return found


def chosen_text(chosen: Choice) -> str:
    """What dev chose, for people."""
    value = f"{chosen.system.tuned} {chosen.tuned_to:g}, " if chosen.system.tuned else ""
    return f"{value}rate {chosen.spec.rate:g}"


def time_text(seconds: float) -> str:
    """Minutes and seconds, or hours and minutes where there are hours.

    >>> time_text(75), time_text(54420)
    ('1:15 min', '15:07 h')
    """
    if seconds < 3600:
        return f"{int(seconds) // 60}:{int(seconds) % 60:02} min"
    return f"{int(seconds) // 3600}:{int(seconds) % 3600 // 60:02} h"


def not_trained(model: str, rows: Iterable[System], found: Container[str]) -> list[str]:
    """A line on the rows that a backbone lacks, if any."""
    lacking = [row.name for row in rows if row.name not in found]
    return [f"Not trained for {model}: {'; '.join(lacking)}."] if lacking else []
