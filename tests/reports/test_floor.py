"""Values far below all others stand at the lower edge with their numbers, and do not flatten the rest."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from remargin.reports.figures import LineFigure, Panel, Series, figure_from_json, figure_json
from remargin.reports.svg.axes import value_axis

SVG = "{http://www.w3.org/2000/svg}"
ONE = Series("one", [0, 1, 2], [0.02, 0.8, 0.7])
OTHER = Series("other", [0, 1, 2], [0.031, 0.75, 0.72])


def figure(floor: float | None, *series: Series) -> LineFigure:
    return LineFigure("margins", "Margins", "", [[Panel("", "margin", "nDCG@10", list(series), floor=floor)]])


def texts(drawn: LineFigure) -> list[str]:
    root = ElementTree.fromstring(drawn.svg(standalone=True))
    return [element.text or "" for element in root.iter(f"{SVG}text")]


def places(drawn: LineFigure) -> list[list[tuple[float, float]]]:
    """Where the points of each line are."""
    paths = re.findall(r'<path d="M([^"]+)" class="line"', drawn.svg())
    lines = [[tuple(map(float, place.split())) for place in path.split("L")] for path in paths if "L" in path]
    return lines  # type: ignore[return-value]


def test_the_axis_is_that_of_the_values_above() -> None:
    labels = [label for _, label in value_axis([0.8, 0.7, 0.75, 0.72], 0, 1).labels()]
    assert [text for text in texts(figure(0.7, ONE, OTHER)) if re.fullmatch(r"0\.\d+", text)] == labels
    assert "0.0" in texts(figure(None, ONE, OTHER))


def test_what_is_below_stands_at_the_edge_with_its_number() -> None:
    drawn = figure(0.7, ONE, OTHER)
    assert [text for text in texts(drawn) if "↓" in text] == ["0.02 ↓", "0.031 ↓"]
    (edge, highest, lower), (other_edge, *_) = places(drawn)
    assert edge[1] == other_edge[1] >= lower[1] > highest[1]
    assert not [text for text in texts(figure(None, ONE)) if "↓" in text]


def test_a_floor_below_everything_changes_nothing() -> None:
    assert texts(figure(0.01, ONE)) == texts(figure(None, ONE))
    assert places(figure(0.01, ONE)) == places(figure(None, ONE))


def test_a_floor_is_that_of_its_own_panel() -> None:
    low, high = Panel("low", "x", "y", [ONE]), Panel("high", "x", "y", [ONE], floor=0.7)
    for row in ([low, high], [high, low]):
        assert "0.0" in texts(LineFigure("two", "Two", "", [row]))


def test_it_is_said_and_kept() -> None:
    drawn = figure(0.7, ONE, OTHER)
    assert "Below 0.7, and so at the lower edge: 2 values." in drawn.svg(standalone=True)
    assert figure_from_json(figure_json(drawn)) == drawn
    assert "one,0,0.02" in drawn.csv()
