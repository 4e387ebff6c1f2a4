"""Macro means over collections, against all resamples that there are and against numbers by hand."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from remargin import InputError
from remargin.evaluation.significance import bootstrap
from remargin.paper.beyond.rows import UNTRAINED, CollectionRows, Row, RowName
from remargin.paper.beyond.statistics import (
    away_differences,
    differences,
    home_differences,
    intervals,
    macro_away,
    macro_home,
    macro_interval,
    shared_rows,
)

A, B = RowName("a"), RowName("b")


def test_queries_are_drawn_within_collections() -> None:
    """Against the quantiles of all 3**3 x 2**2 resamples, each of which is as likely as any other."""
    groups = [[0.1, 0.5, 0.9], [-0.4, 0.2]]
    every = [
        (sum(first) / 3 + sum(second) / 2) / 2
        for first in product(groups[0], repeat=3)
        for second in product(groups[1], repeat=2)
    ]
    interval = macro_interval(groups, confidence=0.8, samples=200_000)
    assert interval.mean == pytest.approx((0.5 - 0.1) / 2)
    assert interval.low == pytest.approx(np.quantile(every, 0.1), abs=0.02)
    assert interval.high == pytest.approx(np.quantile(every, 0.9), abs=0.02)
    together = bootstrap([*groups[0], *groups[1]], 0.8)  # all queries in one pot, which is another thing
    assert abs(together.mean - interval.mean) > 0.05


def test_one_collection_is_the_plain_bootstrap() -> None:
    values = np.random.default_rng(1).normal(0.02, 0.2, 300).tolist()
    ours, theirs = macro_interval([values]), bootstrap(values)
    assert ours == pytest.approx(theirs, abs=0.002)
    assert intervals({"a": values})["a"] == ours
    assert macro_interval([values], seed=1) != ours


def test_a_query_away_counts_once_however_many_models_it_measures() -> None:
    """Two models were trained on different collections and measured on the same other ones."""
    first = {
        A: Row({"q": 1.0}, {"x": {"x1": 0.6, "x2": 0.2}}),
        B: Row({"q": 0.5}, {"x": {"x1": 0.5, "x2": 0.2}}),
    }
    second = {
        A: Row({"r": 0.2, "s": 0.4}, {"x": {"x1": 0.5, "x2": 0.4}, "y": {"y1": 0.9}}),
        B: Row({"r": 0.0, "s": 0.0}, {"x": {"x1": 0.8, "x2": 0.2}, "y": {"y1": 0.5}}),
    }
    both = [CollectionRows("one", 1, first), CollectionRows("two", 1, second)]
    away = away_differences(both, A, B)
    assert away == {"x": pytest.approx([(0.1 - 0.3) / 2, (0.0 + 0.2) / 2]), "y": pytest.approx([0.4])}
    assert macro_interval(list(away.values())).mean == pytest.approx((0.0 + 0.4) / 2)
    assert home_differences(both, A, B) == {"one": pytest.approx([0.5]), "two": pytest.approx([0.2, 0.4])}
    assert macro_home(both, A) == pytest.approx((1.0 + 0.3) / 2)
    assert macro_away(both, A) == pytest.approx(((0.4 + 0.45) / 2 + 0.9) / 2)
    assert macro_away([CollectionRows("none", 1, {A: Row({"q": 1.0})})], A) is None
    assert shared_rows([both[0], CollectionRows("three", 1, {B: first[B], UNTRAINED: first[B]})]) == [B]


def test_other_queries_are_refused() -> None:
    with pytest.raises(InputError, match="different queries"):
        differences({"q": 1.0}, {"r": 1.0})
