"""Points and arrows on the unit circle."""

from __future__ import annotations

import math
import re
from xml.etree import ElementTree

import pytest

from remargin.reports.circles import Arrow, Circle, CirclePanel

from .drawing import circle, having, panels


def angle(x: float, y: float) -> float:
    return math.degrees(math.atan2(-y, x)) % 360


def same_angle(a: float, b: float) -> bool:
    return abs((a - b + 180) % 360 - 180) < 0.1


def test_points_are_on_the_circle_at_their_angles() -> None:
    for panel, given_ in zip(panels(circle()), circle().panels, strict=True):
        dots = having(panel, "point")
        assert len(dots) == 5
        radii = set()
        for dot, (label, expected) in zip(dots, given_.points.items(), strict=True):
            x, y = float(dot.get("cx", "")), float(dot.get("cy", ""))
            assert same_angle(angle(x, y), expected)
            assert (dot.findtext("title") or "").startswith(f"{label}:")
            radii.add(round(math.hypot(x, y), 1))
        assert len(radii) == 1


def test_arrows_end_where_they_should_and_turn_the_right_way() -> None:
    static, spread = panels(circle())
    for arrow, given_ in zip(having(static, "arrow"), circle().panels[0].arrows, strict=True):
        tip = arrow.find("polygon").get("points", "").split()[0]  # type: ignore[union-attr]
        x, y = map(float, tip.split(","))
        assert given_.end is not None
        assert same_angle(angle(x, y), given_.end)
        numbers = re.findall(r"-?[\d.]+", arrow.find("path").get("d", ""))  # type: ignore[union-attr]
        assert same_angle(angle(float(numbers[0]), float(numbers[1])), given_.start)
        large, sweep = numbers[5], numbers[6]
        assert sweep == ("0" if given_.end > given_.start else "1")  # 1 is clockwise on the screen
        assert large == ("1" if abs(given_.end - given_.start) > 180 else "0")
    titles = [arrow.findtext("title") for arrow in having(spread, "arrow")]
    assert titles == ["d-1 moves 2° clockwise", "d-2 does not move"]
    assert [len(arrow.findall("polygon")) for arrow in having(spread, "arrow")] == [1, 0]


def test_sectors_have_their_angles_and_cover_each_other() -> None:
    _, spread = panels(circle())
    for path, sector in zip(having(spread, "sector"), circle().panels[1].sectors, strict=True):
        shape = re.fullmatch(r"M0 0L(\S+) (\S+)A(\S+) \3 0 ([01]) 0 (\S+) (\S+)Z", path.get("d", ""))
        assert shape is not None
        x0, y0, radius, large, x1, y1 = map(float, shape.groups())
        assert same_angle(angle(x0, y0), sector.start)
        assert same_angle(angle(x1, y1), sector.end)
        assert large == (sector.end - sector.start > 180)
        assert math.hypot(x0, y0) == pytest.approx(radius, abs=0.02)
    assert len(having(spread, "sector")) == 2


def test_it_fits_a_column() -> None:
    four = Circle("n", "", "", [CirclePanel("distributed, stopped target", {"q": 90, "d-1": 0})] * 4)
    for width, rows in ((760, 2), (360, 2), (200, 4)):
        drawn = ElementTree.fromstring(four.svg(width=width))
        assert float(drawn.get("width", "")) <= width
        places = {panel.get("transform", "").split()[1] for panel in having(drawn, "panel")}
        assert len(places) == rows
    lines = [text.text for text in having(ElementTree.fromstring(four.svg(width=360)), "strong")]
    assert lines[:2] == ["target", "distributed, stopped"]  # from below


def test_arrows_that_would_cover_each_other_are_apart() -> None:
    arrows = [Arrow("a", 0, end=60), Arrow("b", 30, end=90), Arrow("c", 350, end=370), Arrow("d", 180, end=200)]
    [panel] = panels(Circle("n", "", "", [CirclePanel("", {"a": 0}, arrows)]))
    radii = [re.findall(r"A([\d.]+)", path.get("d", ""))[0] for path in having(panel, "line")]
    assert radii[0] == radii[3]
    assert len(set(radii[:3])) == 3 or radii[1] == radii[2]
    assert radii[0] not in radii[1:3]
