"""Figures read back from their SVG: what is drawn is what was given."""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
import re
from collections.abc import Callable
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remargin.reports.circles import Arrow, Circle, CirclePanel, Sector
from remargin.reports.figures import (
    Figure,
    LineFigure,
    Panel,
    Point,
    Scatter,
    Series,
    figure_from_json,
    figure_json,
)
from remargin.reports.svg.axes import tick_label, ticks

from .drawing import (
    circle,
    having,
    lines,
    one_panel,
    panels,
    parse,
    reader,
    readers,
    resolution,
    subpaths,
    tick_places,
    tick_value,
)

HOSTILE = "<b>&amp; \"quoted\" 'so' </svg><script>alert(1)</script> ü 損失 مرحبا 🦊"
Place = tuple[float, float]


steps = st.lists(st.integers(0, 10**6), min_size=2, max_size=30, unique=True).map(sorted)
values = st.floats(-1e6, 1e6) | st.floats(0, 1) | st.none() | st.just(math.nan)


@settings(max_examples=60)
@given(st.data(), steps)
def test_the_line_is_the_series(data: st.DataObject, x: list[int]) -> None:
    y = data.draw(st.lists(values, min_size=len(x), max_size=len(x)))
    [panel] = panels(one_panel(Series("a", x, y)))
    drawn = [place for line in lines(panel) for piece in line for place in piece]
    given_ = [(a, b) for a, b in zip(x, y, strict=True) if b is not None and not math.isnan(b)]
    assert len(drawn) == len(given_)
    for (a, b), (c, d) in zip(drawn, given_, strict=True):
        assert abs(a - c) <= resolution(panel, "x")
        assert abs(b - d) <= resolution(panel, "y")
    marks = [e for e in having(panel, "mark") if "alone" not in e.get("class", "")]
    assert len(marks) == (len(given_) if len(given_) <= 25 else 6)


@given(st.floats(-1e9, 1e9), st.floats(1e-6, 1e9), st.integers(2, 10))
def test_ticks_cover_the_range_in_steps_of_1_2_or_5(low: float, extent: float, count: int) -> None:
    high = low + max(extent, 1e-7 * abs(low))
    found = ticks(low, high, count)
    step = found[1] - found[0]
    assert found[0] <= low + 1e-6 * step
    assert found[-1] >= high - 1e-6 * step
    assert found[1] > low - 1e-6 * step
    assert found[-2] < high + 1e-6 * step
    assert 2 <= len(found) <= count + 2
    power = 10 ** math.floor(math.log10(step) + 1e-6)
    assert min(abs(step / power - factor) for factor in (1, 2, 5)) < 1e-3
    labels = [tick_label(tick, step) for tick in found]
    assert len(set(labels)) == len(labels)
    assert [tick_value(label) for label in labels] == pytest.approx(found, abs=1e-3 * step)


def test_missing_values_leave_gaps_and_lone_points_can_be_seen() -> None:
    y = [1.0, 2.0, None, 3.0, math.nan, math.inf, 4.0, 5.0]
    [panel] = panels(one_panel(Series("a", range(8), y)))
    [line] = lines(panel)
    assert [len(piece) for piece in line] == [2, 1, 2]
    assert len(having(panel, "alone")) == 1
    assert not having(panel, "omitted")


@pytest.mark.parametrize("value", [0.0, 0.5, -3.0, 1e-7, 123456.0])
def test_a_constant_has_an_axis_around_it(value: float) -> None:
    [panel] = panels(one_panel(Series("a", [1, 2, 3], [value] * 3)))
    [[piece]] = lines(panel)
    shown = [v for _, v in tick_places(panel, "y")]
    assert shown[0] <= value <= shown[-1]
    assert shown[0] < shown[-1]
    assert [b for _, b in piece] == pytest.approx([value] * 3, abs=resolution(panel, "y"))


def test_a_single_point_is_a_mark() -> None:
    [panel] = panels(one_panel(Series("a", [7], [0.25])))
    [[piece]] = lines(panel)
    assert piece == [pytest.approx((7, 0.25), abs=1e-3)]
    assert having(panel, "alone")


