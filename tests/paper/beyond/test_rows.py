"""Rows from results that are written by hand: what is averaged, what is counted, and what has to be there."""

from __future__ import annotations

from pathlib import Path

import pytest

from remargin.paper.beyond.experiments import BEYOND
from remargin.paper.beyond.rows import BM25, UNTRAINED, RowName, collection_rows
from remargin.paper.beyond.systems import CORE, DOCUMENTED, OURS, RATE, TUNED
from remargin.study.blending import CHOSEN, blended_at
from remargin.study.results import TEST, NotTrained
from remargin.study.scheduler import schedule
from remargin.study.systems import declare

from .by_hand import PLAN, make_results, train


def test_the_core_declares_what_dev_chooses_among(tmp_path: Path) -> None:
    """BM25, the backbone; the recipe with two seeds; two rates, two temperatures, a rate more, and another seed."""
    results = make_results(tmp_path)
    assert schedule(results, BEYOND["beyond"].tasks).total == 2 + 2 + (2 + 2 + 1)
    train(results)
    done = schedule(results, BEYOND["beyond"].tasks)
    # With temperature 0.1 after the sweep, both rates are tried again.
    assert (len(done.done), len(done.ready), len(done.later)) == (2 + 2 + (2 + 2 + 2 + 1), 0, 0)
    assert declare(results, "m", TUNED).spec == TUNED.spec(PLAN, "m", 2e-4, temperature=0.1)
    assert declare(results, "m", OURS).spec.rate == RATE


def test_means_over_seeds_and_total_compute(tmp_path: Path) -> None:
    results = make_results(tmp_path)
    train(results)
    rows = collection_rows(results, "m", CORE.systems)
    assert (rows.name, rows.seeds) == ("home", 2)
    ours, blended = rows.rows[RowName(OURS.name)], rows.rows[RowName(OURS.name, True)]
    assert ours.home == pytest.approx({"q1": 0.6, "q2": 0.7})  # of 0.5 and 0.7
    assert ours.away == {"x": {"x1": 0.4}}
    assert (ours.home_mean, ours.away_mean, ours.weight) == (pytest.approx(0.65), 0.4, None)
    assert ours.seconds == pytest.approx((100 + 101) / 2)  # one model, and nothing was tried
    assert (blended.home_mean, blended.away_mean, blended.weight) == (pytest.approx(0.65), 0.45, 0.5)
    assert blended.seconds == pytest.approx(100.5 + 3)
    assert (ours.dev, blended.dev) == (pytest.approx(RATE + 0.05 - 0.005), 0.595)  # of the point that was chosen
    tuned = rows.rows[RowName(TUNED.name)]
    # Two rates, two temperatures, and of the two rates again one that is not the chosen run.
    assert (tuned.seconds, tuned.trial_seconds) == pytest.approx((100.5 + 5 * 100, 500))
    assert tuned.chosen == "temperature 0.1, rate 0.0002"
    assert rows.rows[UNTRAINED].home == rows.rows[BM25].home == {"q1": 0.3, "q2": 0.4}
    assert RowName(DOCUMENTED.name) not in rows.rows


def test_further_systems_come_into_the_table_when_they_are_trained(tmp_path: Path) -> None:
    results = make_results(tmp_path)
    train(results)
    spec = declare(results, "m", DOCUMENTED).spec
    assert (spec.batch_size, spec.rate, spec.warm_up) == (8, 5e-5, 0.0)
    train(results, "beyond-rivals")
    assert RowName(DOCUMENTED.name, True) in collection_rows(results, "m", CORE.systems).rows


def test_without_its_runs_there_are_no_rows(tmp_path: Path) -> None:
    results = make_results(tmp_path)
    with pytest.raises(NotTrained):
        BEYOND["beyond"].findings(results)
    train(results)
    with pytest.raises(NotTrained):
        BEYOND["beyond-rivals"].findings(results)
    lacking = results.folder(declare(results, "m", TUNED).spec.key) / f"{blended_at(TEST, CHOSEN)}.csv.gz"
    assert lacking.exists()
