"""The seekable shuffle: a permutation, from anywhere, that looks random."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remargin.data.shuffle import Shuffle


@given(st.integers(1, 3000), st.integers(0, 2**63), st.integers(0, 100))
def test_it_is_a_permutation(size: int, seed: int, epoch: int) -> None:
    rows = Shuffle(size, seed, epoch)(np.arange(size))
    np.testing.assert_array_equal(np.sort(rows), np.arange(size))


def test_any_part_can_be_read_without_the_rest() -> None:
    shuffle = Shuffle(40_000_000, seed=3)
    part = np.arange(39_999_000, 40_000_000)
    whole = np.concatenate([shuffle(chunk) for chunk in np.array_split(part, 7)])
    np.testing.assert_array_equal(shuffle(part), whole)
    assert len(np.unique(whole)) == len(part)
    assert whole.max() < 40_000_000
    with pytest.raises(IndexError):
        shuffle(np.array([40_000_000]))


def test_seeds_and_epochs_differ_and_repeat() -> None:
    positions = np.arange(1000)
    orders = [Shuffle(1000, seed, epoch)(positions) for seed in (0, 1) for epoch in (0, 1)]
    for i, one in enumerate(orders):
        for other in orders[:i]:
            assert (one == other).mean() < 0.02
    np.testing.assert_array_equal(orders[0], Shuffle(1000, 0, 0)(positions))


@pytest.mark.parametrize("size", [97, 1000, 1025])
def test_every_row_is_equally_likely_at_every_position(size: int) -> None:
    """Chi-squared over many seeds: the row at position 0, and neighbours' distance."""
    from scipy import stats

    trials, bins = 4000, 20
    firsts, steps = [], []
    for seed in range(trials):
        first, second = Shuffle(size, seed)(np.array([0, 1]))
        firsts.append(int(first))
        steps.append(int(second - first) % size)
    for values in (firsts, steps):
        counts, _ = np.histogram(values, bins=bins, range=(0, size))
        edges = np.linspace(0, size, bins + 1)
        expected = np.diff(np.searchsorted(np.arange(size), edges)) * trials / size
        assert stats.chisquare(counts, expected * counts.sum() / expected.sum()).pvalue > 1e-4
