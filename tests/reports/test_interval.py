"""An axis shows what the number of queries can resolve: it is no shorter than two intervals, and a bar shows one."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import numpy as np
import pytest

from remargin.evaluation.significance import widest_interval
from remargin.reports.figures import LineFigure, Panel, Series, figure_from_json, figure_json

from .drawing import having, lines, one_panel, panels, tick_places

NOISE = Series("ours", [1, 2, 3], [0.922, 0.924, 0.926])


def span(figure: LineFigure) -> float:
    (panel,) = panels(figure)
    values = [value for _, value in tick_places(panel, "y")]
    return max(values) - min(values)


def test_noise_does_not_fill_the_panel() -> None:
    interval = widest_interval(0.924, 500)
    assert interval == pytest.approx(0.0232, abs=1e-4)
    assert span(one_panel(NOISE)) < 0.01
    figure = one_panel(NOISE, interval=interval)
    assert span(figure) >= 4 * interval
    (drawn,) = lines(panels(figure)[0])
    assert [y for _, y in drawn[0]] == pytest.approx(NOISE.y, abs=1e-3)  # the values are where they were


def test_the_bar_is_as_tall_as_the_interval() -> None:
    (panel,) = panels(one_panel(NOISE, interval=0.02))
    (bar,) = having(panel, "bar")
    shape = re.match(r"M\S+ (\S+)V(\S+)M", bar.get("d", ""))
    assert shape is not None
    top, bottom = map(float, shape.groups())
    (low_place, low), *_, (high_place, high) = tick_places(panel, "y")
    assert abs(bottom - top) * (high - low) / abs(high_place - low_place) == pytest.approx(0.04, rel=0.01)
    assert having(panels(one_panel(NOISE))[0], "bar") == []


def test_what_differs_by_more_is_not_squeezed() -> None:
    apart = Series("ours", [1, 2], [0.2, 0.9])
    assert span(one_panel(apart, interval=0.02)) == span(one_panel(apart))


@pytest.mark.parametrize("level", [0.001, 0.5, 0.999])
def test_an_axis_stays_between_0_and_1(level: float) -> None:
    (panel,) = panels(one_panel(Series("ours", [1, 2], [level, level]), interval=0.3))
    ends = [value for _, value in tick_places(panel, "y")]
    assert min(ends) == 0
    assert max(ends) == 1


def test_the_panels_of_a_row_share_the_wider_one() -> None:
    row = [Panel("a", "x", "y", [NOISE], interval=0.02), Panel("b", "x", "y", [NOISE], interval=0.05)]
    figure = LineFigure("n", "t", "c", [row])
    root = ElementTree.fromstring(figure.svg())
    values = [float(tick.text or "") for tick in having(root, "tick") if "y" in (tick.get("class") or "").split()]
    assert max(values) - min(values) == pytest.approx(0.2)
    assert "A bar shows an interval of ±0.05." in figure.svg()
    assert figure_from_json(figure_json(figure)) == figure


def test_no_measure_between_0_and_1_varies_more() -> None:
    """Against the empirical deviation of made-up scores of several shapes."""
    random = np.random.default_rng(0)
    for scores in (random.random(500), random.random(500) ** 4, (random.random(500) < 0.9).astype(float)):
        error = 1.96 * scores.std() / 500**0.5
        assert error <= widest_interval(float(scores.mean()), 500) + 1e-6


def test_an_interval_that_makes_no_sense() -> None:
    for interval in (0.0, -0.1, 0.7):
        with pytest.raises(ValueError, match="an interval of"):
            Panel("", "", "", [], interval=interval)
