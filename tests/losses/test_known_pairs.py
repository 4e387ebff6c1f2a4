"""Known pairs against a double loop."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from remargin.losses.known_pairs import known_pairs


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 6)), min_size=1, max_size=12), st.data())
def test_known_pairs_are_the_double_loops(triplets: list[tuple[int, int]], data: st.DataObject) -> None:
    documents = data.draw(st.lists(st.integers(0, 9), min_size=1, max_size=12))
    queries, positives = (torch.tensor(column) for column in zip(*triplets, strict=True))
    expected = [
        [i, j]
        for i in range(len(triplets))
        for j in range(len(documents))
        if (triplets[i][0], documents[j]) in triplets
    ]
    assert known_pairs(queries, positives, torch.tensor(documents)).tolist() == expected
