"""Fusion: one ranking out of several, such as BM25's and a dense one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from remargin.data.collection import Collection, open_collection
from remargin.errors import InputError, refuse_idle
from remargin.evaluation.inputs import without_self_matches
from remargin.evaluation.measures import evaluate
from remargin.evaluation.runs import Run
from remargin.files.atomic import refuse_existing

WEIGHTS = tuple(np.round(np.arange(0, 1.01, 0.05), 2).tolist())


class Fused(NamedTuple):
    """A run made of several.

    Attributes:
        run: the fused run.
        weight: of the second run, if scores were added up.
        mean: of the measure on the queries that the weight was chosen on, if it was.
        self_matches: how many documents that are the query itself were left out of each run that it was chosen with.
    """

    run: Run
    weight: float | None = None
    mean: float | None = None
    self_matches: tuple[int, ...] = ()


def fuse(
    runs: Sequence[str | Path | Run],
    weight: float | None = None,
    tune: Sequence[str | Path | Run] | None = None,
    data: str | Path | Collection | None = None,
    split: str | None = None,
    measure: str | None = None,
    k: float | None = None,
    depth: int = 1000,
    skip_bad: bool = False,
    out: str | Path | None = None,
    overwrite: bool = False,
) -> Fused:
    """Fuse runs by reciprocal rank, or two of them by a weighted sum of scores, as `remargin fuse` does.

    Args:
        runs: two runs or more, or their files.
        weight: add up scores instead of reciprocal ranks, the second run's with this weight, 0 to 1.
        tune: choose the weight with these two runs of `split`, made in the same way as `runs`.
        data: the collection to choose the weight on, or what `Collection.load` takes.
        split: to choose the weight on; "dev" if not given.
        measure: to choose the weight by; "nDCG@10" if not given.
        k: of reciprocal rank fusion: a rank scores 1 / (k + rank); 60 if not given.
        depth: how many documents for each query.
        skip_bad: skip bad input in `data`, and count it in a warning.
        out: a TREC run file to write; its name may end in .gz.
        overwrite: replace `out` if it is there.

    Raises:
        InputError: for bad input, runs that do not belong together, and options that have no effect.

    Example:
        >>> a, b = Run.of({"q": {"x": 3.0, "y": 2.0, "z": 1.0}}), Run.of({"q": {"y": 0.9, "z": 0.8}})
        >>> list(fuse([a, b]).run.rankings["q"]), fuse([a, b], weight=0.25).run.rankings["q"]
        (['y', 'z', 'x'], {'x': 0.75, 'y': 0.625, 'z': 0.0})
    """
    if out is not None:
        refuse_existing(Path(out), overwrite)
    if k is not None and (weight is not None or tune):
        refuse_idle("a weighted sum", ["k"])
    if not tune:
        given = {"data": data, "split": split, "measure": measure, "skip_bad": skip_bad or None}
        refuse_idle("a fusion without --tune", [name for name, value in given.items() if value is not None])
    if (weight is not None or tune) and len(runs) != 2:
        raise InputError(f"a weighted sum needs two run files, not {len(runs)}", do="give --runs FIRST SECOND")
    if weight is not None and tune:
        raise InputError("a weight is given, and run files to choose it with", do="give --weight or --tune, not both")
    loaded = _loaded(runs)
    mean: float | None = None
    self_matches: tuple[int, ...] = ()
    if tune:
        if len(tune) != 2 or data is None:
            do = "give --tune FIRST SECOND --data"
            raise InputError("a weight is chosen with two runs and their judgments", do=do)
        collection, by = open_collection(data, split or "dev", skip_bad), measure or "nDCG@10"
        (first, *_), (second, *_) = cleaned = [without_self_matches(run, collection) for run in _loaded(tune)]
        self_matches = tuple(count for _, count in cleaned)
        weight, means = tune_weight(first, second, collection.qrels, by, depth=depth)
        mean = means[weight]
    if weight is None:
        run = reciprocal_rank(loaded, 60 if k is None else k, depth)
    else:
        run = weighted(loaded[0], loaded[1], weight, depth)
    if out is not None:
        run.save(out, tag="fused", overwrite=overwrite)
    return Fused(run, weight, mean, self_matches)


def _loaded(runs: Sequence[str | Path | Run]) -> list[Run]:
    return [run if isinstance(run, Run) else Run.load(run) for run in runs]


def reciprocal_rank(runs: Sequence[Run], k: float = 60, depth: int | None = 1000) -> Run:
    """Reciprocal rank fusion (Cormack et al., SIGIR 2009): a document scores the sum of 1 / (k + rank) over the runs.

    >>> a, b = Run.of({"q": {"x": 3.0, "y": 2.0, "z": 1.0}}), Run.of({"q": {"y": 0.9, "z": 0.8}})
    >>> list(reciprocal_rank([a, b]).rankings["q"])
    ['y', 'z', 'x']
    """
    if not 0 < k < math.inf:
        raise InputError(f"k = {k} for reciprocal rank fusion", do="use a positive number, such as 60")
    fused: dict[str, dict[str, float]] = {}
    for run in _checked(runs):
        for query, ranking in run.rankings.items():
            scores = fused.setdefault(query, {})
            for rank, document in enumerate(ranking, 1):
                scores[document] = scores.get(document, 0.0) + 1 / (k + rank)
    return Run.of(fused, depth)


def weighted(first: Run, second: Run, weight: float, depth: int | None = 1000) -> Run:
    """The sum of both runs' scores, `weight` times the second's and 1 - `weight` times the first's.

    For each query, the scores of each run are first scaled to 0..1. A document that a run does not have scores 0 there.

    >>> a, b = Run.of({"q": {"x": 30.0, "y": 20.0, "z": 10.0}}), Run.of({"q": {"y": 0.9, "z": 0.8}})
    >>> weighted(a, b, 0.25).rankings["q"]
    {'x': 0.75, 'y': 0.625, 'z': 0.0}
    """
    if not 0 <= weight <= 1:
        raise InputError(f"a weight of {weight}", do="use 0 (only the first run) to 1 (only the second)")
    fused: dict[str, dict[str, float]] = {}
    for run, share in zip(_checked([first, second]), (1 - weight, weight), strict=True):
        for query, ranking in run.rankings.items():
            scores = fused.setdefault(query, {})
            for document, score in _scaled(ranking).items():
                scores[document] = scores.get(document, 0.0) + share * score
    return Run.of(fused, depth)


def tune_weight(
    first: Run,
    second: Run,
    qrels: Mapping[str, Mapping[str, int]],
    measure: str = "nDCG@10",
    weights: Sequence[float] = WEIGHTS,
    depth: int | None = 1000,
) -> tuple[float, dict[float, float]]:
    """The weight with the best mean on these judgments, which should be a dev split's, and the mean of each weight.

    Of equally good weights it takes the middle one.

    >>> a, b = Run.of({"q": {"x": 2.0, "y": 1.0}}), Run.of({"q": {"y": 2.0, "x": 1.0}})
    >>> tune_weight(a, b, {"q": {"y": 1}}, weights=[0.0, 0.8, 1.0])
    (1.0, {0.0: 0.6309297535714575, 0.8: 1.0, 1.0: 1.0})
    """
    if not qrels.keys() & (first.rankings.keys() | second.rankings.keys()):
        raise InputError("none of the queries of the runs to tune with is judged", do="give runs of that split")
    means = {
        weight: evaluate(weighted(first, second, weight, depth), qrels, [measure]).means[measure] for weight in weights
    }
    best = [weight for weight, mean in means.items() if mean == max(means.values())]
    return best[len(best) // 2], means


def _checked(runs: Sequence[Run]) -> Sequence[Run]:
    if len(runs) < 2:
        raise InputError("fusion needs two runs or more", do="name another one")
    for number, run in enumerate(runs[1:], 2):
        if not run.rankings.keys() & runs[0].rankings.keys():
            problem = f"run {number} has none of the first run's queries"
            raise InputError(problem, do="check that the runs belong together")
    return runs


def _scaled(ranking: Mapping[str, float]) -> dict[str, float]:
    if not ranking:
        return {}
    low, high = min(ranking.values()), max(ranking.values())
    if low == high:
        return dict.fromkeys(ranking, 1.0)
    half = 0.5 if math.isinf(high - low) else 1.0
    span = high * half - low * half
    return {document: (score * half - low * half) / span for document, score in ranking.items()}
