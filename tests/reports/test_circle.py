"""Points and arrows on the unit circle."""

from __future__ import annotations

import math
import re

import pytest

from remargin.reports.figures import (
    Arrow,
    Circle,
    CirclePanel,
)

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
    static, grad = panels(circle())
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
    reach = []
    for arrow, given_ in zip(having(grad, "arrow"), circle().panels[1].arrows, strict=True):
        head = arrow.find("polygon")
        if head is None:
            assert given_.pull == 0
            continue
        x, y = map(float, head.get("points", "").split()[0].split(","))
        reach.append((angle(x, y) - given_.start + 180) % 360 - 180)
    edge = (reach[1] * 4 + reach[0]) / 3  # a pull of -0.4 and one of 0.1, both from the edge of their point
    assert 0 < edge < 8
    assert reach[0] < 0 < reach[1]
    assert (reach[0] + edge) / (reach[1] - edge) == pytest.approx(-4, rel=0.01)
    titles = [arrow.findtext("title") for arrow in having(grad, "arrow")]
    assert titles == [
        "d-1 is pulled with 0.4 clockwise",
        "d-2 is pulled with 0.1 anticlockwise",
        "d-3 is not pulled",
    ]


def test_arrows_that_would_cover_each_other_are_apart() -> None:
    arrows = [Arrow("a", 0, end=60), Arrow("b", 30, end=90), Arrow("c", 350, end=370), Arrow("d", 180, end=200)]
    [panel] = panels(Circle("n", "", "", [CirclePanel("", {"a": 0}, arrows)]))
    radii = [re.findall(r"A([\d.]+)", path.get("d", ""))[0] for path in having(panel, "line")]
    assert radii[0] == radii[3]
    assert len(set(radii[:3])) == 3 or radii[1] == radii[2]
    assert radii[0] not in radii[1:3]
