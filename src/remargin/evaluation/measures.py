"""Measures of a run, by the names that ir_measures gives them."""

from __future__ import annotations

import csv
import io
import itertools
import math
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from pathlib import Path
from statistics import fmean
from typing import Any

from remargin.data.source import LARGEST_GRADE
from remargin.data.tables import spreadsheet_cell
from remargin.errors import InputError
from remargin.evaluation.inputs import JudgedData, Judgments, RunOrFile, judged_runs
from remargin.evaluation.runs import Run, check_ids
from remargin.files.atomic import new_file, refuse_existing

DEFAULT_MEASURES = ("nDCG@10", "R@100", "RR")
_JUDGED_CUTOFF = 10  # for measures that have none of their own


@dataclass
class Evaluation:
    """How effective a run is: each measure for each judged query, and on average.

    A judged query that the run lacks counts as 0 and is listed in `missing`. `judged` is the share of documents down
    to each measure's cutoff (`judged_cutoff`) that have a judgment, with whatever grade: where it is low, the measure
    says little. It is a mean over the queries that the run has, for the others have no documents; NaN if it has none.
    `self_matches` counts the documents that were left out because they are the query itself.
    """

    per_query: dict[str, dict[str, float]] = field(repr=False)
    missing: list[str] = field(repr=False)
    judged: dict[str, float] = field(repr=False)
    self_matches: int = 0

    @property
    def means(self) -> dict[str, float]:
        """Each measure's mean over all judged queries."""
        return {measure: fmean(values.values()) for measure, values in self.per_query.items()}

    def save(self, path: str | Path, overwrite: bool = False) -> None:
        """Write a CSV with a row for each query and a column for each measure."""
        with new_file(path, overwrite) as out, io.TextIOWrapper(out, encoding="utf-8", newline="") as text:
            table = csv.writer(text, lineterminator="\n")
            table.writerow(["query", *self.per_query])
            for query in next(iter(self.per_query.values())):
                table.writerow(
                    [spreadsheet_cell(query), *(f"{values[query]:.6f}" for values in self.per_query.values())]
                )


def evaluate(
    run: RunOrFile,
    data: JudgedData,
    measures: str | Sequence[str] = DEFAULT_MEASURES,
    per_query: str | Path | None = None,
    split: str = "test",
    skip_bad: bool = False,
    overwrite: bool = False,
) -> Evaluation:
    """Measure a run against judgments, as trec_eval does.

    Documents without a judgment count as not relevant; `Evaluation.judged` says how many have one. nDCG takes the grade
    itself as gain, so that a 3 weighs three times as much as a 1. R, RR, AP, P and Success only ask whether a document
    is relevant: whether its grade is 1 or more. TREC-DL wants 2 or more there: write R(rel=2)@1000, Success(rel=2)@100.
    Negative grades, TREC's marks for junk, are as good as none. Against a collection, documents that are the query
    itself are left out; see `Collection.self_matches`.

    Args:
        run: the run, or a TREC run file.
        data: a collection, what `Collection.load` takes, or judgments: grades by query and document.
        measures: names as ir_measures has them, one or several: nDCG@10, R@1000, RR, Success@100, R(rel=2)@1000.
        per_query: a CSV file to write, with each query's values.
        split: the collection's split.
        skip_bad: set bad input of the collection aside, count it, and continue.
        overwrite: replace `per_query` if it exists.

    Raises:
        InputError: for a measure that ir_measures does not know or cannot compute, an id that is no string or has a
            NUL byte, a grade that is no whole number or beyond a million, without judgments, and for a run of which no
            query is judged in the collection.

    Example:
        >>> run = Run.of({"q1": {"a": 2.0, "b": 1.0}})
        >>> evaluation = evaluate(run, {"q1": {"b": 1}, "q2": {"a": 1}}, ["RR", "R@1"])
        >>> evaluation.means, evaluation.judged, evaluation.missing
        ({'RR': 0.25, 'R@1': 0.0}, {'RR': 0.5, 'R@1': 0.0}, ['q2'])
    """
    parsed = {name: _parse(name) for name in ([measures] if isinstance(measures, str) else measures)}
    if per_query is not None:
        refuse_existing(Path(per_query), overwrite)
    judged = judged_runs({"run": run}, data, split, skip_bad)
    evaluation = _evaluate(judged.runs["run"], judged.qrels, parsed)
    evaluation.self_matches = judged.self_matches["run"]
    if per_query is not None:
        evaluation.save(per_query, overwrite)
    return evaluation


