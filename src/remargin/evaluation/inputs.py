"""What `evaluate` and `compare` take: runs or run files, and a collection or its judgments."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from remargin.data.collection import Collection, open_collection
from remargin.errors import InputError
from remargin.evaluation.runs import Run

Judgments = Mapping[str, Mapping[str, int]]  # grades by query and document
RunOrFile = Run | str | Path
JudgedData = Judgments | Collection | str | Path


class JudgedRuns(NamedTuple):
    """Runs by name, the judgments to measure them against, and how many self-matches each run lost."""

    runs: dict[str, Run]
    qrels: Judgments
    self_matches: dict[str, int]


def judged_runs(
    runs: Mapping[str, RunOrFile], data: JudgedData, split: str = "test", skip_bad: bool = False
) -> JudgedRuns:
    """Load runs and judgments, and leave out documents that are the query itself.

    Judgments that are given as a mapping are taken as they are; there, only a collection could tell a self-match.

    Args:
        runs: runs or run files, by name.
        data: a collection, what `Collection.load` takes, or judgments: grades by query and document.
        split: the collection's split; of a collection that is loaded already, its own.
        skip_bad: set bad input of the collection aside, count it, and continue.

    Raises:
        InputError: for bad input, and for a run of which no query is judged in the collection.

    Example:
        >>> documents = {"a": "Dogs bark.", "b": "Cats purr."}
        >>> collection = Collection("pets", "test", documents, {"a": "Dogs bark."}, {"a": {"b": 1}})
        >>> judged_runs({"mine": Run.of({"a": {"a": 9.0, "b": 5.0}})}, collection).self_matches
        {'mine': 1}
    """
    loaded = {name: run if isinstance(run, Run) else Run.load(run) for name, run in runs.items()}
    if isinstance(data, Mapping):
        return JudgedRuns(loaded, data, dict.fromkeys(loaded, 0))
    collection = open_collection(data, split, skip_bad)
    for name, run in loaded.items():
        source = runs[name]
        _require_judged(run, None if isinstance(source, Run) else source, collection)
    counts = {}
    for name, run in loaded.items():
        loaded[name], counts[name] = without_self_matches(run, collection)
    return JudgedRuns(loaded, collection.qrels, counts)


def without_self_matches(run: Run, collection: Collection) -> tuple[Run, int]:
    """A run without documents that are the query itself, and how many of them it had; see `Collection.self_matches`.

    `search` returns none of them, but other programs may, and with them a run would measure less than it is worth.

    Example:
        >>> documents = {"a": "Dogs bark.", "b": "Cats purr."}
        >>> collection = Collection("", "test", documents, {"a": "Dogs bark."}, {"a": {"b": 1}})
        >>> run, count = without_self_matches(Run.of({"a": {"a": 9.0, "b": 5.0}}), collection)
        >>> run.rankings, count
        ({'a': {'b': 5.0}}, 1)
    """
    itself = [(id, id) for id in collection.self_matches if id in run.rankings.get(id, {})]
    return run.without(itself), len(itself)


def _require_judged(run: Run, file: str | Path | None, collection: Collection) -> None:
    """Refuse a run of which no query is judged: it would measure 0 everywhere, which would mean nothing."""
    if not run.rankings.keys() & collection.qrels.keys():
        problem = f"none of its queries is judged in split {collection.split!r} of {collection.name}"
        raise InputError(problem, file=file, do="give the split or the collection that it was made for")
