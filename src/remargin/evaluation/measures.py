"""Measures of a run, by the names that ir_measures gives them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from remargin.errors import InputError
from remargin.evaluation.runs import Run
from remargin.files import new_file

DEFAULT_MEASURES = ("nDCG@10", "R@100", "RR")


@dataclass
class Evaluation:
    """What a run is worth: each measure for each judged query, and on average.

    A judged query that the run lacks counts as 0 and is listed in `missing`.
    """

    per_query: dict[str, dict[str, float]] = field(repr=False)
    missing: list[str] = field(repr=False)

    @property
    def means(self) -> dict[str, float]:
        """Each measure's mean over all judged queries."""
        return {measure: sum(values.values()) / len(values) for measure, values in self.per_query.items()}

    def save(self, path: str | Path, overwrite: bool = False) -> None:
        """Write a CSV with a row for each query and a column for each measure."""
        with new_file(path, overwrite) as out:
            out.write(",".join(["query", *self.per_query]).encode() + b"\n")
            for query in next(iter(self.per_query.values())):
                values = (f"{of_query[query]:.6f}" for of_query in self.per_query.values())
                out.write(",".join([query, *values]).encode() + b"\n")


def evaluate(
    run: Run, qrels: Mapping[str, Mapping[str, int]], measures: Sequence[str] = DEFAULT_MEASURES
) -> Evaluation:
    """Measure a run against judgments, as trec_eval does.

    Args:
        run: the run.
        qrels: grades by query and document.
        measures: names such as nDCG@10, R@1000, RR, Success@100, or R(rel=2)@1000 to count only grades of 2 and more.

    Example:
        >>> found = evaluate(Run.of({"q1": {"a": 2.0, "b": 1.0}}), {"q1": {"b": 1}, "q2": {"a": 1}}, ["RR", "R@2"])
        >>> found.means, found.missing
        ({'RR': 0.25, 'R@2': 0.5}, ['q2'])
    """
    import ir_measures

    parsed = {_parse(name): name for name in measures}
    if not qrels:
        raise InputError("there are no judgments to measure against", do="choose a split that has some")
    values: dict[str, dict[str, float]] = {name: dict.fromkeys(qrels, 0.0) for name in parsed.values()}
    judged = {query: run.rankings[query] for query in qrels if run.rankings.get(query)}
    if judged:
        relevant = {query: dict(qrels[query]) for query in judged}
        for metric in ir_measures.iter_calc(list(parsed), relevant, judged):
            values[parsed[metric.measure]][metric.query_id] = float(metric.value)
    return Evaluation(values, [query for query in qrels if query not in judged])


def _parse(name: str) -> Any:
    import ir_measures

    try:
        return ir_measures.parse_measure(name)
    except (NameError, ValueError, SyntaxError, TypeError) as error:
        do = "use ir_measures names, such as nDCG@10, R@1000, RR or Success@100"
        raise InputError(f"unknown measure {name!r} ({error})", do=do) from None