def _evaluate(run: Run, qrels: Judgments, parsed: Mapping[str, Any]) -> Evaluation:
    """Measures by name, each parsed."""
    if not qrels:
        raise InputError("there are no judgments to measure against", do="choose a split that has some")
    values: dict[Any, dict[str, float]] = {measure: dict.fromkeys(qrels, 0.0) for measure in parsed.values()}
    rankings = {query: run.rankings[query] for query in qrels if run.rankings.get(query)}
    check_ids("query", qrels)
    for query in rankings:
        check_ids("document", qrels[query])
    for metric in _metrics(list(values), {query: _grades(query, qrels[query]) for query in rankings}, rankings):
        values[metric.measure][metric.query_id] = float(metric.value)
    per_query = {name: values[measure] for name, measure in parsed.items()}
    judged = {name: _judged(rankings, qrels, judged_cutoff(name)) for name in parsed}
    return Evaluation(per_query, [query for query in qrels if query not in rankings], judged)


def evaluate_from(relevant: int, run: Run, qrels: Judgments, measures: Sequence[str]) -> Evaluation:
    """The same for judgments in memory, where binary measures count documents from some grade on, under their names.

    Args:
        relevant: the lowest grade that R, RR, AP, P and Success count; a measure that names its own keeps that.
        run: the run.
        qrels: grades by query and document.
        measures: names as ir_measures has them.

    Example:
        >>> run = Run.of({"q": {"a": 2.0, "b": 1.0}})
        >>> evaluate_from(2, run, {"q": {"a": 1, "b": 3}}, ["Success@1", "R@2", "nDCG@1"]).means
        {'Success@1': 0.0, 'R@2': 1.0, 'nDCG@1': 0.3333333333333333}
    """
    return _evaluate(run, qrels, {name: _parse(_counting(name, relevant)) for name in measures})


def relevant_grade(qrels: Judgments, wanted: int) -> int:
    """The lowest grade that binary measures count with some judgments: the one that is wanted, if there is one so high.

    Judgments without one are binary themselves, so 1 is enough there. So one level goes with TREC-DL's grades of 0 to 3
    and with MS MARCO's own, which are all 1.

    >>> relevant_grade({"q": {"a": 3, "b": 1}}, 2), relevant_grade({"q": {"a": 1}}, 2)
    (2, 1)
    """
    return wanted if any(grade >= wanted for judged in qrels.values() for grade in judged.values()) else 1


def _counting(measure: str, relevant: int) -> str:
    """The measure with a lowest relevant grade, if it is one that asks for that and does not say it itself.

    >>> _counting("R@1000", 2), _counting("nDCG@10", 2), _counting("Success(rel=3)@100", 2)
    ('R(rel=2)@1000', 'nDCG@10', 'Success(rel=3)@100')
    """
    parsed = _parse(measure)
    if relevant == 1 or "rel" not in parsed.SUPPORTED_PARAMS or "rel" in parsed.params:
        return measure
    return str(parsed(rel=relevant))


def require_measures(names: Iterable[str]) -> None:
    """Raise an InputError for a name that `evaluate` does not know, so that it shows before hours of work.

    >>> require_measures(["nDCG@10", "R(rel=2)@1000"])
    """
    for name in names:
        _parse(name)


def judged_cutoff(measure: str) -> int:
    """The rank down to which `Evaluation.judged` looks: the measure's own cutoff, or 10 if it has none.

    >>> judged_cutoff("R(rel=2)@100"), judged_cutoff("RR")
    (100, 10)
    """
    return own_cutoff(measure) or _JUDGED_CUTOFF


