"""The scores of two runs against each other, query by query."""

from __future__ import annotations

import pytest

from remargin.errors import InputError
from remargin.reports.figures import scatter_of


def test_scores_of_two_runs_query_by_query() -> None:
    before, after = {"q1": 0.5, "q2": 1.0, "q3": 0.0}, {"q3": 0.0, "q1": 0.75, "q2": 0.5}
    figure = scatter_of({"before": before, "after": after}, {"q1": "how do margins adapt"}, "RR", caption="On test.")
    points = {point.label: (point.x, point.y, point.text) for point in figure.points}
    assert points == {"q1": (0.5, 0.75, "how do margins adapt"), "q2": (1.0, 0.5, ""), "q3": (0.0, 0.0, "")}
    assert figure.counts() == {"above": 1, "on": 1, "below": 1}
    assert (figure.x_label, figure.y_label) == ("before, RR", "after, RR")
    assert figure.title == "before and after, query by query"
    assert figure.caption.startswith("On test. Above the diagonal after is better, below it before.")


def test_scores_that_do_not_belong_together() -> None:
    with pytest.raises(InputError, match="measured on different queries, such as 'q2'"):
        scatter_of({"a": {"q1": 1.0}, "b": {"q1": 1.0, "q2": 0.5}}, {})
    with pytest.raises(InputError, match="a scatter plot of 1 runs; give two"):
        scatter_of({"a": {"q1": 1.0}}, {})