@pytest.mark.parametrize("series", [Series("a", [], []), Series("a", [1, 2], [None, math.nan])])
def test_nothing_to_draw_says_so(series: Series) -> None:
    root = parse(one_panel(series))
    words = list(root.itertext())
    assert "no values" in words
    assert "a (no values)" in words
    assert not having(having(root, "panel")[0], "line")
    assert "nan" not in ElementTree.tostring(root, "unicode").lower()
    assert parse(LineFigure("n", "", "", [[Panel("", "x", "y", [])]])) is not None


def test_a_maximum_is_marked_where_it_is() -> None:
    x, y = list(range(0, 400, 10)), [math.sin(i / 9) for i in range(40)]
    flat = Series("flat", x, [0.5] * 40)
    [panel] = panels(one_panel(Series("wave", x, y), flat, Series("none", x, [None] * 40), mark_maxima=True))
    to_x, to_y = readers(panel)
    dots = having(panel, "maximum")
    places = [(to_x(float(dot.get("cx", ""))), to_y(float(dot.get("cy", "")))) for dot in dots]
    highest = max(y)
    assert places[0] == pytest.approx((x[y.index(highest)], highest), abs=0.05)
    assert places[1] == pytest.approx((0, 0.5), abs=0.05)  # the first of several
    assert [dot.findtext("title") for dot in dots] == ["wave: maximum 0.9999 at 140", "flat: maximum 0.5 at 0"]
    assert not having(panels(one_panel(Series("wave", x, y)))[0], "maximum")


def test_a_gap_leaves_out_what_is_inside_and_connects_the_ends() -> None:
    x = list(range(0, 10_001, 50))
    y = [0.5 if x <= 500 or x >= 9500 else 100.0 for x in x]
    [panel] = panels(one_panel(Series("a", x, y), mark_maxima=True, gap=(500, 9500)))
    assert max(v for _, v in tick_places(panel, "y")) < 1  # what is left out does not stretch the axis
    [line] = [subpaths(e.get("d", "")) for e in having(panel, "line")]
    assert [len(piece) for piece in line] == [11, 11]
    ticks_x = tick_places(panel, "x")
    for piece, numbers in zip(line, (range(0, 501, 50), range(9500, 10_001, 50)), strict=True):
        ruler = reader([(p, v) for p, v in ticks_x if numbers[0] <= v <= numbers[-1]])
        assert [ruler(a) for a, _ in piece] == pytest.approx(list(numbers), abs=0.5)
    [omitted] = having(panel, "omitted")
    assert subpaths(omitted.get("d", "")) == [[line[0][-1], line[1][0]]]
    assert len(having(panel, "break")) == 2
    assert len(having(panel, "maximum")) == 1
    assert having(panel, "maximum")[0].findtext("title") == "a: maximum 0.5 at 0"
    assert all(not 500 < value < 9500 for _, value in ticks_x)
    description = parse(one_panel(Series("a", x, y), gap=(500, 9500))).findtext("desc") or ""
    assert "Not drawn between 500 and 9500: 179 values." in description


def test_a_gap_beside_all_values_is_none() -> None:
    [panel] = panels(one_panel(Series("a", [1, 2, 3], [1, 2, 3]), gap=(500, 9500)))
    [[piece]] = lines(panel)
    assert len(piece) == 3
    assert not having(panel, "break")


def test_a_band_reaches_from_low_to_high() -> None:
    low, high = [0.1, 0.2, None, 0.0, 0.1], [0.9, 0.8, 0.9, 0.7, 0.6]
    [panel] = panels(one_panel(Series("a", [1, 2, 3, 4, 5], [0.5] * 5, low, high)))
    to_x, to_y = readers(panel)
    drawn = []
    for band in having(panel, "band"):
        [piece] = subpaths(band.get("d", ""))
        drawn.append([(to_x(a), to_y(b)) for a, b in piece])
    first, second = drawn
    tolerance = {"abs": 0.01}
    assert list(itertools.chain(*first)) == pytest.approx([1, 0.9, 2, 0.8, 2, 0.2, 1, 0.1], **tolerance)
    assert list(itertools.chain(*second)) == pytest.approx([4, 0.7, 5, 0.6, 5, 0.1, 4, 0.0], **tolerance)
    shown = [v for _, v in tick_places(panel, "y")]
    assert (shown[0], shown[-1]) == (0.0, 1.0)