def own_cutoff(measure: str) -> int | None:
    """The rank below which a measure looks at nothing, if it has one. That of IPrec@0.1 is a recall, not a rank.

    >>> own_cutoff("nDCG@10"), own_cutoff("RR"), own_cutoff("IPrec@0.1")
    (10, None, None)
    """
    cutoff = _parse(measure).params.get("cutoff")
    return None if cutoff is None else int(cutoff)


def _grades(query: str, judged: Mapping[str, int]) -> dict[str, int]:
    """The grades as Python's integers, which pytrec_eval wants; they may come as NumPy's, or as 1.0."""
    for document, grade in judged.items():
        if not (isinstance(grade, Real) and abs(grade) <= LARGEST_GRADE and grade == int(grade)):
            problem = f"grade {grade!r} of document {document!r} is not a whole number"
            raise InputError(problem, id=query, do=f"give one from {-LARGEST_GRADE:,} to {LARGEST_GRADE:,}")
    return {document: int(grade) for document, grade in judged.items()}


def _judged(rankings: Mapping[str, Mapping[str, float]], qrels: Mapping[str, Mapping[str, int]], cutoff: int) -> float:
    shares = []
    for query, ranking in rankings.items():
        top = ranking.keys() if cutoff >= len(ranking) else set(itertools.islice(ranking, cutoff))
        shares.append(len(qrels[query].keys() & top) / len(top))
    return fmean(shares) if shares else math.nan


def _metrics(
    measures: Sequence[Any], qrels: dict[str, dict[str, int]], rankings: dict[str, dict[str, float]]
) -> Iterable[Any]:
    """The values that ir_measures computes, with ties broken alike in every measure.

    Those that trec_eval lacks (RR@10 is one) come from other programs, most of which put tied documents into another
    order. They get ranks instead of scores. pytrec_eval crashes on negative grades, which trec_eval takes as no
    judgment.
    """
    import ir_measures

    if not rankings:
        return
    by_trec_eval = [measure for measure in measures if ir_measures.pytrec_eval.supports(measure)]
    if by_trec_eval:
        grades = {
            query: {document: grade for document, grade in judged.items() if grade >= 0}
            for query, judged in qrels.items()
        }
        yield from ir_measures.iter_calc(by_trec_eval, grades, rankings)
    others = [measure for measure in measures if measure not in by_trec_eval]
    if others:
        ranks = {
            query: {document: -float(rank) for rank, document in enumerate(ranking)}
            for query, ranking in rankings.items()
        }
        try:
            yield from ir_measures.iter_calc(others, qrels, ranks)
        except (OSError, subprocess.CalledProcessError, ZeroDivisionError) as error:
            names = " or ".join(map(str, others))
            gdeval = "; this one needs Perl, and numbers as query ids"
            accuracy = "; Accuracy is not defined where the last document is relevant"
            do = "choose another" + (accuracy if isinstance(error, ZeroDivisionError) else gdeval)
            raise InputError(f"ir_measures could not compute {names}", do=do) from None


def _parse(name: str) -> Any:
    """The measure of that name, checked: trec_eval ends the whole process when it gets a cutoff of 0."""
    import ir_measures

    try:
        measure: Any = ir_measures.parse_measure(name)
        measure.validate_params()
    except (NameError, ValueError, SyntaxError, TypeError, AssertionError) as error:
        do = "use ir_measures names, such as nDCG@10, R@1000, RR or Success@100"
        reason, lacking, _ = str(error).partition("=<object")  # how it prints a value that was not given
        reason = reason.replace("invalid param", "it needs a") if lacking else reason
        raise InputError(f"unknown measure {name!r} ({reason})", do=do) from None
    for parameter in ("cutoff", "rel"):
        value = measure.params.get(parameter, 1)
        if isinstance(value, bool) or not 1 <= value < 2**31:
            raise InputError(f"unknown measure {name!r} ({parameter} {value})", do="give a whole number from 1 on")
    if not ir_measures.DefaultPipeline.supports(measure):  # type: ignore[no-untyped-call]
        do = "choose another, or install the package that its documentation names for it"
        raise InputError(f"ir_measures cannot compute {name!r} here", do=do)
    return measure
