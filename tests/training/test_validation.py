"""Validation: what it re-ranks, and what it refuses before training begins."""

from __future__ import annotations

from pathlib import Path

import pytest

from remargin import Collection, InputError, Run, Validator, search
from remargin.retrieval.candidates import candidates

from .conftest import settings


def test_candidates_are_the_best_of_a_first_stage(beir: Path) -> None:
    dev = Collection.load(beir, "dev")
    run, some = search(dev, "bm25", k=20), dev.sample(4, seed=1)
    found = candidates(some, 3, run)
    assert {id: list(of_query) for id, of_query in found.items()} == {id: run.top(id, 3) for id in some.queries}
    assert all(run.rankings[id][document] == score for id in found for document, score in found[id].items())
    assert candidates(some, 3) == found  # BM25's without a run


def test_a_run_of_other_queries_or_documents_is_refused(prepared: Path) -> None:
    with pytest.raises(InputError, match="the first-stage run has none of the validation queries"):
        Validator(prepared, "dev", settings(), Run.of({"q1": {"d1": 1.0}}))
    with pytest.raises(InputError, match="id 'z': the first-stage run has a document that is not in the collection"):
        Validator(prepared, "dev", settings(), Run.of({"q41": {"d1": 2.0, "z": 1.0}}))


def test_an_unknown_measure_is_refused_before_training(prepared: Path) -> None:
    with pytest.raises(InputError, match="unknown measure 'nDGC@10'"):
        Validator(prepared, "dev", settings(), also=["nDGC@10"])