def test_panels_of_a_row_share_their_axis_and_all_share_the_legend() -> None:
    def panel(title: str, label: str, scale: float) -> Panel:
        series = [Series(name, [0, 1], [0, scale]) for name in ("one", "two")]
        return Panel(title, "static margin", label, series)

    rows = [[panel("left", "nDCG@10", 1), panel("right", "nDCG@10", 4)], [panel("left", "R@100", 50)]]
    figure = LineFigure("n", "T", "", rows)
    found = panels(figure)
    assert len(found) == 3
    assert [bool(tick_places(p, "y")) for p in found] == [True, False, True]
    left, right = (subpaths(having(p, "line")[0].get("d", ""))[0] for p in found[:2])
    (_, bottom), (_, quarter) = left
    (_, _), (_, top) = right
    assert (bottom - quarter) * 4 == pytest.approx(bottom - top, abs=0.1)
    texts = ["".join(g.itertext()) for g in having(parse(figure), "legend")]
    assert texts == ["one", "two"]
    axis_labels = [t.text for t in parse(figure).iter("text") if t.text == "static margin"]
    assert len(axis_labels) == 2  # under the lower panel of each column only


def test_many_series_differ_in_colour_or_dash_and_shape() -> None:
    names = [f"series {i}" for i in range(18)]
    root = parse(one_panel(*(Series(name, [0, 1], [i, i + 1]) for i, name in enumerate(names))))
    looks = []
    for entry in having(root, "legend"):
        [coloured] = [g for g in entry.iter("g") if re.fullmatch(r"k\d", g.get("class", ""))]
        [line] = having(entry, "line")
        looks.append((coloured.get("class"), line.get("stroke-dasharray")))
    assert len(set(looks)) == 18
    assert len({dash for _, dash in looks[:6]}) == 6  # so that the first ones need no colour
    # A line has the look of its name in the legend.
    drawn = [line.get("stroke-dasharray") for line in having(having(root, "panel")[0], "line")]
    assert drawn == [dash for _, dash in looks]


def test_long_lines_are_thinned_and_keep_their_extremes() -> None:
    count = 50_000
    y = [math.sin(i / 7) for i in range(count)]
    y[12_345], y[40_000] = 9.0, -9.0
    figure = one_panel(Series("a", range(count), y))
    [panel] = panels(figure)
    [[piece]] = lines(panel)
    assert len(piece) < 4 * 760
    assert max(b for _, b in piece) == pytest.approx(9, abs=0.05)
    assert min(b for _, b in piece) == pytest.approx(-9, abs=0.05)
    assert piece[0][0] == pytest.approx(0, abs=70)
    assert [a for a, _ in piece] == sorted(a for a, _ in piece)
    assert len(figure.csv().splitlines()) == count + 1


def scatter() -> Scatter:
    points = [Point(0.2, 0.6, "q1", "how do margins adapt"), Point(0.5, 0.5, "q2", HOSTILE), Point(1.0, 0.0, "q3", "")]
    points += [Point(0.0, 1.0, f"r{i}", f"text {i}") for i in range(20)]
    points.append(Point(0.3, 0.1 + 0.2, "q4", "rounding"))
    return Scatter("queries", "Query by query", "", "before, RR", "after, RR", points)


def test_the_scatter_plot_has_every_query_at_its_scores() -> None:
    root = parse(scatter())
    to_x, to_y = readers(root)
    found = {}
    for dot in having(root, "dot"):
        title = dot.findtext("title")
        if title is None:
            continue  # of the legend
        if dot.tag == "circle":
            place = float(dot.get("cx", "")), float(dot.get("cy", ""))
        else:
            corners = _corners(dot.get("d", ""))
            place = tuple(sum(c) / len(c) for c in zip(*corners, strict=True))  # type: ignore[assignment]
        found[title.splitlines()[1].split(":")[0]] = (to_x(place[0]), to_y(place[1]))
    expected = {"q1": (0.2, 0.6), "q2": (0.5, 0.5), "q3": (1.0, 0.0), "r0": (0.0, 1.0), "q4": (0.3, 0.3)}
    assert found.keys() == expected.keys()
    for label, place in expected.items():
        assert found[label] == pytest.approx(place, abs=1e-3)


def _corners(path: str) -> list[Place]:
    if "h" in path:  # a square
        x, y, side = (float(n) for n in re.findall(r"-?[\d.]+", path)[:3])
        return [(x, y), (x + side, y + side)]
    return subpaths(path.replace("z", ""))[0]


def test_the_scatter_plot_counts_sides_and_names_queries() -> None:
    figure = scatter()
    assert figure.counts() == {"above": 21, "on": 2, "below": 1}
    root = parse(figure)
    texts = ["".join(g.itertext()) for g in having(root, "legend")]
    assert texts == ["21 above the diagonal", "2 on the diagonal", "1 below the diagonal"]
    titles = [title.text or "" for dot in having(root, "dot") for title in dot.iter("title")]
    assert any(HOSTILE in title for title in titles)
    [many] = [title for title in titles if "r0" in title]
    assert many.splitlines()[0] == "before, RR 0, after, RR 1"
    assert many.splitlines()[1:3] == ["r0: text 0", "r1: text 1"]
    assert many.splitlines()[-1] == "and 12 more"
    [diagonal] = having(root, "diagonal")
    to_x, to_y = readers(root)
    for x, y in subpaths(diagonal.get("d", ""))[0]:
        assert to_x(x) == pytest.approx(to_y(y), abs=1e-3)
    assert "21 above the diagonal, 2 on it, 1 below it" in (root.findtext("desc") or "")


def test_an_empty_scatter_plot_is_still_one() -> None:
    root = parse(Scatter("n", "T", "", "a", "b", []))
    assert "0 above the diagonal" in "".join(root.itertext())


def figures() -> list[Figure]:
    series = Series("a", [1, 2, 3], [0.5, None, 1 / 3], [0.1, None, 0.2], [0.9, None, 0.4])
    named = Series(HOSTILE, [1, 2.5], [0.1, 0.2])
    rows = [[Panel(HOSTILE, HOSTILE, HOSTILE, [series, named], mark_maxima=True, gap=(1.5, 2.0))]]
    hostile = CirclePanel(HOSTILE, {HOSTILE: 10}, [Arrow(HOSTILE, 10, 30)], {HOSTILE: 20}, [Sector(HOSTILE, 5, 9)])
    return [LineFigure("lines", HOSTILE, HOSTILE, rows), scatter(), circle(), Circle("c", HOSTILE, HOSTILE, [hostile])]


@pytest.mark.parametrize("figure", figures(), ids=lambda figure: figure.name)
def test_svg_is_well_formed_safe_and_described(figure: Figure) -> None:
    inline = figure.svg()
    root = ElementTree.fromstring(inline)
    assert root.get("role") == "img"
    assert (root[0].tag, root[0].text) == ("title", figure.title)
    assert root[1].tag == "desc"
    assert len(root[1].text or "") > 20
    width, height = map(int, root.get("viewBox", "").split()[2:])
    assert (root.get("width"), root.get("height")) == (str(width), str(height))
    tags = {element.tag for element in root.iter()}
    assert tags <= {"svg", "title", "desc", "g", "path", "circle", "text", "tspan", "polygon"}
    assert "http" not in inline
    attributes = {name for element in root.iter() for name in element.attrib}
    assert not [name for name in attributes if name.startswith("on") or "href" in name]
    alone = ElementTree.fromstring(figure.svg(standalone=True))
    assert alone.tag == "{http://www.w3.org/2000/svg}svg"
    assert ".remargin-figure" in (alone.findtext("{*}style") or "")
    assert alone.findtext("{*}title") == figure.title
    shown = [e.text for e in alone.findall(".//{*}text")]
    assert shown == [e.text for e in root.iter("text")]  # no heading of its own


def test_hostile_text_is_shown_as_it_is() -> None:
    shown = [text.text for text in parse(one_panel(Series(HOSTILE, [1, 2], [1, 2]))).iter("text")]
    assert " ".join(HOSTILE.split()) in shown
    broken = one_panel(Series("bell \a null \0 half \ud800 end", [1, 2], [1, 2]))
    assert "bell \\x07 null \\x00 half \\ud800 end" in [text.text for text in parse(broken).iter("text")]


@pytest.mark.parametrize("figure", figures(), ids=lambda figure: figure.name)
def test_figures_survive_json(figure: Figure) -> None:
    text = json.dumps(figure_json(figure), allow_nan=False)
    again = figure_from_json(json.loads(text))
    assert again == figure
    assert again.svg() == figure.svg()


def test_the_csv_has_every_number() -> None:
    lines_figure = figures()[0]
    rows = list(csv.DictReader(io.StringIO(lines_figure.csv())))
    assert list(rows[0]) == ["panel", "series", "x", "y", "low", "high"]
    assert {row["panel"] for row in rows} == {HOSTILE}
    assert [(row["x"], row["y"]) for row in rows] == [
        ("1", "0.5"), ("2", ""), ("3", repr(1 / 3)), ("1", "0.1"), ("2.5", "0.2"),
    ]  # fmt: skip
    assert (rows[0]["low"], rows[0]["high"], rows[1]["low"]) == ("0.1", "0.9", "")
    twins = [[Panel("left", "x", "RR", [])], [Panel("left", "x", "R@5", [Series("a", [1], [2])])]]
    assert "left, R@5" in LineFigure("n", "", "", twins).csv()  # titles alone would not tell them apart


def test_numpy_numbers_become_plain() -> None:
    numpy = pytest.importorskip("numpy")
    series = Series("a", numpy.arange(3), numpy.array([0.5, numpy.nan, 1.5], dtype="float32"))
    assert series.x == [0, 1, 2]
    assert series.y == [0.5, None, 1.5]
    json.dumps(figure_json(one_panel(series)), allow_nan=False)


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: Series("a", [1, 2], [1]), "a: 1 values of y for 2 of x"),
        (lambda: Series("a", [1, math.nan], [1, 2]), "a: an x that is not a number"),
        (lambda: Series("a", [1], [1], low=[0]), "a band needs both low and high"),
        (lambda: Panel("", "", "", [], gap=(3, 3)), "a gap from 3 to 3"),
        (lambda: LineFigure("n", "", "", []), "n: a row without panels"),
        (lambda: LineFigure("n", "", "", [[]]), "n: a row without panels"),
        (lambda: LineFigure("n", "", "", [[Panel("", "", "a", []), Panel("", "", "b", [])]]), "share their y axis"),
        (lambda: Point(math.nan, 1, "q1"), "q1: a score that is not a number"),
        (lambda: Sector("t", 9, 5), "t: a sector from 9° to 5°"),
        (lambda: Sector("t", 0, math.nan), "t: a sector from 0° to nan°"),
        (lambda: Arrow("d", 0, end=400), "d: an arrow around the whole circle"),
        (lambda: Arrow("d", math.inf, end=400), "d: an arrow with a number that is none"),
        (lambda: Circle("c", "", "", []), "c: no panels"),
        (lambda: figure_from_json({"kind": "pie"}), "no figure is of kind 'pie'"),
    ],
)
def test_figures_that_make_no_sense_are_refused(make: Callable[[], object], problem: str) -> None:
    with pytest.raises(ValueError, match=re.escape(problem)):
        make()
